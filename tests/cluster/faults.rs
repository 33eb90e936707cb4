//! Faults of real servers, clients and machines, each provoked on purpose. This file: more requests than the
//! apiserver takes.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::clusters::{Machine, available};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;

mod aggregated;
mod clock;
mod descriptors;
mod drain;
mod flood;
mod hung;
mod killed;
mod large;
mod malformed;
mod many;
mod quota;
mod restored;
mod served_versions;
mod state_directory;
mod stopped;

/// The config maps of one namespace, and a configuration that holds them from the start.
pub const COLLECTION: &str = "/api/v1/namespaces/default/configmaps";
pub const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
cache:
  rules:
  - resources: [\"configmaps\"]
    start: eager
";
/// The numbers of objects in a collection.
const FEW: usize = 10;
const MANY: usize = 400;
/// The time in which memory must be right again, and clients must know that their copy is not.
const RECOVERY: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(250);
/// The overload: its pollers and its duration. It goes on until memory has answered once: a slow machine
/// refuses most lists.
const LOAD: usize = 6;
const OVERLOAD: Duration = Duration::from_secs(40);
const OVERLOAD_MAX: Duration = Duration::from_secs(180);
/// The pause of a poller between an answer and its next question.
const PAUSE_OF_POLLER: Duration = Duration::from_millis(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_apiserver_is_spared_and_memory_answers_on_1_36() {
    overloaded(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overloaded_apiserver_is_spared_and_memory_answers_on_1_30() {
    overloaded(Version::V1_30).await;
}

async fn overloaded(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start_scarce(version).await.expect("a control plane");
    let admin = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&admin, "kept", MANY).await.expect("writes");
    let named = json!({"name": "readers"});
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
    let subjects = json!([{"kind": "User", "name": User::Reader.name()}]);
    let role =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"});
    for (collection, object) in [
        ("clusterroles", json!({"metadata": named, "rules": rules})),
        ("clusterrolebindings", json!({"metadata": named, "subjects": subjects, "roleRef": role})),
    ] {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/{collection}");
        let created = admin.send(Request::new(Method::POST, &path).json(&object)).await;
        created.expect("an answer").successful().expect("rights");
    }
    let kubeconfig = plane.kubeconfig(User::Reader).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");

    let overload = Arc::new(Overload { began: Instant::now(), is_answered: false.into() });
    let spawn = |client| {
        let overload = Arc::clone(&overload);
        tokio::spawn(poll(client, move |polled| overload.lasts(polled)))
    };
    let load: Vec<_> = (0..LOAD).map(|_| spawn(reader(&plane))).collect();
    let through: Vec<_> = (0..4).map(|_| spawn(proxy.client(Protocol::Http2))).collect();
    let straight = sum(load).await;
    let through = sum(through).await;
    let lasted = overload.began.elapsed();
    let lists = proxy.metrics().await.expect("metrics");
    let lists =
        lists.sum("listless_upstream_requests_total", &[("origin", "replica"), ("verb", "list")]);
    eprintln!(
        "proof: an overloaded apiserver on {}: straight {straight:?}, through Listless {through:?}, {lists} lists \
         for its replica in {lasted:.0?}",
        version.name()
    );
    assert!(straight.refused > 0, "no load: {straight:?}");
    assert_eq!(through.wrong, 0, "{through:?}\n{}", proxy.log());
    assert!(through.from_memory > 0, "{through:?}\n{}", proxy.log());
    assert!(lists <= lasted.as_secs_f64() + 2.0, "one list a second at most: {lists}");
}

fn reader(plane: &ControlPlane) -> Client {
    plane.client(User::Reader, Protocol::Http1).expect("a client")
}

/// The answers to a poller.
#[derive(Clone, Copy, Debug, Default)]
struct Polled {
    from_memory: usize,
    others: usize,
    /// Refused with 429 and `Retry-After`.
    refused: usize,
    /// Neither complete nor refused.
    wrong: usize,
}

async fn sum(polls: Vec<tokio::task::JoinHandle<Polled>>) -> Polled {
    let mut sum = Polled::default();
    for polled in polls {
        let polled = polled.await.expect("no panic");
        sum.from_memory += polled.from_memory;
        sum.others += polled.others;
        sum.refused += polled.refused;
        sum.wrong += polled.wrong;
    }
    sum
}

/// The time in which the apiserver has more requests than it takes.
struct Overload {
    began: Instant,
    /// `true` once memory has answered.
    is_answered: AtomicBool,
}

impl Overload {
    fn lasts(&self, polled: &Polled) -> bool {
        let answers = polled.from_memory > 0;
        let is_answered = self.is_answered.fetch_or(answers, Ordering::Relaxed) || answers;
        self.began.elapsed() < if is_answered { OVERLOAD } else { OVERLOAD_MAX }
    }
}

/// Polls as long as `lasts` says.
async fn poll(client: Client, lasts: impl Fn(&Polled) -> bool) -> Polled {
    let mut polled = Polled::default();
    while lasts(&polled) {
        let answer = client.get(COLLECTION).await.expect("an answer");
        let is_whole = || answer.json().is_ok_and(|list| names(&list).len() >= MANY);
        match answer.status.as_u16() {
            200 if is_whole() && answer.is_hit() => polled.from_memory += 1,
            200 if is_whole() => polled.others += 1,
            429 if answer.header("retry-after").is_some() => polled.refused += 1,
            _ => polled.wrong += 1,
        }
        tokio::time::sleep(PAUSE_OF_POLLER).await;
    }
    polled
}

async fn write(client: &Client, prefix: &str, count: usize) -> Result<()> {
    for number in 0..count {
        let object = json!({"metadata": {"name": format!("{prefix}-{number}")}});
        client.send(Request::new(Method::POST, COLLECTION).json(&object)).await?.successful()?;
    }
    Ok(())
}

/// Waits for a list from memory with a number of objects; returns their names and its version.
async fn from_memory(client: &Client, count: usize) -> Result<(BTreeSet<String>, String)> {
    let deadline = Instant::now() + RECOVERY;
    loop {
        tokio::time::sleep(POLL).await;
        let answer = client.get(COLLECTION).await?.successful()?;
        let list = answer.json()?;
        // The namespace's own `kube-root-ca.crt` has no controller here that creates it.
        if answer.is_hit() && names(&list).len() >= count {
            let version = list["metadata"]["resourceVersion"].as_str().context("a version")?;
            return Ok((names(&list), version.to_owned()));
        }
        ensure!(Instant::now() < deadline, "{}", answer.excerpt());
    }
}

fn names(list: &Value) -> BTreeSet<String> {
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|it| it["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// Writes a shell script that starts Listless in its own way; it is started in its place.
fn make_program(path: &Path, script: &str) -> Result<()> {
    fs::write(path, format!("#!/bin/sh\n{script}\n"))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

/// Reads a watch up to a number of added objects, and returns their names.
pub(crate) async fn added(mut watch: Incoming, count: usize) -> Vec<String> {
    let (mut read, mut names) = (Vec::new(), Vec::new());
    while names.len() < count {
        let Some(Ok(frame)) = watch.frame().await else { break };
        read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        while let Some(end) = read.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = read.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line).unwrap_or_default();
            if event["type"] == "ADDED" {
                names.extend(event["object"]["metadata"]["name"].as_str().map(str::to_owned));
            }
        }
    }
    names
}

/// Reads a watch to its end, and returns the type and code of its last event.
async fn last_event(mut watch: Incoming) -> Option<String> {
    let mut read = Vec::new();
    while let Some(frame) = watch.frame().await {
        let Ok(frame) = frame else { break };
        read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
    }
    let text = String::from_utf8_lossy(&read);
    let event: Value = serde_json::from_str(text.lines().last()?).ok()?;
    Some(format!("{} {}", event["type"].as_str()?, event["object"]["code"]))
}
