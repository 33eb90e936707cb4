//! Watches through a WebSocket, as fabric8 opens them: one message for each event.

use std::time::Duration;

use http::{Method, Request, Response};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use listless::{api::Verb, body::Body, upstream::Client};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use crate::harness::{LOCAL_TOKEN, OWN_TOKEN, PROTOBUF, Setup, TestProxy, pass, request};

const PODS: &str = "/api/v1/pods?watch=true";

const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// A client's end of a WebSocket.
struct Socket(TokioIo<Upgraded>);

impl Socket {
    async fn of(response: Response<Body>) -> Self {
        assert_eq!(response.status(), 101);
        let accept = &response.headers()["sec-websocket-accept"];
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        Self(TokioIo::new(hyper::upgrade::on(response).await.expect("a switched connection")))
    }

    /// The next message; `None` at the end.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        timeout(Duration::from_secs(3600), self.0.read_exact(&mut head)).await.ok()?.ok()?;
        assert_eq!(head[0] & 0x80, 0x80, "in one frame");
        let length = match head[1] {
            126 => u64::from(self.0.read_u16().await.ok()?),
            127 => self.0.read_u64().await.ok()?,
            length => u64::from(length),
        };
        let mut payload = vec![0; usize::try_from(length).expect("a short message")];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[0] & 0x0f, payload))
    }

    async fn send(&mut self, opcode: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).expect("a short message");
        let mask = [9, 8, 7, 6];
        let mut message = vec![0x80 | opcode, 0x80 | length];
        message.extend(mask);
        message.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.0.write_all(&message).await.expect("an open connection");
        self.0.flush().await.expect("an open connection");
    }
}

fn handshake(path: &str, token: &str) -> Request<Body> {
    let mut request = request(Method::GET, path, Body::empty());
    for (name, value) in [
        ("authorization", format!("Bearer {token}").as_str()),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("origin", "https://127.0.0.1:6443"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-version", "13"),
    ] {
        request.headers_mut().insert(
            http::HeaderName::from_bytes(name.as_bytes()).expect("a name"),
            value.parse().expect("a value"),
        );
    }
    request
}

async fn through(proxy: &TestProxy, path: &str) -> (Socket, String) {
    opened(proxy, handshake(path, LOCAL_TOKEN)).await
}

async fn opened(proxy: &TestProxy, request: Request<Body>) -> (Socket, String) {
    let response = proxy.anybody().open(request).await;
    let status = response.headers()["cache-status"].to_str().expect("a text").to_owned();
    (Socket::of(response).await, status)
}

async fn straight(proxy: &TestProxy, path: &str) -> Socket {
    let response = proxy.simulator.upgrade(handshake(path, OWN_TOKEN)).await;
    Socket::of(response.expect("an answer")).await
}

#[tokio::test(start_paused = true)]
async fn websocket_messages_equal_the_apiservers_and_cost_it_nothing() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let version = proxy.simulator.revision();
    for path in [
        format!("{PODS}&resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=600"),
        format!("{PODS}&labelSelector=app%3Dweb"),
        format!("{PODS}&resourceVersion=0"),
    ] {
        let mut expected = straight(&proxy, &path).await;
        let (mut socket, status) = through(&proxy, &path).await;
        assert!(status.starts_with("listless; hit; detail="), "{status}");
        proxy.put_pod("web-9", "web");
        proxy.put_pod("web-9", "db");
        proxy.put_pod("web-9", "web");
        let mut messages = 0;
        while let Ok(Some(message)) = timeout(Duration::from_millis(50), expected.next()).await {
            assert_eq!(socket.next().await, Some(message), "{path}");
            messages += 1;
        }
        assert!(messages >= 3, "{path}: {messages}");
    }
    assert_eq!(proxy.upstream.count(Verb::Watch, "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn websocket_messages_carry_partial_metadata_too() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let asking = |token| {
        let accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        let mut request = handshake(PODS, token);
        request.headers_mut().insert("accept", accept.parse().expect("a value"));
        request
    };
    let expected = proxy.simulator.upgrade(asking(OWN_TOKEN)).await.expect("an answer");
    let mut expected = Socket::of(expected).await;
    let (mut socket, status) = opened(&proxy, asking(LOCAL_TOKEN)).await;
    assert_eq!(status, "listless; hit; detail=session");
    proxy.put_pod("web-9", "web");
    let mut messages = Vec::new();
    while let Ok(Some(message)) = timeout(Duration::from_millis(50), expected.next()).await {
        assert_eq!(socket.next().await.as_ref(), Some(&message));
        messages.push(String::from_utf8(message.1).expect("UTF-8"));
    }
    assert!(messages.len() > 3);
    assert!(messages.iter().all(|message| message.contains("\"PartialObjectMetadata\"")));
}

#[tokio::test(start_paused = true)]
async fn websocket_messages_in_protobuf_equal_the_apiservers() {
    let proxy = Setup::default().in_memory();
    let partial = format!("{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
    let widgets = "/apis/x.io/v1/widgets?watch=true";
    for (collection, accept) in [
        (PODS, format!("{PROTOBUF},application/json")),
        (PODS, format!("{PROTOBUF};stream=watch")),
        (PODS, partial.clone()),
        (widgets, partial),
    ] {
        let listed = accept.replace("Metadata;", "MetadataList;").replace(";stream=watch", "");
        let client = proxy.client().with("accept", &listed);
        let list = collection.split('?').next().expect("a path");
        for _ in 0..2 {
            client.get(list).await;
        }
        let asking = |token, accept: &str| {
            let mut request = handshake(collection, token);
            request.headers_mut().insert("accept", accept.parse().expect("a value"));
            request
        };
        // The simulator does not know the parameter.
        let straight = asking(OWN_TOKEN, &accept.replace(";stream=watch", ""));
        let expected = proxy.simulator.upgrade(straight).await.expect("an answer");
        let mut expected = Socket::of(expected).await;
        let (mut socket, status) = opened(&proxy, asking(LOCAL_TOKEN, &accept)).await;
        assert_eq!(status, "listless; hit; detail=session", "{collection} {accept}");
        proxy.put_pod("web-9", "web");
        proxy.put_pod("web-9", "db");
        let mut messages = 0;
        while let Ok(Some(message)) = timeout(Duration::from_millis(50), expected.next()).await {
            assert_eq!(message.0, BINARY, "{collection} {accept}");
            assert_eq!(socket.next().await, Some(message), "{collection} {accept}");
            messages += 1;
        }
        assert!(messages >= 2, "{collection} {accept}: {messages}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_forwarded_websocket_in_protobuf_binds_later_reads() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let mut request = handshake(PODS, LOCAL_TOKEN);
    request.headers_mut().insert("accept", PROTOBUF.parse().expect("a value"));
    let (mut socket, status) = opened(&proxy, request).await;
    assert!(status.starts_with("listless; fwd="), "{status}");
    for number in 0..20 {
        proxy.put_pod("web-9", if number % 2 == 0 { "web" } else { "db" });
        let at = proxy.simulator.revision().to_string();
        while !socket
            .next()
            .await
            .expect("an event")
            .1
            .windows(at.len())
            .any(|it| it == at.as_bytes())
        {}
        let answer = proxy.client().get("/api/v1/pods").await;
        assert!(answer.text().contains(&format!("\"{at}\"")), "{}", answer.cache_status());
    }
}

#[tokio::test(start_paused = true)]
async fn pings_are_answered_and_either_side_may_close() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let path = format!("{PODS}&resourceVersion={}", proxy.simulator.revision());
    let (mut socket, _) = through(&proxy, &path).await;
    socket.send(TEXT, b"whatever").await;
    socket.send(PING, b"still there?").await;
    assert_eq!(socket.next().await, Some((PONG, b"still there?".to_vec())));
    proxy.put_pod("web-9", "web");
    assert_eq!(socket.next().await.expect("an event").0, TEXT);
    socket.send(CLOSE, &[3, 0xe8]).await;
    assert_eq!(socket.next().await, Some((CLOSE, vec![3, 0xe8])));
    assert_eq!(socket.next().await, None);

    let (mut socket, _) = through(&proxy, &format!("{path}&timeoutSeconds=5")).await;
    let started = Instant::now();
    assert_eq!(socket.next().await.expect("the event again").0, TEXT);
    assert_eq!(socket.next().await, Some((CLOSE, vec![3, 0xe8])));
    assert_eq!(socket.next().await, None);
    assert_eq!(started.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_silently_lost_client_is_detected() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let path = format!("{PODS}&resourceVersion={}", proxy.simulator.revision());
    let (socket, _) = through(&proxy, &path).await;
    pass(Duration::from_secs(11 * 60)).await;
    assert_eq!(proxy.replicas().len(), 1);
    drop(socket);
    pass(Duration::from_secs(11 * 60)).await;
    assert_eq!(proxy.replicas().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_the_apiserver_may_refuse_is_forwarded() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    for (name, value) in
        [("origin", None), ("sec-websocket-version", Some("8")), ("upgrade", Some("SPDY/3.1"))]
    {
        let mut request = handshake(&format!("{PODS}&timeoutSeconds=1"), LOCAL_TOKEN);
        request.headers_mut().remove(name);
        if let Some(value) = value {
            request.headers_mut().insert(name, value.parse().expect("a value"));
        }
        let response = proxy.anybody().open(request).await;
        let status = response.headers()["cache-status"].to_str().expect("a text");
        assert_eq!(status, "listless; fwd=request; detail=upgrade", "{name}");
        assert_eq!(proxy.upstream.last().asked.verb, Verb::Watch);
    }
}
