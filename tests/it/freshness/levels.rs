//! The levels that a rule may set besides `session`, and the guarantees of each.

use std::time::Duration;

use listless::{
    api::Verb,
    simulator::{Effect, Fault},
};

use crate::harness::{Setup, TestProxy, pass, pod};

const PODS: &str = "/api/v1/namespaces/a/pods";

async fn at_level(level: &str) -> TestProxy {
    let rules = format!(
        "cache:\n  rules:\n  - {{resources: ['*'], freshness: {level}, maxStaleness: 5s}}\n"
    );
    Setup::default().config(&rules).in_memory()
}

#[tokio::test(start_paused = true)]
async fn level_any_answers_at_once_and_never_goes_back() {
    let proxy = at_level("any").await;
    let stalled = Effect::StallAfter(0);
    proxy.simulator.inject(Fault::always(stalled, |asked| asked.verb == Verb::Watch));
    proxy.warm(PODS).await;
    let client = proxy.client();
    let created = client.create(PODS, &pod("a", "new", &[], "")).await;
    assert_eq!(created.status, 201);
    let listed = client.get(PODS).await;
    assert_eq!(listed.cache_status(), "listless; hit; detail=any");
    assert!(!listed.names().contains(&"a/new".to_owned()), "nothing more was promised");
    // A newer list was shown. From now on only newer ones are.
    let shown = client.get("/api/v1/pods?limit=100").await.version();
    let listed = client.get(PODS).await;
    assert!(listed.version() >= shown, "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn level_bounded_answers_only_within_its_bound() {
    let proxy = at_level("bounded").await;
    let client = proxy.client();
    // The first list is consistent, and it proves the replica's own list.
    client.get(PODS).await;
    client.get(PODS).await;
    let proof = client.get(PODS).await;
    pass(Duration::from_secs(1)).await;
    let answer = client.get(PODS).await;
    assert!(answer.is_hit(), "{} after {}", answer.cache_status(), proof.cache_status());
    assert_eq!(answer.detail(), "bounded");
    pass(Duration::from_secs(5)).await;
    let later = client.get(PODS).await;
    assert!(!later.is_hit(), "{}", later.cache_status());
    assert_eq!(proxy.upstream.last().asked.path_and_query, PODS, "a consistent read");
    assert!(client.get(PODS).await.is_hit(), "which is the next proof");
}

#[tokio::test(start_paused = true)]
async fn level_bounded_keeps_the_guarantees_of_session() {
    let proxy = at_level("bounded").await;
    let stalled = Effect::StallAfter(0);
    proxy.simulator.inject(Fault::always(stalled, |asked| asked.verb == Verb::Watch));
    let client = proxy.client();
    for _ in 0..3 {
        client.get(PODS).await;
    }
    client.create(PODS, &pod("a", "new", &[], "")).await;
    assert!(client.get(PODS).await.names().contains(&"a/new".to_owned()));
    assert_eq!(client.get(&format!("{PODS}/new")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn at_the_strictest_level_every_read_shows_what_others_wrote() {
    let proxy = at_level("mostRecent").await;
    let client = proxy.client();
    for number in 0..5 {
        let name = format!("p-{number}");
        proxy.put_pod(&name, "web");
        let listed = client.get(PODS).await;
        assert_eq!(listed.cache_status(), "listless; fwd=request; detail=most-recent");
        assert!(listed.names().contains(&format!("a/{name}")));
        assert_eq!(client.get(&format!("{PODS}/{name}")).await.status, 200);
    }
    assert!(proxy.replicas().is_empty());
}
