//! A fake apiserver: every request waits until the test responds.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body::Frame;
use tokio::sync::{mpsc, oneshot};

use crate::{
    body::{Body, BoxError},
    upstream::{Client, Error, Lane},
};

/// The client that replicas get.
pub(super) struct Fake(mpsc::UnboundedSender<Call>);

/// The requests to it, in order.
pub(super) struct Calls(mpsc::UnboundedReceiver<Call>);

/// A request to respond to; if it is dropped, the request fails.
pub(super) struct Call {
    pub uri: String,
    pub lane: Lane,
    pub headers: http::HeaderMap,
    answer: oneshot::Sender<Result<Response<Body>, Error>>,
}

/// A body that the test sends in chunks; if it is dropped, the body ends cleanly.
pub(super) struct Pipe(mpsc::UnboundedSender<Result<Bytes, BoxError>>);

struct PipeBody(mpsc::UnboundedReceiver<Result<Bytes, BoxError>>);

/// The longest wait of a test, in virtual time.
const PATIENCE: Duration = Duration::from_secs(3600);

pub(super) fn fake() -> (Arc<Fake>, Calls) {
    #[expect(clippy::disallowed_methods, reason = "a test sends a bounded number of messages")]
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(Fake(sender)), Calls(receiver))
}

impl Client for Fake {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let (answer, answered) = oneshot::channel();
        let uri = request.uri().to_string();
        let headers = request.headers().clone();
        // The receiver is gone when the test is over.
        let _ = self.0.send(Call { uri, lane, headers, answer });
        async move { answered.await.unwrap_or_else(|gone| Err(Error::Broken(gone.into()))) }.boxed()
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.send(request, Lane::Long)
    }
}

impl Calls {
    /// Returns the next request.
    pub(super) async fn next(&mut self) -> Call {
        let next = tokio::time::timeout(PATIENCE, self.0.recv()).await;
        next.expect("a request in time").expect("the client lives")
    }

    /// Returns the next request, which must be for this URI.
    pub(super) async fn expect(&mut self, uri: &str) -> Call {
        let call = self.next().await;
        assert_eq!(call.uri, uri);
        call
    }

    /// Returns the next request, which must be a watch from this version.
    pub(super) async fn expect_watch(&mut self, version: u64) -> Call {
        let call = self.next().await;
        let part = format!(
            "watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds="
        );
        assert!(call.uri.contains(&part), "{}", call.uri);
        call
    }

    /// Returns the next watch, which must be from this version. The storage must be asked for its
    /// version first, and answers with the same.
    pub(super) async fn expect_watch_after_break(&mut self, version: u64) -> Call {
        let call = self.next().await;
        assert!(call.uri.contains("listless-probe"), "{}", call.uri);
        call.json(200, super::fixture::list(version, &[]));
        self.expect_watch(version).await
    }

    /// Checks that no request arrives during that time.
    pub(super) async fn expect_none(&mut self, during: Duration) {
        if let Ok(call) = tokio::time::timeout(during, self.0.recv()).await {
            panic!("unexpected request for {:?}", call.map(|call| call.uri));
        }
    }
}

impl Call {
    /// Responds with JSON.
    pub(super) fn json(self, status: u16, body: impl Into<String>) {
        self.with(status, "application/json", &[], Body::full(body.into()));
    }

    /// Responds with any media type and headers.
    pub(super) fn with(self, status: u16, media: &str, headers: &[(&str, &str)], body: Body) {
        let mut answer = Response::builder().status(status).header("content-type", media);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        // The caller may have left meanwhile.
        let _ = self.answer.send(Ok(answer.body(body).expect("an answer")));
    }

    /// Responds 200 with a body that is still to come.
    pub(super) fn pipe(self) -> Pipe {
        #[expect(clippy::disallowed_methods, reason = "a test sends a bounded number of messages")]
        let (sender, receiver) = mpsc::unbounded_channel();
        self.with(200, "application/json", &[], Body::wrap(PipeBody(receiver)));
        Pipe(sender)
    }
}

impl Pipe {
    pub(super) fn send(&self, piece: impl Into<Bytes>) {
        self.0.send(Ok(piece.into())).expect("somebody reads");
    }

    pub(super) fn fail(self) {
        self.0.send(Err("connection reset".into())).expect("somebody reads");
    }

    /// Reports whether the reader has left.
    pub(super) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl http_body::Body for PipeBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
