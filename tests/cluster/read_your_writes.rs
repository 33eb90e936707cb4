//! Zero misses: a read after a write shows it, for every kind of write and every reader.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use http::Method;
use serde_json::{Value, json};

use crate::clusters::{Cluster, skipped};
use crate::rig::artifact::Built;
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::client_program::ClientProgram;
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::{ProxyProcess, shipped};
use crate::ryw::{Operation, Parties};

/// Repeated reads without a pause see the most. Their throttling is tested elsewhere.
const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
repeatPolls: {action: off}
";

/// The required number of iterations of each kind of write.
const ITERATIONS: u32 = 1000;
/// Fewer for a quick look: `LISTLESS_RYW_ITERATIONS`.
const ITERATIONS_VARIABLE: &str = "LISTLESS_RYW_ITERATIONS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_misses_a_write_directly_on_1_36() {
    rust_loops_straight(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_misses_a_write_through_listless_on_1_36() {
    rust_loops_through_listless(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_misses_a_write_through_listless_on_1_30() {
    rust_loops_through_listless(Version::V1_30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_reads_its_writes_directly_on_1_36() {
    client_go(Version::V1_36, Route::Straight).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_reads_its_writes_through_listless_on_1_36() {
    client_go(Version::V1_36, Route::ThroughListless).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_reads_its_writes_through_listless_on_1_30() {
    client_go(Version::V1_30, Route::ThroughListless).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_lists_after_each_of_its_writes_loses_no_time_on_1_36() {
    write_and_list(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_lists_after_each_of_its_writes_loses_no_time_on_1_30() {
    write_and_list(Version::V1_30).await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Straight,
    ThroughListless,
}

fn iterations() -> u32 {
    let asked = std::env::var(ITERATIONS_VARIABLE).ok();
    asked.map_or(ITERATIONS, |text| text.parse().expect("a number of iterations"))
}

/// A tenth of the iterations: the loops themselves must not raise false alarms.
async fn rust_loops_straight(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let client = |protocol| cluster.plane().client(User::Admin, protocol).expect("a client");
    let parties = Parties {
        through: vec![client(Protocol::Http1), client(Protocol::Http2)],
        straight: client(Protocol::Http1),
    };
    loops(&parties, false, iterations() / 10, version).await;
}

async fn rust_loops_through_listless(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let proxy = proxy(&cluster).await;
    let parties = Parties {
        through: vec![proxy.client(Protocol::Http1), proxy.client(Protocol::Http2)],
        straight: cluster.plane().client(User::Admin, Protocol::Http1).expect("a client"),
    };
    loops(&parties, true, iterations(), version).await;
}

async fn loops(parties: &Parties, from_memory: bool, iterations: u32, version: Version) {
    parties.prepare(from_memory).await.expect("a namespace");
    let report = parties.run(iterations).await.expect("whole loops");
    eprintln!("proof: read your writes on {}: {report}", version.name());
    assert_eq!(report.misses, 0, "{report}");
    assert!(report.churned > 0, "the other writer did nothing");
    for operation in Operation::ALL {
        assert!(report.iterations[&operation] >= iterations, "{operation:?}: {report}");
    }
    // Without hits the loops would prove nothing about a cache.
    assert!(!from_memory || report.hits * 3 > report.others, "{report}");
}

async fn proxy(cluster: &Cluster) -> ProxyProcess {
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy")
}

async fn client_go(version: Version, route: Route) {
    let program = match ClientProgram::ClientGo.build().expect("a build that works") {
        Built::Here(program) => program,
        Built::Impossible(reason) => return skipped("the client-go program", &reason),
    };
    let Some(cluster) = Cluster::take(version).await else { return };
    let straight = cluster.plane().client(User::Admin, Protocol::Http1).expect("a client");
    let proxy = match route {
        Route::Straight => None,
        Route::ThroughListless => Some(proxy(&cluster).await),
    };
    let kubeconfig = match &proxy {
        None => cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig"),
        Some(proxy) => proxy.kubeconfig().to_owned(),
    };
    let namespace = json!({"metadata": {"name": "client-go"}});
    let post = Request::new(Method::POST, "/api/v1/namespaces").json(&namespace);
    straight.send(post).await.expect("a namespace");
    let share = if route == Route::Straight { iterations() / 20 } else { iterations() / 4 };
    // Protobuf over HTTP/2, then JSON over HTTP/1.1.
    let fast = run_client_go(&program, &kubeconfig, share, &[], &[]).await;
    let plain = run_client_go(&program, &kubeconfig, share, &["-json"], &[("DISABLE_HTTP2", "1")]);
    let plain = plain_after_clearing(&straight, plain).await;
    for result in [fast, plain] {
        eprintln!("proof: client-go on {} {route:?}: {result}", version.name());
        check(&result, share);
    }
    clear(&straight).await;
}

async fn plain_after_clearing(client: &Client, run: impl Future<Output = Value>) -> Value {
    clear(client).await;
    run.await
}

async fn run_client_go(
    program: &Path,
    kubeconfig: &Path,
    iterations: u32,
    flags: &[&str],
    environment: &[(&str, &str)],
) -> Value {
    let mut arguments: Vec<String> =
        ["-pollers", "4", "-period", "200ms", "-iterations", &iterations.to_string()]
            .map(str::to_owned)
            .into();
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let run = ClientProgram::ClientGo.run(program, kubeconfig, &arguments, environment);
    run.await.expect("a result")
}

fn check(result: &Value, iterations: u32) {
    assert_eq!(result["errors"], Value::Null, "{result}");
    let operations = result["operations"].as_object().expect("counts per operation");
    assert!(operations.len() >= 11, "ten kinds of writes and the pollers: {result}");
    for (name, count) in operations {
        assert_eq!(count["misses"], 0, "{name}: {result}");
        let done = count["iterations"].as_u64().expect("a count");
        assert!(name == "poll" || done >= u64::from(iterations), "{name}: {result}");
    }
}

#[tokio::test]
async fn hidden_writes_are_read_through_listless_on_1_36() {
    hidden_writes(Version::V1_36).await;
}

#[tokio::test]
async fn hidden_writes_are_read_through_listless_on_1_30() {
    hidden_writes(Version::V1_30).await;
}

/// 150 writes, each followed by a list, on each route in turn, with the default configuration and the binary
/// of the image: without optimization, encryption takes longer than all else.
async fn write_and_list(version: Version) {
    const ROUNDS: u32 = 150;
    const BLOCK: u32 = 10;
    let Some(cluster) = Cluster::take_alone(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let program = shipped().expect("the binary of the image");
    let proxy = ProxyProcess::start_program(&program, "local", &kubeconfig, None);
    let proxy = proxy.await.expect("a proxy");
    let straight = cluster.plane().client(User::Admin, Protocol::Http1).expect("a client");
    let namespace = json!({"metadata": {"name": "client-go"}});
    let post = Request::new(Method::POST, "/api/v1/namespaces").json(&namespace);
    straight.send(post).await.expect("a namespace");
    let routes = [("straight", straight.clone()), ("through", proxy.client(Protocol::Http1))];
    let mut took = [Duration::ZERO; 2];
    for block in 0..ROUNDS / BLOCK {
        for ((route, client), took) in routes.iter().zip(&mut took) {
            let started = Instant::now();
            for round in 0..BLOCK {
                round_of(client, &format!("{route}-{block}-{round}")).await;
            }
            *took += started.elapsed();
        }
    }
    clear(&straight).await;
    let [straight, through] = took;
    let ratio = through.as_secs_f64() / straight.as_secs_f64();
    eprintln!(
        "proof: {ROUNDS} writes, each with a list, on {}: straight {straight:.1?}, through \
         Listless {through:.1?}, {ratio:.2} times",
        version.name()
    );
    assert!(ratio <= 1.2, "{through:?}, directly {straight:?}");
}

async fn round_of(client: &Client, name: &str) {
    let target = "/api/v1/namespaces/client-go/configmaps";
    let object = json!({"metadata": {"name": name, "labels": {"app": "rounds"}}});
    let post = Request::new(Method::POST, target).json(&object);
    client.send(post).await.and_then(Answer::successful).expect("a write");
    let list = client.get(&format!("{target}?labelSelector=app%3Drounds")).await;
    let list = list.and_then(Answer::successful).expect("a list");
    let shown = String::from_utf8_lossy(&list.body);
    assert!(shown.contains(&format!("\"{name}\"")), "{name} is missing");
}

/// Writes that do not look like what they do.
async fn hidden_writes(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let straight = cluster.plane().client(User::Admin, Protocol::Http1).expect("a client");
    let namespace = json!({"metadata": {"name": "client-go"}});
    let post = |target: &str, object: &Value| Request::new(Method::POST, target).json(object);
    straight.send(post("/api/v1/namespaces", &namespace)).await.expect("a namespace");
    let through = proxy.client(Protocol::Http1);
    let of = |resource: &str| format!("/api/v1/namespaces/client-go/{resource}");
    let map = json!({"metadata": {"name": "hidden"}});
    let container = json!({"name": "c", "image": "i"});
    let pod = json!({"metadata": {"name": "hidden"}, "spec": {"containers": [container]}});
    for (resource, object) in [("configmaps", &map), ("pods", &pod)] {
        let made = straight.send(post(&of(resource), object)).await;
        made.and_then(Answer::successful).expect("an object");
        let mut list = through.get(&of(resource)).await.expect("a list");
        while !list.is_hit() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            list = through.get(&of(resource)).await.expect("a list");
        }
        assert!(String::from_utf8_lossy(&list.body).contains("\"hidden\""));
    }

    let target = of("configmaps/hidden");
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    let delete = Request::new(Method::DELETE, &format!("{target}?dryRun=All")).json(&options);
    through.send(delete).await.and_then(Answer::successful).expect("a deletion");
    for client in [&through, &straight] {
        assert_eq!(client.get(&target).await.expect("an answer").status, 404, "S-WRITE-25");
    }
    let node = json!({"kind": "Node", "name": "node-1"});
    let binding = json!({"metadata": {"name": "hidden"}, "target": node});
    let bound = through.send(post(&of("bindings"), &binding)).await;
    bound.and_then(Answer::successful).expect("a binding");
    for client in [&through, &straight] {
        let pod = client.get(&of("pods/hidden")).await.expect("a pod").json().expect("JSON");
        assert_eq!(pod["spec"]["nodeName"], "node-1", "S-WRITE-26");
    }
    clear(&straight).await;
}

/// Leaves the shared cluster as the other suites expect it: quiet and small.
async fn clear(client: &Client) {
    for resource in ["configmaps", "pods"] {
        let target = format!("/api/v1/namespaces/client-go/{resource}?gracePeriodSeconds=0");
        let answer = client.send(Request::new(Method::DELETE, &target)).await;
        answer.and_then(Answer::successful).expect("an empty namespace");
    }
}
