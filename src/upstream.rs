//! The connections to the apiserver, and Listless's own identity towards it.
//!
//! Invariant: a credential is added only to a request that is sent through [`Own`].

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

use std::net::IpAddr;

use futures_util::future::BoxFuture;
use http::{Request, Response};

use self::health::ConnectFailure;
pub use self::{
    connect::Endpoint,
    own::Own,
    pool::{Judgement, Pool, Settings, Unread},
    throttled::Throttled,
};
use crate::{api::request::Outline, body::Body, error::Chain};

/// The User-Agent of Listless's own requests.
pub const AGENT: &str = concat!("listless/", env!("CARGO_PKG_VERSION"));

/// The set of connections of a request: long requests must never starve short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// For responses that end by themselves.
    Short,
    /// For watches, log follows and other streams that may stay open for hours.
    Long,
}

/// The address of a request's sender, in the request's extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(pub IpAddr);

/// The reason why no response came.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Connecting failed; nothing was sent.
    #[error("cannot connect to the apiserver")]
    Connect(#[source] crate::body::BoxError),
    /// Connecting timed out; nothing was sent.
    #[error("connecting to the apiserver timed out")]
    ConnectTimeout,
    /// The connection broke; the request may have reached the apiserver.
    #[error("the connection to the apiserver broke before a response")]
    Broken(#[source] crate::body::BoxError),
    /// The body of the request broke off or was malformed; the apiserver may have received a part.
    #[error("the request's body ended early or is malformed")]
    RequestBody(#[source] crate::body::BoxError),
    /// Listless's own credentials were not available; nothing was sent.
    #[error("cannot obtain credentials for the apiserver")]
    Credentials(#[source] crate::body::BoxError),
    /// Too many requests or connections are in flight (the named limit was reached).
    #[error("limit reached: {0}")]
    Saturated(&'static str),
}

// === impl Error ===

impl Error {
    /// Returns a copy of the failure; its cause becomes text.
    pub fn copy(&self) -> Self {
        let text = |cause: &crate::body::BoxError| Chain(&**cause).to_string().into();
        match self {
            Self::Connect(cause) => Self::Connect(match cause.downcast_ref::<ConnectFailure>() {
                Some(failure) => Box::new(failure.clone()),
                None => text(cause),
            }),
            Self::ConnectTimeout => Self::ConnectTimeout,
            Self::Broken(cause) => Self::Broken(text(cause)),
            Self::RequestBody(cause) => Self::RequestBody(text(cause)),
            Self::Credentials(cause) => Self::Credentials(text(cause)),
            Self::Saturated(bound) => Self::Saturated(bound),
        }
    }
}

/// A sender of requests to the apiserver; `uri` is path and query only.
///
/// It is a trait to let reflectors and proxies run in simulations.
pub trait Client: Send + Sync + 'static {
    /// Sends one request; the response's body streams.
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>>;

    /// Sends a request that asks to switch protocols, on a connection of its own.
    ///
    /// A response of 101 contains hyper's `OnUpgrade`; any other is a normal response.
    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>>;

    /// Sends like [`Client::send`], for a request whose URL the sender has already parsed.
    fn send_read(
        &self,
        request: Request<Body>,
        lane: Lane,
        _outline: Outline,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.send(request, lane)
    }

    /// Sends like [`Client::upgrade`], for a request whose URL the sender has already parsed.
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
