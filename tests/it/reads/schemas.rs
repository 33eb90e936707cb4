//! Objects whose bytes change while their versions stay: schema, conversion, another release.

use std::time::Duration;

use listless::{
    api::{ObjectKey, Verb},
    simulator::{Asked, Effect, Fault, Json},
};
use serde_json::json;

use crate::harness::{Setup, TestProxy, group_resource, pass, settle, without_version};

const WIDGETS: &str = "/apis/x.io/v1/widgets";
const PODS: &str = "/api/v1/pods";

/// Longer than the time memory answers without a watch.
const BRIDGED: Duration = Duration::from_secs(30);

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
        let proxy = TestProxy::warmed(path).await;
        gains_a_default(&proxy, resource);
        proxy.simulator.skip_revisions(5);
        proxy.simulator.forget_history();
        proxy.simulator.end_watches();
        answers_exactly_again(&proxy, path).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_listed_again_when_the_apiserver_ends_its_watch() {
    let proxy = TestProxy::warmed(WIDGETS).await;
    gains_a_default(&proxy, "widgets.x.io");
    // The version that memory shows is still the newest, so a watch from it succeeds.
    proxy.simulator.end_watches();
    answers_exactly_again(&proxy, WIDGETS).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_without_events_when_bytes_differ_at_equal_versions() {
    let proxy = TestProxy::warmed(WIDGETS).await;
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
    let proxy = TestProxy::warmed(WIDGETS).await;
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

/// An APIService says which server serves a version of a group.
fn serve(proxy: &TestProxy, server: serde_json::Value) {
    let service = json!({
        "metadata": {"name": "v1.x.io"},
        "spec": {"group": "x.io", "version": "v1", "service": server},
    });
    let services = group_resource("apiservices.apiregistration.k8s.io");
    proxy.simulator.put(&services, service).expect("served");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_another_server_takes_over_makes_its_replicas_list_again() {
    let proxy = TestProxy::warmed(WIDGETS).await;
    serve(&proxy, json!(null));
    // Documents are in use, so APIServices are followed.
    proxy.client().get("/apis").await;
    proxy.client().get("/apis").await;
    pass(Duration::from_secs(5)).await;
    serve(&proxy, json!(null));
    settle().await;
    assert!(proxy.client().get(WIDGETS).await.is_hit());
    gains_a_default(&proxy, "widgets.x.io");
    serve(&proxy, json!({"name": "other", "namespace": "a"}));
    settle().await;
    let forwarded = proxy.client().get(WIDGETS).await;
    assert!(!forwarded.is_hit() && forwarded.text().contains("by default"));
}

/// Its generation is the one that is known: deletion does not raise it, and a new object begins with
/// it again.
#[tokio::test(start_paused = true)]
async fn a_definition_that_is_deleted_or_created_anew_makes_its_replicas_list_again() {
    for is_created_anew in [false, true] {
        let proxy = TestProxy::warmed(WIDGETS).await;
        define(&proxy, 1);
        pass(Duration::from_secs(2)).await;
        define(&proxy, 1);
        settle().await;
        let definitions = group_resource("customresourcedefinitions.apiextensions.k8s.io");
        let key = ObjectKey::new(None, "widgets.x.io");
        proxy.simulator.remove(&definitions, &key).expect("a definition");
        if is_created_anew {
            define(&proxy, 1);
            gains_a_default(&proxy, "widgets.x.io");
        }
        settle().await;
        let answer = proxy.client().get(WIDGETS).await;
        assert!(!answer.is_hit(), "{}", answer.summary());
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_changes_while_its_watch_is_interrupted_makes_its_replicas_list_again() {
    let proxy = Setup::default().in_memory();
    define(&proxy, 1);
    let ends =
        |asked: &Asked| asked.verb == Verb::Watch && asked.resource == "customresourcedefinitions";
    proxy.simulator.inject(Fault::next(1, Effect::EndAfter(0), ends));
    proxy.warm(WIDGETS).await;
    pass(Duration::from_millis(1_100)).await;
    assert_eq!(proxy.upstream.count(Verb::List, "customresourcedefinitions"), 1);
    assert_eq!(proxy.upstream.count(Verb::Watch, "customresourcedefinitions"), 1);
    define(&proxy, 2);
    gains_a_default(&proxy, "widgets.x.io");
    pass(Duration::from_secs(5)).await;
    let answer = proxy.client().get(WIDGETS).await;
    assert!(answer.text().contains("by default"), "{}", answer.summary());
}

#[tokio::test(start_paused = true)]
async fn a_conversion_that_changes_without_any_notice_is_found_by_the_check() {
    let proxy = TestProxy::warmed(WIDGETS).await;
    gains_a_default(&proxy, "widgets.x.io");
    pass(Duration::from_secs(60)).await;
    answers_exactly_again(&proxy, WIDGETS).await;
    // The replica of built-in objects needs no list of whole objects.
    assert_eq!(proxy.upstream.count(Verb::Watch, "apiservices"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_apiserver_release_makes_every_replica_list_again() {
    let proxy = TestProxy::warmed(PODS).await;
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
    let proxy = TestProxy::warmed(PODS).await;
    pass(Duration::from_secs(2)).await;
    proxy.upstream.forget();
    for _ in 0..5 {
        proxy.simulator.end_watches();
        pass(Duration::from_secs(15)).await;
    }
    assert!(proxy.client().get(PODS).await.is_hit());
    assert_eq!(proxy.replicas()[0].relists, 0);
}
