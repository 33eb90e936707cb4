//! A definition whose schema gains a default: the apiserver shows the default in every object, at
//! the version that the object had before. An answer from memory must show it too.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::clusters::Cluster;
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::{until, until_hit_at_last};

const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.defaults.example.com";
const WIDGETS: &str = "/apis/defaults.example.com/v1/namespaces/default/widgets";
const WIDGET: &str = "/apis/defaults.example.com/v1/namespaces/default/widgets/one";

/// The longest time until an apiserver serves a definition, or a replica answers.
const SETTLED: Duration = Duration::from_secs(60);
/// The longest time that an answer of Listless shows the old schema after the apiserver shows the
/// new one: the apiserver ends the watches of the old one a little later.
const BEHIND: Duration = Duration::from_secs(5);
/// Each round adds one more default.
const COLOURS: [&str; 3] = ["red", "green", "blue"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_default_is_shown_in_objects_from_memory_on_1_36() {
    defaults_are_shown(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_default_is_shown_in_objects_from_memory_on_1_30() {
    defaults_are_shown(Version::V1_30).await;
}

async fn defaults_are_shown(version: Version) {
    let Some(cluster) = Cluster::take_alone(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    let straight = cluster.plane().client(User::Admin, Protocol::Http2).expect("a client");
    create(&straight).await;
    let list = Request::get(WIDGETS);
    until_hit_at_last(&through, &list, SETTLED).await.expect("the objects from memory");
    let before = version_of(&straight).await;
    let mut latest = Duration::ZERO;
    for (round, colour) in COLOURS.into_iter().enumerate() {
        let patch = defaults(&COLOURS[..=round]).to_string();
        let patch =
            Request::new(Method::PATCH, DEFINITION).body("application/merge-patch+json", patch);
        let changed = straight.send(patch).await;
        changed.and_then(Answer::successful).expect("a changed definition");
        shown(&straight, colour).await;
        let begun = Instant::now();
        shown(&through, colour).await;
        latest = latest.max(begun.elapsed());
        until("the objects come from memory, with the default", SETTLED, async || {
            let answer = through.get(WIDGETS).await.expect("an answer");
            assert!(contains(&answer, colour), "{colour} is lost again");
            Ok(answer.is_hit())
        })
        .await
        .expect("a hit");
    }
    assert_eq!(version_of(&straight).await, before, "the object was written");
    let deleted = straight.send(Request::new(Method::DELETE, DEFINITION)).await;
    deleted.and_then(Answer::successful).expect("no definition any more");
    assert!(latest < BEHIND, "a default was shown {latest:?} after the apiserver showed it");
    eprintln!(
        "proof: {} defaults on {}: shown through Listless {latest:?} later at most",
        COLOURS.len(),
        version.name(),
    );
}

async fn create(client: &Client) {
    let definition = json!({
        "metadata": {"name": "widgets.defaults.example.com"},
        "spec": {
            "group": "defaults.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": defaults(&[])["spec"]["versions"],
        },
    });
    let collection = DEFINITION.rsplit_once('/').expect("a collection").0;
    let created = client.send(Request::new(Method::POST, collection).json(&definition)).await;
    created.and_then(Answer::successful).expect("a definition");
    let widget = json!({
        "apiVersion": "defaults.example.com/v1", "kind": "Widget",
        "metadata": {"name": "one"}, "spec": {},
    });
    until("the apiserver takes an object", SETTLED, async || {
        let created = client.send(Request::new(Method::POST, WIDGETS).json(&widget)).await;
        Ok(created.and_then(Answer::successful).is_ok())
    })
    .await
    .expect("an object");
}

/// The part of the definition whose schema has a property with a default for each colour.
fn defaults(colours: &[&str]) -> Value {
    let property =
        |colour: &&str| ((*colour).to_owned(), json!({"type": "string", "default": *colour}));
    let properties: serde_json::Map<_, _> = colours.iter().map(property).collect();
    let spec = json!({"type": "object", "properties": properties});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({"spec": {"versions": [
        {"name": "v1", "served": true, "storage": true, "schema": schema},
    ]}})
}

/// Waits until both the list and the object have the default.
async fn shown(client: &Client, colour: &str) {
    until(&format!("the default {colour} is shown"), SETTLED, async || {
        let (list, object) = tokio::join!(client.get(WIDGETS), client.get(WIDGET));
        let has = |answer: &Answer| contains(answer, colour);
        Ok(list.is_ok_and(|list| has(&list)) && object.is_ok_and(|object| has(&object)))
    })
    .await
    .expect("a default");
}

fn contains(answer: &Answer, colour: &str) -> bool {
    String::from_utf8_lossy(&answer.body).contains(&format!("\"{colour}\":\"{colour}\""))
}

async fn version_of(client: &Client) -> String {
    let object = client.get(WIDGET).await.and_then(Answer::successful).expect("the object");
    object.json().expect("JSON")["metadata"]["resourceVersion"].to_string()
}
