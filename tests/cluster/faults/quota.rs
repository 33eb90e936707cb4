//! A processor quota of 5 %: the process stands still for 95 of each 100 milliseconds, as the kernel makes it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;

use super::{
    COLLECTION, CONFIGURATION, MANY, RECOVERY, added, from_memory, names, poll, sum, write,
};
use crate::clusters::{Machine, available};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::process::Signal;
use crate::rig::proxy_process::ProxyProcess;

const RUNS: Duration = Duration::from_millis(5);
const STANDS: Duration = Duration::from_millis(95);
const THROTTLED: Duration = Duration::from_secs(30);
/// The pause of the writer between two writes.
const PAUSE: Duration = Duration::from_secs(1);
const POLLERS: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processor_quota_delays_answers_and_changes_none_on_1_36() {
    if !available(Version::V1_36) {
        return;
    }
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(Version::V1_36).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", MANY).await.expect("writes");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let through = || proxy.client(Protocol::Http2);
    let (_, version) = from_memory(&through(), MANY).await.expect("a list");
    let target = format!("{COLLECTION}?watch=true&timeoutSeconds=300&resourceVersion={version}");
    let watch = through().open(Request::get(&target)).await.expect("a watch");

    let until = Instant::now() + THROTTLED;
    let lasts = move |_: &_| Instant::now() < until;
    let polls = (0..POLLERS).map(|_| tokio::spawn(poll(through(), lasts))).collect();
    let writer = through();
    let (throttled, written, polled) =
        tokio::join!(throttle(&proxy, until), write_and_read(&writer, until), sum(polls));
    throttled.expect("signals");
    let written = written.expect("a writer that reads its writes");
    let told = added(watch.into_body(), written.len());
    let told = tokio::time::timeout(RECOVERY, told).await.expect("events");
    let metrics = proxy.metrics().await.expect("metrics");
    let of_replica = [("origin", "replica"), ("verb", "list")];
    let lists = metrics.sum("listless_upstream_requests_total", &of_replica);
    eprintln!(
        "proof: a processor quota of 5 % for {THROTTLED:?}: {polled:?} and {} writes that the writer \
         read at once, {} events in order, {lists} lists for the replica",
        written.len(),
        told.len()
    );
    assert_eq!(told, written, "{}", proxy.log());
    assert!(polled.from_memory > 0 && written.len() > 3, "{polled:?}\n{}", proxy.log());
    assert_eq!((polled.wrong, polled.refused), (0, 0), "{polled:?}\n{}", proxy.log());
    assert!(lists <= 2.0, "{lists} lists\n{}", proxy.log());
}

/// Lets the process run for a twentieth of the time.
async fn throttle(proxy: &ProxyProcess, until: Instant) -> Result<()> {
    while Instant::now() < until {
        proxy.signal(Signal::Pause)?;
        tokio::time::sleep(STANDS).await;
        proxy.signal(Signal::Continue)?;
        tokio::time::sleep(RUNS).await;
    }
    Ok(())
}

/// Creates objects, each of which its next list must contain; returns their names.
async fn write_and_read(client: &Client, until: Instant) -> Result<Vec<String>> {
    let mut written = Vec::new();
    while Instant::now() < until {
        let name = format!("new-{}", written.len());
        let object = json!({"metadata": {"name": name}});
        client.send(Request::new(Method::POST, COLLECTION).json(&object)).await?.successful()?;
        let list = client.get(COLLECTION).await?.successful()?.json()?;
        ensure!(names(&list).contains(&name), "{name} is not in the list after its write");
        written.push(name);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(written)
}
