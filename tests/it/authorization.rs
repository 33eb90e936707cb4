//! Memory answers only reads that the apiserver allows: access is reviewed, and doubt is forwarded.

use std::time::Duration;

use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault, Rule, Simulator, User},
};

use crate::harness::{OWN_TOKEN, Setup, TestProxy, pass, populated};

const PODS: &str = "/api/v1/pods";
const IN_A: &str = "/api/v1/namespaces/a/pods";
const WEB: &str = "/api/v1/namespaces/a/pods/web-0";

/// Sets the rights of the user Listless reads as, from now on.
fn allow(simulator: &Simulator, rules: Vec<Rule>) {
    simulator.admit(OWN_TOKEN, User::with_rules("own", rules));
}

fn on_pods(verbs: &[&str]) -> Rule {
    Rule::new(verbs, &["pods"])
}

fn reviews(asked: &Asked) -> bool {
    ["selfsubjectaccessreviews", "selfsubjectrulesreviews"].contains(&&*asked.resource)
}

/// Requests a path; the response must be the apiserver's own refusal.
async fn assert_refused(proxy: &TestProxy, path: &str, reason: &str) {
    let (answer, straight) = (proxy.client().get(path).await, proxy.straight().get(path).await);
    assert_eq!((answer.status, answer.detail()), (403, reason), "{path}: {}", answer.summary());
    assert_eq!(answer.text(), straight.text(), "{path}");
    assert!(answer.text().contains("is forbidden"), "{path}");
}

#[tokio::test(start_paused = true)]
async fn denied_reads_are_forwarded_and_get_the_apiservers_refusal() {
    let proxy = TestProxy::warmed(PODS).await;
    allow(&proxy.simulator, vec![on_pods(&["watch"])]);
    for path in [
        IN_A,
        WEB,
        "/api/v1/namespaces/a/pods/none",
        "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb",
        "/api/v1/namespaces/a/pods?resourceVersion=0",
    ] {
        assert_refused(&proxy, path, "not-authorized").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_with_get_only_gets_no_list() {
    let proxy = TestProxy::warmed(PODS).await;
    allow(&proxy.simulator, vec![on_pods(&["get", "watch"])]);
    assert!(proxy.client().get(WEB).await.is_hit());
    assert_refused(&proxy, IN_A, "not-authorized").await;
}

#[tokio::test(start_paused = true)]
async fn a_user_with_list_only_gets_no_object() {
    let proxy = TestProxy::warmed(PODS).await;
    allow(&proxy.simulator, vec![on_pods(&["list", "watch"])]);
    assert!(proxy.client().get(IN_A).await.is_hit());
    assert_refused(&proxy, WEB, "not-authorized").await;
}

#[tokio::test(start_paused = true)]
async fn rights_in_one_namespace_do_not_extend_to_another() {
    let proxy = TestProxy::warmed(PODS).await;
    allow(&proxy.simulator, vec![on_pods(&["get", "list", "watch"]).within("a")]);
    let client = proxy.client();
    assert!(client.get(IN_A).await.is_hit());
    assert!(client.get(WEB).await.is_hit());
    assert_refused(&proxy, "/api/v1/namespaces/b/pods", "not-authorized").await;
    assert_refused(&proxy, "/api/v1/namespaces/b/pods/lone", "not-authorized").await;
}

#[tokio::test(start_paused = true)]
async fn a_user_without_list_rights_starts_no_replica() {
    let proxy = Setup::default().in_memory();
    allow(&proxy.simulator, vec![on_pods(&["get"])]);
    let client = proxy.client();
    for expected in ["not-demanded", "not-synced", "refused", "refused"] {
        assert_refused(&proxy, IN_A, expected).await;
    }
    for expected in ["not-demanded", "not-synced", "refused", "refused"] {
        let answer = client.get(WEB).await;
        assert_eq!((answer.status, answer.detail()), (200, expected));
        assert_eq!(answer.text(), proxy.straight().get(WEB).await.text());
    }
    assert!(proxy.replicas().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_user_who_may_list_but_not_watch_gets_correct_answers() {
    let proxy = Setup::default().in_memory();
    allow(&proxy.simulator, vec![on_pods(&["get", "list"])]);
    for _ in 0..6 {
        let answer = proxy.client().get(IN_A).await;
        assert_eq!(answer.names(), proxy.straight().get(IN_A).await.names());
        pass(Duration::from_secs(3)).await;
    }
    assert_eq!(proxy.client().get(IN_A).await.detail(), "refused");
    assert!(proxy.replicas().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_a_namespace_are_reviewed_once_a_minute() {
    reviews_a_minute(&TestProxy::warmed(PODS).await, 3).await;
}

#[tokio::test(start_paused = true)]
async fn without_rules_each_verb_and_namespace_is_reviewed_once_a_minute() {
    let simulator = populated();
    simulator.hide_rules();
    let proxy = Setup::of(simulator).in_memory();
    proxy.warm(PODS).await;
    proxy.client().get(IN_A).await;
    proxy.client().get("/api/v1/namespaces/b/pods").await;
    proxy.upstream.forget();
    // The four rights are: list in a, get in a, list in b, list everywhere.
    reviews_a_minute(&proxy, 4).await;
}

/// Counts the reviews when reads of three scopes come once a minute, this many at a time.
async fn reviews_a_minute(proxy: &TestProxy, expected: usize) {
    pass(Duration::from_secs(61)).await;
    let client = proxy.client();
    for round in 1..=3 {
        for _ in 0..20 {
            assert!(client.get(IN_A).await.is_hit());
            assert!(client.get(WEB).await.is_hit());
            assert!(client.get("/api/v1/namespaces/a/pods/db-0").await.is_hit());
            assert!(client.get("/api/v1/namespaces/b/pods").await.is_hit());
            assert!(client.get("/api/v1/pods?labelSelector=app").await.is_hit());
        }
        assert_eq!(proxy.upstream.reviews(), expected * round);
        pass(Duration::from_secs(61)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn revoked_rights_end_answers_from_memory_within_a_minute() {
    let proxy = TestProxy::warmed(PODS).await;
    assert!(proxy.client().get(IN_A).await.is_hit());
    allow(&proxy.simulator, vec![on_pods(&["watch"])]);
    pass(Duration::from_secs(61)).await;
    assert_refused(&proxy, IN_A, "not-authorized").await;
    allow(&proxy.simulator, vec![on_pods(&["get", "list", "watch"])]);
    pass(Duration::from_secs(61)).await;
    assert!(proxy.client().get(IN_A).await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn a_failed_review_allows_nothing_and_is_not_cached() {
    for effect in [
        Effect::Answer { code: 500, retry_after_secs: None },
        Effect::Answer { code: 429, retry_after_secs: None },
        Effect::Garbage,
        Effect::Close,
        Effect::BreakAfter(30),
        Effect::EndAfter(30),
        Effect::StallAfter(30),
        Effect::Delay(Duration::from_secs(20)),
    ] {
        let proxy = TestProxy::warmed(PODS).await;
        proxy.simulator.inject(Fault::next(1, effect, reviews));
        let client = proxy.client();
        let answer = client.get(IN_A).await;
        assert_eq!((answer.status, answer.detail()), (200, "not-authorized"), "{effect:?}");
        assert_eq!(answer.text(), proxy.straight().get(IN_A).await.text());
        assert!(client.get(IN_A).await.is_hit(), "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttled_review_is_not_retried_before_its_time() {
    let proxy = TestProxy::warmed(PODS).await;
    let effect = Effect::Answer { code: 429, retry_after_secs: Some(3) };
    proxy.simulator.inject(Fault::always(effect, reviews));
    let client = proxy.client();
    for _ in 0..5 {
        assert_eq!(client.get(IN_A).await.detail(), "not-authorized");
        pass(Duration::from_millis(500)).await;
    }
    assert_eq!(proxy.upstream.reviews(), 1);
    pass(Duration::from_secs(1)).await;
    assert_eq!(client.get(IN_A).await.detail(), "not-authorized");
    assert_eq!(proxy.upstream.reviews(), 2);
}

#[tokio::test(start_paused = true)]
async fn concurrent_reads_share_one_review() {
    let proxy = TestProxy::warmed(PODS).await;
    let slow = Effect::Delay(Duration::from_millis(500));
    proxy.simulator.inject(Fault::next(1, slow, reviews));
    let reads = (0..30).map(|_| {
        let client = proxy.client();
        tokio::spawn(async move { client.get(IN_A).await.is_hit() })
    });
    for hit in futures_util::future::join_all(reads).await {
        assert!(hit.expect("no panic"));
    }
    assert_eq!(proxy.upstream.reviews(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_rights_stops_answering() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.simulator.expel(OWN_TOKEN);
    proxy.simulator.break_watches();
    pass(Duration::from_secs(11)).await;
    let answer = proxy.client().get(PODS).await;
    assert_eq!(answer.status, 401, "{}", answer.summary());
    assert!(proxy.replicas().is_empty());
    // The client's own read, and the replica's for the newest version after the break (S-CONS-10).
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 2);
}
