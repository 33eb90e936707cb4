//! The one body type of responses and forwarded requests.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use hyper::body::Incoming;

/// Any error while a body is read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body whose bytes are in memory, still arriving, or both.
pub struct Body(Inner);

enum Inner {
    Chunks { chunks: VecDeque<Bytes>, remaining: u64 },
    Incoming(Incoming),
    Boxed(UnsyncBoxBody<Bytes, BoxError>),
}

/// A body and a guard that lives as long as it.
struct Holding<G> {
    body: Body,
    _guard: G,
}

// === impl Body ===

impl Body {
    /// Returns an empty body.
    pub fn empty() -> Self {
        Self::chunks(VecDeque::new())
    }

    /// Returns a body of one piece.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::chunks(VecDeque::from([bytes.into()]))
    }

    /// Returns a body of several pieces. They are sent in order without copying, and the length is
    /// known.
    pub fn chunks(chunks: VecDeque<Bytes>) -> Self {
        let remaining = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        Self(Inner::Chunks { chunks, remaining })
    }

    /// Returns a body that arrives from a peer.
    pub fn incoming(incoming: Incoming) -> Self {
        Self(Inner::Incoming(incoming))
    }

    /// Wraps any other body.
    pub fn wrap<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Inner::Boxed(body.map_err(Into::into).boxed_unsync()))
    }

    /// Holds `guard` until the body is sent. Not for bytes that are already in memory.
    #[must_use]
    pub fn holding(self, guard: impl Send + Unpin + 'static) -> Self {
        match self.0 {
            Inner::Chunks { .. } => self,
            Inner::Incoming(_) | Inner::Boxed(_) => {
                Self::wrap(Holding { body: self, _guard: guard })
            }
        }
    }

    /// Reads the whole body, at most `bytes_max` bytes.
    pub async fn collect(self, bytes_max: usize) -> Result<Bytes, BoxError> {
        let limited = http_body_util::Limited::new(self, bytes_max);
        Ok(limited.collect().await?.to_bytes())
    }
}

impl std::fmt::Debug for Body {
    /// Never prints the content of the body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Body").finish_non_exhaustive()
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Inner::Chunks { chunks, remaining } => Poll::Ready(chunks.pop_front().map(|chunk| {
                *remaining -= chunk.len() as u64;
                Ok(Frame::data(chunk))
            })),
            Inner::Incoming(incoming) => Pin::new(incoming).poll_frame(cx).map_err(Into::into),
            Inner::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Chunks { chunks, .. } => chunks.is_empty(),
            Inner::Incoming(incoming) => incoming.is_end_stream(),
            Inner::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Chunks { remaining, .. } => SizeHint::with_exact(*remaining),
            Inner::Incoming(incoming) => incoming.size_hint(),
            Inner::Boxed(body) => body.size_hint(),
        }
    }
}

// === impl Holding ===

impl<G: Unpin> http_body::Body for Holding<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
