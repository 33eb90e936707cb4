//! The few requests that the injector and `listless check` send to the apiserver: whole objects, as
//! JSON.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use crate::{
    body::{Body, BoxError},
    upstream::{self, Client, Lane},
};

/// The reason why there is no usable response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request cannot be built.
    #[error("cannot build the request for {0}")]
    Request(String, #[source] BoxError),
    /// There was no response.
    #[error("{0}: no response")]
    Unanswered(String, #[source] upstream::Error),
    /// The response ended early, or was too large.
    #[error("{0}: cannot read the response")]
    Broken(String, #[source] BoxError),
    /// There was no response in time.
    #[error("{0}: no response in time")]
    Timeout(String),
    /// The apiserver refused the request.
    #[error("{path}: {code}: {message}")]
    Refused {
        /// The path.
        path: String,
        /// The HTTP status.
        code: StatusCode,
        /// The message.
        message: String,
    },
}

/// The maximum size of a response: a hundred objects of usual size, or two of the largest.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The timeout for a response.
const TIMEOUT: Duration = Duration::from_secs(10);

// === impl Error ===

impl Error {
    /// Reports whether another writer was faster, so that an immediate retry is useful.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Refused { code: StatusCode::CONFLICT, .. })
    }

    /// Reports whether a retry is useless.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { code: StatusCode::FORBIDDEN, .. })
    }
}

/// Reads one object.
pub async fn get(client: &dyn Client, path: &str) -> Result<Value, Error> {
    send(client, Method::GET, path, None).await
}

/// Replaces one object. Its resourceVersion guards against lost updates.
pub async fn put(client: &dyn Client, path: &str, object: &Value) -> Result<Value, Error> {
    send(client, Method::PUT, path, Some(("application/json", object))).await
}

/// Merges fields into one object. A resourceVersion among them guards against lost updates.
pub async fn merge(client: &dyn Client, path: &str, fields: &Value) -> Result<Value, Error> {
    send(client, Method::PATCH, path, Some(("application/merge-patch+json", fields))).await
}

/// Creates one object.
pub async fn post(client: &dyn Client, path: &str, object: &Value) -> Result<Value, Error> {
    send(client, Method::POST, path, Some(("application/json", object))).await
}

/// Creates one object. Also returns the response's headers, which contain warnings.
pub async fn post_heeding(
    client: &dyn Client,
    path: &str,
    object: &Value,
) -> Result<(HeaderMap, Value), Error> {
    exchange(client, Method::POST, path, Some(("application/json", object))).await
}

async fn send(
    client: &dyn Client,
    method: Method,
    path: &str,
    body: Option<(&'static str, &Value)>,
) -> Result<Value, Error> {
    exchange(client, method, path, body).await.map(|(_, object)| object)
}

async fn exchange(
    client: &dyn Client,
    method: Method,
    path: &str,
    body: Option<(&'static str, &Value)>,
) -> Result<(HeaderMap, Value), Error> {
    let mut request =
        Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
    let body = match body {
        None => Body::empty(),
        Some((kind, object)) => {
            request = request.header(header::CONTENT_TYPE, kind);
            Body::full(Bytes::from(object.to_string()))
        }
    };
    let of = || path.to_owned();
    let request = request.body(body).map_err(|error| Error::Request(of(), error.into()))?;
    let answer = async {
        let response = client.send(request, Lane::Short).await;
        let (head, body) = response.map_err(|error| Error::Unanswered(of(), error))?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Error::Broken(of(), error))?.to_bytes();
        Ok::<_, Error>((head, body))
    };
    let answer = tokio::time::timeout(TIMEOUT, answer).await;
    let (head, body) = answer.map_err(|_| Error::Timeout(of()))??;
    let object: Value = serde_json::from_slice(&body).unwrap_or_default();
    if head.status.is_success() {
        return Ok((head.headers, object));
    }
    let message = object["message"].as_str().unwrap_or("(no message)").to_owned();
    Err(Error::Refused { path: of(), code: head.status, message })
}
