//! Event streams: their content, the data they never contain, and the limit on their number.

use http::Method;
use listless::{body::Body, tap::LISTENERS_MAX};
use serde_json::Value;

use super::{HOSTILE_AGENT, PODS};
use crate::harness::{LOCAL_TOKEN, Setup, TestClient, TestProxy, Watch, eventually, request};

/// Returns the kind and data of the next event of one of these kinds.
async fn next(stream: &mut Watch, kinds: &[&str]) -> (String, Value) {
    let mut kind = String::new();
    loop {
        let line = stream.next_line().await.expect("a line");
        let line = std::str::from_utf8(&line).expect("text").trim_end();
        if let Some(found) = line.strip_prefix("event: ") {
            found.clone_into(&mut kind);
        } else if let Some(data) = line.strip_prefix("data: ")
            && kinds.contains(&kind.as_str())
        {
            return (kind, serde_json::from_str(data).expect("JSON"));
        }
    }
}

async fn follow(admin: &TestClient, query: &str) -> Watch {
    let stream = admin.apart().watch(&format!("/api/v1/events?{query}")).await;
    assert_eq!(stream.head.status, 200);
    assert_eq!(stream.head.headers["content-type"], "text/event-stream");
    stream
}

#[tokio::test]
async fn a_request_is_shown_as_it_is_answered_and_without_secrets() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    let mut stream = follow(&admin, "only=requests").await;
    let client = proxy
        .client()
        .with("user-agent", HOSTILE_AGENT)
        .with("x-secret", "secret-header")
        .with("cookie", "secret-cookie");
    let path = format!("{PODS}?labelSelector=app%3Dweb&access_token=secret-parameter");
    assert_eq!(client.get(&path).await.status, 200);
    let (_, shown) = next(&mut stream, &["request"]).await;
    assert_eq!((&shown["verb"], &shown["resource"]), (&"list".into(), &"pods.v1".into()));
    assert_eq!((&shown["namespace"], &shown["code"]), (&"a".into(), &200.into()));
    assert_eq!(shown["query"], "labelSelector=app=web (+1 not shown)");
    assert_eq!(shown["userAgent"], HOSTILE_AGENT, "as text: it is the page that must not run it");
    assert_eq!((&shown["servedBy"], &shown["phase"]), (&"upstream".into(), &"ended".into()));
    assert_eq!(shown["detail"], "unknown-parameter");
    assert!(shown["bytes"].as_u64() > Some(0) && shown["at"].as_f64() > Some(1.7e9), "{shown}");
    let text = shown.to_string();
    for secret in ["secret-", LOCAL_TOKEN, "authorization", "Bearer"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[tokio::test]
async fn a_watch_is_shown_when_it_begins_and_when_it_ends() {
    let proxy = TestProxy::warmed(PODS).await;
    let admin = proxy.admin().await;
    let mut stream = follow(&admin, "only=requests&verb=watch").await;
    proxy.client().get(PODS).await;
    let watch = proxy.client().apart().watch(&format!("{PODS}?watch=1")).await;
    let (_, began) = next(&mut stream, &["request"]).await;
    assert_eq!((&began["verb"], &began["phase"]), (&"watch".into(), &"began".into()));
    assert_eq!(began["servedBy"], "cache");
    drop(watch);
    let (_, ended) = next(&mut stream, &["request"]).await;
    assert_eq!((&ended["verb"], &ended["phase"]), (&"watch".into(), &"ended".into()));
}

#[tokio::test]
async fn a_stream_contains_only_requests_that_match_its_filters() {
    let proxy = TestProxy::warmed(PODS).await;
    let admin = proxy.admin().await;
    let query = "only=requests&verb=LIST&resource=pods&userAgent=POLLER&servedBy=cache";
    let mut stream = follow(&admin, query).await;
    let (poller, other) = (proxy.client().with("user-agent", "poller/8"), proxy.client());
    other.get(PODS).await;
    poller.get("/api/v1/namespaces").await;
    poller.get(&format!("{PODS}?unknown=1")).await;
    let seen = poller.get(PODS).await;
    assert!(seen.is_hit());
    let (_, shown) = next(&mut stream, &["request"]).await;
    assert_eq!((&shown["servedBy"], &shown["userAgent"]), (&"cache".into(), &"poller/8".into()));
    assert_eq!(shown["bytes"].as_u64(), Some(seen.body.len() as u64));
}

#[tokio::test]
async fn the_page_stream_has_the_status_and_each_second_but_no_requests() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    let mut stream = follow(&admin, "only=status").await;
    let kinds = ["status", "timeline", "request"];
    let (kind, status) = next(&mut stream, &kinds).await;
    assert_eq!((kind.as_str(), &status["mode"]), ("status", &"enforce".into()));
    let (mut seconds, mut client) = (0, 0);
    while client == 0 {
        proxy.client().get(PODS).await;
        let (kind, news) = next(&mut stream, &kinds).await;
        assert_ne!(kind, "request");
        if kind == "timeline" {
            let points = news["points"].as_array().expect("points");
            seconds += points.len();
            client += points.iter().filter_map(|point| point["client"].as_u64()).sum::<u64>();
        }
        assert!(seconds < 20, "no request was counted");
    }
}

#[tokio::test]
async fn a_new_configuration_is_marked() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    let mut stream = follow(&admin, "only=status").await;
    // Counting begins here.
    next(&mut stream, &["timeline"]).await;
    proxy.metrics().config_reloaded(listless::metrics::Outcome::Success);
    proxy.metrics().limit_reached(listless::metrics::Limit::Watches);
    let marks = loop {
        let (_, news) = next(&mut stream, &["timeline"]).await;
        let marks = news["marks"].as_array().expect("marks").clone();
        if !marks.is_empty() {
            break marks;
        }
    };
    let kinds: Vec<_> = marks.iter().map(|mark| mark["kind"].as_str()).collect();
    assert_eq!(kinds, [Some("configReload"), Some("boundReached")]);
}

#[tokio::test]
async fn streams_are_bounded_and_a_closed_one_makes_room() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    let mut streams = Vec::new();
    for _ in 0..LISTENERS_MAX {
        streams.push(follow(&admin, "only=requests").await);
    }
    let refused = admin.apart().get("/api/v1/events").await;
    assert_eq!(
        (refused.status, refused.text()),
        (503, "16 streams are open already; close one first\n")
    );
    assert_eq!(admin.apart().get("/api/v1/status").await.status, 200, "all else is answered");
    streams.pop();
    let free = async || {
        let asked = request(Method::GET, "/api/v1/events?only=status", Body::empty());
        admin.apart().open(asked).await.status() == 200
    };
    // The other side notices a closed connection only after a while.
    for _ in 0..100 {
        if free().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("no place came back");
}

#[tokio::test]
async fn a_slow_reader_gets_the_number_of_missed_events() {
    let proxy = TestProxy::warmed(PODS).await;
    let admin = proxy.admin().await;
    let mut stream = follow(&admin, "only=requests").await;
    let client = proxy.client().with("user-agent", &"x".repeat(256));
    // This is more than queue and socket hold. The stream is not read meanwhile.
    let lost =
        || proxy.metrics().totals().limits[listless::metrics::Limit::TappedRequests as usize];
    for _ in 0..200_000 {
        assert!(client.get(&format!("{PODS}?limit=500")).await.is_hit());
        if lost() > 0 {
            break;
        }
    }
    eventually("a loss", || lost() > 0).await;
    let mut seen = 0;
    loop {
        let (kind, data) = next(&mut stream, &["request", "lost"]).await;
        if kind == "lost" {
            assert!(data["lost"].as_u64() > Some(0), "{data}");
            assert!(seen > 0);
            return;
        }
        seen += 1;
    }
}
