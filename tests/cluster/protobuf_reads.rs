//! Protobuf from memory on real control planes: lists, objects, metadata and watches of built-in
//! types, byte for byte.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use listless::api::learn::{Learned, Learner};
use serde_json::json;

use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::Version;
use crate::unmodified::stage::{Scene, Stage};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";
const NAMESPACE: &str = "protobuf-reads";
const WARM_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Collections that a new control plane has, or that the test fills.
const COLLECTIONS: &[&str] = &[
    "/api/v1/namespaces",
    "/api/v1/namespaces/protobuf-reads/pods",
    "/api/v1/namespaces/protobuf-reads/configmaps",
    "/api/v1/namespaces/protobuf-reads/services",
    "/api/v1/namespaces/protobuf-reads/serviceaccounts",
    "/api/v1/namespaces/protobuf-reads/persistentvolumeclaims",
    "/api/v1/services",
    "/api/v1/nodes",
    "/apis/apps/v1/namespaces/protobuf-reads/deployments",
    "/apis/apps/v1/namespaces/protobuf-reads/statefulsets",
    "/apis/apps/v1/namespaces/protobuf-reads/controllerrevisions",
    "/apis/batch/v1/namespaces/protobuf-reads/jobs",
    "/apis/batch/v1/namespaces/protobuf-reads/cronjobs",
    "/apis/networking.k8s.io/v1/namespaces/protobuf-reads/ingresses",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/apiregistration.k8s.io/v1/apiservices",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
];

/// Selections of the pods.
const SELECTIONS: &[&str] = &[
    "labelSelector=app%3Dweb",
    "labelSelector=!app",
    "fieldSelector=spec.nodeName%3Dn1",
    "fieldSelector=spec.nodeName%3D",
    "fieldSelector=spec.hostNetwork%3Dtrue",
    "fieldSelector=spec.hostNetwork%3Dfalse",
    "fieldSelector=status.phase%3DPending",
    "fieldSelector=spec.restartPolicy%3DNever",
    "fieldSelector=spec.schedulerName%3Ddefault-scheduler",
    "fieldSelector=metadata.name%3Dpod-1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protobuf_from_memory_equals_the_apiservers_on_1_36() {
    is_equal_on(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protobuf_from_memory_equals_the_apiservers_on_1_30() {
    is_equal_on(Version::V1_30).await;
}

async fn is_equal_on(version: Version) {
    let Some(stage) = Stage::take(version).await else { return };
    let scene = stage.scene(NAMESPACE).await.expect("a scene");
    fill(&scene).await.expect("objects");
    let mut compared = 0;
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let through = scene.proxy.client(protocol);
        for collection in COLLECTIONS {
            compared += reads(&scene, &through, collection).await.expect("equal reads");
        }
        let pods = scene.collection("pods");
        for selection in SELECTIONS {
            let path = format!("{pods}?{selection}");
            list(&scene, &through, &path, BOTH).await.expect("an equal list");
            compared += 1;
        }
        compared += watches(&scene, &through, &pods).await.expect("equal events");
    }
    eprintln!("proof: {compared} equal responses and events in protobuf on {}", version.name());
}

/// Makes objects of several kinds.
async fn fill(scene: &Scene<'_>) -> Result<()> {
    for number in 0..6 {
        let labels = if number % 2 == 0 { json!({"app": "web"}) } else { json!({}) };
        let policy = if number % 3 == 0 { "Never" } else { "Always" };
        let pod = json!({
            "metadata": {"name": format!("pod-{number}"), "labels": labels,
                "annotations": {"note": "ü<&>".repeat(number * 40)}},
            "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": ""}]}],
                "hostNetwork": number == 4, "restartPolicy": policy,
                "nodeName": if number < 2 { "n1" } else { "" }},
        });
        create(scene, &scene.collection("pods"), &pod).await?;
        let data = json!({"k": "v".repeat(number * 9000)});
        let name = format!("map-{number}");
        let map = json!({"metadata": {"name": name}, "data": data, "binaryData": {"b": "AAEC"}});
        create(scene, &scene.collection("configmaps"), &map).await?;
    }
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    let mut always = template.clone();
    always["spec"]["restartPolicy"] = json!("Always");
    let selector = json!({"matchLabels": {"a": "b"}});
    let of = |group: &str, plural: &str| format!("/apis/{group}/namespaces/{NAMESPACE}/{plural}");
    let metadata = json!({"name": "one"});
    let objects = [
        (of("apps/v1", "deployments"), json!({"selector": selector, "template": always})),
        (
            of("apps/v1", "statefulsets"),
            json!({"selector": selector, "serviceName": "s", "template": always}),
        ),
        (of("batch/v1", "jobs"), json!({"template": template})),
        (
            of("batch/v1", "cronjobs"),
            json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}),
        ),
        (
            of("networking.k8s.io/v1", "ingresses"),
            json!({"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}),
        ),
    ];
    for (path, spec) in objects {
        create(scene, &path, &json!({"metadata": metadata, "spec": spec})).await?;
    }
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}});
    create(scene, &scene.collection("services"), &service).await?;
    let revision = json!({"metadata": metadata, "revision": 3, "data": {"spec": {"x": [1, "<"]}}});
    create(scene, &of("apps/v1", "controllerrevisions"), &revision).await?;
    let claim = json!({"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1500m"}}}});
    create(scene, &scene.collection("persistentvolumeclaims"), &claim).await?;
    let node = json!({"metadata": {"name": "n1"}, "spec": {"unschedulable": true}});
    create(scene, "/api/v1/nodes", &node).await
}

async fn create(scene: &Scene<'_>, path: &str, object: &serde_json::Value) -> Result<()> {
    let post = Request::new(Method::POST, path).json(object);
    scene.straight.send(post).await?.successful().map(drop)
}

/// Compares a collection, whole and as metadata, and one of its objects and an absent one.
async fn reads(scene: &Scene<'_>, through: &Client, collection: &str) -> Result<u32> {
    let whole = list(scene, through, collection, BOTH).await?;
    for version in ["v1", "v1beta1"] {
        let conversion = format!("as=PartialObjectMetadataList;g=meta.k8s.io;v={version}");
        list(scene, through, collection, &format!("{PROTOBUF};{conversion}")).await?;
    }
    let mut compared = 3;
    let json = scene.straight.get(collection).await?.json()?;
    let first = json["items"][0]["metadata"]["name"].as_str();
    let is_everywhere = json["items"][0]["metadata"]["namespace"].is_string()
        && !collection.contains("/namespaces/");
    if let Some(name) = first.filter(|_| !is_everywhere) {
        let one = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        for (name, accept) in [(name, BOTH), (name, &*one), ("absent", BOTH)] {
            object(scene, through, &format!("{collection}/{name}"), accept).await?;
            compared += 1;
        }
    }
    drop(whole);
    Ok(compared)
}

/// Compares a list from memory with the apiserver's at exactly its version.
async fn list(scene: &Scene<'_>, through: &Client, path: &str, accept: &str) -> Result<Answer> {
    let answer = hit(through, path, accept).await?;
    let version = version(&answer.body)?;
    let separator = if path.contains('?') { '&' } else { '?' };
    let exact = format!("{path}{separator}resourceVersion={version}&resourceVersionMatch=Exact");
    let straight = scene.straight.send(Request::get(&exact).header("Accept", accept)).await?;
    same(path, accept, &answer, &straight.successful()?)?;
    Ok(answer)
}

async fn object(scene: &Scene<'_>, through: &Client, path: &str, accept: &str) -> Result<()> {
    let answer = hit(through, path, accept).await?;
    let straight = scene.straight.send(Request::get(path).header("Accept", accept)).await?;
    same(path, accept, &answer, &straight)
}

fn same(path: &str, accept: &str, answer: &Answer, straight: &Answer) -> Result<()> {
    let media = straight.header("content-type");
    ensure!(media == Some(PROTOBUF), "{path} as {accept}: {media:?}");
    ensure!(answer.header("content-type") == media, "{path} as {accept}");
    ensure!(answer.status == straight.status, "{path} as {accept}: {}", answer.status);
    let (found, expected) = (answer.body.escape_ascii(), straight.body.escape_ascii());
    ensure!(answer.body == straight.body, "{path} as {accept}:\n{found}\n{expected}");
    Ok(())
}

/// Polls until memory answers.
async fn hit(through: &Client, path: &str, accept: &str) -> Result<Answer> {
    let (begun, mut poll) = (Instant::now(), tokio::time::interval(POLL));
    loop {
        poll.tick().await;
        let answer = through.send(Request::get(path).header("Accept", accept)).await?;
        let said = answer.header("cache-status").unwrap_or_default();
        if said.starts_with("listless; hit;") {
            return Ok(answer);
        }
        ensure!(begun.elapsed() < WARM_LIMIT, "{path} as {accept}: {said}");
    }
}

fn version(body: &[u8]) -> Result<String> {
    let mut learner = Learner::new(Some(PROTOBUF), None);
    learner.push(body);
    match learner.finish() {
        Learned::List { version, .. } => Ok(version.as_str().to_owned()),
        other => anyhow::bail!("no list: {other:?}"),
    }
}

/// Compares watches of the pods while they change; returns the number of events.
async fn watches(scene: &Scene<'_>, through: &Client, pods: &str) -> Result<u32> {
    let from = version(&hit(through, pods, BOTH).await?.body)?;
    let after = format!("watch=1&resourceVersion={from}&timeoutSeconds=8");
    let state = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=true&timeoutSeconds=8";
    let metadata = format!("{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    let mut told = 0;
    let mut pairs = Vec::new();
    for (start, accept) in [
        (format!("{pods}?{after}"), BOTH),
        (format!("{pods}?{after}&labelSelector=app%3Dweb"), BOTH),
        (format!("{pods}?{after}&fieldSelector=spec.nodeName%3D"), PROTOBUF),
        (format!("{pods}?{after}&allowWatchBookmarks=1"), &*metadata),
        (format!("{pods}?{state}"), BOTH),
    ] {
        let ask = |client: &Client| {
            let (client, request) = (client.clone(), Request::get(&start).header("Accept", accept));
            tokio::spawn(async move { client.send(request).await })
        };
        pairs.push((start.clone(), ask(through), ask(&scene.straight)));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (index, patch) in [
        json!({"metadata": {"labels": {"app": "db"}}}),
        json!({"metadata": {"labels": {"app": "web"}}}),
        json!({"metadata": {"annotations": {"a": "b"}}}),
    ]
    .iter()
    .enumerate()
    {
        for number in [0, 2, 5] {
            let path = format!("{pods}/pod-{number}");
            let patched = Request::new(Method::PATCH, &path);
            let body = format!("{{\"metadata\":{}}}", patch["metadata"]);
            let body = body.replace("\"b\"", &format!("\"b{index}{from}\""));
            let patched = patched.body("application/merge-patch+json", body);
            scene.straight.send(patched).await?.successful()?;
        }
    }
    for (path, found, expected) in pairs {
        let (found, expected) = (found.await??, expected.await??);
        let said = found.header("cache-status").unwrap_or_default();
        // A server without WatchList refuses this start.
        if expected.status != 200 {
            continue;
        }
        ensure!(said.starts_with("listless; hit;"), "{path}: {said}");
        ensure!(found.header("content-type") == expected.header("content-type"), "{path}");
        let (found, expected) = (events(&found.body)?, events(&expected.body)?);
        ensure!(found == expected, "{path}:\n{found:#?}\n{expected:#?}");
        told += u32::try_from(found.len())?;
    }
    ensure!(told > 15, "{told} events are too few");
    Ok(told)
}

/// Returns the events of a watch; bookmarks may have other versions.
fn events(mut stream: &[u8]) -> Result<Vec<String>> {
    let mut events = Vec::new();
    while !stream.is_empty() {
        let (length, rest) = stream.split_first_chunk::<4>().context("a length")?;
        let (event, rest) =
            rest.split_at_checked(u32::from_be_bytes(*length) as usize).context("an event")?;
        let text = event.escape_ascii().to_string();
        if !text.contains("BOOKMARK") {
            events.push(text);
        }
        stream = rest;
    }
    Ok(events)
}
