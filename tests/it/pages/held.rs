//! The time for which pages stay in memory, and the requests that are forwarded.

use std::time::Duration;

use super::{following, paging, token};
use crate::harness::{Setup, TestProxy, group_resource, pass, pod, settle};

const PODS: &str = "/api/v1/pods";

/// Changes the pods, which gives the replica another version.
async fn change(proxy: &TestProxy) {
    proxy.simulator.put(&group_resource("pods"), pod("b", "late", &[("app", "web")], "n1"));
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_page_is_forwarded_until_the_apiservers_token_was_seen() {
    let proxy = TestProxy::warmed(PODS).await;
    let target = format!("{PODS}?limit=2");
    let (client, straight) = (proxy.client(), proxy.straight());
    assert_eq!(client.get(&target).await.detail(), "limit");
    let second = client.get(&target).await;
    assert!(second.is_hit(), "{}", second.summary());
    assert_eq!(second.text(), straight.get(&target).await.text());
}

#[tokio::test(start_paused = true)]
async fn pages_are_kept_for_five_minutes_and_then_asked_for() {
    let proxy = paging(&[PODS]).await;
    let target = format!("{PODS}?limit=2");
    let first = proxy.client().get(&target).await;
    assert!(first.is_hit(), "{}", first.summary());
    let next = following(&target, &token(&first).expect("a token"));
    change(&proxy).await;
    pass(Duration::from_secs(290)).await;
    let kept = proxy.client().get(&next).await;
    assert!(kept.is_hit(), "{}", kept.summary());
    pass(Duration::from_secs(11)).await;
    let asked = proxy.client().get(&next).await;
    assert_eq!(asked.detail(), "continue");
    assert_eq!(asked.text(), kept.text());
    proxy.simulator.compact(proxy.simulator.revision());
    let expired = proxy.client().get(&next).await;
    assert_eq!((expired.status, expired.detail()), (410, "continue"));
    assert_eq!(expired.text(), proxy.straight().get(&next).await.text());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_lists_again_keeps_no_page() {
    let proxy = paging(&[PODS]).await;
    let target = format!("{PODS}?limit=2");
    let first = proxy.client().get(&target).await;
    let next = following(&target, &token(&first).expect("a token"));
    change(&proxy).await;
    assert!(proxy.client().get(&next).await.is_hit());
    proxy.simulator.skip_revisions(5);
    proxy.simulator.forget_history();
    proxy.simulator.end_watches();
    pass(Duration::from_secs(30)).await;
    let asked = proxy.client().get(&next).await;
    assert_eq!(asked.detail(), "continue", "{}", asked.summary());
    let straight = proxy.straight().get(&next).await;
    assert_eq!((asked.status, asked.text()), (straight.status, straight.text()));
}

#[tokio::test(start_paused = true)]
async fn tokens_of_versions_that_memory_does_not_hold_are_forwarded() {
    let proxy = paging(&[PODS]).await;
    let target = format!("{PODS}?limit=2");
    let theirs = proxy.straight().get(&target).await;
    let next = following(&target, &token(&theirs).expect("a token"));
    assert!(proxy.client().get(&next).await.is_hit(), "the current version");
    change(&proxy).await;
    let asked = proxy.client().get(&next).await;
    // Its page was kept because it has a next one.
    assert!(asked.is_hit(), "{}", asked.summary());
    let theirs = proxy.straight().get(&target).await;
    change(&proxy).await;
    proxy
        .simulator
        .remove(&group_resource("pods"), &listless::api::ObjectKey::new(Some("b"), "late"));
    settle().await;
    let next = following(&target, &token(&theirs).expect("a token"));
    let asked = proxy.client().get(&next).await;
    assert_eq!(asked.detail(), "continue", "{}", asked.summary());
    assert_eq!(asked.text(), proxy.straight().get(&next).await.text());
}

#[tokio::test(start_paused = true)]
async fn unusual_continuations_are_forwarded() {
    let proxy = paging(&[PODS]).await;
    let first = proxy.client().get(&format!("{PODS}?limit=2")).await;
    let token = token(&first).expect("a token");
    // A token that goes on inconsistently, and one for another scope.
    let inconsistent = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiYS9kYi0wXHUwMDAwIn0";
    for target in [
        format!("{PODS}?continue=abc"),
        format!("{PODS}?continue=%25"),
        format!("{PODS}?continue={token}A"),
        format!("{PODS}?continue={token}&resourceVersion=0&limit=1"),
        format!("{PODS}?continue={token}&resourceVersion=1000"),
        format!("{PODS}?continue={token}&resourceVersionMatch=NotOlderThan"),
        format!("{PODS}?continue={token}&sendInitialEvents=true"),
        format!("{PODS}?continue={token}&limit=x"),
        format!("{PODS}?continue={token}&fieldSelector=metadata.namespace%3Da"),
        format!("{PODS}?continue={token}&fieldSelector=metadata.name%3Dweb-0"),
        format!("{PODS}?continue={inconsistent}&limit=1"),
        format!("/api/v1/namespaces/a/pods?continue={token}"),
        format!("/api/v1/nodes?continue={token}"),
    ] {
        let (ours, theirs) =
            (proxy.client().get(&target).await, proxy.straight().get(&target).await);
        assert!(!ours.is_hit(), "{target}: {}", ours.summary());
        assert_eq!((ours.status, ours.text()), (theirs.status, theirs.text()), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_end_is_unknown_is_forwarded() {
    let proxy = Setup::default().in_memory();
    // This replica does not show whether other objects follow the last selected one.
    let selected = "/api/v1/pods?labelSelector=app%3Dweb";
    proxy.warm(selected).await;
    let (client, straight) = (proxy.client(), proxy.straight());
    assert_eq!(client.get(&format!("{selected}&limit=1")).await.detail(), "limit");
    for (limit, hit) in [(1, true), (2, true), (3, false), (4, true)] {
        let target = format!("{selected}&limit={limit}");
        let (ours, theirs) = (client.get(&target).await, straight.get(&target).await);
        assert_eq!(ours.is_hit(), hit, "{target}: {}", ours.summary());
        assert_eq!(ours.text(), theirs.text(), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_number_of_kept_states_is_bounded_and_counted() {
    let proxy = paging(&[PODS]).await;
    let target = format!("{PODS}?limit=2");
    let mut tokens = Vec::new();
    for _ in 0..70 {
        tokens.push(token(&proxy.client().get(&target).await).expect("a token"));
        change(&proxy).await;
    }
    let oldest = proxy.client().get(&following(&target, &tokens[0])).await;
    assert_eq!(oldest.detail(), "continue");
    let newest = proxy.client().get(&following(&target, &tokens[69])).await;
    assert!(newest.is_hit(), "{}", newest.summary());
    assert_eq!(
        newest.version(),
        proxy.straight().get(&following(&target, &tokens[69])).await.version()
    );
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_the_right_gets_no_page() {
    let setup = Setup::default().gateway();
    let reader = listless::simulator::User::with_rules("reader", Vec::new());
    setup.simulator().admit("reader-token", reader);
    let proxy = setup.in_memory();
    let admin = proxy.bearer(crate::harness::OTHER_TOKEN);
    for _ in 0..3 {
        admin.get(PODS).await;
    }
    let target = format!("{PODS}?limit=2");
    admin.get(&target).await;
    let first = admin.get(&target).await;
    assert!(first.is_hit(), "{}", first.summary());
    let next = following(&target, &token(&first).expect("a token"));
    assert!(admin.get(&next).await.is_hit());
    let refused = proxy.bearer("reader-token").get(&next).await;
    assert_eq!(refused.status, 403, "{}", refused.summary());
    assert!(!refused.is_hit());
}
