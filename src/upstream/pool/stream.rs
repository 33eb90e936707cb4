//! The two directions of one HTTP/2 stream as bodies.
//!
//! Invariant: bytes move only as fast as the reader takes them, and a truncated response never
//! looks complete.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http_body::{Body as _, Frame, SizeHint};

use super::backlog::{Arriving, Backlog};
use crate::{
    body::{Body, BoxError},
    upstream::slot::Slot,
};

/// The limit of one request's body that is kept for a retry.
pub(in crate::upstream) const KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The limit of all bodies of one pool that are kept for a retry.
const KEPT_TOTAL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A request's body in progress; resolves when the connection has accepted all of it.
pub(super) struct Upload {
    body: Body,
    stream: SendStream<Bytes>,
    kept: Kept,
    /// `true` once the first frame was sent, which needs no capacity: so it is written together with
    /// the headers. The HTTP library holds back what the peer does not want yet.
    begun: bool,
}

/// The memory of one pool for bodies that are kept for a retry.
#[derive(Clone, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

/// The frames of a body that were sent, as long as they fit.
struct Kept {
    frames: VecDeque<Frame<Bytes>>,
    bytes: usize,
    whole: bool,
    budget: Budget,
}

/// The frames that were sent before, then the rest.
struct Again {
    kept: Kept,
    rest: Body,
}

/// The reason why an upload ended early.
pub(super) enum UploadError {
    /// The body could not be read; the stream was reset.
    Body(BoxError),
    /// The peer does not want the rest.
    Stream,
}

/// A response's body; holds its slot until the stream ended.
pub(super) struct Download {
    stream: Arc<Arriving>,
    slot: Option<Slot>,
    remaining: Option<u64>,
    part: Part,
}

#[derive(Clone, Copy)]
enum Part {
    Data,
    Trailers,
    Ended,
}

// === impl Upload ===

impl Upload {
    pub(super) fn new(body: Body, stream: SendStream<Bytes>, budget: Budget) -> Self {
        let kept = Kept { frames: VecDeque::new(), bytes: 0, whole: true, budget };
        Self { body, stream, kept, begun: false }
    }

    /// Returns the body as it was before its first frame was taken, if that was kept.
    pub(super) fn again(self) -> Option<Body> {
        match (self.kept.whole, self.kept.frames.is_empty()) {
            (false, _) => None,
            (true, true) => Some(self.body),
            (true, false) => Some(Body::wrap(Again { kept: self.kept, rest: self.body })),
        }
    }

    /// Keeps nothing from now on: the response has arrived.
    pub(super) fn forget(&mut self) {
        self.kept.forget();
    }

    /// Waits until the peer wants bytes; fails when it does not want the rest.
    fn poll_wanted(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        if self.stream.capacity() == 0 {
            self.stream.reserve_capacity(1);
            while self.stream.capacity() == 0 {
                match ready!(self.stream.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(Err(UploadError::Stream)),
                }
            }
        }
        match self.stream.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(Err(UploadError::Stream)),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    fn send(&mut self, frame: Frame<Bytes>) -> Result<bool, UploadError> {
        match frame.into_data() {
            Ok(data) => {
                let last = self.body.is_end_stream();
                if last || !data.is_empty() {
                    self.stream.send_data(data, last).map_err(|_| UploadError::Stream)?;
                }
                Ok(last)
            }
            Err(frame) => {
                let Ok(trailers) = frame.into_trailers() else { return Ok(false) };
                self.stream.send_trailers(trailers).map_err(|_| UploadError::Stream)?;
                Ok(true)
            }
        }
    }
}

impl Future for Upload {
    type Output = Result<(), UploadError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if self.begun {
                ready!(self.poll_wanted(cx))?;
            } else if self.stream.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(UploadError::Stream));
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    self.begun = true;
                    self.kept.keep(&frame);
                    if self.send(frame)? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Some(Err(error)) => {
                    self.kept.forget();
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(Err(UploadError::Body(error)));
                }
                None => {
                    let sent = self.stream.send_data(Bytes::new(), true);
                    return Poll::Ready(sent.map_err(|_| UploadError::Stream));
                }
            }
        }
    }
}

// === impl Kept ===

impl Kept {
    fn keep(&mut self, frame: &Frame<Bytes>) {
        if !self.whole {
            return;
        }
        let copy = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) => Frame::data(data.clone()),
            (None, Some(trailers)) => Frame::trailers(trailers.clone()),
            (None, None) => return,
        };
        // A frame costs more than its bytes: a body of many tiny ones must not pass the limit.
        let length = copy.data_ref().map_or(0, Bytes::len) + size_of::<Frame<Bytes>>();
        if self.bytes + length > KEPT_BYTES_MAX || !self.budget.take(length) {
            return self.forget();
        }
        self.bytes += length;
        self.frames.push_back(copy);
    }

    fn forget(&mut self) {
        self.whole = false;
        self.frames.clear();
        self.budget.give_back(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

// === impl Budget ===

impl Budget {
    fn take(&self, bytes: usize) -> bool {
        let below = |used: usize| Some(used + bytes).filter(|sum| *sum <= KEPT_TOTAL_BYTES_MAX);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, below).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::AcqRel);
    }
}

// === impl Again ===

impl http_body::Body for Again {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.kept.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.kept.frames.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let kept: u64 =
            self.kept.frames.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum();
        match self.rest.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(kept + rest),
            None => SizeHint::default(),
        }
    }
}

// === impl Download ===

impl Download {
    /// Returns the body of a response whose head states `length`.
    pub(super) fn body(
        stream: RecvStream,
        length: Option<u64>,
        slot: Slot,
        backlog: &Backlog,
    ) -> Body {
        if stream.is_end_stream() {
            return Body::empty();
        }
        let stream = backlog.add(stream);
        Body::wrap(Self { stream, slot: Some(slot), remaining: length, part: Part::Data })
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        let polled = ready!(self.stream.poll_data(cx));
        if let Some(Ok(data)) = &polled {
            self.remaining = self.remaining.map(|left| left.saturating_sub(data.len() as u64));
            if self.stream.is_end_stream() {
                self.slot = None;
            }
        }
        Poll::Ready(polled)
    }

    fn end(&mut self) {
        self.part = Part::Ended;
        self.slot = None;
    }
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Part::Data = self.part {
            match ready!(self.poll_data(cx)) {
                Some(Ok(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Some(Err(error)) => {
                    self.end();
                    return Poll::Ready(Some(Err(error)));
                }
                None => self.part = Part::Trailers,
            }
        }
        if let Part::Trailers = self.part {
            let trailers = ready!(self.stream.poll_trailers(cx));
            self.end();
            return Poll::Ready(match trailers {
                Ok(Some(trailers)) => Some(Ok(Frame::trailers(trailers))),
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            });
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.part, Part::Ended) || self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_tiny_frames_is_kept_no_longer_than_its_memory_allows() {
        let budget = Budget::default();
        let (frames, bytes, whole) = (VecDeque::new(), 0, true);
        let mut kept = Kept { frames, bytes, whole, budget: budget.clone() };
        let frame = Frame::data(Bytes::from_static(b"x"));
        for _ in 0..KEPT_BYTES_MAX / size_of::<Frame<Bytes>>() {
            kept.keep(&frame);
        }
        assert!(!kept.whole && kept.frames.is_empty(), "{} frames", kept.frames.len());
        assert_eq!(budget.0.load(Ordering::Acquire), 0, "what is forgotten is given back");
    }
}
