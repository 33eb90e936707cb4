//! Requests that Listless sends on its own: few, for however long it runs.

use std::time::Duration;

use listless::{
    api::Verb,
    simulator::{Rule, Simulator, User},
};

use crate::harness::{OWN_TOKEN, Setup, TestProxy, checked_as_shipped, pass, populated};

/// The limit on the requests a minute for three polled replicas.
const PER_MINUTE_MAX: usize = 6;

const POLLED: [&str; 3] = [
    "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/a/services",
    "/api/v1/namespaces/a/configmaps",
];

const MINUTES: usize = 20;

/// Clients that poll three collections, an object and their neighbours every three seconds.
async fn polled_for_long(proxy: &TestProxy) {
    let client = proxy.client();
    // A client requests discovery once.
    client.get("/api").await;
    client.get("/apis").await;
    for path in POLLED {
        proxy.warm(path).await;
    }
    pass(Duration::from_secs(5)).await;
    proxy.upstream.forget();
    for _ in 0..MINUTES * 20 {
        for path in POLLED {
            let answer = client.get(path).await;
            assert!(answer.is_hit(), "{path}: {}", answer.summary());
        }
        let object = client.get("/api/v1/namespaces/a/pods/web-0").await;
        assert!(object.is_hit(), "{}", object.summary());
        pass(Duration::from_secs(3)).await;
    }
}

fn assert_few(proxy: &TestProxy) {
    let seen = proxy.upstream.everything();
    let told: Vec<_> = seen.iter().map(|seen| &seen.asked.path_and_query).collect();
    assert!(seen.len() <= PER_MINUTE_MAX * MINUTES, "{}: {told:#?}", seen.len());
}

#[tokio::test(start_paused = true)]
async fn three_replicas_of_a_quiet_namespace_cost_six_requests_a_minute_at_most() {
    let proxy = Setup::default().consistency(checked_as_shipped()).in_memory();
    polled_for_long(&proxy).await;
    assert_few(&proxy);
    assert_eq!(proxy.upstream.count(Verb::Watch, "customresourcedefinitions"), 0);
}

#[tokio::test(start_paused = true)]
async fn incomplete_rules_keep_the_request_limit() {
    let simulator = populated();
    simulator.hide_rules();
    // Other parts of the cluster change, so that bookmarks come.
    let elsewhere = simulator.clone();
    tokio::spawn(async move {
        loop {
            elsewhere.skip_revisions(1);
            pass(Duration::from_secs(5)).await;
        }
    });
    let proxy = Setup::of(simulator).consistency(checked_as_shipped()).in_memory();
    polled_for_long(&proxy).await;
    assert_few(&proxy);
}

#[tokio::test(start_paused = true)]
async fn rights_in_one_namespace_keep_the_request_limit() {
    let simulator = populated();
    let proxy = Setup::of(simulator.clone()).consistency(checked_as_shipped()).in_memory();
    allow_in_a(&simulator);
    polled_for_long(&proxy).await;
    assert_few(&proxy);
}

#[tokio::test(start_paused = true)]
async fn documents_requested_once_open_no_watches() {
    let proxy = Setup::default().consistency(checked_as_shipped()).in_memory();
    let client = proxy.client();
    for path in ["/api", "/apis", "/apis/x.io/v1", "/openapi/v3"] {
        client.get(path).await;
    }
    pass(Duration::from_secs(60)).await;
    assert_eq!(proxy.upstream.count(Verb::Watch, "apiservices"), 0);
    client.get("/apis").await;
    pass(Duration::from_secs(1)).await;
    assert_eq!(proxy.upstream.count(Verb::Watch, "apiservices"), 1);
}

fn allow_in_a(simulator: &Simulator) {
    let rule = Rule::new(&["get", "list", "watch"], &["pods", "services", "configmaps"]);
    simulator.admit(OWN_TOKEN, User::with_rules("own", vec![rule.within("a")]));
}
