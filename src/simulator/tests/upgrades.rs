//! WebSocket watches and echoed streams, on connections inside the process.

use http::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::Bench;
use crate::{
    body::Body,
    simulator::Simulator,
    upstream::{Client, Error},
};

const WATCH: &str = "/api/v1/pods?watch=true&resourceVersion=1000";

async fn upgrade(
    simulator: &Simulator,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Response<Body>, Error> {
    let mut request = Request::get(path).header("connection", "Upgrade");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    simulator.upgrade(request.body(Body::empty()).expect("a request")).await
}

async fn websocket(simulator: &Simulator, path: &str) -> Response<Body> {
    let headers = [
        ("upgrade", "websocket"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
        ("origin", "https://localhost"),
    ];
    upgrade(simulator, path, &headers).await.expect("an answer")
}

/// Returns the next message's first byte and its text.
async fn message(stream: &mut (impl AsyncRead + Unpin)) -> (u8, String) {
    let mut head = [0; 2];
    stream.read_exact(&mut head).await.expect("a message");
    let mut length = usize::from(head[1]);
    if head[1] == 126 {
        length = usize::from(stream.read_u16().await.expect("a length"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.expect("a payload");
    (head[0], String::from_utf8_lossy(&payload).into_owned())
}

#[tokio::test]
async fn a_watch_over_websocket_sends_one_text_message_per_event() {
    let bench = Bench::new();
    let mut answer = websocket(&bench.simulator, WATCH).await;
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let stream = hyper::upgrade::on(&mut answer).await.expect("the switch");
    let mut stream = TokioIo::new(stream);
    let mut plain = bench.watch(WATCH).await;
    for phase in ["Pending", "Running"] {
        bench.pod("d", "a", phase);
        let event =
            String::from_utf8_lossy(&plain.next_bytes().await.expect("an event")).into_owned();
        assert_eq!(message(&mut stream).await, (0x81, event));
    }
    bench.simulator.end_watches();
    assert_eq!(message(&mut stream).await, (0x88, "\u{3}\u{fffd}".to_owned()));
    assert_eq!(stream.read(&mut [0]).await.expect("the end"), 0);
}

#[tokio::test]
async fn a_refused_websocket_watch_stays_plain_http() {
    let bench = Bench::new();
    let refused = websocket(&bench.simulator, "/api/v1/pods?watch=1&fieldSelector=x=1").await;
    assert_eq!(refused.status(), 400);
    let headers = [("upgrade", "websocket"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")];
    let no_origin = upgrade(&bench.simulator, WATCH, &headers).await.expect("an answer");
    assert_eq!(no_origin.status(), 403);
}

#[tokio::test]
async fn an_outage_breaks_upgraded_connections() {
    let bench = Bench::new();
    let path = "/api/v1/namespaces/d/pods/a/exec?command=sh";
    bench.pod("d", "a", "Running");
    let headers = [("upgrade", "SPDY/3.1")];
    let mut answer = upgrade(&bench.simulator, path, &headers).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(answer.headers()["upgrade"], "SPDY/3.1");
    let stream = hyper::upgrade::on(&mut answer).await.expect("the switch");
    let mut stream = TokioIo::new(stream);
    stream.write_all(b"\x00\x01any bytes").await.expect("a write");
    let mut echoed = [0; 11];
    stream.read_exact(&mut echoed).await.expect("the echo");
    assert_eq!(&echoed, b"\x00\x01any bytes");
    bench.simulator.stop();
    assert_eq!(stream.read(&mut [0]).await.expect("the end"), 0);
    assert!(upgrade(&bench.simulator, path, &headers).await.is_err());
    bench.simulator.start();
    assert_eq!(bench.get(path).await.code, 400, "without an upgrade");
}
