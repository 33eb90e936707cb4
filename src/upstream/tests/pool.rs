//! The guarantees of the pool to the senders of requests.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, header::HOST};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{io::DuplexStream, sync::Notify};
use tokio_rustls::server::TlsStream;

use super::harness::{eventually, fed, piece, send, start, text};
use crate::{
    body::Body,
    upstream::{Client, Endpoint, Error, Lane, Pool, Settings, Unread, pool::UNREAD_BYTES_MAX},
};

pub(super) const HTTP2: &[&str] = &["h2", "http/1.1"];

/// The open streams of one connection, now and at most.
#[derive(Clone, Default)]
pub(super) struct Gauge(Arc<(AtomicUsize, AtomicUsize)>);

struct Counted(Gauge);

impl Gauge {
    fn enter(&self) -> Counted {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        Counted(self.clone())
    }

    fn now(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Answers `/watch` with an endless body, and echoes everything else.
async fn answer(request: Request<Incoming>, gauge: Gauge) -> Result<Response<Body>, Infallible> {
    let counted = gauge.enter();
    let path = request.uri().path_and_query().unwrap().to_string();
    if !path.starts_with("/watch") {
        return Ok(Response::new(Body::full(path)));
    }
    let (sender, body) = fed();
    sender.send(Bytes::from_static(b"first")).unwrap();
    tokio::spawn(async move {
        sender.closed().await;
        drop(counted);
    });
    Ok(Response::new(body))
}

pub(super) async fn http2(stream: TlsStream<DuplexStream>, streams_max: u32, gauge: Gauge) {
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(streams_max);
    let service = service_fn(move |request| answer(request, gauge.clone()));
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn echo(stream: TlsStream<DuplexStream>) {
    let service = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

pub(super) async fn watch(pool: &Pool) -> Body {
    let mut body = send(pool, "/watch", Lane::Long).await.unwrap().into_body();
    assert_eq!(piece(&mut body).await.unwrap().unwrap(), "first");
    body
}

#[tokio::test]
async fn requests_share_a_connection() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    server.serve(|stream| http2(stream, 100, Gauge::default()));
    for _ in 0..3 {
        let response = send(&pool, "/api/v1/pods?limit=3", Lane::Short).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_2);
        assert_eq!(text(response).await, "/api/v1/pods?limit=3");
    }
    assert_eq!(network.dialled(), 1);
}

#[tokio::test]
async fn watches_do_not_block_short_requests() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    let gauges = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&gauges);
    server.serve(move |stream| {
        let gauge = Gauge::default();
        seen.lock().unwrap().push(gauge.clone());
        http2(stream, 4, gauge)
    });
    let mut watches = Vec::new();
    for _ in 0..18 {
        watches.push(watch(&pool).await);
        assert_eq!(text(send(&pool, "/short", Lane::Short).await.unwrap()).await, "/short");
    }
    for gauge in gauges.lock().unwrap().iter() {
        assert!(gauge.most() <= 4, "the server's stream limit holds");
    }
    assert!((6..=8).contains(&network.dialled()), "{} connections", network.dialled());
}

#[tokio::test]
async fn a_dropped_body_cancels_the_request_and_frees_its_slot() {
    let settings = Settings { long_connections_max: 1, ..Settings::default() };
    let (pool, network, server) = start("", HTTP2, settings);
    let gauge = Gauge::default();
    let seen = gauge.clone();
    server.serve(move |stream| http2(stream, 2, seen.clone()));
    let (one, _two) = (watch(&pool).await, watch(&pool).await);
    let third = tokio::spawn({
        let pool = pool.clone();
        async move { watch(&pool).await }
    });
    drop(one);
    let _third = third.await.unwrap();
    eventually("two watches are left", || gauge.now() == 2).await;
    assert_eq!(network.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn waits_for_a_slot_are_bounded_in_number_and_time() {
    let settings = Settings { long_connections_max: 1, waiting_max: 1, ..Settings::default() };
    let (pool, _, server) = start("", HTTP2, settings);
    server.serve(|stream| http2(stream, 1, Gauge::default()));
    let _open = watch(&pool).await;
    let queued = tokio::spawn({
        let pool = pool.clone();
        async move { send(&pool, "/watch", Lane::Long).await }
    });
    tokio::task::yield_now().await;
    let refused = send(&pool, "/watch", Lane::Long).await;
    assert!(matches!(refused, Err(Error::Saturated("upstream queue"))));
    assert!(matches!(queued.await.unwrap(), Err(Error::Saturated("upstream places"))));
}

#[tokio::test]
async fn one_dial_serves_all_waiting_requests() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    let requests: Vec<_> = (0..24).map(|_| send(&pool, "/", Lane::Short)).collect();
    server.serve(|stream| http2(stream, 100, Gauge::default()));
    for answer in futures_util::future::join_all(requests).await {
        answer.unwrap();
    }
    assert_eq!(network.dialled(), 1);
}

#[tokio::test]
async fn a_failed_dial_fails_all_waiting_requests() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    drop(server);
    let requests: Vec<_> = (0..8).map(|_| send(&pool, "/", Lane::Short)).collect();
    for answer in futures_util::future::join_all(requests).await {
        assert!(matches!(answer, Err(Error::Connect(_))));
    }
    assert_eq!(network.dialled(), 1);
    assert!(matches!(send(&pool, "/", Lane::Short).await, Err(Error::Connect(_))));
    assert_eq!(network.dialled(), 2, "the next request tries again");
}

#[tokio::test(start_paused = true)]
async fn a_failed_dial_is_repeated_for_requests_beside_full_connections() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    server.serve(|stream| http2(stream, 1, Gauge::default()));
    network.refuse(2);
    let _first = watch(&pool).await;
    let before = tokio::time::Instant::now();
    let _second = watch(&pool).await;
    assert!(network.dialled() >= 3);
    assert!(before.elapsed() <= Duration::from_secs(2), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_a_connect_timeout() {
    let (pool, _, _server) = start("", HTTP2, Settings::default());
    let answer = send(&pool, "/", Lane::Short).await;
    assert!(matches!(answer, Err(Error::ConnectTimeout)));
}

#[tokio::test]
async fn a_certificate_for_another_name_is_rejected() {
    let (network, server, config) = super::harness::network(HTTP2);
    server.serve(|stream| http2(stream, 100, Gauge::default()));
    let uri = "https://elsewhere".parse().unwrap();
    let endpoint = Endpoint::new(&uri, Arc::clone(&config), None).unwrap();
    let pool = Pool::new(Arc::new(network.clone()), endpoint, Settings::default());
    assert!(matches!(send(&pool, "/", Lane::Short).await, Err(Error::Connect(_))));
    let endpoint = Endpoint::new(&uri, config, Some("apiserver")).unwrap();
    let pool = Pool::new(Arc::new(network), endpoint, Settings::default());
    send(&pool, "/", Lane::Short).await.expect("tls-server-name says which name counts");
}

#[tokio::test]
async fn a_goaway_finishes_old_streams_and_moves_new_requests() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    let leave = Arc::new(Notify::new());
    let asked = Arc::clone(&leave);
    server.serve(move |stream| leaving(stream, Arc::clone(&asked)));
    let (sender, upload) = fed();
    let old = Client::send(&pool, Request::post("/old").body(upload).unwrap(), Lane::Short);
    let old = tokio::spawn(old);
    eventually("the connection is there", || network.dialled() == 1).await;
    assert_eq!(text(send(&pool, "/before", Lane::Short).await.unwrap()).await, "/before");
    leave.notify_one();
    for _ in 0..50 {
        assert_eq!(text(send(&pool, "/new", Lane::Short).await.unwrap()).await, "/new");
    }
    drop(sender);
    assert_eq!(text(old.await.unwrap().unwrap()).await, "/old");
    assert_eq!(network.dialled(), 2);
}

/// Serves until told to leave; then finishes its streams.
async fn leaving(stream: TlsStream<DuplexStream>, asked: Arc<Notify>) {
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(2);
    let service = service_fn(|request| answer(request, Gauge::default()));
    let mut served = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = served.as_mut() => return,
        () = asked.notified() => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}

#[tokio::test]
async fn a_request_passes_however_many_connections_are_closing() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    let leave = Arc::new(Notify::new());
    let asked = Arc::clone(&leave);
    server.serve(move |stream| leaving(stream, Arc::clone(&asked)));
    let mut watches = Vec::new();
    for _ in 0..16 {
        watches.push(watch(&pool).await);
    }
    let dialled = network.dialled();
    // Most connections keep a stream and have a free slot.
    let mut number = 0;
    watches.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    leave.notify_waiters();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    watches.push(watch(&pool).await);
    assert_eq!(network.dialled(), dialled + 1);
}

#[tokio::test]
async fn a_refused_request_is_sent_again_on_another_connection() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    let first = AtomicUsize::new(0);
    server.serve(move |stream| {
        let refuse = first.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                if refuse {
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                } else {
                    respond.send_response(Response::new(()), true).unwrap();
                }
            }
        }
    });
    let response = send(&pool, "/", Lane::Short).await.unwrap();
    assert_eq!((response.status().as_u16(), network.dialled()), (200, 2));
}

#[tokio::test]
async fn a_request_that_may_have_been_seen_is_not_sent_again() {
    let (pool, network, mut server) = start("", HTTP2, Settings::default());
    let request = tokio::spawn({
        let pool = pool.clone();
        async move { send(&pool, "/", Lane::Short).await }
    });
    let mut connection = h2::server::handshake(server.accept().await).await.unwrap();
    let seen = connection.accept().await.unwrap().unwrap();
    drop((seen, connection));
    assert!(matches!(request.await.unwrap(), Err(Error::Broken(_))));
    assert_eq!(network.dialled(), 1);
}

#[tokio::test]
async fn a_truncated_response_ends_with_an_error() {
    for reason in [None, Some(h2::Reason::NO_ERROR), Some(h2::Reason::CANCEL)] {
        let (pool, _, mut server) = start("", HTTP2, Settings::default());
        let serving = tokio::spawn(async move {
            let mut connection = h2::server::handshake(server.accept().await).await.unwrap();
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream.send_data(Bytes::from_static(b"half"), false).unwrap();
            if let Some(reason) = reason {
                tokio::spawn(async move {
                    tokio::task::yield_now().await;
                    stream.send_reset(reason);
                    std::future::pending::<()>().await;
                });
            }
            let flushed = tokio::time::timeout(Duration::from_millis(50), connection.accept());
            let _ = flushed.await;
        });
        let mut body = send(&pool, "/", Lane::Short).await.unwrap().into_body();
        let last = loop {
            match piece(&mut body).await {
                Some(Ok(_)) => {}
                other => break other,
            }
        };
        assert!(matches!(last, Some(Err(_))), "{reason:?}");
        assert!(piece(&mut body).await.is_none());
        serving.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_pings_end_watches_with_an_error() {
    let (pool, _, mut server) = start("", HTTP2, Settings::default());
    let asking = tokio::spawn({
        let pool = pool.clone();
        async move { send(&pool, "/watch", Lane::Long).await }
    });
    let mut connection = h2::server::handshake(server.accept().await).await.unwrap();
    let (_, mut respond) = connection.accept().await.unwrap().unwrap();
    let _stream = respond.send_response(Response::new(()), false).unwrap();
    let silent = Arc::new(Notify::new());
    let silence = Arc::clone(&silent);
    tokio::spawn(async move {
        tokio::select! {
            _ = connection.accept() => {}
            () = silence.notified() => {}
        }
        std::future::pending::<()>().await;
        drop(connection);
    });
    let mut body = asking.await.unwrap().unwrap().into_body();
    let minute = Duration::from_secs(60);
    assert!(
        tokio::time::timeout(minute, piece(&mut body)).await.is_err(),
        "answered pings keep an idle watch alive"
    );
    silent.notify_one();
    let before = tokio::time::Instant::now();
    assert!(piece(&mut body).await.unwrap().is_err());
    assert!(before.elapsed() <= Duration::from_secs(15), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_closed_and_the_next_request_opens_another() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    let open = Gauge::default();
    let seen = open.clone();
    server.serve(move |stream| {
        let counted = seen.enter();
        async move {
            http2(stream, 100, Gauge::default()).await;
            drop(counted);
        }
    });
    send(&pool, "/", Lane::Short).await.unwrap();
    crate::testing::pass(Duration::from_secs(80)).await;
    assert_eq!(open.now(), 1);
    crate::testing::pass(Duration::from_secs(60)).await;
    assert_eq!(open.now(), 0);
    send(&pool, "/", Lane::Short).await.unwrap();
    assert_eq!(network.dialled(), 2);
}

#[tokio::test]
async fn an_unread_stream_does_not_block_the_others() {
    let (pool, network, server) = start("", HTTP2, Settings::default());
    server.serve(|stream| async move {
        let service = service_fn(|request: Request<Incoming>| async move {
            let bytes = if request.uri().path() == "/big" { 64 << 20 } else { 100 };
            Ok::<_, Infallible>(Response::new(Body::full(vec![b'x'; bytes])))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    });
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(send(&pool, "/big", Lane::Short).await.unwrap());
    }
    for _ in 0..20 {
        assert_eq!(text(send(&pool, "/small", Lane::Short).await.unwrap()).await.len(), 100);
    }
    assert_eq!(network.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn unread_responses_end_beyond_a_bound_and_those_that_are_read_do_not() {
    let (pool, _, server) = start("", HTTP2, Settings::default());
    server.serve(|stream| async move {
        let service = service_fn(|_| async {
            Ok::<_, Infallible>(Response::new(Body::full(vec![b'x'; 4 << 20])))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    });
    let mut unread = Vec::new();
    for _ in 0..UNREAD_BYTES_MAX / (1 << 20) + 8 {
        unread.push(send(&pool, "/", Lane::Short).await.unwrap());
    }
    let mut read = send(&pool, "/", Lane::Short).await.unwrap().into_body();
    let mut bytes = 0;
    while let Some(piece) = piece(&mut read).await {
        bytes += piece.expect("it is read").len();
        crate::testing::pass(Duration::from_millis(100)).await;
    }
    assert_eq!(bytes, 4 << 20);
    let mut ended = 0;
    for response in unread {
        let whole = response.into_body().collect(8 << 20).await;
        ended += usize::from(whole.is_err_and(|error| error.is::<Unread>()));
    }
    assert!((8..=10).contains(&ended), "{ended} ended");
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let (pool, _, server) = start("", HTTP2, Settings::default());
    server.serve(echo);
    let (sender, upload) = fed();
    let request = Request::post("/echo").body(upload).unwrap();
    let mut body = Client::send(&pool, request, Lane::Short).await.unwrap().into_body();
    for part in ["one", "two"] {
        sender.send(Bytes::from(part)).unwrap();
        assert_eq!(piece(&mut body).await.unwrap().unwrap(), part);
    }
    sender.send(Bytes::from(vec![b'x'; 5 << 20])).unwrap();
    drop(sender);
    assert_eq!(body.collect(8 << 20).await.unwrap().len(), 5 << 20);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let (pool, _, server) = start("", HTTP2, Settings::default());
    server.serve(echo);
    let trailers = HeaderMap::from_iter([(HeaderName::from_static("x-sum"), "x".parse().unwrap())]);
    let frames = [Frame::data(Bytes::from_static(b"data")), Frame::trailers(trailers.clone())];
    let frames = futures_util::stream::iter(frames.map(Ok::<_, Infallible>));
    let request = Request::post("/").body(Body::wrap(StreamBody::new(frames))).unwrap();
    let response = Client::send(&pool, request, Lane::Short).await.unwrap();
    let collected = BodyExt::collect(response.into_body()).await.unwrap();
    assert_eq!(collected.trailers(), Some(&trailers));
    assert_eq!(collected.to_bytes(), "data");
}

#[tokio::test]
async fn the_head_is_adapted_to_the_endpoint() {
    let (pool, _, server) = start("/k8s/clusters/x", HTTP2, Settings::default());
    server.serve(|stream| async move {
        let service = service_fn(|request: Request<Incoming>| async move {
            let seen = format!("{} {:?}", request.uri(), request.headers());
            Ok::<_, Infallible>(Response::new(Body::full(seen)))
        });
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(TokioIo::new(stream), service).await;
    });
    let request = Request::get("/api?a=%2F&&b")
        .header(HOST, "127.0.0.1:6443")
        .header("connection", "keep-alive, x-hop")
        .header("keep-alive", "timeout=5")
        .header("x-hop", "1")
        .header("te", "gzip")
        .header("authorization", "Bearer t")
        .body(Body::empty())
        .unwrap();
    let seen = text(Client::send(&pool, request, Lane::Short).await.unwrap()).await;
    assert_eq!(
        seen,
        "https://apiserver/k8s/clusters/x/api?a=%2F&&b {\"authorization\": \"Bearer t\"}"
    );
}
