//! Counts connections to the apiserver and their bytes on the wire.

use std::{io, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};

use crate::{
    metrics::{Metrics, Outcome, Presence},
    stream::{Observed, Observer},
    upstream::dial::{Dial, Stream},
};

/// A dialler that counts its connections.
pub(super) struct MeteredDial<D> {
    inner: Arc<D>,
    metrics: Metrics,
}

/// The counter of a connection.
struct StreamMeter {
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
            let meter = StreamMeter { metrics, _present: present };
            Ok(Box::new(Observed::new(dialled?, meter)) as Box<dyn Stream>)
        }
        .boxed()
    }
}

// === impl StreamMeter ===

impl Observer for StreamMeter {
    fn received(&mut self, bytes: &[u8]) {
        self.metrics.upstream_received(bytes.len() as u64);
    }

    fn sent(&mut self, bytes: usize) {
        self.metrics.upstream_sent(bytes as u64);
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
