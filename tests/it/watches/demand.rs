//! Watches that start a replica, and those that do not keep one.

use std::time::Duration;

use http::Method;
use listless::{api::Verb, body::Body};

use super::local::put_large;
use crate::harness::{Setup, TestProxy, pass, request, settle};

const STREAMED: &str = "/api/v1/pods?watch=1&sendInitialEvents=true\
    &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

#[tokio::test(start_paused = true)]
async fn streamed_lists_that_repeat_start_a_replica() {
    let proxy = Setup::default().in_memory();
    let mut watches = Vec::new();
    for informer in 0..10 {
        let mut watch = proxy.client().watch(STREAMED).await;
        assert!(watch.next_line().await.is_some(), "the state");
        let served = watch.head.headers["cache-status"].to_str().expect("a text");
        assert_eq!(served.starts_with("listless; hit;"), informer > 1, "{served}");
        watches.push(watch);
    }
    let upstream = |verb| proxy.upstream.count(verb, "pods");
    assert_eq!((upstream(Verb::List), upstream(Verb::Watch)), (1, 2 + 1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_whose_client_reads_nothing_ends_and_keeps_no_replica() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let path = format!("/api/v1/pods?watch=1&resourceVersion={}", proxy.simulator.revision());
    let unread = proxy.client().open(request(Method::GET, &path, Body::empty())).await;
    for number in 0..40 {
        put_large(&proxy, number);
        settle().await;
    }
    let watchers = || proxy.counted("listless_watchers", "resource=\"pods\"");
    pass(Duration::from_secs(50)).await;
    assert_eq!(watchers(), 1.0);
    pass(Duration::from_secs(30)).await;
    assert_eq!(watchers(), 0.0);
    assert_eq!(proxy.counted("listless_watches_ended_total", "reason=\"slow\""), 1.0);
    pass(Duration::from_secs(11 * 60)).await;
    assert_eq!(proxy.replicas().len(), 0);
    drop(unread);
}
