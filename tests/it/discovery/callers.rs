//! A caller receives from memory only what the apiserver sent or confirmed to that same caller.

use std::time::Duration;

use listless::simulator::User;

use super::{AGGREGATED, FETCHED, MEMORY, REVALIDATED, SETTLED};
use crate::harness::{Setup, TestProxy, pass};

const ANN: &str = "anns-token";
const BOB: &str = "bobs-token";

/// A gateway that has followed for long enough; both callers may read documents.
async fn gateway() -> TestProxy {
    let setup = Setup::default();
    setup.simulator().admit(ANN, User::with_rules("ann", Vec::new()));
    setup.simulator().admit(BOB, User::with_rules("bob", Vec::new()));
    let proxy = setup.gateway().in_memory();
    for _ in 0..2 {
        proxy.bearer(ANN).get("/api").await;
    }
    pass(SETTLED).await;
    proxy
}

#[tokio::test(start_paused = true)]
async fn a_document_is_confirmed_for_each_bearer_before_it_is_served() {
    let proxy = gateway().await;
    let ann = proxy.bearer(ANN).with("accept", AGGREGATED);
    let bob = proxy.bearer(BOB).with("accept", AGGREGATED);
    assert_eq!(ann.get("/apis").await.cache_status(), FETCHED);
    assert_eq!(ann.get("/apis").await.cache_status(), MEMORY);
    // Its body is not sent again, because the apiserver tells Bob that it is unchanged.
    let first = bob.get("/apis").await;
    assert_eq!((first.status, first.cache_status()), (200, REVALIDATED));
    assert_eq!(first.text(), ann.get("/apis").await.text());
    assert_eq!(bob.get("/apis").await.cache_status(), MEMORY);
    let sent = proxy.upstream.all().into_iter().filter(|seen| seen.asked.path_and_query == "/apis");
    let tokens: Vec<_> = sent.map(|seen| seen.headers["authorization"].clone()).collect();
    assert_eq!(tokens, [format!("Bearer {ANN}"), format!("Bearer {BOB}")]);
}

#[tokio::test(start_paused = true)]
async fn documents_without_a_tag_are_never_shared() {
    let proxy = gateway().await;
    for token in [ANN, BOB] {
        let client = proxy.bearer(token);
        assert_eq!(client.get("/api/v1").await.cache_status(), FETCHED);
        assert_eq!(client.get("/api/v1").await.cache_status(), MEMORY);
    }
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_callers_get_the_apiservers_refusal() {
    let proxy = gateway().await;
    for path in ["/apis", "/api/v1", "/openapi/v2"] {
        proxy.bearer(ANN).get(path).await;
        assert_eq!(proxy.bearer(ANN).get(path).await.cache_status(), MEMORY);
        for _ in 0..2 {
            let unknown = proxy.bearer("unknown").get(path).await;
            assert_eq!((unknown.status, unknown.cache_status()), (401, FETCHED), "{path}");
            let nobody = proxy.anybody().get(path).await;
            assert_eq!((nobody.status, nobody.detail()), (403, "no-credential"), "{path}");
            let acting = proxy.bearer(ANN).with("impersonate-user", "bob").get(path).await;
            assert_eq!(acting.detail(), "impersonation", "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn withdrawn_rights_end_answers_from_memory_within_ten_seconds() {
    let proxy = gateway().await;
    let ann = proxy.bearer(ANN);
    ann.get("/apis").await;
    proxy.simulator.expel(ANN);
    assert_eq!(ann.get("/apis").await.cache_status(), MEMORY);
    pass(Duration::from_secs(10)).await;
    for _ in 0..2 {
        assert_eq!(ann.get("/apis").await.status, 401);
    }
}
