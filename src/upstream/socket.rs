//! A connection's byte stream, with the counters and the slot of its lifetime.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{dial::Stream, slot::Slot};

/// A byte stream that counts its reads and holds a slot until it is closed.
pub(super) struct Socket {
    stream: Box<dyn Stream>,
    reads: Reads,
    _place: Option<Slot>,
}

/// The number of reads with bytes: a proof that the peer is alive.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads(Arc<AtomicU64>);

// === impl Reads ===

impl Reads {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

// === impl Socket ===

impl Socket {
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, reads: Reads::default(), _place: None }
    }

    pub(super) fn holding(stream: Box<dyn Stream>, place: Slot) -> Self {
        Self { _place: Some(place), ..Self::new(stream) }
    }

    pub(super) fn reads(&self) -> Reads {
        self.reads.clone()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.reads.0.fetch_add(1, Ordering::Release);
        }
        polled
    }
}

impl AsyncWrite for Socket {
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
