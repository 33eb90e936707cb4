//! Servers without HTTP/2.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, header::TRANSFER_ENCODING};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::Notify,
};
use tokio_rustls::server::TlsStream;

use super::harness::{fed, piece, send, start, text};
use crate::{
    body::Body,
    upstream::{Client, Error, Lane, Settings},
};

const HTTP1: &[&str] = &["http/1.1"];

/// Echoes the request; `/watch` starts a body and never ends it.
async fn server(stream: TlsStream<DuplexStream>) {
    let service = service_fn(|request: Request<Incoming>| async move {
        let uri = request.uri().to_string();
        let body = if uri == "/watch" {
            let (sender, body) = fed();
            sender.send(Bytes::from_static(b"first")).unwrap();
            tokio::spawn(async move { sender.closed().await });
            body
        } else {
            Body::full(format!("{uri} {:?}", request.headers()))
        };
        Ok::<_, Infallible>(Response::new(body))
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let (pool, network, listening) = start("/base", HTTP1, Settings::default());
    listening.serve(server);
    for _ in 0..5 {
        let response = send(&pool, "/api?x=1", Lane::Short).await.unwrap();
        assert_eq!(response.version(), http::Version::HTTP_11);
        assert_eq!(text(response).await, "/base/api?x=1 {\"host\": \"apiserver\"}");
    }
    assert_eq!(network.dialled(), 1);
}

#[tokio::test]
async fn each_concurrent_request_has_a_connection_up_to_the_limit() {
    let settings = Settings { http1_connections_max: 3, ..Settings::default() };
    let (pool, network, listening) = start("", HTTP1, settings);
    listening.serve(server);
    let mut watches = Vec::new();
    for _ in 0..3 {
        let response = send(&pool, "/watch", Lane::Long).await.unwrap();
        assert!(!response.headers().contains_key(TRANSFER_ENCODING), "that was between us two");
        let mut body = response.into_body();
        assert_eq!(piece(&mut body).await.unwrap().unwrap(), "first");
        watches.push(body);
    }
    let fourth = tokio::spawn({
        let pool = pool.clone();
        async move { send(&pool, "/", Lane::Long).await }
    });
    tokio::task::yield_now().await;
    assert!(!fourth.is_finished());
    watches.pop();
    fourth.await.unwrap().expect("a dropped watch closes its connection and frees its place");
    assert_eq!(network.dialled(), 4);
    let requests =
        (0..10).map(|_| async { text(send(&pool, "/", Lane::Short).await.unwrap()).await });
    futures_util::future::join_all(requests).await;
    assert_eq!(network.dialled(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_closed_while_idle_fails_no_request() {
    let (pool, network, listening) = start("", HTTP1, Settings::default());
    let close = Arc::new(Notify::new());
    let closing = Arc::clone(&close);
    listening.serve(move |stream| {
        let closing = Arc::clone(&closing);
        async move {
            tokio::select! {
                () = server(stream) => {}
                () = closing.notified() => {}
            }
        }
    });
    let requests: Vec<_> = (0..6).map(|_| send(&pool, "/", Lane::Short)).collect();
    for response in futures_util::future::join_all(requests).await {
        text(response.unwrap()).await;
    }
    let before = network.dialled();
    close.notify_waiters();
    // Virtual time passes once every task has seen the end.
    crate::testing::pass(Duration::from_secs(1)).await;
    for _ in 0..3 {
        text(send(&pool, "/", Lane::Short).await.unwrap()).await;
    }
    assert!(network.dialled() > before);
}

#[tokio::test]
async fn a_request_whose_bytes_were_sent_is_not_sent_again() {
    let (pool, _, mut listening) = start("", HTTP1, Settings::default());
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let mut stream = listening.accept().await;
            let mut bytes = [0; 64];
            if stream.read(&mut bytes).await.unwrap() > 0 {
                count.fetch_add(1, Ordering::SeqCst);
            }
            stream.shutdown().await.unwrap();
        }
    });
    let request = Request::post("/").body(Body::full("{}")).unwrap();
    let answer = Client::send(&pool, request, Lane::Short).await;
    assert!(matches!(answer, Err(Error::Broken(_))));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}

/// Serves each connection with raw bytes: one entry of `answers` for each request on it.
fn serve_raw(listening: super::harness::Server, answers: &'static [&'static str]) {
    listening.serve(move |mut stream| async move {
        let mut bytes = [0; 4096];
        for answer in answers {
            if !matches!(stream.read(&mut bytes).await, Ok(1..)) {
                return;
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        // Further requests are never answered.
        while matches!(stream.read(&mut bytes).await, Ok(1..)) {}
    });
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_closed_after_the_idle_timeout() {
    let (pool, network, listening) = start("", HTTP1, Settings::default());
    let open = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&open);
    listening.serve(move |stream| {
        let count = Arc::clone(&count);
        async move {
            count.fetch_add(1, Ordering::SeqCst);
            server(stream).await;
            count.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let both = [send(&pool, "/", Lane::Short), send(&pool, "/", Lane::Short)];
    for response in futures_util::future::join_all(both).await {
        text(response.unwrap()).await;
    }
    for _ in 0..3 {
        crate::testing::pass(Duration::from_secs(60)).await;
        text(send(&pool, "/", Lane::Short).await.unwrap()).await;
        crate::testing::pass(Duration::from_secs(1)).await;
    }
    assert_eq!(open.load(Ordering::SeqCst), 1, "the one in use stays, the other has ended");
    crate::testing::pass(Duration::from_secs(95)).await;
    assert_eq!(open.load(Ordering::SeqCst), 0);
    let before = network.dialled();
    text(send(&pool, "/", Lane::Short).await.unwrap()).await;
    assert_eq!(network.dialled(), before + 1);
}

#[tokio::test]
async fn a_surplus_response_never_reaches_a_later_request() {
    const TWICE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none\
                         HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsurplus";
    const EMPTY: &str = "HTTP/1.1 204 No Content\r\n\r\n\
                         HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsurplus";
    for (answers, first) in [(&[TWICE] as &[_], "one"), (&[EMPTY], "")] {
        let (pool, network, listening) = start("", HTTP1, Settings::default());
        serve_raw(listening, answers);
        for number in 1..=20 {
            let response = send(&pool, "/", Lane::Short).await.unwrap();
            assert_eq!(text(response).await, first, "request {number}");
        }
        assert_eq!(network.dialled(), 20, "none of these connections is used again");
    }
}

#[tokio::test]
async fn an_unrequested_protocol_switch_is_an_error() {
    const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                          Upgrade: websocket\r\n\r\nbytes of another protocol";
    let (pool, network, listening) = start("", HTTP1, Settings::default());
    serve_raw(listening, &[SWITCH]);
    for _ in 0..2 {
        let answer = send(&pool, "/", Lane::Short).await;
        assert!(matches!(answer, Err(Error::Broken(_))), "{answer:?}");
    }
    assert_eq!(network.dialled(), 2);
}
