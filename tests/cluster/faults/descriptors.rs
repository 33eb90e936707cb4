//! A process that may open few descriptors: a flood of connections ends no client's, and costs no busy loop.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpStream;

use super::{
    COLLECTION, CONFIGURATION, FEW, POLL, RECOVERY, added, from_memory, make_program, write,
};
use crate::clusters::{Machine, available};
use crate::rig::client::{Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::{PROGRAM, ProxyProcess};
use crate::rig::wait::until_hit_at_last;

const DESCRIPTORS: usize = 64;
const CONNECTIONS: usize = 200;
const FLOOD: Duration = Duration::from_secs(10);
/// The share of a core in this time; a debug build answers some polls with it.
const CORE_MAX: f64 = 0.2;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_connections_without_descriptors_ends_no_client_on_1_36() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", FEW).await.expect("writes");
    let folder = TempDir::with_prefix("listless-few-").expect("a folder");
    let script = folder.path().join("listless");
    let text = format!("ulimit -n {DESCRIPTORS}\nexec {PROGRAM} \"$@\"");
    make_program(&script, &text).expect("a program");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start_program(&script, "local", &kubeconfig, Some(CONFIGURATION));
    let proxy = proxy.await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    let (_, shown) = from_memory(&through, FEW).await.expect("a list");
    let watch = format!("{COLLECTION}?watch=true&timeoutSeconds=300&resourceVersion={shown}");
    let watch = through.open(Request::get(&watch)).await.expect("a watch");

    let mut flood = Vec::new();
    for _ in 0..CONNECTIONS {
        flood.push(TcpStream::connect(proxy.server().authority()).await.expect("a connection"));
    }
    let (used, begun) = (proxy.cpu_seconds().expect("its time"), Instant::now());
    let mut reads = 0;
    while begun.elapsed() < FLOOD {
        let answer = through.get(COLLECTION).await.expect("an answer");
        assert!(answer.is_hit(), "{}", proxy.log());
        reads += 1;
        tokio::time::sleep(POLL).await;
    }
    let core = (proxy.cpu_seconds().expect("its time") - used) / begun.elapsed().as_secs_f64();
    write(&straight, "new", FEW).await.expect("writes");
    let told = added(watch.into_body(), FEW);
    let told = tokio::time::timeout(RECOVERY, told).await.expect("events");
    assert_eq!(told.len(), FEW, "{}", proxy.log());
    drop(flood);
    let ended = Instant::now();
    let fresh = proxy.client(Protocol::Http1);
    until_hit_at_last(&fresh, &Request::get(COLLECTION), RECOVERY).await.expect("a new client");
    eprintln!(
        "proof: {CONNECTIONS} connections to a process with {DESCRIPTORS} descriptors: {reads} reads of another \
         client from memory, {:.1} % of a core; a new client is served {:.1?} after the flood",
        core * 100.0,
        ended.elapsed()
    );
    assert!(core <= CORE_MAX, "{core} of a core\n{}", proxy.log());
}
