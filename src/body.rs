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

/// A body and its observer.
struct Observed<O> {
    body: Body,
    observer: O,
    /// The remaining length, if it is known: a reader that has all bytes does not poll again.
    remaining: Option<u64>,
}

/// An observer of a body's bytes.
pub trait Observer: Send + Unpin + 'static {
    /// Notes the next bytes before the reader gets them.
    fn passed(&mut self, _bytes: &Bytes) {}

    /// Notes that all bytes have passed. It may be called more than once.
    fn ended(&mut self) {}

    /// Notes that the body broke off.
    fn broke(&mut self, _error: &BoxError) {}
}

/// An observer that does nothing: it only lives as long as the body.
struct Guard<G>(G);

/// The memory of a piece in a queue beside its bytes, estimated: many tiny pieces are large.
pub const PIECE_OVERHEAD_BYTES: usize = 128;

/// The size from which a piece is sent without copying.
pub const WHOLE_BYTES_MIN: usize = 4 * 1024;

/// The size of frames of small pieces.
const FRAME_BYTES: usize = 64 * 1024;

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

    /// Returns a body of several pieces, whose length is known. Large ones are sent without copying,
    /// small ones together: many small writes cost far more than a copy.
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
            Inner::Incoming(_) | Inner::Boxed(_) => self.observed(Guard(guard)),
        }
    }

    /// Shows the bytes to an observer as they pass.
    #[must_use]
    pub fn observed(self, observer: impl Observer) -> Self {
        let remaining = http_body::Body::size_hint(&self).exact();
        let mut observed = Observed { body: self, observer, remaining };
        observed.look_for_the_end();
        Self(Inner::Boxed(UnsyncBoxBody::new(observed)))
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
            Inner::Chunks { chunks, remaining } => Poll::Ready(next_frame(chunks).map(|chunk| {
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

/// Takes the next large piece, or small ones together.
fn next_frame(chunks: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = chunks.pop_front()?;
    let is_small = |chunk: &Bytes| chunk.len() < WHOLE_BYTES_MIN;
    if !is_small(&first) || !chunks.front().is_some_and(is_small) {
        return Some(first);
    }
    let mut bytes = first.len();
    let fits = |chunk: &&Bytes| {
        bytes += chunk.len();
        is_small(chunk) && bytes <= FRAME_BYTES
    };
    let count = chunks.iter().take_while(fits).count();
    let length = first.len() + chunks.iter().take(count).map(Bytes::len).sum::<usize>();
    let mut frame = Vec::with_capacity(length);
    frame.extend_from_slice(&first);
    chunks.drain(..count).for_each(|chunk| frame.extend_from_slice(&chunk));
    Some(frame.into())
}

// === impl Observed ===

impl<O: Observer> Observed<O> {
    fn look_for_the_end(&mut self) {
        if self.remaining == Some(0) || http_body::Body::is_end_stream(&self.body) {
            self.observer.ended();
        }
    }
}

impl<O: Observer> http_body::Body for Observed<O> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(bytes) = frame.data_ref() {
                    self.observer.passed(bytes);
                    let length = bytes.len() as u64;
                    self.remaining = self.remaining.map(|left| left.saturating_sub(length));
                }
                self.look_for_the_end();
            }
            Poll::Ready(Some(Err(error))) => self.observer.broke(error),
            Poll::Ready(None) => self.observer.ended(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<G: Send + Unpin + 'static> Observer for Guard<G> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn small_pieces_are_sent_together_and_large_ones_as_they_are() {
        let lengths = [10, 20, WHOLE_BYTES_MIN, 5, 100_000, 7, 8];
        let small = std::iter::repeat_n(3_000, 60);
        let lengths: Vec<_> = lengths.into_iter().chain(small).collect();
        let pieces: VecDeque<Bytes> = lengths
            .iter()
            .enumerate()
            .map(|(index, length)| Bytes::from(vec![index as u8; *length]))
            .collect();
        let large = [pieces[2].as_ptr(), pieces[4].as_ptr()];
        let expected: Vec<u8> = pieces.iter().flatten().copied().collect();
        let mut body = Body::chunks(pieces);
        let (mut sent, mut frames) = (Vec::new(), Vec::new());
        while let Some(frame) = body.frame().await {
            let data = frame.expect("in memory").into_data().expect("data");
            sent.extend_from_slice(&data);
            let remaining = http_body::Body::size_hint(&body).exact().expect("known");
            assert_eq!(sent.len() as u64 + remaining, expected.len() as u64);
            frames.push(data);
        }
        assert_eq!(sent, expected);
        let lengths: Vec<_> = frames.iter().map(Bytes::len).collect();
        let together = [7 + 8 + 21 * 3_000, 21 * 3_000, 18 * 3_000];
        assert_eq!(lengths, [&[30, WHOLE_BYTES_MIN, 5, 100_000], &together[..]].concat());
        assert_eq!([frames[1].as_ptr(), frames[3].as_ptr()], large);
    }
}
