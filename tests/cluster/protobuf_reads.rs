//! Protobuf from memory on real control planes: lists, objects and metadata of many built-in types,
//! byte for byte. `forms` compares fewer types with many more queries, and watches.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
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
    }
    eprintln!("proof: {compared} equal responses in protobuf on {}", version.name());
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
