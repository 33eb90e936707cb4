//! Token reviews: a token that Listless issued stands for its user; the apiserver reviews all
//! others.

use serde_json::{Value, json};

use listless::simulator::{Rule, User};

use crate::harness::{LOCAL_TOKEN, OTHER_TOKEN, OWN_TOKEN, Setup, TestProxy};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const AUDIENCE: &str = "https://kubernetes.default.svc";

fn review(token: &str, audiences: &[&str]) -> Value {
    json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "metadata": {"name": "kept"},
        "spec": {"token": token, "audiences": audiences},
    })
}

/// The direct response for the user's own token, and the response through Listless for its token.
async fn both(proxy: &TestProxy, audiences: &[&str]) -> (Value, Value) {
    let straight =
        proxy.straight_as(OWN_TOKEN).create(REVIEWS, &review(OWN_TOKEN, audiences)).await;
    let through = proxy.client().create(REVIEWS, &review(LOCAL_TOKEN, audiences)).await;
    assert_eq!((straight.status, through.status), (201, 201), "{}", through.text());
    let (straight, through) = (straight.json(), through.json());
    assert_eq!(through["spec"], review(LOCAL_TOKEN, audiences)["spec"], "as it was asked");
    assert_eq!(through["metadata"]["name"], "kept");
    (straight["status"].clone(), through["status"].clone())
}

#[tokio::test(start_paused = true)]
async fn a_review_of_the_local_token_names_the_kubeconfigs_user() {
    let proxy = Setup::default().in_memory();
    let (straight, through) = both(&proxy, &[]).await;
    assert_eq!(through, straight);
    assert_eq!(
        (&through["authenticated"], &through["audiences"][0]),
        (&true.into(), &AUDIENCE.into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_for_other_audiences_is_not_authenticated() {
    let proxy = Setup::default().in_memory();
    for audiences in [&[AUDIENCE][..], &["other", AUDIENCE], &["other"]] {
        let (straight, through) = both(&proxy, audiences).await;
        assert_eq!(through, straight, "{audiences:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_tokens_and_other_callers_get_the_apiservers_own_answer() {
    let proxy = Setup::default().in_memory();
    for token in [OTHER_TOKEN, "unknown", "", "local-token2"] {
        let straight = proxy.straight_as(OWN_TOKEN).create(REVIEWS, &review(token, &[])).await;
        let through = proxy.client().create(REVIEWS, &review(token, &[])).await;
        assert_eq!(through.body, straight.body, "{token:?}");
    }
    let others_review = proxy.bearer(OTHER_TOKEN).create(REVIEWS, &review(LOCAL_TOKEN, &[])).await;
    assert_eq!(others_review.json()["status"]["error"], "invalid bearer token");
    let nobodys = proxy.anybody().create(REVIEWS, &review(LOCAL_TOKEN, &[])).await;
    assert_eq!(nobodys.status, 403);
}

#[tokio::test(start_paused = true)]
async fn a_user_who_may_not_review_tokens_is_refused_by_the_apiserver() {
    let proxy = Setup::default().in_memory();
    let rule = Rule::new(&["create"], &["selfsubjectreviews"]);
    proxy.simulator.admit(OWN_TOKEN, User::with_rules("own", vec![rule]));
    let refused = proxy.client().create(REVIEWS, &review(LOCAL_TOKEN, &[])).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("cannot create resource"), "{}", refused.text());
}
