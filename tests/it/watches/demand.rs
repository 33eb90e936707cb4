//! Watches that start a replica.

use listless::api::Verb;

use crate::harness::Setup;

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
