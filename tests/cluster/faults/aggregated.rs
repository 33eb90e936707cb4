//! An aggregated API whose server is down: its group alone is affected.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;

use super::{COLLECTION, CONFIGURATION, MANY, POLL, RECOVERY, from_memory, names, write};
use crate::clusters::{Machine, available};
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until;

const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const THINGS: &str = "/apis/down.example.com/v1/namespaces/default/things";
const DISCOVERY: [&str; 3] = ["/apis", "/apis/down.example.com/v1", "/apis/apps/v1"];
const DOWN: Duration = Duration::from_secs(20);
/// The requests of Listless itself in this time, beside its clients': it does not try an API again and again.
const OWN_MAX: f64 = 20.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregated_api_that_is_down_affects_no_other_on_1_36() {
    is_down(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aggregated_api_that_is_down_affects_no_other_on_1_30() {
    is_down(Version::V1_30).await;
}

async fn is_down(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http2).expect("a client");
    write(&straight, "kept", MANY).await.expect("writes");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    from_memory(&through, MANY).await.expect("a list");
    register_without_server(&straight).await;
    until("the apiserver knows that the API is down", RECOVERY, async || {
        Ok(straight.get(THINGS).await?.status == 503)
    })
    .await
    .expect("503");

    let own = own_requests(&proxy).await;
    let until = Instant::now() + DOWN;
    let (mut reads, mut refused) = (0, 0);
    while Instant::now() < until {
        let (direct, answer) = both(&straight, &through, THINGS).await;
        assert_eq!((answer.status, &answer.body), (direct.status, &direct.body), "{THINGS}");
        refused += usize::from(answer.status == 503);
        let answer = through.get(COLLECTION).await.expect("an answer");
        let list = answer.json().expect("JSON");
        assert!(answer.is_hit() && names(&list).len() >= MANY, "{}", proxy.log());
        reads += 1;
        for target in DISCOVERY {
            let (direct, answer) = both(&straight, &through, target).await;
            assert_eq!((answer.status, &answer.body), (direct.status, &direct.body), "{target}");
        }
        tokio::time::sleep(POLL).await;
    }
    let own = own_requests(&proxy).await - own;
    eprintln!(
        "proof: an aggregated API that is down on {}: {refused} of its {reads} reads got 503 as straight, the other \
         group's came from memory; {own} requests of Listless itself in {DOWN:?}",
        version.name()
    );
    assert!(own <= OWN_MAX, "{own} requests\n{}", proxy.log());
}

/// Registers an API at a port of this machine where nobody listens.
async fn register_without_server(admin: &Client) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = free.expect("a free port").port();
    let service = json!({
        "metadata": {"name": "down"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    });
    let api_service = json!({
        "metadata": {"name": "v1.down.example.com"},
        "spec": {
            "group": "down.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "default", "name": "down", "port": port}, "insecureSkipTLSVerify": true,
        },
    });
    for (collection, object) in [(SERVICES, service), (API_SERVICES, api_service)] {
        let made = admin.send(Request::new(Method::POST, collection).json(&object)).await;
        made.and_then(Answer::successful).expect("created");
    }
}

async fn both(straight: &Client, through: &Client, target: &str) -> (Answer, Answer) {
    let direct = straight.get(target).await.expect("an answer");
    (direct, through.get(target).await.expect("an answer"))
}

/// The requests to the apiserver that no client sent.
async fn own_requests(proxy: &ProxyProcess) -> f64 {
    let metrics = proxy.metrics().await.expect("metrics");
    let of = |origin| metrics.sum("listless_upstream_requests_total", &[("origin", origin)]);
    of("replica") + of("review") + of("discovery")
}
