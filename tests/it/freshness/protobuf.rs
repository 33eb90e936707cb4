//! Protobuf clients: a writer reads its own writes, and a watcher reads nothing older than its
//! events.

use std::time::Duration;

use listless::{
    api::{ObjectKey, Verb},
    simulator::{Asked, Effect, Fault},
};

use crate::harness::{
    DelimitedWatch, PROTOBUF, Protobuf, Setup, TestProxy, group_resource, pass, pod, populated,
    settle,
};

const PODS: &str = "/api/v1/namespaces/a/pods";
const DATABASES: &str = "/api/v1/namespaces/a/pods?labelSelector=app%3Ddb";

/// A proxy whose replica of the pods receives no events after its list, and its requests.
async fn deaf() -> (TestProxy, Protobuf) {
    let simulator = populated();
    let protobuf = Protobuf::of(simulator.clone());
    let proxy = Setup::of(simulator).upstream(protobuf.clone()).in_memory();
    // Clients do not identify themselves.
    let of_replicas = |asked: &Asked| asked.verb == Verb::Watch && !asked.user_agent.is_empty();
    proxy.simulator.inject(Fault::always(Effect::StallAfter(0), of_replicas));
    proxy.warm(PODS).await;
    (proxy, protobuf)
}

async fn watch(proxy: &TestProxy) -> DelimitedWatch {
    let client = proxy.client().with("accept", PROTOBUF);
    let path = format!("{PODS}?watch=1&resourceVersion={}", proxy.simulator.revision());
    let watch = DelimitedWatch::open(&client, &path).await;
    assert_eq!(watch.head.headers["content-type"], format!("{PROTOBUF};stream=watch"));
    assert_eq!(watch.head.headers["cache-status"], "listless; fwd=uri-miss; detail=not-demanded");
    watch
}

fn put(proxy: &TestProxy, name: &str, labels: &[(&str, &str)]) {
    let pod = pod("a", name, labels, "n1");
    proxy.simulator.put(&group_resource("pods"), pod).expect("a served resource");
}

#[tokio::test(start_paused = true)]
async fn a_create_in_protobuf_is_shown_and_other_objects_stay_in_memory() {
    let (proxy, _) = deaf().await;
    let client = proxy.client();
    let new = pod("a", "new", &[("app", "web")], "n1");
    let created = client.create(PODS, &new).await;
    assert_eq!(created.header("content-type"), PROTOBUF);
    let others = client.get(DATABASES).await;
    assert!(others.is_hit(), "{}", others.summary());
    let listed = client.get(&format!("{PODS}?labelSelector=app%3Dweb")).await;
    assert!(listed.names().contains(&"a/new".to_owned()), "{}", listed.summary());
    assert_eq!(listed.detail(), "behind");
}

#[tokio::test(start_paused = true)]
async fn no_later_read_is_older_than_events_of_a_protobuf_watch() {
    let (proxy, protobuf) = deaf().await;
    let client = proxy.client();
    let mut watch = watch(&proxy).await;
    let before = client.get(PODS).await;
    assert!(before.is_hit(), "{}", before.summary());
    put(&proxy, "web-9", &[("app", "web")]);
    watch.tells("ADDED", "web-9").await;
    let others = client.get(DATABASES).await;
    assert!(others.is_hit(), "{}", others.summary());
    let listed = client.get(PODS).await;
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
    assert_eq!(listed.detail(), "behind");
    let gone = ObjectKey::new(Some("a"), "db-0");
    proxy.simulator.remove(&group_resource("pods"), &gone).expect("an object");
    watch.tells("DELETED", "db-0").await;
    let listed = client.get(DATABASES).await;
    assert_eq!((listed.names(), listed.is_hit()), (Vec::new(), false), "{}", listed.summary());
    assert_eq!(watch.received, protobuf.said());
}

#[tokio::test(start_paused = true)]
async fn an_unparsable_protobuf_watch_suspends_answers_from_memory_until_it_ends() {
    let (proxy, protobuf) = deaf().await;
    let client = proxy.client();
    let mut watch = watch(&proxy).await;
    assert!(client.get(DATABASES).await.is_hit());
    put(&proxy, "odd", &[("app", &"x".repeat(5000))]);
    watch.tells("ADDED", "odd").await;
    assert_eq!(proxy.counted("listless_limits_reached_total", "limit=\"watch_events\""), 1.0);
    assert_eq!(client.get(DATABASES).await.detail(), "barred");
    put(&proxy, "web-9", &[]);
    watch.tells("ADDED", "web-9").await;
    assert_eq!(watch.received, protobuf.said());
    drop(watch);
    settle().await;
    // The next consistent read contains what it showed. Memory has not reached that version yet.
    assert_eq!(client.get(DATABASES).await.detail(), "barred");
    pass(Duration::from_secs(5)).await;
    assert_ne!(client.get(DATABASES).await.detail(), "barred");
}
