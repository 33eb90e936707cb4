//! Forwarded reads: the additions to their query, and the cases without any.

use crate::harness::{Setup, TestProxy, pod};

const PODS: &str = "/api/v1/namespaces/a/pods";

fn proxy(rewrite: &str) -> TestProxy {
    Setup::default().config(&format!("uncachedReads: {{rewrite: {rewrite}}}\n")).in_memory()
}

/// Returns the request that the apiserver receives when a client reads `path`.
async fn asked(proxy: &TestProxy, path: &str) -> String {
    proxy.client().get(path).await;
    proxy.upstream.last().asked.path_and_query
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_read_is_relaxed_as_configured() {
    let zero = "resourceVersion=0";
    let pod = format!("{PODS}/web-0");
    let selected = format!("{PODS}?labelSelector=app%3Dweb");
    for (rewrite, path, expected) in [
        ("keep", PODS, PODS.to_owned()),
        ("keep", &pod, pod.clone()),
        ("any", PODS, format!("{PODS}?{zero}")),
        ("any", &pod, format!("{pod}?{zero}")),
        ("any", &selected, format!("{selected}&{zero}")),
        ("any", &format!("{PODS}?"), format!("{PODS}?{zero}")),
        ("any", &format!("{PODS}?timeout=9s"), format!("{PODS}?timeout=9s&{zero}")),
        ("notOlderThan", PODS, format!("{PODS}?{zero}")),
        ("notOlderThan", &pod, format!("{pod}?{zero}")),
        ("notOlderThan", &selected, format!("{selected}&{zero}")),
    ] {
        assert_eq!(asked(&proxy(rewrite), path).await, expected, "{rewrite} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_relaxed_read_is_never_older_than_what_the_session_has_seen() {
    let proxy = proxy("notOlderThan");
    let listed = proxy.client().get(PODS).await.version();
    let floor = format!("resourceVersion={listed}");
    let selected = format!("{PODS}?labelSelector=app%3Dweb");
    let expected = format!("{selected}&{floor}&resourceVersionMatch=NotOlderThan");
    assert_eq!(asked(&proxy, &selected).await, expected);
    // A GET has no resourceVersionMatch.
    assert_eq!(asked(&proxy, &format!("{PODS}/web-0")).await, format!("{PODS}/web-0?{floor}"));
    // Another resource has its own versions.
    assert_eq!(asked(&proxy, "/api/v1/nodes").await, "/api/v1/nodes?resourceVersion=0");
}

#[tokio::test(start_paused = true)]
async fn a_relaxed_read_is_never_older_than_what_the_session_has_written() {
    let proxy = proxy("notOlderThan");
    let written = proxy.client().create(PODS, &pod("a", "new", &[("app", "web")], "")).await;
    assert_eq!(written.status, 201);
    let floor = format!("resourceVersion={}", written.version());
    let expected = format!("{PODS}?{floor}&resourceVersionMatch=NotOlderThan");
    assert_eq!(asked(&proxy, PODS).await, expected);
    assert_eq!(asked(&proxy, &format!("{PODS}/new")).await, format!("{PODS}/new?{floor}"));
}

#[tokio::test(start_paused = true)]
async fn reads_stay_consistent_after_a_write_without_a_version() {
    let proxy = proxy("notOlderThan");
    let maps = "/api/v1/namespaces/a/configmaps";
    let deleted = proxy.client().delete(&format!("{maps}/c")).await;
    assert_eq!(deleted.json()["kind"], "Status");
    assert_eq!(asked(&proxy, &format!("{maps}/c")).await, format!("{maps}/c"));
    assert_eq!(asked(&proxy, maps).await, maps);
    // That list was a proof, but of a version that a cache may not reach for long.
    let other = format!("{maps}?labelSelector=x");
    assert_eq!(asked(&proxy, &other).await, other);
    // From then on, the version that a cache has shown is enough.
    let relaxed = format!("{maps}?resourceVersion=0");
    let listed = proxy.client().get(&relaxed).await.version();
    let floor = format!("resourceVersion={listed}&resourceVersionMatch=NotOlderThan");
    let third = format!("{maps}?labelSelector=y");
    assert_eq!(asked(&proxy, &third).await, format!("{third}&{floor}"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_added_where_it_would_change_the_meaning() {
    for rewrite in ["any", "notOlderThan"] {
        for path in [
            "/api/v1/pods?limit=500",
            "/api/v1/pods?limit=1",
            "/api/v1/pods?continue=abc",
            "/api/v1/pods?resourceVersion=0",
            "/api/v1/pods?resourceVersion=1003",
            "/api/v1/pods?resourceVersion=1003&resourceVersionMatch=Exact",
            "/api/v1/pods?resourceVersionMatch=NotOlderThan",
            "/api/v1/pods?shardSelector=1",
            "/api/v1/pods?labelSelector=a;b",
            "/api/v1/namespaces/a/pods/web-0/status",
            "/api/v1/namespaces/a/pods/web-0?resourceVersion=0",
            "/api/v1/secrets",
            "/api/v1/events",
            "/version",
            "/apis/",
        ] {
            assert_eq!(asked(&proxy(rewrite), path).await, path, "{rewrite}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_callers_watches_and_writes_are_not_rewritten() {
    for rewrite in ["any", "notOlderThan"] {
        let proxy = proxy(rewrite);
        proxy.anybody().get(PODS).await;
        assert_eq!(proxy.upstream.last().asked.path_and_query, PODS);
        let watch = "/api/v1/pods?watch=1&timeoutSeconds=1";
        assert_eq!(asked(&proxy, watch).await, watch);
        proxy.client().delete(PODS).await;
        assert_eq!(proxy.upstream.last().asked.path_and_query, PODS);
        let created = proxy.client().create(PODS, &pod("a", "x", &[], "")).await;
        assert_eq!(created.status, 201);
        assert_eq!(proxy.upstream.last().asked.path_and_query, PODS);
    }
}

#[tokio::test(start_paused = true)]
async fn at_the_strictest_level_nothing_is_relaxed() {
    let rules = "cache:\n  rules:\n  - {resources: ['*'], freshness: mostRecent}\n";
    let proxy = Setup::default().config(rules).in_memory();
    for path in [PODS, "/api/v1/namespaces/a/pods/web-0"] {
        for _ in 0..3 {
            assert_eq!(asked(&proxy, path).await, path);
        }
    }
    assert!(proxy.replicas().is_empty());
}
