//! A client connection as the HTTP library reads it: checked, counted, and with a timeout for
//! heads.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

use super::guard::{Guard, Verdict};
use crate::{
    metrics::{Metrics, Presence, Protocol},
    places,
};

/// A byte stream that frees its connection slot when it is dropped, tunnels included.
pub(super) struct Socket<S> {
    stream: S,
    /// The guard, for HTTP/1 only.
    guard: Option<HeadGuard>,
    /// The connection slot; `None` inside a tunnel, whose outer connection has it.
    place: Option<SocketPlace>,
}

/// A connection slot and the record of its owner.
pub(super) struct SocketPlace {
    metrics: Metrics,
    _place: places::ConnectionPlace,
    _present: Presence,
}

/// The framing guard, and the timeout of a head from its first byte.
struct HeadGuard {
    guard: Guard,
    timeout: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

// === impl Socket ===

impl<S> Socket<S> {
    pub(super) fn http1(
        stream: S,
        place: Option<SocketPlace>,
        head_timeout: Duration,
    ) -> (Self, Verdict) {
        let guard = Guard::new();
        let verdict = guard.verdict();
        let guard = HeadGuard { guard, timeout: head_timeout, deadline: None };
        (Self { stream, guard: Some(guard), place }, verdict)
    }

    pub(super) fn http2(stream: S, place: Option<SocketPlace>) -> Self {
        Self { stream, guard: None, place }
    }
}

// === impl SocketPlace ===

impl SocketPlace {
    pub(super) fn new(
        metrics: &Metrics,
        protocol: Protocol,
        place: places::ConnectionPlace,
    ) -> Self {
        let present = metrics.client_connection(protocol);
        Self { metrics: metrics.clone(), _place: place, _present: present }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Some(place) = &self.place {
            place.metrics.client_received((buffer.filled().len() - before) as u64);
        }
        let Some(guard) = &mut self.guard else { return polled };
        match polled {
            Poll::Ready(Ok(())) => {
                guard.observe(&buffer.filled()[before..]);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => guard.poll_overdue(cx).map(Err),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

// === impl HeadGuard ===

impl HeadGuard {
    fn observe(&mut self, bytes: &[u8]) {
        self.guard.observe(bytes);
        if !self.guard.is_inside_head() {
            self.deadline = None;
        } else if self.deadline.is_none() {
            let deadline = Instant::now() + self.timeout;
            self.deadline = Some(Box::pin(tokio::time::sleep_until(deadline)));
        }
    }

    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match &mut self.deadline {
            Some(deadline) => {
                deadline.as_mut().poll(cx).map(|()| io::Error::from(io::ErrorKind::TimedOut))
            }
            None => Poll::Pending,
        }
    }
}
