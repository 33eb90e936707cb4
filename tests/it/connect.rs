//! CONNECT, as clients with a `proxy-url` send it: it leads to the apiserver and to no other host.

use std::time::Duration;

use listless::proxy::listen::Protocol;

use crate::harness::{
    LOCAL_TOKEN, OTHER_TOKEN, RawConnection, Setup, TcpApiserver, TestProxy, Via,
};

const PODS: &str = "/api/v1/pods";
const APISERVER: &str = "kubernetes.default.svc:443";

async fn start() -> TestProxy {
    Setup::default().known_as("kubernetes.default.svc", 443).on_loopback().await
}

fn connect(authority: &str) -> String {
    format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

#[tokio::test]
async fn requests_in_a_tunnel_are_served_as_on_any_connection() {
    let proxy = start().await;
    proxy.warm(PODS).await;
    for via in [Via::Http, Via::Https] {
        let anybody = proxy.through_connect(via, APISERVER);
        let http2 = anybody.over_http2().apart();
        for base in [anybody, http2] {
            let own = base.with("authorization", &format!("Bearer {LOCAL_TOKEN}"));
            for _ in 0..3 {
                let answer = own.get(PODS).await;
                assert!(answer.is_hit(), "{via:?}: {}", answer.summary());
                assert_eq!(
                    answer.json()["items"],
                    proxy.straight().get(PODS).await.json()["items"]
                );
            }
            let created = serde_json::json!({"metadata": {"generateName": "c-"}});
            let created = own.create("/api/v1/namespaces/a/configmaps", &created).await;
            assert_eq!(created.status, 201, "{}", created.summary());
            let other_caller = base.with("authorization", &format!("Bearer {OTHER_TOKEN}"));
            assert_eq!(other_caller.get(PODS).await.detail(), "other-credential");
            assert_eq!(base.get(PODS).await.status, 403, "no caller receives another identity");
        }
    }
    proxy.drain().await;
}

#[tokio::test]
async fn watches_and_upgrades_go_through_a_tunnel() {
    let proxy = start().await;
    let own = proxy.through_connect(Via::Http, APISERVER);
    let own = own.with("authorization", &format!("Bearer {LOCAL_TOKEN}"));
    let mut watch = own.over_http2().watch("/api/v1/pods?watch=1&timeoutSeconds=5").await;
    assert_eq!(watch.next().await.expect("an event").0, "ADDED");
    drop((watch, own));
    proxy.drain().await;

    let switching = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\n\
        upgrade: SPDY/3.1\r\n\r\n";
    let mut apiserver = TcpApiserver::start(switching).await;
    let setup = Setup::default().known_as("kubernetes.default.svc", 443);
    let proxy = setup.upstream(apiserver.pool()).on_loopback().await;
    let mut exec = RawConnection::open(&proxy.connect_door(Via::Http, APISERVER)).await;
    exec.send(format!(
        "POST /api/v1/namespaces/a/pods/web-0/exec HTTP/1.1\r\nHost: x\r\n\
         Authorization: Bearer {LOCAL_TOKEN}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         Content-Length: 0\r\n\r\n"
    ))
    .await;
    assert_eq!(exec.answer().await.expect("an answer").status, 101);
    let mut visit = apiserver.visit().await;
    exec.send(b"ping").await;
    assert_eq!(visit.read(4).await, b"ping");
    visit.write(b"pong").await;
    assert_eq!(exec.exactly(4).await.expect("bytes"), b"pong");
}

#[tokio::test]
async fn other_authorities_are_refused_by_name() {
    let proxy = start().await;
    for authority in [
        "example.com:443",
        "kubernetes.default.svc:6443",
        "kubernetes.default.svc.evil.example:443",
        "127.0.0.1:22",
        "[::1]:443",
        "user@kubernetes.default.svc:443",
        "\"quoted\":443",
    ] {
        for mut connection in [proxy.raw_tcp().await, proxy.raw().await] {
            connection.send(connect(authority)).await;
            connection.send(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00").await;
            let Some(answer) = connection.answer().await else {
                assert!(authority.contains('"'), "{authority}: no answer");
                continue;
            };
            if answer.status == 400 {
                assert!(authority.contains('"'), "{authority}: {}", answer.text());
                continue;
            }
            assert_eq!(answer.status, 403, "{authority}: {}", answer.text());
            let status: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
            assert_eq!(
                (&status["kind"], &status["reason"]),
                (&"Status".into(), &"Forbidden".into())
            );
            let message = status["message"].as_str().expect("a message");
            assert!(message.contains(&format!("{authority:?}")), "{message}");
            assert_eq!(answer.header("connection"), "close");
            assert_eq!(connection.rest().await, b"");
        }
    }
    assert!(proxy.upstream.all().is_empty());
    proxy.drain().await;
}

#[tokio::test]
async fn only_connect_is_served_in_plain_text() {
    let proxy = start().await;
    proxy.warm(PODS).await;
    let own = format!("Host: x\r\nAuthorization: Bearer {LOCAL_TOKEN}\r\n\r\n");
    for target in [
        format!("GET {PODS} HTTP/1.1\r\n"),
        format!("GET https://kubernetes.default.svc{PODS} HTTP/1.1\r\n"),
        format!("POST {PODS} HTTP/1.1\r\n"),
        "OPTIONS * HTTP/1.1\r\n".to_owned(),
    ] {
        let mut connection = proxy.raw_tcp().await;
        connection.send(format!("{target}{own}")).await;
        let answer = connection.answer().await.expect("an answer");
        assert_eq!(answer.status, 400, "{target}: {}", answer.text());
        let status: serde_json::Value = serde_json::from_str(&answer.text()).expect("JSON");
        let message = "without TLS only CONNECT is served here; use https";
        assert_eq!(status["message"], message, "{target}");
        assert_eq!(connection.rest().await, b"", "{target}");
    }
    assert!(proxy.upstream.all().is_empty());
    proxy.drain().await;
}

#[tokio::test]
async fn a_tunnel_carries_only_tls_and_no_nested_tunnel() {
    let proxy = start().await;
    let mut plain = proxy.raw_tcp().await;
    plain.send(connect(APISERVER)).await;
    assert_eq!(plain.exactly(12).await.expect("an answer"), b"HTTP/1.1 200");
    plain.send(format!("GET {PODS} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    let told = String::from_utf8_lossy(&plain.rest().await).into_owned();
    assert!(!told.contains("HTTP/1.1"), "{told}");

    let mut inside = RawConnection::open(&proxy.connect_door(Via::Https, APISERVER)).await;
    inside.send(connect(APISERVER)).await;
    assert_eq!(inside.answer().await.expect("an answer").status, 405);
    assert!(proxy.upstream.all().is_empty());
    proxy.drain().await;
}

#[tokio::test]
async fn old_clients_connect_with_http_1_0_and_without_a_host() {
    let proxy = start().await;
    let mut connection = proxy.raw_tcp().await;
    connection.send(format!("CONNECT {APISERVER} HTTP/1.0\r\n\r\n")).await;
    let status = connection.exactly(12).await.expect("an answer");
    assert!(status.ends_with(b" 200"), "{status:?}");
    drop(connection);
    proxy.drain().await;
}

#[tokio::test]
async fn a_tunnel_in_use_outlives_the_timeout_of_heads_and_ends_with_the_drain() {
    let proxy = start().await;
    let own = proxy.through_connect(Via::Http, APISERVER);
    let own = own.with("authorization", &format!("Bearer {LOCAL_TOKEN}"));
    assert_eq!(own.get(PODS).await.status, 200);
    let begun = tokio::time::Instant::now();
    proxy.drain().await;
    assert!(begun.elapsed() < Duration::from_secs(5), "an idle tunnel does not hold up the end");
}

#[tokio::test]
async fn framing_is_checked_inside_a_tunnel_too() {
    let proxy = start().await;
    let door = proxy.connect_door(Via::Http, APISERVER);
    let mut connection = RawConnection::open(&door).await;
    connection
        .send(
            "POST /api/v1/namespaces/a/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\
             Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        )
        .await;
    assert_eq!(connection.answer().await.expect("an answer").status, 400);
    assert!(proxy.upstream.all().is_empty());
    let _stream = door.dial(Protocol::Http2).await;
    proxy.drain().await;
}
