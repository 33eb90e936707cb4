//! Objects of nearly the greatest size that etcd takes, and a collection of a hundred thousand: they are answered
//! from memory like any other, or forwarded where memory is configured for less.

use std::time::{Duration, Instant};

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use http::Method;
use serde_json::json;

use super::{COLLECTION, POLL, RECOVERY};
use crate::clusters::{Machine, available};
use crate::etcd::ask;
use crate::rig::client::{Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::process::memory_bytes;
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until_hit_at_last;

const OBJECTS: usize = 60;
const BYTES: usize = 1_000_000;
const ROUNDS: usize = 20;
/// Below the size of the collection.
const TOO_LITTLE: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
cache:
  memoryLimit: 16Mi
  responseLimit: 4Mi
";
/// The memory of a process whose limit is 16 MiB: streamed responses take little.
const RESIDENT_MAX: u64 = 96 * 1024 * 1024;

const NUMEROUS: usize = 100_000;
/// etcd takes 128 operations in a transaction.
const OPERATIONS: usize = 100;
/// The whole list through an unoptimized build.
const LIST_LIMIT: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_come_from_memory_or_are_forwarded_on_1_36() {
    large(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_come_from_memory_or_are_forwarded_on_1_30() {
    large(Version::V1_30).await;
}

async fn large(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    for number in 0..OBJECTS {
        let data = json!({"filler": incompressible(number as u64)});
        let object = json!({"metadata": {"name": format!("large-{number}")}, "data": data});
        let created = straight.send(Request::new(Method::POST, COLLECTION).json(&object)).await;
        created.expect("an answer").successful().expect("created");
    }
    let direct = straight.get(COLLECTION).await.expect("a list").json().expect("JSON");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");

    let roomy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let through = roomy.client(Protocol::Http2);
    let hit = until_hit_at_last(&through, &Request::get(COLLECTION), RECOVERY).await;
    let hit = hit.expect("a hit").json().expect("JSON");
    assert!(hit["items"] == direct["items"], "another list");
    let held = roomy.resident_bytes().expect("its memory");
    drop(roomy);

    let narrow = ProxyProcess::start(&kubeconfig, Some(TOO_LITTLE)).await.expect("a proxy");
    let through = narrow.client(Protocol::Http2);
    let (mut most, mut said) = (0, String::new());
    for _ in 0..ROUNDS {
        let answer = through.get(COLLECTION).await.expect("an answer");
        said = answer.header("cache-status").unwrap_or_default().to_owned();
        assert!(!answer.is_hit() && answer.status == 200, "{said}");
        assert!(answer.json().expect("JSON")["items"] == direct["items"], "another list");
        most = most.max(narrow.resident_bytes().expect("its memory"));
        tokio::time::sleep(POLL).await;
    }
    let mib = |bytes: u64| bytes / (1024 * 1024);
    eprintln!(
        "proof: {OBJECTS} objects of 1 MB on {}: from memory with {} MiB; with a limit of 16 MiB {ROUNDS} reads are \
         forwarded ({said}) with {} MiB at most",
        version.name(),
        mib(held),
        mib(most)
    );
    assert!(most <= RESIDENT_MAX, "{} MiB\n{}", mib(most), narrow.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_objects_come_from_memory_on_1_36() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    fill(&plane).await.expect("objects");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    let direct = straight.get(COLLECTION).await.expect("a list");
    let bytes = direct.body.len() as u64;
    let direct = direct.json().expect("JSON");
    assert!(direct["items"].as_array().expect("items").len() >= NUMEROUS, "not all are listed");

    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    let at_start = proxy.resident_bytes().expect("its memory");
    let begun = Instant::now();
    let hit = until_hit_at_last(&through, &Request::get(COLLECTION), LIST_LIMIT).await;
    let took = begun.elapsed();
    assert!(hit.expect("a hit").json().expect("JSON")["items"] == direct["items"], "another list");
    let peak = memory_bytes(proxy.id(), "status", "VmHWM:").expect("its memory") - at_start;
    let mib = |bytes: u64| bytes / (1024 * 1024);
    eprintln!(
        "proof: {NUMEROUS} objects on 1.36, {} MiB of JSON: from memory after {took:.1?}; {} MiB of memory at most",
        mib(bytes),
        mib(peak)
    );
    assert!(peak <= 3 * bytes, "{} MiB", mib(peak));
}

/// Writes the objects to etcd, as the apiserver would; one by one through it takes minutes.
async fn fill(plane: &ControlPlane) -> Result<()> {
    for first in (0..NUMEROUS).step_by(OPERATIONS) {
        let puts: Vec<_> = (first..first + OPERATIONS).map(put).collect();
        ask(plane.etcd_address(), "/v3/kv/txn", &json!({"success": puts})).await?;
    }
    Ok(())
}

fn put(number: usize) -> serde_json::Value {
    let name = format!("numerous-{number:06}");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"},
        "metadata": {
            "name": name, "namespace": "default", "creationTimestamp": "2024-01-01T00:00:00Z",
            "uid": format!("00000000-0000-0000-0000-{number:012}"),
        },
    });
    let key = STANDARD.encode(format!("/registry/configmaps/default/{name}"));
    json!({"request_put": {"key": key, "value": STANDARD.encode(object.to_string())}})
}

/// Text that no compression makes much smaller.
fn incompressible(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        // Xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'!' + (state % 90) as u8)
    };
    (0..BYTES).map(|_| next()).collect()
}
