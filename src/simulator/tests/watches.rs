//! WATCH, rule by rule.

use std::time::Duration;

use tokio::time::Instant;

use super::{Bench, pods};
use crate::{
    api::{GroupResource, ObjectKey},
    simulator::{Effect, Fault},
};

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_version_sends_the_later_changes() {
    let bench = Bench::new();
    let first = bench.pod("d", "a", "Pending");
    bench.pod("d", "b", "Pending");
    let mut events = bench.watch(&format!("/api/v1/pods?watch=1&resourceVersion={first}")).await;
    events.expect(&[("ADDED", "b")]).await;
    events.assert_silent().await;
    bench.pod("d", "a", "Running");
    bench.simulator.remove(&pods(), &ObjectKey::new(Some("d"), "b"));
    events.expect(&[("MODIFIED", "a"), ("DELETED", "b")]).await;
}

#[tokio::test]
async fn events_are_lines_with_the_whole_object() {
    let bench = Bench::new();
    let widget = serde_json::json!({"metadata": {"name": "w", "namespace": "d", "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let widgets = GroupResource::new("x.io", "widgets");
    bench.simulator.put(&widgets, widget);
    let path = "/apis/x.io/v1/namespaces/d/widgets?watch=true&resourceVersion=1000";
    let mut events = bench.watch(path).await;
    bench.simulator.remove(&widgets, &ObjectKey::new(Some("d"), "w"));
    for (kind, version) in [("ADDED", 1001), ("DELETED", 1002)] {
        let expected = format!(
            "{{\"type\":\"{kind}\",\"object\":{{\"apiVersion\":\"x.io/v1\",\"kind\":\"Widget\",\
             \"metadata\":{{\"creationTimestamp\":\"2026-01-01T00:00:00Z\",\"name\":\"w\",\
             \"namespace\":\"d\",\"resourceVersion\":\"{version}\",\"uid\":\"u\"}}}}}}\n"
        );
        assert_eq!(events.next_bytes().await.expect("an event"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn selectors_turn_transitions_into_additions_and_deletions() {
    let bench = Bench::new();
    let start = bench.pod("d", "a", "Pending");
    let path = format!(
        "/api/v1/pods?watch=1&resourceVersion={start}&fieldSelector=status.phase%3DRunning"
    );
    let mut events = bench.watch(&path).await;
    bench.pod("d", "a", "Pending");
    bench.pod("d", "a", "Running");
    bench.pod("d", "a", "Running");
    let left = bench.pod("d", "a", "Failed");
    events.expect(&[("ADDED", "a"), ("MODIFIED", "a")]).await;
    let deleted = events.next_bytes().await.expect("an event");
    let deleted = String::from_utf8_lossy(&deleted).into_owned();
    assert!(deleted.starts_with(r#"{"type":"DELETED""#), "{deleted}");
    assert!(deleted.contains(r#""phase":"Running""#), "the previous object: {deleted}");
    assert!(deleted.contains(&format!(r#""resourceVersion":"{left}""#)), "{deleted}");
    events.assert_silent().await;
}

#[tokio::test(start_paused = true)]
async fn each_start_sends_its_own_initial_events() {
    let bench = Bench::new();
    let start = bench.pod("d", "a", "Running");
    let end = start.to_string();
    let all = "allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let mark = ("BOOKMARK", end.as_str());
    let added = ("ADDED", "a");
    for (query, expected) in [
        (String::new(), vec![added]),
        ("allowWatchBookmarks=true".to_owned(), vec![added, mark]),
        ("resourceVersion=0".to_owned(), vec![added]),
        (all.to_owned(), vec![added, mark]),
        (format!("resourceVersion=0&{all}"), vec![added, mark]),
        (format!("resourceVersion={start}&{all}"), vec![added, mark]),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(), vec![added]),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan".to_owned(), vec![]),
        (format!("resourceVersion={}", start + 100), vec![]),
    ] {
        let mut events = bench.watch(&format!("/api/v1/pods?watch=true&{query}")).await;
        events.expect(&expected).await;
        events.assert_silent().await;
    }
}

#[tokio::test(start_paused = true)]
async fn releases_without_watch_list_send_no_end_mark_and_refuse_it() {
    let bench = Bench::old();
    bench.pod("d", "a", "Running");
    let mut events = bench.watch("/api/v1/pods?watch=true&allowWatchBookmarks=true").await;
    events.expect(&[("ADDED", "a")]).await;
    events.assert_silent().await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let refused = bench.get(&format!("/api/v1/pods?{query}")).await;
    assert_eq!(refused.code, 422);
    assert!(refused.body.contains("unless the WatchList feature gate is enabled"));
}

#[tokio::test]
async fn option_errors_of_a_watch_are_http_errors() {
    let bench = Bench::new();
    for (query, code) in [
        ("sendInitialEvents=true", 422),
        ("resourceVersion=5&resourceVersionMatch=NotOlderThan", 422),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", 422),
        ("continue=x", 422),
        ("resourceVersion=x", 500),
        ("fieldSelector=nonsense=1", 400),
    ] {
        let answer = bench.get(&format!("/api/v1/pods?watch=true&{query}")).await;
        assert_eq!(answer.code, code, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_mark_has_the_annotation_and_zero_values() {
    let bench = Bench::new();
    let mut events = bench.watch("/api/v1/pods?watch=true&allowWatchBookmarks=true").await;
    assert_eq!(
        events.next_bytes().await.expect("an event"),
        concat!(
            r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"#,
            r#""resourceVersion":"1000","annotations":{"k8s.io/initial-events-end":"true"}},"#,
            r#""spec":{"containers":null},"status":{}}}"#,
            "\n"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_version_older_than_the_window_is_an_error_in_the_stream() {
    let bench = Bench::new();
    let start = bench.pod("d", "a", "Running");
    bench.pod("d", "b", "Running");
    bench.simulator.forget_history();
    let mut events = bench.watch(&format!("/api/v1/pods?watch=1&resourceVersion={start}")).await;
    assert_eq!(
        events.next_bytes().await.expect("an event"),
        concat!(
            r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"#,
            r#""status":"Failure","message":"too old resource version: 1001 (1002)","#,
            r#""reason":"Expired","code":410}}"#,
            "\n"
        )
    );
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn initial_events_at_a_future_version_end_in_an_error() {
    let bench = Bench::new();
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99999";
    let mut events = bench.watch(&format!("/api/v1/pods?watch=1&{query}")).await;
    let message = "Timeout: Too large resource version: 99999, current: 1000";
    events.expect(&[("ERROR", message)]).await;
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_its_timeout_or_after_half_an_hour_at_least() {
    let bench = Bench::new();
    for (query, least, most) in
        [("timeoutSeconds=7", 7, 7), ("timeoutSeconds=0", 1800, 3600), ("", 1800, 3600)]
    {
        let started = Instant::now();
        let path = format!("/api/v1/pods?watch=1&resourceVersion=1000&{query}");
        assert_eq!(bench.watch(&path).await.next().await, None);
        let lasted = started.elapsed().as_secs();
        assert!((least..=most).contains(&lasted), "{query}: {lasted} s");
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_once_the_version_moved() {
    let bench = Bench::new();
    let path = "/api/v1/pods?watch=1&resourceVersion=1000&allowWatchBookmarks=true";
    let mut events = bench.watch(path).await;
    let started = Instant::now();
    bench.simulator.skip_revisions(5);
    events.expect(&[("BOOKMARK", "1005")]).await;
    assert_eq!(started.elapsed().as_secs(), 60);
    bench.pod("d", "a", "Running");
    events.expect(&[("ADDED", "a"), ("BOOKMARK", "1006")]).await;
    assert_eq!(started.elapsed().as_secs(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_short_watch_below_the_current_version_gets_a_bookmark_before_its_end() {
    let bench = Bench::new();
    bench.simulator.skip_revisions(5);
    let probe = bench.get("/api/v1/pods?fieldSelector=metadata.name%3Dnobody").await;
    assert_eq!(probe.version(), 1005, "a consistent read tells the cache the revision");
    let mut idle = bench
        .watch(
            "/api/v1/pods?watch=1&resourceVersion=1005&allowWatchBookmarks=true&timeoutSeconds=3",
        )
        .await;
    assert_eq!(idle.next().await, None, "nothing above where it started");
    let mut behind = bench
        .watch(
            "/api/v1/pods?watch=1&resourceVersion=1000&allowWatchBookmarks=true&timeoutSeconds=3",
        )
        .await;
    behind.expect(&[("BOOKMARK", "1005")]).await;
    assert_eq!(behind.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn watches_can_be_ended_or_broken_and_the_server_comes_back() {
    let bench = Bench::new();
    let path = "/api/v1/pods?watch=1&resourceVersion=1000";
    let (mut ended, mut broken) = (bench.watch(path).await, bench.watch(path).await);
    bench.simulator.end_watches();
    assert_eq!(ended.next().await, None);
    assert_eq!(broken.next().await, None);
    let mut broken = bench.watch(path).await;
    bench.simulator.stop();
    assert!(
        http_body_util::BodyExt::frame(&mut broken.body).await.is_some_and(|frame| frame.is_err())
    );
    let request = http::Request::get(path).body(crate::body::Body::empty()).expect("a request");
    assert!(bench.simulator.answer(request).await.is_err());
    bench.simulator.start();
    bench.pod("d", "a", "Running");
    bench.watch(path).await.expect(&[("ADDED", "a")]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_too_slow_for_the_window_is_cut_silently() {
    let settings = crate::simulator::Settings { history_changes_max: 3, ..Default::default() };
    let bench = Bench::with(settings);
    let mut events = bench.watch("/api/v1/pods?watch=1&resourceVersion=1000").await;
    for phase in ["A", "B", "C", "D", "E"] {
        bench.pod("d", "a", phase);
    }
    assert_eq!(events.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_a_lagging_cache_stands_still_until_it_catches_up() {
    let bench = Bench::new();
    let mut events = bench.watch("/api/v1/pods?watch=1&resourceVersion=1000").await;
    bench.simulator.hold_caches();
    bench.pod("d", "a", "Running");
    events.assert_silent().await;
    bench.simulator.release_caches();
    events.expect(&[("ADDED", "a")]).await;
}

#[tokio::test(start_paused = true)]
async fn faults_affect_watches() {
    let bench = Bench::new();
    let path = "/api/v1/pods?watch=1&resourceVersion=1000";
    bench.simulator.inject(Fault::next(1, Effect::Expired, |asked| asked.resource == "pods"));
    let (kind, _) = bench.watch(path).await.next().await.expect("an event");
    assert_eq!(kind, "ERROR");
    bench.simulator.inject(Fault::next(1, Effect::StallAfter(0), |_| true));
    let mut stalled = bench.watch(path).await;
    bench.pod("d", "a", "Running");
    let silence = tokio::time::timeout(Duration::from_secs(3600), stalled.next()).await;
    assert!(silence.is_err());
    bench.watch(path).await.expect(&[("ADDED", "a")]).await;
}
