//! Watches: each event as it comes, in the apiserver's bytes, from memory or passed through.

mod demand;
mod local;
mod websocket;
mod widening;

use std::time::Duration;

use bytes::Bytes;

use listless::{
    api::{ObjectKey, Verb},
    simulator::{Effect, Fault},
};
use tokio::time::timeout;

use crate::harness::{
    LOCAL_TOKEN, Setup, TcpApiserver, TestProxy, WithUpgrades, group_resource, pass, populated,
    widget,
};

/// An expected event. A bookmark may have any version that is new enough. Listless learns how a
/// bookmark prints the zero values of its kind only from one the apiserver sends.
fn comparable(line: Bytes) -> String {
    let event: serde_json::Value = serde_json::from_slice(&line).expect("an event");
    if event["type"] == "BOOKMARK" {
        let object = &event["object"];
        assert!(object["metadata"]["resourceVersion"].is_string(), "{object}");
        return format!("bookmark {} {}", object["kind"], object["metadata"]["annotations"]);
    }
    String::from_utf8(line.to_vec()).expect("UTF-8")
}

#[tokio::test(start_paused = true)]
async fn events_come_one_by_one_in_the_apiservers_own_bytes() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let version = proxy.simulator.revision();
    for client in [proxy.client(), proxy.client().over_http2()] {
        for (path, served) in [
            ("/api/v1/pods?watch=1&resourceVersion=", "hit; detail=notOlderThan"),
            (
                "/api/v1/namespaces/a/pods?watch=true&labelSelector=app%3Dweb&resourceVersion=",
                "hit; detail=notOlderThan",
            ),
            (
                "/api/v1/watch/namespaces/a/pods?resourceVersion=",
                "fwd=request; detail=unusual-path",
            ),
            (
                "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
                "hit; detail=session",
            ),
            ("/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=0", "hit; detail=any"),
            ("/api/v1/pods?watch=1", "hit; detail=session"),
        ] {
            let ends = if path.ends_with('=') { version.to_string() } else { String::new() };
            let path = format!("{path}{ends}");
            let mut watch = client.apart().watch(&path).await;
            let mut straight = proxy.straight().watch(&path).await;
            assert_eq!(watch.head.status, 200);
            let status = watch.head.headers["cache-status"].to_str().expect("a text");
            assert_eq!(status, format!("listless; {served}"), "{path}");
            assert_eq!(watch.head.headers["content-type"], straight.head.headers["content-type"]);
            proxy.put_pod("web-9", "web");
            proxy.put_pod("web-9", "db");
            proxy.remove_pod("web-9");
            let mut deleted = false;
            while !deleted {
                let (line, expected) = (watch.next_line().await, straight.next_line().await);
                let (line, expected) = (line.expect("an event"), expected.expect("an event"));
                deleted = line.starts_with(b"{\"type\":\"DELETED\"");
                assert_eq!(comparable(line), comparable(expected), "{path}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_is_passed_on_before_the_next_one_happens() {
    let proxy = Setup::default().in_memory();
    let mut watch = proxy.client().watch("/api/v1/pods?watch=1&resourceVersion=1016").await;
    for number in 0..5 {
        pass(Duration::from_secs(30)).await;
        proxy.put_pod(&format!("p-{number}"), "web");
        let event = timeout(Duration::from_millis(10), watch.next()).await.expect("at once");
        assert_eq!(event, Some(("ADDED".to_owned(), format!("p-{number}"))));
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_and_the_end_are_forwarded() {
    let proxy = Setup::default().in_memory();
    let path =
        "/api/v1/pods?watch=1&resourceVersion=1010&allowWatchBookmarks=true&timeoutSeconds=100";
    let mut watch = proxy.client().watch(path).await;
    let started = tokio::time::Instant::now();
    let mut bookmarks = 0;
    while let Some((kind, _)) = watch.next().await {
        bookmarks += usize::from(kind == "BOOKMARK");
    }
    assert!(bookmarks >= 1);
    let lasted = started.elapsed();
    assert!((99..=101).contains(&lasted.as_secs()), "{lasted:?}");
}

#[tokio::test(start_paused = true)]
async fn errors_before_and_inside_a_watch_are_forwarded() {
    let proxy = Setup::default().in_memory();
    for path in [
        "/api/v1/pods?watch=1&resourceVersion=abc",
        "/api/v1/pods?watch=1&labelSelector=a%20b",
        "/api/v1/pods?watch=1&fieldSelector=spec.hostname%3Dx",
        "/api/v1/pods?watch=1&sendInitialEvents=true",
        "/api/v1/pods?watch=1&resourceVersion=1",
        "/api/v1/unknowns?watch=1",
    ] {
        let (answer, straight) = (proxy.client().get(path).await, proxy.straight().get(path).await);
        assert_eq!(answer.status, straight.status, "{path}");
        assert_eq!(answer.text(), straight.text(), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_unknown_parameters_is_forwarded_unchanged() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let table = proxy.client().with("accept", "application/json;as=Table;v=v2;g=meta.k8s.io");
    let answer = table.get("/api/v1/pods?watch=1&timeoutSeconds=1").await;
    assert_eq!(answer.detail(), "table");
    let version = proxy.simulator.revision();
    for (path, reason) in [
        ("/api/v1/pods?watch=1&resourceVersion=1&timeoutSeconds=1", "before-window"),
        ("/api/v1/pods?watch=1&resourceVersion={v}&timeoutSeconds=1&shard=x", "unknown-parameter"),
        ("/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=0{v}", "bad-version"),
        ("/api/v1/watch/pods?timeoutSeconds=1", "unusual-path"),
        ("/api/v1/pods?watch=1&timeoutSeconds=-1", "bad-value"),
        ("/api/v1/nodes?watch=1&timeoutSeconds=1", "not-demanded"),
        ("/api/v1/secrets?watch=1&timeoutSeconds=1", "never-cached"),
    ] {
        let path = path.replace("{v}", &version.to_string());
        let answer = proxy.client().get(&path).await;
        assert_eq!(answer.detail(), reason, "{path}");
        assert_eq!(proxy.upstream.last().asked.path_and_query, path);
        assert_eq!(proxy.upstream.last().asked.verb, Verb::Watch);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_breaks_upstream_between_two_events_ends_for_the_client() {
    let proxy = Setup::default().in_memory();
    for client in [proxy.client(), proxy.client().over_http2()] {
        let client = client.apart();
        let version = proxy.simulator.revision();
        let path = format!("/api/v1/pods?watch=1&resourceVersion={version}");
        let watching = tokio::spawn(async move { client.get(&path).await });
        pass(Duration::from_secs(1)).await;
        proxy.put_pod("web-9", "web");
        pass(Duration::from_secs(1)).await;
        proxy.simulator.break_watches();
        let answer = watching.await.expect("no panic");
        assert_eq!(answer.status, 200);
        assert!(answer.text().ends_with("}\n"), "{}", answer.summary());
        assert!(answer.whole, "its client would take a reset for more than an end");
    }
}

#[tokio::test(start_paused = true)]
async fn many_watches_run_concurrently() {
    let proxy = Setup::default().in_memory();
    let client = proxy.client().over_http2();
    let mut watches = Vec::new();
    for number in 0..100 {
        let client = if number % 2 == 0 { client.clone() } else { proxy.client() };
        watches.push(client.watch("/apis/x.io/v1/widgets?watch=1&resourceVersion=1016").await);
    }
    let green = widget("a", "w9", "green");
    proxy.simulator.put(&group_resource("widgets.x.io"), green).expect("a served resource");
    for watch in &mut watches {
        assert_eq!(watch.next().await, Some(("ADDED".to_owned(), "w9".to_owned())));
    }
    assert_eq!(client.get("/version").await.status, 200);
}

#[tokio::test]
async fn a_watch_over_tls_delivers_at_once() {
    let proxy = Setup::default().on_loopback().await;
    for client in [proxy.client(), proxy.client().over_http2()] {
        let version = proxy.simulator.revision();
        let path = format!("/api/v1/pods?watch=1&resourceVersion={version}");
        let mut watch = client.watch(&path).await;
        proxy.put_pod("web-9", "web");
        let event = timeout(Duration::from_secs(5), watch.next()).await.expect("an event");
        assert_eq!(event.expect("an event").1, "web-9");
    }
    proxy.simulator.end_watches();
    proxy.drain().await;
}

#[tokio::test]
async fn a_websocket_watch_is_forwarded_and_observed_as_any_other() {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                     Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";
    let mut apiserver = TcpApiserver::start(switching).await;
    let simulator = populated();
    let upstream = WithUpgrades { simulator: simulator.clone(), pool: apiserver.pool() };
    let proxy = Setup::of(simulator.clone()).upstream(upstream).on_loopback().await;
    let stalled = Fault::always(Effect::StallAfter(0), |asked| asked.verb == Verb::Watch);
    simulator.inject(stalled);
    proxy.warm("/api/v1/pods").await;
    let mut client = proxy.raw().await;
    client
        .send(format!(
            "GET /api/v1/pods?watch=1&resourceVersion=1016 HTTP/1.1\r\nHost: x\r\n\
             Authorization: Bearer {LOCAL_TOKEN}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n"
        ))
        .await;
    assert_eq!(client.answer().await.expect("an answer").status, 101);
    let mut visit = apiserver.visit().await;
    assert!(visit.head.contains("sec-websocket-version: 13\r\n"), "{}", visit.head);
    proxy.put_pod("web-9", "web");
    let key = ObjectKey::new(Some("a"), "web-9");
    let object = simulator.object(&group_resource("pods"), &key).expect("an object").to_bytes();
    let event = [&b"{\"type\":\"ADDED\",\"object\":"[..], &object, b"}"].concat();
    let length = u16::try_from(event.len()).expect("a short event");
    assert!(length > 125);
    let frame = [&[0x81, 126][..], &length.to_be_bytes(), &event].concat();
    visit.write(&frame).await;
    assert_eq!(client.exactly(frame.len()).await.expect("a frame"), frame);
    // The replica has not received it yet, but the session has.
    let listed = proxy.client().get("/api/v1/pods").await;
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
    drop((client, visit));
    proxy.drain().await;
}
