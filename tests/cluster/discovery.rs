//! A new definition, or an API of another server, becomes visible through Listless as soon as
//! directly. It also disappears as soon.
//!
//! Both are polled at the same moments while it comes and goes. Listless may be behind by one step
//! of the polls. The two responses of one step are not made at the same instant.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;

use crate::clusters::Cluster;
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::ProxyProcess;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const GROUP: &str = "lag.example.com";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const AGGREGATED_BETA: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// The interval of the polls.
const STEP: Duration = Duration::from_millis(50);
/// No apiserver takes longer to show a definition everywhere.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);
/// After this time without changes documents are answered from memory.
const SETTLED: Duration = Duration::from_secs(12);
/// Definitions that come and go.
const ROUNDS: usize = 4;
/// API services that come and go: fewer, because the apiserver shows them at once.
const SERVICE_ROUNDS: usize = 2;

/// A document, its request headers, and the check for a definition.
struct Document {
    target: &'static str,
    accept: &'static str,
    /// The text that it contains as long as the definition exists.
    mark: fn(&str) -> String,
}

/// The step in which a change was first seen, and the duration of steps.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    straight: Option<u32>,
    through: Option<u32>,
    step: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_definition_is_seen_through_listless_as_soon_as_directly_on_1_36() {
    definitions_come_and_go(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_definition_is_seen_through_listless_as_soon_as_directly_on_1_30() {
    definitions_come_and_go(Version::V1_30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_api_service_is_seen_through_listless_as_soon_as_directly_on_1_36() {
    api_services_come_and_go(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_api_service_is_seen_through_listless_as_soon_as_directly_on_1_30() {
    api_services_come_and_go(Version::V1_30).await;
}

fn documents(version: Version) -> [Document; 4] {
    let aggregated = match version {
        Version::V1_36 => AGGREGATED,
        Version::V1_30 => AGGREGATED_BETA,
    };
    let in_group = |plural: &str| format!("\"{plural}\"");
    [
        Document { target: "/apis", accept: aggregated, mark: in_group },
        Document { target: "/apis/lag.example.com/v1", accept: "", mark: in_group },
        Document {
            target: "/openapi/v2",
            accept: "",
            mark: |plural| format!("/apis/{GROUP}/v1/{plural}\""),
        },
        Document {
            target: "/openapi/v3/apis/lag.example.com/v1",
            accept: "",
            mark: |plural| format!("/apis/{GROUP}/v1/{plural}\""),
        },
    ]
}

async fn definitions_come_and_go(version: Version) {
    let Some(cluster) = Cluster::take_alone(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    let straight = cluster.plane().client(User::Admin, Protocol::Http2).expect("a client");
    // One definition stays, so that the group's documents exist all the time.
    create(&straight, "anchors").await;
    until_shown(&straight, version, "anchors").await;
    let mut later = Vec::new();
    for round in 0..ROUNDS {
        let plural = format!("things{round}");
        warm(&through, &documents(version)).await;
        create(&straight, &plural).await;
        later.extend(observe(&straight, &through, &documents(version), &plural, true).await);
        warm(&through, &documents(version)).await;
        delete(&straight, &plural).await;
        later.extend(observe(&straight, &through, &documents(version), &plural, false).await);
    }
    eprintln!(
        "proof: discovery on {}: {} changes seen through Listless; polls later than directly: {:?} at most",
        version.name(),
        later.len(),
        later.iter().max(),
    );
    delete(&straight, "anchors").await;
    until_gone(&straight).await;
}

/// The temporary API service has no server, so that its visibility needs none.
async fn api_services_come_and_go(version: Version) {
    let Some(cluster) = Cluster::take_alone(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    let straight = cluster.plane().client(User::Admin, Protocol::Http2).expect("a client");
    let groups = |group: &str| format!("\"name\":\"{group}\"");
    let documents = [Document { target: "/apis", accept: "application/json", mark: groups }];
    let mut later = Vec::new();
    for round in 0..SERVICE_ROUNDS {
        let group = format!("other{round}.example.com");
        let name = format!("v1.{group}");
        let service = json!({
            "metadata": {"name": name},
            "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15},
        });
        warm(&through, &documents).await;
        let made = straight.send(Request::new(Method::POST, API_SERVICES).json(&service)).await;
        made.and_then(Answer::successful).expect("an APIService");
        later.extend(observe(&straight, &through, &documents, &group, true).await);
        warm(&through, &documents).await;
        let target = format!("{API_SERVICES}/{name}");
        let gone = straight.send(Request::new(Method::DELETE, &target)).await;
        gone.and_then(Answer::successful).expect("no APIService any more");
        later.extend(observe(&straight, &through, &documents, &group, false).await);
    }
    assert_eq!(later.len(), 2 * SERVICE_ROUNDS);
    eprintln!(
        "proof: discovery on {}: {} changes of APIServices; polls later than directly: {:?} at most",
        version.name(),
        later.len(),
        later.iter().max(),
    );
}

async fn create(client: &Client, plural: &str) {
    let kind = plural.to_uppercase();
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let definition: Value = json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    let created = client.send(Request::new(Method::POST, DEFINITIONS).json(&definition)).await;
    created.and_then(Answer::successful).expect("a definition");
}

async fn delete(client: &Client, plural: &str) {
    let target = format!("{DEFINITIONS}/{plural}.{GROUP}");
    let deleted = client.send(Request::new(Method::DELETE, &target)).await;
    deleted.and_then(Answer::successful).expect("no definition any more");
}

async fn ask(client: &Client, document: &Document) -> Answer {
    let request = Request::get(document.target);
    let request = match document.accept {
        "" => request,
        accept => request.header("Accept", accept),
    };
    client.send(request).await.expect("an answer")
}

async fn shows(client: &Client, document: &Document, plural: &str) -> bool {
    let answer = ask(client, document).await;
    String::from_utf8_lossy(&answer.body).contains(&(document.mark)(plural))
}

/// Everything comes from memory. The next change is therefore not already in progress.
async fn warm(through: &Client, documents: &[Document]) {
    let deadline = Instant::now() + SETTLED * 4;
    for document in documents {
        loop {
            let answer = ask(through, document).await;
            if answer.header("cache-status") == Some("listless; hit; detail=discovery") {
                break;
            }
            assert!(Instant::now() < deadline, "{}: never from memory", document.target);
            // Documents settle by the apiserver's clock, not by that of the test.
            tokio::time::sleep(STEP).await;
        }
    }
}

/// Polls both ways until both show the change in every document. Returns by how many polls Listless
/// is later. Each document is polled apart, because the apiserver needs longer for some.
async fn observe(
    straight: &Client,
    through: &Client,
    documents: &[Document],
    plural: &str,
    present: bool,
) -> Vec<i64> {
    let mut later = Vec::new();
    let polls = documents.iter().map(|document| poll(straight, through, document, plural, present));
    let what = if present { "shown" } else { "gone" };
    for (document, seen) in documents.iter().zip(futures_util::future::join_all(polls).await) {
        let Seen { straight: Some(first), through: Some(second), step } = seen else { continue };
        let target = document.target;
        eprintln!("{target}: {what} in step {first} directly, {second} through, of {step:?}");
        assert!(second <= first + 1, "{target}: {what} in step {first} directly, {second} through");
        later.push(i64::from(second) - i64::from(first));
    }
    later
}

/// The steps in which a document changes, requested both ways at the same moments.
async fn poll(
    straight: &Client,
    through: &Client,
    document: &Document,
    plural: &str,
    present: bool,
) -> Seen {
    let (begun, target) = (Instant::now(), document.target);
    let mut seen = Seen::default();
    let mut steps = tokio::time::interval(STEP);
    steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for step in 0_u32.. {
        steps.tick().await;
        let both =
            tokio::join!(shows(straight, document, plural), shows(through, document, plural));
        for (first, shown) in [(&mut seen.straight, both.0), (&mut seen.through, both.1)] {
            if shown == present {
                first.get_or_insert(step);
            } else {
                assert!(first.is_none(), "{target}: {plural} came and went at step {step}");
            }
        }
        if seen.straight.is_some() && seen.through.is_some() {
            seen.step = begun.elapsed() / (step + 1);
            break;
        }
        assert!(begun.elapsed() < SHOWN_WITHIN, "{target}: {plural}: {seen:?}");
    }
    seen
}

async fn until_shown(client: &Client, version: Version, plural: &str) {
    let deadline = Instant::now() + SHOWN_WITHIN;
    for document in documents(version) {
        while !shows(client, &document, plural).await {
            assert!(Instant::now() < deadline, "{} never shows {plural}", document.target);
            tokio::time::sleep(STEP).await;
        }
    }
}

/// Other tests compare documents in this cluster.
async fn until_gone(client: &Client) {
    let deadline = Instant::now() + SHOWN_WITHIN;
    for target in ["/apis", "/openapi/v2", "/openapi/v3"] {
        loop {
            let answer = client.get(target).await.expect("an answer");
            if !String::from_utf8_lossy(&answer.body).contains(GROUP) {
                break;
            }
            assert!(Instant::now() < deadline, "{target} never forgets {GROUP}");
            tokio::time::sleep(STEP).await;
        }
    }
}
