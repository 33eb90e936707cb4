//! The price of standing by: fifty thousand objects that nobody reads.

use std::time::Duration;

use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::json;

use crate::clusters::{Machine, available};
use crate::faults::{COLLECTION, CONFIGURATION};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::{ProxyProcess, shipped};
use crate::rig::wait::until;

const OBJECTS: u32 = 50_000;
const WRITES_AT_ONCE: usize = 24;
const LOADED_LIMIT: Duration = Duration::from_secs(120);
/// The time after the last read in which objects that were read are compressed.
const CALM: Duration = Duration::from_secs(30);
/// The time that is measured: at the limit, ten ticks of the kernel's clock.
const MEASURED: Duration = Duration::from_secs(200);
const SHARE_MAX: f64 = 0.0005;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_thousand_idle_objects_cost_next_to_no_processor_time() {
    if !available(Version::V1_36) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(Version::V1_36).await.expect("a control plane");
    let client = plane.client(User::Admin, Protocol::Http1).expect("a client");
    load(&client).await.expect("config maps");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let program = shipped().expect("the binary of the image");
    let proxy = ProxyProcess::start_program(&program, "local", &kubeconfig, Some(CONFIGURATION));
    let proxy = proxy.await.expect("a proxy");
    let held = async || anyhow::Ok(proxy.metrics().await?.sum("listless_replica_objects", &[]));
    let loaded = until("a replica", LOADED_LIMIT, async || Ok(held().await? >= f64::from(OBJECTS)));
    loaded.await.expect("a replica");
    let held = held().await.expect("metrics");
    tokio::time::sleep(CALM).await;
    let before = proxy.cpu_seconds().expect("a time");
    tokio::time::sleep(MEASURED).await;
    let share = (proxy.cpu_seconds().expect("a time") - before) / MEASURED.as_secs_f64();
    eprintln!("proof: soak: idle with {held} objects, {:.3} % of a processor", share * 100.0);
    assert!(share <= SHARE_MAX, "{share} of a processor");
}

async fn load(client: &Client) -> Result<()> {
    let create = |number: u32| async move {
        let object =
            json!({"metadata": {"name": format!("idle-{number}")}, "data": {"key": "value"}});
        let post = Request::new(Method::POST, COLLECTION).json(&object);
        client.send(post).await?.successful().map(drop)
    };
    stream::iter(0..OBJECTS).map(create).buffer_unordered(WRITES_AT_ONCE).try_collect().await
}
