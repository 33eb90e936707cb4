//! A caller never learns what another caller does without the right to see it. Responses, errors,
//! `Cache-Status` and timing reveal nothing.

use std::time::Duration;

use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault, User},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ANN, BOB, EVE, IN_A, PODS, WEB, admitted, gateway, warmed};
use crate::harness::{Setup, group_resource, pass, pod, settle};

#[tokio::test(start_paused = true)]
async fn a_caller_without_list_rights_never_starts_a_replica() {
    let proxy = gateway();
    let eve = proxy.bearer(EVE);
    for path in [PODS, IN_A, WEB].repeat(5) {
        let answer = eve.get(path).await;
        assert_eq!((answer.status, answer.detail()), (403, "not-authorized"), "{path}");
    }
    // Denied attempts do not count for other callers either.
    assert_eq!(proxy.bearer(ANN).get(PODS).await.detail(), "not-demanded");
    assert!(proxy.replicas().is_empty());
    assert_eq!(proxy.upstream.count(Verb::Watch, "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unauthorized_caller_gets_the_same_response_whatever_others_have_read() {
    let told = async |proxy: &crate::harness::TestProxy| {
        let mut told = Vec::new();
        for token in [EVE, "unknown"] {
            for path in [PODS, IN_A, WEB, "/api/v1/namespaces/a/pods/none"] {
                let answer = proxy.bearer(token).get(path).await;
                told.push((answer.status, answer.cache_status().to_owned(), answer.body.clone()));
            }
        }
        told
    };
    let (cold, warm) = (gateway(), warmed().await);
    assert_eq!(told(&cold).await, told(&warm).await);
}

#[tokio::test(start_paused = true)]
async fn an_unauthorized_caller_does_not_wait_for_the_replica_of_others() {
    let proxy = gateway();
    let slow = Effect::Delay(Duration::from_secs(4));
    let of_replicas = |asked: &Asked| asked.verb == Verb::List && asked.resource == "pods";
    let ann = proxy.bearer(ANN);
    ann.get(PODS).await;
    proxy.simulator.inject(Fault::next(1, slow, of_replicas));
    let waiting = tokio::spawn(async move { ann.get(PODS).await });
    settle().await;
    assert_eq!(proxy.replicas().len(), 1);
    let began = Instant::now();
    assert_eq!(proxy.bearer(EVE).get(PODS).await.status, 403);
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    assert!(waiting.await.expect("no panic").is_hit());
}

/// A gateway at the strictest level, whose apiserver takes a second for each list.
fn slow() -> crate::harness::TestProxy {
    let rules = "cache:\n  rules:\n  - {resources: ['*'], freshness: mostRecent}\n";
    let proxy = admitted(Setup::default()).config(rules).in_memory();
    let slow = Effect::Delay(Duration::from_secs(1));
    proxy.simulator.inject(Fault::always(slow, |asked| asked.verb == Verb::List));
    proxy
}

#[tokio::test(start_paused = true)]
async fn a_token_shares_no_request_before_it_is_accepted() {
    let proxy = slow();
    let requests = async |token: &'static str| {
        proxy.upstream.forget();
        let reads = (0..5).map(|_| {
            let client = proxy.bearer(token);
            tokio::spawn(async move { client.get(IN_A).await.status })
        });
        let statuses = futures_util::future::join_all(reads).await;
        let statuses: Vec<_> = statuses.into_iter().map(|read| read.expect("no panic")).collect();
        (statuses[0], proxy.upstream.count(Verb::List, "pods"))
    };
    for _ in 0..2 {
        assert_eq!(requests("unknown").await, (401, 5));
    }
    assert_eq!(requests(ANN).await, (200, 5), "it is new");
    assert_eq!(requests(ANN).await, (200, 2), "it was accepted");
    assert_eq!(requests(EVE).await, (403, 5), "it is new");
    assert_eq!(requests(EVE).await, (403, 2), "it was accepted, without rights");
}

#[tokio::test(start_paused = true)]
async fn only_reads_with_the_same_token_share_a_request() {
    let proxy = slow();
    for token in [ANN, BOB, EVE] {
        proxy.bearer(token).get(IN_A).await;
    }
    proxy.upstream.forget();
    let reads = (0..30).map(|number| {
        let token = [ANN, BOB, EVE][number % 3];
        let client = proxy.bearer(token);
        tokio::spawn(async move { (token, client.get(IN_A).await) })
    });
    for read in futures_util::future::join_all(reads).await {
        let (token, answer) = read.expect("no panic");
        assert_eq!(answer.status, if token == EVE { 403 } else { 200 }, "{}", answer.summary());
        if token == EVE {
            assert!(answer.text().contains("User \\\"eve\\\""), "{}", answer.text());
        }
    }
    // Each caller sends one at once, and one for all that came meanwhile.
    let lists = proxy.upstream.all().into_iter().filter(|seen| seen.asked.verb == Verb::List);
    let mut tokens: Vec<_> = lists.map(|seen| seen.headers["authorization"].clone()).collect();
    tokens.sort();
    let expected = [ANN, ANN, BOB, BOB, EVE, EVE].map(|token| format!("Bearer {token}"));
    assert_eq!(tokens, expected);
}

#[tokio::test(start_paused = true)]
async fn only_the_writer_waits_for_its_own_write() {
    let proxy = warmed().await;
    proxy.bearer(BOB).get(IN_A).await;
    // From here on, replicas receive no events.
    proxy.simulator.hold_caches();
    let created = proxy.bearer(ANN).create(IN_A, &pod("a", "new", &[], "n1")).await;
    assert_eq!(created.status, 201, "{}", created.summary());
    let bobs = proxy.bearer(BOB).get(IN_A).await;
    assert!(bobs.is_hit(), "{}", bobs.summary());
    assert!(!bobs.names().contains(&"a/new".to_owned()));
    let anns = proxy.bearer(ANN).get(IN_A).await;
    assert!(!anns.is_hit() && anns.names().contains(&"a/new".to_owned()), "{}", anns.summary());
    proxy.simulator.release_caches();
}

#[tokio::test(start_paused = true)]
async fn a_token_appears_only_in_requests_to_the_apiserver() {
    let proxy = warmed().await;
    for token in [BOB, EVE, "unknown"] {
        for path in [PODS, IN_A, WEB] {
            let answer = proxy.bearer(token).get(path).await;
            for text in [answer.text(), answer.cache_status()] {
                assert!(!text.contains(token), "{}", answer.summary());
            }
        }
    }
}

const WIDGETS: &str = "/apis/x.io/v1/widgets";

fn api_service(server: &Value) -> Value {
    json!({"metadata": {"name": "v1.x.io"}, "spec": {"group": "x.io", "service": server}})
}

#[tokio::test(start_paused = true)]
async fn responses_of_an_aggregated_server_are_not_shared() {
    let proxy = gateway();
    proxy.simulator.admit(ANN, User::admin("ann"));
    let ann = proxy.bearer(ANN);
    let services = group_resource("apiservices.apiregistration.k8s.io");
    // At first nobody says who serves the group. Then another server does, then the apiserver
    // itself.
    for server in [None, Some(json!({"name": "s", "namespace": "a"})), Some(Value::Null)] {
        if let Some(server) = &server {
            proxy.simulator.put(&services, api_service(server)).expect("a served resource");
            pass(Duration::from_secs(61)).await;
        }
        let own = server == Some(Value::Null);
        for _ in 0..3 {
            let answer = ann.get(WIDGETS).await;
            assert_eq!(answer.status, 200, "{}", answer.summary());
            assert_eq!(answer.detail() == "may-be-aggregated", !own, "{}", answer.summary());
        }
        assert_eq!(ann.get(WIDGETS).await.is_hit(), own);
        assert_eq!(proxy.replicas().len(), usize::from(own));
        // The group is looked up once a minute.
        assert_eq!(proxy.upstream.count(Verb::Get, "apiservices"), 1);
        proxy.upstream.forget();
    }
    // A failed lookup proves nothing.
    let fails = |asked: &Asked| asked.resource == "apiservices";
    for effect in [Effect::Answer { code: 500, retry_after_secs: None }, Effect::Garbage] {
        pass(Duration::from_secs(61)).await;
        proxy.simulator.inject(Fault::next(1, effect, fails));
        assert_eq!(ann.get(WIDGETS).await.detail(), "may-be-aggregated", "{effect:?}");
        assert!(ann.get(WIDGETS).await.is_hit(), "{effect:?}");
    }
}
