//! An apiserver that a test defines: it keeps every request whole and responds as configured.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{future::BoxFuture, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use listless::{
    body::{Body, BoxError},
    upstream::{Client, Error, Lane},
};
use tokio::sync::mpsc;

type Answering = dyn Fn(&Kept) -> Response<Body> + Send + Sync;

/// Gives every request the same kind of response; clones share the recorded requests.
#[derive(Clone)]
pub(crate) struct Echo {
    kept: Arc<Mutex<Vec<Kept>>>,
    answer: Arc<Answering>,
}

/// One request as it reached the apiserver.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A piece of a body that is sent in pieces, or the error that breaks it.
pub(crate) type Piece = Result<&'static str, BoxError>;

/// The size limit of a test's requests.
const BODY_BYTES_MAX: usize = 64 << 20;

// === impl Echo ===

impl Echo {
    /// Responds with the result of `answer`.
    pub(crate) fn new(answer: impl Fn(&Kept) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self { kept: Arc::default(), answer: Arc::new(answer) }
    }

    /// Responds 200 with an empty body.
    pub(crate) fn silent() -> Self {
        Self::new(|_| Response::new(Body::empty()))
    }

    /// The last request.
    pub(crate) fn last(&self) -> Kept {
        self.kept.lock().expect("no panic holds it").last().cloned().expect("a request")
    }

    /// The number of requests.
    pub(crate) fn count(&self) -> usize {
        self.kept.lock().expect("no panic holds it").len()
    }

    /// Forgets the requests so far.
    pub(crate) fn forget(&self) {
        self.kept.lock().expect("no panic holds it").clear();
    }

    async fn answered(self, request: Request<Body>) -> Result<Response<Body>, Error> {
        let (head, body) = request.into_parts();
        let body = body.collect(BODY_BYTES_MAX).await.map_err(Error::RequestBody)?;
        let target = head.uri.to_string();
        let kept = Kept { method: head.method, target, headers: head.headers, body };
        let answer = (self.answer)(&kept);
        self.kept.lock().expect("no panic holds it").push(kept);
        Ok(answer)
    }
}

impl Client for Echo {
    fn send(
        &self,
        request: Request<Body>,
        _: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        Box::pin(self.clone().answered(request))
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        Box::pin(self.clone().answered(request))
    }
}

/// A body that the test sends piece by piece; dropping the sender ends it.
pub(crate) fn piped() -> (mpsc::Sender<Piece>, Body) {
    let (sender, receiver) = mpsc::channel::<Piece>(4);
    let frames = stream::unfold(receiver, |mut receiver| async {
        let piece = receiver.recv().await?;
        Some((piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))), receiver))
    });
    (sender, Body::wrap(StreamBody::new(frames)))
}
