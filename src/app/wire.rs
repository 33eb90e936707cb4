//! Counts connections to the apiserver and their bytes on the wire.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    metrics::{Metrics, Outcome, Presence},
    upstream::dial::{Dial, Stream},
};

/// A dialler that counts its connections.
pub(super) struct MeteredDial<D> {
    inner: Arc<D>,
    metrics: Metrics,
}

/// A counted connection.
struct MeteredStream {
    inner: Box<dyn Stream>,
    metrics: Metrics,
    _present: Presence,
}

// === impl MeteredDial ===

impl<D> MeteredDial<D> {
    /// Counts the connections that `inner` opens.
    pub(super) fn new(inner: D, metrics: Metrics) -> Self {
        Self { inner: Arc::new(inner), metrics }
    }
}

impl<D: Dial> Dial for MeteredDial<D> {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let (inner, metrics) = (self.inner.clone(), self.metrics.clone());
        async move {
            let dialled = inner.dial(host, port).await;
            let outcome = if dialled.is_ok() { Outcome::Success } else { Outcome::Failure };
            metrics.upstream_connect(outcome);
            let present = metrics.upstream_connection();
            let metered = MeteredStream { inner: dialled?, metrics, _present: present };
            Ok(Box::new(metered) as Box<dyn Stream>)
        }
        .boxed()
    }
}

// === impl MeteredStream ===

impl MeteredStream {
    fn sent(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &polled {
            self.metrics.upstream_sent(*bytes as u64);
        }
        polled
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.metrics.upstream_received((buffer.filled().len() - before) as u64);
        polled
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.sent(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.sent(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// Returns its end of a pipe once, then fails.
    struct Once(Mutex<Option<DuplexStream>>);

    impl Dial for Once {
        fn dial(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
            let stream = self.0.lock().unwrap().take();
            async move {
                let stream = stream.ok_or(io::ErrorKind::ConnectionRefused)?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn connections_and_their_bytes_are_counted_while_open() {
        let metrics = Metrics::new();
        let shows = |line: &str| {
            let text = metrics.render();
            assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
        };
        let (near, mut far) = duplex(64);
        let dial = MeteredDial::new(Once(Mutex::new(Some(near))), metrics.clone());
        let mut stream = dial.dial("host".to_owned(), 443).await.unwrap();
        assert!(dial.dial("host".to_owned(), 443).await.is_err());
        stream.write_all(b"four").await.unwrap();
        far.write_all(b"eleven bytes").await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
        shows("listless_upstream_connects_total{result=\"success\"} 1");
        shows("listless_upstream_connects_total{result=\"failure\"} 1");
        shows("listless_upstream_connections 1");
        shows("listless_upstream_sent_bytes_total 4");
        shows("listless_upstream_received_bytes_total 12");
        drop(stream);
        shows("listless_upstream_connections 0");
    }
}
