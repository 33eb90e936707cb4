//! Objects whose bytes change while their versions stay: schema, conversion, another release.

use std::time::Duration;

use listless::{api::Verb, simulator::Json};
use serde_json::json;

use crate::harness::{TestProxy, group_resource, pass, settle, without_version};

const WIDGETS: &str = "/apis/x.io/v1/widgets";
const PODS: &str = "/api/v1/pods";

/// Longer than the time memory answers without a watch.
const BRIDGED: Duration = Duration::from_secs(30);

async fn warmed_at(path: &str) -> TestProxy {
    let proxy = TestProxy::warmed(path).await;
    proxy
}

/// The apiserver adds one field to every object of the resource, at the same version.
fn gains_a_default(proxy: &TestProxy, resource: &str) {
    let add = |json: &mut Json| json.entry("spec").set("added", "by default");
    proxy.simulator.reshape(&group_resource(resource), add);
}

/// The definition of widgets, at a generation of its specification.
fn define(proxy: &TestProxy, generation: u64) {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.x.io", "generation": generation},
    });
    let definitions = group_resource("customresourcedefinitions.apiextensions.k8s.io");
    proxy.simulator.put(&definitions, definition).expect("served");
}

/// After the time that a lost connection may be bridged, memory answers as the apiserver does.
async fn answers_exactly_again(proxy: &TestProxy, path: &str) {
    let client = proxy.client();
    pass(BRIDGED).await;
    client.get(path).await;
    pass(Duration::from_secs(1)).await;
    let (answer, straight) = (client.get(path).await, proxy.straight().get(path).await);
    assert!(answer.is_hit(), "{}", answer.summary());
    assert!(straight.text().contains("by default"), "{}", straight.text());
    assert_eq!(without_version(&answer), without_version(&straight));
}

#[tokio::test(start_paused = true)]
async fn a_relist_replaces_bytes_that_differ_at_equal_versions() {
    for (path, resource) in [(WIDGETS, "widgets.x.io"), (PODS, "pods")] {
        let proxy = warmed_at(path).await;
        gains_a_default(&proxy, resource);
        proxy.simulator.skip_revisions(5);
        proxy.simulator.forget_history();
        proxy.simulator.end_watches();
        answers_exactly_again(&proxy, path).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_listed_again_when_the_apiserver_ends_its_watch() {
    let proxy = warmed_at(WIDGETS).await;
    gains_a_default(&proxy, "widgets.x.io");
    // The version that memory shows is still the newest, so a watch from it succeeds.
    proxy.simulator.end_watches();
    answers_exactly_again(&proxy, WIDGETS).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_without_events_when_bytes_differ_at_equal_versions() {
    let proxy = warmed_at(WIDGETS).await;
    let version = proxy.simulator.revision();
    let path = format!("{WIDGETS}?watch=true&resourceVersion={version}");
    let mut watch = proxy.client().watch(&path).await;
    assert!(watch.is_hit());
    gains_a_default(&proxy, "widgets.x.io");
    proxy.simulator.end_watches();
    assert!(watch.next_line().await.is_none(), "an event at a version the client has");
    settle().await;
    assert_eq!(proxy.upstream.count(Verb::List, "widgets"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_changed_definition_makes_its_replicas_list_again() {
    let proxy = warmed_at(WIDGETS).await;
    define(&proxy, 1);
    // The definition is followed only for the replica.
    pass(Duration::from_secs(2)).await;
    let definition = |verb| proxy.upstream.count(verb, "customresourcedefinitions");
    assert_eq!((definition(Verb::List), definition(Verb::Watch)), (1, 1));
    assert_eq!(proxy.upstream.count(Verb::Watch, "apiservices"), 0);
    proxy.upstream.forget();
    gains_a_default(&proxy, "widgets.x.io");
    define(&proxy, 2);
    settle().await;
    let forwarded = proxy.client().get(WIDGETS).await;
    assert!(!forwarded.is_hit() && forwarded.text().contains("by default"));
    answers_exactly_again(&proxy, WIDGETS).await;
    assert_eq!(proxy.replicas().len(), 1);
    proxy.upstream.forget();
    // Another status of the same definition changes nothing.
    define(&proxy, 2);
    settle().await;
    assert!(proxy.client().get(WIDGETS).await.is_hit());
    assert_eq!(proxy.upstream.count(Verb::List, "widgets"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_conversion_that_changes_without_any_notice_is_found_by_the_check() {
    let proxy = warmed_at(WIDGETS).await;
    gains_a_default(&proxy, "widgets.x.io");
    pass(Duration::from_secs(60)).await;
    answers_exactly_again(&proxy, WIDGETS).await;
    // The replica of built-in objects needs no list of whole objects.
    assert_eq!(proxy.upstream.count(Verb::Watch, "apiservices"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_apiserver_release_makes_every_replica_list_again() {
    let proxy = warmed_at(PODS).await;
    pass(Duration::from_secs(2)).await;
    proxy.upstream.forget();
    gains_a_default(&proxy, "pods");
    proxy.simulator.become_next_release();
    // The version that memory shows is still the newest, so a watch from it succeeds.
    proxy.simulator.end_watches();
    pass(Duration::from_secs(15)).await;
    answers_exactly_again(&proxy, PODS).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_the_same_release_continues_without_a_list() {
    let proxy = warmed_at(PODS).await;
    pass(Duration::from_secs(2)).await;
    proxy.upstream.forget();
    for _ in 0..5 {
        proxy.simulator.end_watches();
        pass(Duration::from_secs(15)).await;
    }
    assert!(proxy.client().get(PODS).await.is_hit());
    assert_eq!(proxy.replicas()[0].relists, 0);
}
