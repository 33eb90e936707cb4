//! Reads that name a version: 0, at least N, and the time that memory waits for N.

use std::time::Duration;

use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault},
};
use tokio::time::Instant;

use crate::harness::{Setup, TestProxy, group_resource, pass, pod, settle};

#[tokio::test(start_paused = true)]
async fn reads_of_version_zero_or_of_one_they_name_start_a_replica_when_they_are_repeated() {
    for query in ["resourceVersion=0", "resourceVersion=5"] {
        let proxy = Setup::default().in_memory();
        let client = proxy.client();
        let path = format!("/api/v1/pods?{query}");
        // The first may be an informer's initial list.
        for _ in 0..2 {
            assert_eq!(client.get(&path).await.detail(), "not-demanded");
            assert!(proxy.replicas().is_empty());
        }
        assert!(client.get(&path).await.is_hit());
        assert_eq!(proxy.replicas().len(), 1);
    }
    let proxy = Setup::default().in_memory();
    let selected = "/api/v1/pods?resourceVersion=0&labelSelector=app%3Dweb";
    assert_eq!(proxy.client().get(selected).await.detail(), "not-demanded");
    assert!(proxy.client().get(selected).await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn the_initial_lists_of_informers_start_no_replica() {
    let proxy = Setup::default().in_memory();
    for namespace in ["a", "b", "a-b", "c", "d", "e"] {
        proxy.client().get(&format!("/api/v1/namespaces/{namespace}/pods?resourceVersion=0")).await;
    }
    pass(Duration::from_secs(61)).await;
    proxy.client().get("/api/v1/namespaces/a/pods?resourceVersion=0").await;
    assert!(proxy.replicas().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_limit_applies_except_at_version_zero() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let client = proxy.client();
    // There are six pods; three of them are web pods.
    for (query, hit) in [
        ("limit=6", true),
        ("limit=5", false),
        ("limit=5", true),
        ("limit=1&resourceVersion=0", true),
        ("limit=3&labelSelector=app%3Dweb", true),
        ("limit=2&labelSelector=app%3Dweb", true),
        ("limit=5&resourceVersion=1001&resourceVersionMatch=NotOlderThan", true),
        ("limit=6&resourceVersion=1001&resourceVersionMatch=NotOlderThan", true),
    ] {
        let path = format!("/api/v1/pods?{query}");
        let (answer, straight) = (client.get(&path).await, proxy.straight().get(&path).await);
        assert_eq!(answer.is_hit(), hit, "{query}: {}", answer.cache_status());
        assert_eq!(answer.names(), straight.names(), "{query}");
        let metadata = |answer: &crate::harness::Answer| answer.json()["metadata"].clone();
        let part = |metadata: &serde_json::Value, key: &str| metadata.get(key).cloned();
        for key in ["continue", "remainingItemCount"] {
            let (ours, theirs) = (metadata(&answer), metadata(&straight));
            assert_eq!(part(&ours, key).is_some(), part(&theirs, key).is_some(), "{query} {key}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn list_not_older_than_waits_for_the_cache() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let client = proxy.client();
    let coming = proxy.simulator.revision() + 1;
    let path = format!("/api/v1/pods?resourceVersion={coming}&resourceVersionMatch=NotOlderThan");
    let started = Instant::now();
    let waiting = tokio::spawn(async move { client.get(&path).await });
    pass(Duration::from_millis(2500)).await;
    let put = proxy.simulator.put(&group_resource("pods"), pod("b", "late", &[], "n1"));
    assert_eq!(put, Some(coming));
    let answer = waiting.await.expect("no panic");
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert!(answer.names().contains(&"b/late".to_owned()));
    assert!(started.elapsed() < Duration::from_millis(2600), "{:?}", started.elapsed());
    assert!(proxy.upstream.all().len() <= proxy.upstream.reviews(), "nothing was forwarded");
}

#[tokio::test(start_paused = true)]
async fn a_future_version_is_forwarded_and_refused() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    for path in [
        "/api/v1/pods?resourceVersion=99999",
        "/api/v1/pods?resourceVersion=99999&resourceVersionMatch=NotOlderThan",
        "/api/v1/namespaces/a/pods/web-0?resourceVersion=99999",
    ] {
        let started = Instant::now();
        let answer = proxy.client().get(path).await;
        assert_eq!((answer.status, answer.detail()), (504, "behind"), "{path}");
        assert_eq!(answer.header("retry-after"), "1");
        assert_eq!(answer.text(), proxy.straight().get(path).await.text());
        // Two waits of three seconds are still below any client's timeout.
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        assert_eq!(proxy.upstream.last().asked.path_and_query, path);
        // The same read without a version is forwarded once, so that a client leaves the error.
        let newest = path.split('?').next().expect("a path");
        assert_eq!(proxy.client().get(newest).await.detail(), "after-expiry", "{path}");
        let last = proxy.client().get(newest).await;
        assert!(last.is_hit(), "{}", last.summary());
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_is_bounded_by_the_clients_timeout() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let started = Instant::now();
    let path = "/api/v1/pods?resourceVersion=99999&timeout=1s";
    let answer = proxy.client().get(path).await;
    assert_eq!(answer.detail(), "behind");
    let straight = Duration::from_secs(3);
    assert!(started.elapsed() < straight + Duration::from_millis(600), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn bookmarks_advance_the_version_of_a_quiet_collection() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let client = proxy.client();
    let first = client.get("/api/v1/pods").await.version();
    let elsewhere = proxy.simulator.skip_revisions(500);
    settle().await;
    assert_eq!(client.get("/api/v1/pods").await.version(), first);
    pass(Duration::from_secs(70)).await;
    let later = client.get("/api/v1/pods").await;
    assert!(later.is_hit(), "{}", later.cache_status());
    assert_eq!(later.version(), elsewhere);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_collection_catches_up_in_seconds_when_reads_need_it() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let client = proxy.client();
    proxy.simulator.skip_revisions(500);
    // Memory answers no exact version. The response is newer than the replica and breaks off; after
    // a moment only a bookmark shows to a read of one object that nothing changed.
    let newest = || format!("/api/v1/pods?limit=1&resourceVersion={}", proxy.simulator.revision());
    let web_0 = "/api/v1/namespaces/a/pods/web-0";
    let limited = |asked: &Asked| asked.path_and_query.contains("limit");
    proxy.simulator.inject(Fault::next(1, Effect::BreakAfter(300), limited));
    assert!(!client.apart().get(&newest()).await.whole);
    pass(Duration::from_secs(2)).await;
    assert_eq!(client.get(web_0).await.detail(), "behind");
    let watches = proxy.upstream.count(Verb::Watch, "pods");
    // A list of somebody else brings the apiserver's own cache up to date.
    assert_eq!(proxy.straight().get("/api/v1/pods").await.status, 200);
    pass(Duration::from_secs(3)).await;
    let caught_up = client.get(web_0).await;
    assert!(caught_up.is_hit(), "{}", caught_up.cache_status());
    // Reads that lag again at once do not open another watch. The whole list shows that nothing
    // changed.
    for _ in 0..4 {
        proxy.simulator.skip_revisions(500);
        assert_eq!(client.get(&newest()).await.detail(), "exact-version");
        pass(Duration::from_secs(2)).await;
        let whole = client.get("/api/v1/pods").await;
        assert_eq!(whole.detail(), "behind");
        let again = client.get("/api/v1/pods").await;
        assert!(again.is_hit() && again.version() >= whole.version(), "{}", again.summary());
    }
    let opened = proxy.upstream.count(Verb::Watch, "pods") - watches;
    assert!(opened <= 2, "{opened} watches for one short one");
}
