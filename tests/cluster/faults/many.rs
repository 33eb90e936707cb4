//! Many at once: processes that start together, and watches that wait for an event.

use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::task::JoinHandle;

use super::{COLLECTION, CONFIGURATION, FEW, MANY, POLL, RECOVERY, from_memory, write};
use crate::clusters::{Machine, available};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::sidecar::create;

/// Each is a process with clients of its own.
const PROCESSES: usize = 200;
const CLIENTS_OF_EACH: usize = 5;
/// The requests to the apiserver in all for one process and its first reads: lists before and for its replica, its
/// watch, access reviews and discovery.
const REQUESTS_MAX: u64 = 20;

const CONNECTIONS: usize = 20;
const WATCHES_OF_EACH: usize = 100;
const IDLE: Duration = Duration::from_secs(20);
/// The share of a core that the idle watches may take.
const CORE_MAX: f64 = 0.01;
/// Memory for each watch, with the buffers of its HTTP/2 stream and its share of the connection.
const BYTES_MAX: u64 = 16 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_spare_the_apiserver_on_1_36() {
    start_together(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_spare_the_apiserver_on_1_30() {
    start_together(Version::V1_30).await;
}

async fn start_together(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", MANY).await.expect("writes");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let before = plane.request_counts().await.expect("metrics").sum("apiserver_request_total", &[]);
    let begun = Instant::now();
    let starts: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let kubeconfig = kubeconfig.clone();
            tokio::spawn(async move {
                let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
                let clients = (0..CLIENTS_OF_EACH).map(|_| {
                    let client = proxy.client(Protocol::Http2);
                    tokio::spawn(first_hit(client))
                });
                for client in clients.collect::<Vec<_>>() {
                    client.await.expect("an answer from memory");
                }
                proxy
            })
        })
        .collect();
    let mut proxies = Vec::new();
    for start in starts {
        proxies.push(start.await.expect("no panic"));
    }
    let started = begun.elapsed();
    let counts = plane.request_counts().await.expect("metrics");
    let watches = counts.open("WATCH", "configmaps");
    let requests = counts.sum("apiserver_request_total", &[]) - before;
    let each = requests as u64 / PROCESSES as u64;
    eprintln!(
        "proof: {PROCESSES} processes with {CLIENTS_OF_EACH} clients each start together on {}: all answer from memory \
         after {started:.1?}, {each} requests to the apiserver for each, {watches} watches of config maps",
        version.name()
    );
    assert!(each <= REQUESTS_MAX, "{each} requests for each");
    assert!(watches <= PROCESSES as u64 * 2, "{watches} watches");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_idle_watches_cost_nearly_nothing_on_1_36() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", FEW).await.expect("writes");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let (_, shown) = from_memory(&proxy.client(Protocol::Http2), FEW).await.expect("a list");
    let target = format!("{COLLECTION}?watch=true&timeoutSeconds=600&resourceVersion={shown}");

    let before = proxy.resident_bytes().expect("its memory");
    let mut watches = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = proxy.client(Protocol::Http2);
        for _ in 0..WATCHES_OF_EACH {
            let watch = client.open(Request::get(&target)).await.expect("a watch");
            watches.push(first_byte(watch.into_body()));
        }
    }
    let held = watches.len() as u64;
    let each = proxy.resident_bytes().expect("its memory").saturating_sub(before) / held;
    let used = proxy.cpu_seconds().expect("its time");
    tokio::time::sleep(IDLE).await;
    let core = (proxy.cpu_seconds().expect("its time") - used) / IDLE.as_secs_f64();
    let upstream = plane.request_counts().await.expect("metrics").open("WATCH", "configmaps");
    create(&straight, COLLECTION, "last").await;
    let begun = Instant::now();
    for watch in watches {
        let watch = tokio::time::timeout(RECOVERY, watch).await;
        assert!(watch.expect("an event").expect("no panic"), "a watch ended without it");
    }
    eprintln!(
        "proof: {held} idle watches: {each} bytes each, {:.2} % of a core, {upstream} watches at the apiserver; all \
         have an event after {:.1?}",
        core * 100.0,
        begun.elapsed()
    );
    assert!(each <= BYTES_MAX, "{each} bytes for each watch");
    assert!(core <= CORE_MAX, "{core} of a core");
}

/// Reads until memory answers.
async fn first_hit(client: Client) {
    let begun = Instant::now();
    while !client.get(COLLECTION).await.expect("an answer").is_hit() {
        assert!(begun.elapsed() < RECOVERY, "no answer from memory");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits for a part of an event; `false` if the watch ends.
fn first_byte(mut watch: Incoming) -> JoinHandle<bool> {
    tokio::spawn(async move { matches!(watch.frame().await, Some(Ok(_))) })
}
