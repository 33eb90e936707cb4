//! A byte stream that shows its bytes to an observer.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A byte stream and its observer, which lives as long as it.
#[derive(Debug)]
pub struct Observed<S, O> {
    stream: S,
    observer: O,
}

/// An observer of a stream's bytes.
pub trait Observer: Unpin {
    /// Notes the bytes that the peer sent, before the reader gets them.
    fn received(&mut self, _bytes: &[u8]) {}

    /// Notes the number of bytes that were written to the peer.
    fn sent(&mut self, _bytes: usize) {}

    /// Fails a read that waits for the peer, for example after a timeout.
    fn poll_failure(&mut self, _cx: &mut Context<'_>) -> Poll<io::Error> {
        Poll::Pending
    }
}

// === impl Observed ===

impl<S, O> Observed<S, O> {
    /// Shows the bytes of a stream to an observer.
    pub fn new(stream: S, observer: O) -> Self {
        Self { stream, observer }
    }
}

impl<S, O: Observer> Observed<S, O> {
    fn note_sent(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.observer.sent(*bytes);
        }
        polled
    }
}

impl<S: AsyncRead + Unpin, O: Observer> AsyncRead for Observed<S, O> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let received = &buffer.filled()[before..];
        if !received.is_empty() {
            self.observer.received(received);
        }
        match polled {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => self.observer.poll_failure(cx).map(Err),
        }
    }
}

impl<S: AsyncWrite + Unpin, O: Observer> AsyncWrite for Observed<S, O> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note_sent(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note_sent(polled)
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
