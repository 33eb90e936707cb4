//! The one place that turns a failure into a Status answer.

use http::Response;

use crate::{api::request::RequestInfo, body::Body, upstream};

/// Why a request has no answer of its own.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The apiserver did not answer.
    #[error("the apiserver did not answer")]
    Upstream(#[source] upstream::Error),
}

impl Error {
    /// The apiserver did not answer this request.
    pub fn upstream(error: upstream::Error, _info: &RequestInfo) -> Self {
        Self::Upstream(error)
    }

    /// The word for logs and Cache-Status.
    pub fn as_str(&self) -> &'static str {
        "upstream"
    }

    /// The answer.
    pub fn into_response(self) -> Response<Body> {
        Response::new(Body::empty())
    }
}
