//! The two directions of one HTTP/2 stream as bodies.
//!
//! Invariant: bytes move only as fast as the reader takes them, and a response that was cut off
//! never looks complete.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream};
use http_body::{Body as _, Frame, SizeHint};

use crate::{
    body::{Body, BoxError},
    upstream::slot::Slot,
};

/// A request's body on its way; resolves when all of it was handed to the connection.
pub(super) struct Upload {
    body: Body,
    stream: SendStream<Bytes>,
    touched: bool,
}

/// Why an upload ended early.
pub(super) enum UploadError {
    /// The body could not be read; the stream was reset.
    Body(BoxError),
    /// The peer wants no more of it.
    Stream,
}

/// A response's body; holds its slot until the stream ended.
pub(super) struct Download {
    stream: RecvStream,
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
    pub(super) fn new(body: Body, stream: SendStream<Bytes>) -> Self {
        Self { body, stream, touched: false }
    }

    /// The body, if nothing was taken from it.
    pub(super) fn untouched(self) -> Option<Body> {
        (!self.touched).then_some(self.body)
    }

    /// Waits until the peer wants bytes; fails when it wants none any more.
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
            ready!(self.poll_wanted(cx))?;
            self.touched = true;
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if self.send(frame)? {
                        return Poll::Ready(Ok(()));
                    }
                }
                Some(Err(error)) => {
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

// === impl Download ===

impl Download {
    /// The body of a response whose head said `length`.
    pub(super) fn body(stream: RecvStream, length: Option<u64>, slot: Slot) -> Body {
        if stream.is_end_stream() {
            return Body::empty();
        }
        Body::wrap(Self { stream, slot: Some(slot), remaining: length, part: Part::Data })
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, h2::Error>>> {
        let data = match ready!(self.stream.poll_data(cx)) {
            Some(Ok(data)) => data,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(None),
        };
        // Fails only on a stream that has ended, which has no window any more.
        let _ = self.stream.flow_control().release_capacity(data.len());
        self.remaining = self.remaining.map(|left| left.saturating_sub(data.len() as u64));
        if self.stream.is_end_stream() {
            self.slot = None;
        }
        Poll::Ready(Some(Ok(data)))
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
                    return Poll::Ready(Some(Err(error.into())));
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
                Err(error) => Some(Err(error.into())),
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
