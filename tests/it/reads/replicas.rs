//! Replicas: their start, cost, coverage and end.

use std::time::Duration;

use listless::{
    api::{Verb, form::Form},
    cache::SyncState,
};

use crate::harness::{
    PROTOBUF, Setup, TestClient, TestProxy, eventually, group_resource, incompressible, pass, pod,
    settle,
};

const PODS: &str = "/api/v1/pods";

/// LISTs and WATCHes of a resource that reached the apiserver.
fn cost(proxy: &TestProxy, resource: &str) -> (usize, usize) {
    let count = |verb| proxy.upstream.count(verb, resource);
    (count(Verb::List), count(Verb::Watch))
}

async fn details(client: &TestClient, path: &str, times: usize) -> Vec<String> {
    let mut details = Vec::new();
    for _ in 0..times {
        details.push(client.get(path).await.detail().to_owned());
    }
    details
}

#[tokio::test(start_paused = true)]
async fn the_first_unsafe_read_is_forwarded_and_the_second_starts_one_replica() {
    let proxy = Setup::default().in_memory();
    let client = proxy.client();
    assert_eq!(details(&client, PODS, 4).await, ["not-demanded", "session", "session", "session"]);
    assert_eq!(cost(&proxy, "pods"), (2, 1));
    assert_eq!(proxy.replicas().len(), 1);
    assert_eq!(proxy.upstream.reviews(), 1);
}

#[tokio::test(start_paused = true)]
async fn reads_more_than_a_minute_apart_start_nothing() {
    let proxy = Setup::default().in_memory();
    let client = proxy.client();
    for _ in 0..4 {
        assert_eq!(client.get(PODS).await.detail(), "not-demanded");
        pass(Duration::from_secs(61)).await;
    }
    assert!(proxy.replicas().is_empty());
}

#[tokio::test(start_paused = true)]
async fn twenty_first_reads_at_once_cost_two_lists_and_a_watch() {
    let proxy = Setup::default().in_memory();
    let reads = (0..20).map(|_| {
        let client = proxy.client();
        tokio::spawn(async move { client.get(PODS).await })
    });
    let answers = futures_util::future::join_all(reads).await;
    let names = proxy.straight().get(PODS).await.names();
    let mut hits = 0;
    for answer in answers {
        let answer = answer.expect("no panic");
        assert_eq!(answer.names(), names);
        hits += usize::from(answer.is_hit());
    }
    assert_eq!(hits, 19);
    settle().await;
    assert_eq!(cost(&proxy, "pods"), (2, 1));
    assert_eq!(proxy.upstream.reviews(), 1, "concurrent reads share their review");
}

#[tokio::test]
async fn twenty_first_reads_on_loopback_cost_no_more() {
    let proxy = Setup::default().on_loopback().await;
    let reads = (0..20).map(|number| {
        let client = proxy.client();
        let client = if number % 2 == 0 { client } else { client.over_http2() };
        tokio::spawn(async move { client.get(PODS).await.status })
    });
    for status in futures_util::future::join_all(reads).await {
        assert_eq!(status.expect("no panic"), 200);
    }
    eventually("a watch", || cost(&proxy, "pods").1 == 1).await;
    let (lists, watches) = cost(&proxy, "pods");
    assert!(lists <= 2 && watches == 1, "{lists} lists, {watches} watches");
    proxy.drain().await;
}

#[tokio::test(start_paused = true)]
async fn polls_of_one_selector_start_a_replica_of_that_selector() {
    let proxy = Setup::default().in_memory();
    let path = "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb";
    details(&proxy.client(), path, 5).await;
    settle().await;
    let lists = proxy.upstream.targets(Verb::List, "pods");
    assert_eq!(lists.len(), 2);
    assert_eq!(lists[1], path);
    let watches = proxy.upstream.targets(Verb::Watch, "pods");
    assert!(watches[0].starts_with(&format!("{path}&watch=true&")), "{watches:?}");
    assert_eq!(proxy.replicas()[0].objects, 2);
}

#[tokio::test(start_paused = true)]
async fn a_narrower_query_needs_no_replica_and_a_wider_one_does() {
    let proxy = TestProxy::warmed("/api/v1/namespaces/a/pods?labelSelector=app").await;
    let client = proxy.client();
    for covered in [
        "/api/v1/namespaces/a/pods?labelSelector=app",
        "/api/v1/namespaces/a/pods?labelSelector=app,tier%3Dx",
        "/api/v1/namespaces/a/pods?labelSelector=app&fieldSelector=spec.nodeName=n1",
    ] {
        assert!(client.get(covered).await.is_hit(), "{covered}");
    }
    for other in [
        "/api/v1/namespaces/a/pods",
        "/api/v1/pods?labelSelector=app",
        "/api/v1/namespaces/b/pods?labelSelector=app",
        "/api/v1/namespaces/a/pods?labelSelector=tier",
        "/api/v1/namespaces/a/pods/web-0",
        "/api/v1/namespaces/a/configmaps?labelSelector=app",
    ] {
        assert_eq!(client.get(other).await.detail(), "not-demanded", "{other}");
    }
}

#[tokio::test(start_paused = true)]
async fn five_sibling_queries_become_one_wider_replica() {
    let proxy = Setup::default().in_memory();
    let path = |number| format!("/api/v1/namespaces/a/pods?labelSelector=number%3D{number}");
    for number in 0..5 {
        let mut numbered = pod("a", &format!("p-{number}"), &[], "n1");
        numbered["metadata"]["labels"]["number"] = number.to_string().into();
        proxy.simulator.put(&group_resource("pods"), numbered);
    }
    for number in 0..5 {
        proxy.warm(&path(number)).await;
    }
    pass(Duration::from_secs(5)).await;
    let replicas = proxy.replicas();
    assert_eq!(replicas.len(), 1, "{replicas:?}");
    assert!(replicas[0].query.selects_all());
    assert_eq!(replicas[0].query.scope.namespace(), Some("a"));
    proxy.upstream.forget();
    for number in 0..9 {
        let answer = proxy.client().get(&path(number)).await;
        assert!(answer.is_hit(), "{}", answer.cache_status());
        assert_eq!(answer.names(), proxy.straight().get(&path(number)).await.names());
    }
    assert_eq!(cost(&proxy, "pods"), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_replica_nobody_reads_stops_after_ten_minutes() {
    let proxy = TestProxy::warmed(PODS).await;
    pass(Duration::from_secs(9 * 60)).await;
    assert!(proxy.client().get(PODS).await.is_hit());
    pass(Duration::from_secs(9 * 60)).await;
    assert_eq!(proxy.replicas().len(), 1);
    pass(Duration::from_secs(2 * 60)).await;
    assert!(proxy.replicas().is_empty());
    assert_eq!(proxy.client().get(PODS).await.detail(), "not-demanded");
    proxy.upstream.forget();
    pass(Duration::from_secs(20 * 60)).await;
    assert!(proxy.upstream.all().is_empty(), "a stopped replica costs nothing");
}

#[tokio::test(start_paused = true)]
async fn an_eager_replica_starts_before_the_first_read_and_stays() {
    let eager = "cache:\n  rules:\n  - {resources: [pods], namespaces: [a], start: eager}\n";
    let proxy = Setup::default().config(eager).in_memory();
    settle().await;
    assert_eq!(proxy.replicas()[0].state, SyncState::Synced);
    assert!(proxy.client().get("/api/v1/namespaces/a/pods").await.is_hit());
    pass(Duration::from_secs(20 * 60)).await;
    assert!(proxy.client().get("/api/v1/namespaces/a/pods").await.is_hit());
    // A resource that no rule matches is never kept.
    assert_eq!(proxy.client().get("/api/v1/namespaces/b/pods").await.detail(), "never-cached");
}

#[tokio::test(start_paused = true)]
async fn an_eager_rule_holds_the_forms_it_names() {
    let eager =
        "cache:\n  rules:\n  - {resources: [pods], start: eager, forms: [protobuf, table]}\n";
    let proxy = Setup::default().config(eager).in_memory();
    settle().await;
    let forms = |proxy: &TestProxy| {
        let mut forms: Vec<_> = proxy.replicas().iter().map(|it| (it.form, it.state)).collect();
        forms.sort_by_key(|(form, _)| *form);
        forms
    };
    let held = [(Form::Protobuf, SyncState::Synced), (Form::Table, SyncState::Synced)];
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(forms(&proxy), held);
    for _ in 0..2 {
        for accept in [PROTOBUF, table] {
            let client = proxy.client().with("accept", accept);
            for path in [PODS, "/api/v1/pods?watch=1&timeoutSeconds=1"] {
                let answer = client.get(path).await;
                assert!(answer.is_hit(), "{accept} {path}: {}", answer.cache_status());
            }
        }
        pass(Duration::from_secs(20 * 60)).await;
        assert_eq!(forms(&proxy), held);
    }
    // Another form starts on demand, and ends when it is idle.
    assert_eq!(proxy.client().get(PODS).await.detail(), "not-demanded");
    proxy.warm(PODS).await;
    assert_eq!(forms(&proxy).len(), 3);
    pass(Duration::from_secs(20 * 60)).await;
    assert_eq!(forms(&proxy), held);
}

#[tokio::test(start_paused = true)]
async fn reads_beyond_the_memory_limit_are_forwarded_and_correct() {
    let proxy = Setup::default().config("cache: {memoryLimit: 1Mi}\n").in_memory();
    proxy.warm("/api/v1/nodes").await;
    for number in 0..200 {
        let mut large = pod("large", &format!("p-{number}"), &[], "n1");
        large["metadata"]["annotations"]["padding"] = incompressible(number, 10_000).into();
        proxy.simulator.put(&group_resource("pods"), large).expect("a served resource");
    }
    let client = proxy.client();
    let mut seen = Vec::new();
    for _ in 0..4 {
        let answer = client.get(PODS).await;
        assert_eq!(answer.names(), proxy.straight().get(PODS).await.names());
        seen.push(answer.detail().to_owned());
        pass(Duration::from_secs(2)).await;
    }
    assert_eq!(seen, ["not-demanded", "not-synced", "out-of-memory", "out-of-memory"]);
    let held: usize = proxy.replicas().iter().map(|replica| replica.bytes).sum();
    assert!(held <= 1 << 20, "{held} bytes are held");
}

#[tokio::test(start_paused = true)]
async fn a_collection_that_outgrows_memory_is_dropped_and_the_others_stay() {
    let proxy = Setup::default().config("cache: {memoryLimit: 1Mi}\n").in_memory();
    proxy.warm(PODS).await;
    proxy.warm("/api/v1/nodes").await;
    for number in 0..200 {
        let mut large = pod("large", &format!("p-{number}"), &[], "n1");
        large["metadata"]["annotations"]["padding"] = incompressible(number, 10_000).into();
        proxy.simulator.put(&group_resource("pods"), large).expect("a served resource");
        if number % 10 == 0 {
            proxy.client().get("/api/v1/nodes").await;
        }
    }
    pass(Duration::from_secs(3)).await;
    let answer = proxy.client().get(PODS).await;
    assert_eq!(answer.detail(), "out-of-memory");
    assert_eq!(answer.names(), proxy.straight().get(PODS).await.names());
    assert!(proxy.client().get("/api/v1/nodes").await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn resources_excluded_by_rules_are_never_kept_in_memory() {
    let rules = "cache:\n  rules:\n  - {resources: [pods], start: never}\n  - {resources: ['*']}\n";
    let proxy = Setup::default().config(rules).in_memory();
    let client = proxy.client();
    for path in [
        "/api/v1/pods",
        "/api/v1/namespaces/a/pods/web-0",
        "/api/v1/secrets",
        "/api/v1/namespaces/a/secrets/s",
        "/api/v1/events",
        "/apis/coordination.k8s.io/v1/namespaces/a/leases/l",
    ] {
        assert_eq!(details(&client, path, 5).await, ["never-cached"; 5], "{path}");
        assert_eq!(proxy.upstream.last().asked.path_and_query, path);
    }
    assert!(proxy.replicas().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_applies_from_the_next_read() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.configure("mode: observe\n");
    assert_eq!(proxy.client().get(PODS).await.detail(), "observe");
    proxy.configure("");
    assert!(proxy.client().get(PODS).await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn a_missing_resource_is_not_requested_repeatedly() {
    let proxy = Setup::default().in_memory();
    let path = "/apis/x.io/v1/unknowns";
    let seen = details(&proxy.client(), path, 4).await;
    assert_eq!(seen, ["not-demanded", "not-synced", "refused", "refused"]);
    // Four from the client, one from the replica that was tried.
    assert_eq!(cost(&proxy, "unknowns"), (5, 0));
    proxy.simulator.register(listless::simulator::ResourceType::custom(
        "x.io",
        &["v1"],
        "unknowns",
        "Unknown",
    ));
    assert_eq!(proxy.client().get(path).await.status, 200);
    pass(Duration::from_secs(61)).await;
    details(&proxy.client(), path, 1).await;
    assert!(proxy.client().get(path).await.is_hit(), "the refusal is forgotten");
}
