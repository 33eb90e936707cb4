//! HTTP/1.1 connections to servers without HTTP/2, for one request at a time each.
//!
//! Invariant: a connection is reused only after its last response was read to its end; hyper closes
//! it otherwise.

use std::sync::Weak;

use http::{HeaderValue, Request, Response, header::HOST, request::Parts};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use tracing::debug;

use super::{http2::RequestFailure, lane::Lane, strip_connection_headers};
use crate::{
    body::{Body, BoxError, Observer},
    upstream::{dial::Stream, slot::Slot, socket},
};

/// One connection that takes a request when idle.
pub(super) struct Http1 {
    sender: SendRequest<Body>,
}

/// The connection of a response, which returns to its lane at the end of the body.
struct Busy {
    connection: Option<Http1>,
    lane: Weak<Lane>,
}

// === impl Http1 ===

impl Http1 {
    /// Starts a connection, which holds its slot until it is closed.
    pub(super) async fn start(stream: Box<dyn Stream>, place: Slot) -> Result<Self, hyper::Error> {
        let stream = TokioIo::new(socket::holding(stream, place, None));
        let (sender, connection) = Builder::new().handshake(stream).await?;
        tokio::spawn(async move {
            let outcome = connection.await;
            debug!(?outcome, "connection to the apiserver ended");
        });
        Ok(Self { sender })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends one request; the connection returns to `lane` when the response was read.
    pub(super) async fn send(
        mut self,
        head: &Parts,
        body: Body,
        host: &HeaderValue,
        lane: Weak<Lane>,
    ) -> Result<Response<Body>, RequestFailure> {
        if let Err(error) = self.sender.ready().await {
            return Err(RequestFailure::Unopened(Box::new(body), error.into()));
        }
        match self.sender.try_send_request(request(head, body, host)).await {
            Ok(mut response) => {
                strip_connection_headers(response.headers_mut());
                // After a switch of protocols, the connection is no longer HTTP.
                let connection = (!response.status().is_informational()).then_some(self);
                let busy = Busy { connection, lane };
                Ok(response.map(|incoming| Body::incoming(incoming).observed(busy)))
            }
            Err(mut error) => Err(match error.take_message() {
                Some(request) => {
                    RequestFailure::Unsent(Box::new(request.into_body()), error.into_error().into())
                }
                None => match error.into_error() {
                    error if error.is_user() => RequestFailure::RequestBody(error.into()),
                    error => RequestFailure::Broken(error.into()),
                },
            }),
        }
    }
}

fn request(head: &Parts, body: Body, host: &HeaderValue) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = path_only(&head.uri);
    *request.headers_mut() = head.headers.clone();
    request.headers_mut().insert(HOST, host.clone());
    request
}

fn path_only(uri: &http::Uri) -> http::Uri {
    uri.path_and_query().map(|path| http::Uri::from(path.clone())).unwrap_or_default()
}

// === impl Busy ===

impl Observer for Busy {
    fn ended(&mut self) {
        if let (Some(connection), Some(lane)) = (self.connection.take(), self.lane.upgrade()) {
            lane.give_back(connection);
        }
    }

    fn broke(&mut self, _: &BoxError) {
        self.connection = None;
    }
}
