//! The apiserver as seen from here: connections, and our own identity towards it.
//!
//! Invariant: nothing here adds a credential to a request unless it was sent through [`Own`].

pub mod connect;
pub mod dial;
pub mod expiry;
pub mod health;
pub mod identity;
mod own;
pub mod pool;
mod slot;
mod socket;
mod throttled;
pub mod tunnel;

use futures_util::future::BoxFuture;
use http::{Request, Response};

use self::health::ConnectFailure;
pub use self::{
    connect::Endpoint,
    own::Own,
    pool::{Pool, Settings},
    throttled::Throttled,
};
use crate::{api::request::Outline, body::Body, error::Chain};

/// Which connections a request may use: long ones must never starve short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Answers that end by themselves.
    Short,
    /// Watches, log follows and other streams that may stay open for hours.
    Long,
}

/// Why no response came.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was sent.
    #[error("connecting to the apiserver failed")]
    Connect(#[source] crate::body::BoxError),
    /// Nothing was sent.
    #[error("connecting to the apiserver timed out")]
    ConnectTimeout,
    /// The request may have reached the apiserver.
    #[error("the connection to the apiserver broke before an answer came")]
    Broken(#[source] crate::body::BoxError),
    /// Nothing was sent.
    #[error("own credentials could not be obtained")]
    Credentials(#[source] crate::body::BoxError),
    /// Too many requests or connections are in flight (a named bound was reached).
    #[error("upstream capacity reached: {0}")]
    Saturated(&'static str),
}

// === impl Error ===

impl Error {
    /// Returns the same failure once more; a cause is kept as its text.
    pub fn copy(&self) -> Self {
        let text = |cause: &crate::body::BoxError| Chain(&**cause).to_string().into();
        match self {
            Self::Connect(cause) => Self::Connect(match cause.downcast_ref::<ConnectFailure>() {
                Some(failure) => Box::new(failure.clone()),
                None => text(cause),
            }),
            Self::ConnectTimeout => Self::ConnectTimeout,
            Self::Broken(cause) => Self::Broken(text(cause)),
            Self::Credentials(cause) => Self::Credentials(text(cause)),
            Self::Saturated(bound) => Self::Saturated(bound),
        }
    }
}

/// Something that sends requests to the apiserver; `uri` is path and query only.
///
/// A trait so that reflectors and proxies run in simulations.
pub trait Client: Send + Sync + 'static {
    /// Sends one request; the response's body still streams.
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>>;

    /// Sends a request that asks to switch protocols, on a connection of its own.
    ///
    /// An answer of 101 carries hyper's `OnUpgrade`; any other is a normal response.
    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>>;

    /// Like [`Client::send`], for a request whose URL the sender has read already.
    fn send_read(
        &self,
        request: Request<Body>,
        lane: Lane,
        _outline: Outline,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.send(request, lane)
    }

    /// Like [`Client::upgrade`], for a request whose URL the sender has read already.
    fn upgrade_read(
        &self,
        request: Request<Body>,
        _outline: Outline,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.upgrade(request)
    }
}

#[cfg(test)]
mod tests;
