//! Data streams in both directions without waiting, and no request outlives its client.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use listless::{
    body::Body,
    upstream::{Client, Error, Lane},
};
use tokio::{sync::mpsc, time::timeout};

use crate::harness::{Piece, Setup, TestClient, TestProxy, eventually, pass, piped};

/// An apiserver whose response the test sends in pieces; the test also reads the request's body.
#[derive(Clone, Default)]
struct Piping {
    asked: Arc<Mutex<Vec<Request<Body>>>>,
    answers: Arc<Mutex<Vec<Body>>>,
    lanes: Arc<Mutex<Vec<Lane>>>,
}

impl Piping {
    /// The sender for the next response.
    fn next_answer(&self) -> mpsc::Sender<Piece> {
        let (sender, body) = piped();
        self.answers.lock().expect("no panic holds it").push(body);
        sender
    }

    fn take_asked(&self) -> Option<Request<Body>> {
        self.asked.lock().expect("no panic holds it").pop()
    }
}

impl Client for Piping {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.lanes.lock().expect("no panic holds it").push(lane);
        self.asked.lock().expect("no panic holds it").push(request);
        let body = self.answers.lock().expect("no panic holds it").pop().unwrap_or_default();
        let answer = Response::builder().header("content-type", "application/json").body(body);
        Box::pin(async { Ok(answer.expect("an answer")) })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.send(request, Lane::Long)
    }
}

const STREAMS: [&str; 4] = [
    "/api/v1/pods?watch=1",
    "/api/v1/namespaces/a/pods/web-0/log?follow=true",
    "/apis/metrics.k8s.io/v1beta1/namespaces/a/pods/web-0/proxy",
    "/openapi/v2",
];

fn start() -> (Piping, TestProxy) {
    let piping = Piping::default();
    let proxy = Setup::default().upstream(piping.clone()).in_memory();
    (piping, proxy)
}

fn both(proxy: &TestProxy) -> [TestClient; 2] {
    [proxy.client(), proxy.client().over_http2()]
}

/// Returns the next piece that is not empty.
async fn piece(body: &mut Body) -> Option<Bytes> {
    loop {
        let frame = timeout(Duration::from_secs(600), body.frame()).await.expect("a piece in time");
        let piece = frame?.expect("an unbroken body").into_data().expect("data");
        if !piece.is_empty() {
            return Some(piece);
        }
    }
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).expect("a request")
}

#[tokio::test(start_paused = true)]
async fn each_piece_of_a_response_is_forwarded_at_once() {
    let (piping, proxy) = start();
    for client in both(&proxy) {
        for path in STREAMS {
            let sender = piping.next_answer();
            let mut body = client.open(get(path)).await.into_body();
            for text in ["{\"type\":\"ADDED\"}\n", "x", "{\"type\":\"DELETED\"}\n"] {
                sender.send(Ok(text)).await.expect("somebody reads");
                assert_eq!(piece(&mut body).await.expect("a piece"), text, "{path}");
                pass(Duration::from_secs(60)).await;
            }
            drop(sender);
            assert_eq!(piece(&mut body).await, None, "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_streamed_while_it_arrives() {
    let (piping, proxy) = start();
    let head =
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#;
    for client in both(&proxy) {
        let sender = piping.next_answer();
        let mut body = client.open(get("/api/v1/pods?continue=x")).await.into_body();
        for text in [head, "{}", ",{}", "]}\n"] {
            sender.send(Ok(text)).await.expect("somebody reads");
            assert_eq!(piece(&mut body).await.expect("a piece"), text);
        }
        drop(sender);
        assert_eq!(piece(&mut body).await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_of_an_answer_does_not_wait_for_its_body() {
    let (piping, proxy) = start();
    for client in both(&proxy) {
        for path in STREAMS {
            let _sender = piping.next_answer();
            let response = client.open(get(path)).await;
            assert_eq!(response.status(), 200, "{path}");
            assert!(response.headers().contains_key("cache-status"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_truncated_response_is_not_ended_cleanly() {
    let (piping, proxy) = start();
    for client in both(&proxy) {
        for path in STREAMS {
            let sender = piping.next_answer();
            sender.send(Ok("half of ")).await.expect("somebody reads");
            let breaking = tokio::spawn(async move {
                pass(Duration::from_millis(5)).await;
                sender.send(Err("reset".into())).await.expect("somebody reads");
            });
            let answer = client.ask(get(path)).await;
            assert_eq!((answer.status, answer.text()), (200, "half of "), "{path}");
            assert!(!answer.whole, "{path}: a broken body looks whole");
            breaking.await.expect("no panic");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_broken_between_two_events_ends_cleanly() {
    let (piping, proxy) = start();
    let event = "{\"type\":\"BOOKMARK\",\"object\":{}}\n";
    let (soon, later) = (Duration::from_millis(5), Duration::from_secs(3));
    for client in both(&proxy) {
        // Clients treat a watch that ends without an event within two seconds as broken
        // (S-WATCH-28).
        for (told, time, whole) in
            [(event, soon, true), ("", later, true), ("", soon, false), ("{\"ty", later, false)]
        {
            let sender = piping.next_answer();
            let breaking = tokio::spawn(async move {
                sender.send(Ok(told)).await.expect("somebody reads");
                pass(time).await;
                sender.send(Err("reset".into())).await.expect("somebody reads");
            });
            let answer = client.ask(get("/api/v1/pods?watch=1&resourceVersion=5")).await;
            assert_eq!((answer.text(), answer.whole), (told, whole), "{told:?} after {time:?}");
            breaking.await.expect("no panic");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_piece_of_an_upload_is_forwarded_at_once() {
    let (piping, proxy) = start();
    for client in both(&proxy) {
        let (sender, body) = piped();
        let request = Request::post("/api/v1/namespaces/a/pods").body(body).expect("a request");
        let asking = tokio::spawn(async move { client.ask(request).await });
        sender.send(Ok("first")).await.expect("somebody reads");
        eventually("the request upstream", || {
            !piping.asked.lock().expect("no panic holds it").is_empty()
        })
        .await;
        let mut upload = piping.take_asked().expect("asked").into_body();
        assert_eq!(piece(&mut upload).await.expect("a piece"), "first");
        sender.send(Ok("second")).await.expect("somebody reads");
        assert_eq!(piece(&mut upload).await.expect("a piece"), "second");
        drop(sender);
        assert_eq!(piece(&mut upload).await, None);
        assert_eq!(asking.await.expect("no panic").status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_slows_the_sender() {
    let (piping, proxy) = start();
    let endless: &'static str = Box::leak("x".repeat(64 * 1024).into_boxed_str());
    for client in both(&proxy) {
        let sender = piping.next_answer();
        let response = client.open(get("/api/v1/pods?watch=1")).await;
        let mut sent = 0;
        let filling = async {
            while sender.send(Ok(endless)).await.is_ok() {
                sent += endless.len();
            }
        };
        let stuck = timeout(Duration::from_secs(60), filling).await;
        assert!(stuck.is_err(), "somebody buffers without a bound");
        assert!(sent < 8 << 20, "{sent} bytes are on their way to a client that does not read");
        drop(response);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_without_a_client_is_cancelled_upstream() {
    let (piping, proxy) = start();
    for client in both(&proxy) {
        for path in STREAMS {
            let sender = piping.next_answer();
            let client = client.apart();
            let mut body = client.open(get(path)).await.into_body();
            sender.send(Ok("x")).await.expect("somebody reads");
            assert_eq!(piece(&mut body).await.expect("a piece"), "x");
            drop((body, client));
            eventually("the answer is dropped", || sender.is_closed()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_cancelled_before_its_response_is_cancelled_upstream() {
    /// Never responds, but records when its request is cancelled.
    struct Mute(Arc<AtomicBool>);
    struct Note(Arc<AtomicBool>);
    impl Drop for Note {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    impl Client for Mute {
        fn send(
            &self,
            _: Request<Body>,
            _: Lane,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            let note = Note(self.0.clone());
            Box::pin(async move {
                std::future::pending::<()>().await;
                drop(note);
                unreachable!("pending for ever")
            })
        }
        fn upgrade(
            &self,
            request: Request<Body>,
        ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            self.send(request, Lane::Long)
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let proxy = Setup::default().upstream(Mute(dropped.clone())).in_memory();
    for client in both(&proxy) {
        dropped.store(false, Ordering::SeqCst);
        let asking = tokio::spawn(async move { client.get("/version").await });
        pass(Duration::from_secs(1)).await;
        asking.abort();
        eventually("the request is given up", || dropped.load(Ordering::SeqCst)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn long_requests_use_the_connection_for_long_requests() {
    let (piping, proxy) = start();
    for (path, lane) in [
        ("/api/v1/pods?watch=1", Lane::Long),
        ("/api/v1/watch/pods", Lane::Long),
        ("/api/v1/namespaces/a/pods/web-0/log?follow=1", Lane::Long),
        ("/api/v1/pods", Lane::Short),
        ("/api/v1/namespaces/a/pods/web-0", Lane::Short),
        ("/version", Lane::Short),
    ] {
        proxy.client().get(path).await;
        let lanes = piping.lanes.lock().expect("no panic holds it");
        assert_eq!(lanes.last(), Some(&lane), "{path}");
    }
}
