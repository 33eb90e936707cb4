//! What the pool promises to those who send requests.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::DuplexStream;
use tokio_rustls::server::TlsStream;

use super::harness::{eventually, fed, get, piece, send, start, text};
use crate::{
    body::Body,
    upstream::{Client, Error, Lane, Settings},
};

const HTTP2: &[&str] = &["h2", "http/1.1"];

/// Streams open on one connection, now and at most.
#[derive(Clone, Default)]
struct Gauge(Arc<(AtomicUsize, AtomicUsize)>);

struct Counted(Gauge);

impl Gauge {
    fn enter(&self) -> Counted {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        Counted(self.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Answers `/watch…` with an endless body, everything else with its own path.
async fn apiserver(stream: TlsStream<DuplexStream>, streams_max: u32, gauge: Gauge) {
    let service = service_fn(move |request: Request<Incoming>| {
        let counted = gauge.enter();
        async move {
            let path = request.uri().path_and_query().unwrap().to_string();
            let body = if path.starts_with("/watch") {
                let (sender, body) = fed();
                sender.send(Bytes::from_static(b"first")).unwrap();
                tokio::spawn(async move {
                    sender.closed().await;
                    drop(counted);
                });
                body
            } else {
                Body::full(path)
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(streams_max);
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

#[tokio::test]
async fn request_and_answer_pass() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    server.serve(|stream| apiserver(stream, 100, Gauge::default()));
    for _ in 0..3 {
        let response = send(&pool, "/api/v1/pods?limit=3", Lane::Short).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        assert_eq!(text(response).await, "/api/v1/pods?limit=3");
    }
    assert_eq!(network.dialled(), 1, "one connection serves them all");
}
