//! Different readers in one session: memory answers for unchanged objects, whichever reader saw
//! which version.

use std::time::Duration;

use listless::simulator::Simulator;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{
    Answer, Setup, TABLE, TestClient, TestProxy, group_resource, pass, pod, populated,
};

/// One of the readers: its query and its form.
#[derive(Clone, Copy)]
struct Reader {
    path: &'static str,
    accept: &'static str,
}

/// A Table of a version that no apiserver has: it answers in JSON, and Listless forwards.
const UNKNOWN: &str = "application/json;as=Table;v=v2;g=meta.k8s.io,application/json";

/// The readers whose reads replicas cover.
const COVERED: [Reader; 9] = [
    Reader::json("/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb"),
    Reader::json("/api/v1/namespaces/shop/pods"),
    Reader::json("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1"),
    Reader::json("/api/v1/namespaces/shop/pods/web-0"),
    Reader::json("/api/v1/namespaces/shop/configmaps"),
    Reader::json("/api/v1/pods"),
    Reader::json("/api/v1/namespaces"),
    Reader::json("/api/v1/namespaces/shop/pods?labelSelector=app%3Ddb"),
    Reader::json("/api/v1/namespaces/bank/pods?labelSelector=app+in+%28web%2Cdb%29"),
];

/// Readers that only the apiserver can answer: whole, and in pages.
const FORWARDED: [Reader; 2] = [
    Reader { path: "/api/v1/namespaces/shop/pods?limit=500", accept: UNKNOWN },
    Reader { path: "/api/v1/pods?limit=7", accept: UNKNOWN },
];

/// The interval of each reader.
const EVERY: Duration = Duration::from_secs(3);

// === impl Reader ===

impl Reader {
    const fn json(path: &'static str) -> Self {
        Self { path, accept: "application/json" }
    }

    /// Reads, all pages if there are several; returns the last.
    async fn read(self, client: &TestClient) -> Answer {
        let client = client.clone().with("accept", self.accept);
        let mut answer = client.get(self.path).await;
        while let Some(token) = answer.json()["metadata"]["continue"].as_str() {
            let next = format!("{}&continue={token}", self.path);
            answer = client.get(&next).await;
            assert_eq!(answer.status, 200, "{}", answer.summary());
        }
        answer
    }
}

fn cluster() -> Simulator {
    let simulator = populated();
    let put = |resource: &str, object| {
        simulator.put(&group_resource(resource), object).expect("a served resource");
    };
    for namespace in ["shop", "bank"] {
        put("namespaces", json!({"metadata": {"name": namespace}, "status": {"phase": "Active"}}));
        put("configmaps", json!({"metadata": {"namespace": namespace, "name": "c"}, "data": {}}));
        for number in 0..10 {
            let app = if number % 2 == 0 { "web" } else { "db" };
            let (name, node) = (format!("{app}-{number}"), format!("n{}", number % 3));
            put("pods", pod(namespace, &name, &[("app", app)], &node));
        }
    }
    simulator
}

/// Lets all of them read for a while; returns the number of covered reads and of misses among them.
async fn readers(
    proxy: &TestProxy,
    time: Duration,
    mut meanwhile: impl FnMut(),
) -> (usize, Vec<String>) {
    let (client, begun) = (proxy.client(), Instant::now());
    let (mut reads, mut misses) = (0, Vec::new());
    while begun.elapsed() < time {
        for reader in COVERED.iter().chain(&FORWARDED) {
            pass(EVERY / 11).await;
            // The rest of the cluster writes other resources. Their versions come from the same
            // store.
            proxy.simulator.skip_revisions(2);
            meanwhile();
            let answer = reader.read(&client).await;
            assert_eq!(answer.status, 200, "{}", answer.summary());
            if reader.accept != UNKNOWN {
                reads += 1;
                if !answer.is_hit() {
                    misses.push(format!("{} {}", reader.path, answer.cache_status()));
                }
            }
        }
    }
    (reads, misses)
}

fn assert_nearly_all((reads, misses): (usize, Vec<String>)) {
    assert!(reads > 500, "{reads}");
    assert!(1000 * misses.len() <= 5 * reads, "{} of {reads}: {misses:#?}", misses.len());
}

#[tokio::test(start_paused = true)]
async fn mixed_readers_of_quiet_objects_are_answered_from_memory() {
    let proxy = Setup::of(cluster()).in_memory();
    readers(&proxy, Duration::from_secs(30), || {}).await;
    assert_nearly_all(readers(&proxy, Duration::from_secs(240), || {}).await);
}

#[tokio::test(start_paused = true)]
async fn mixed_readers_are_answered_from_memory_while_others_write() {
    let proxy = Setup::of(cluster()).in_memory();
    readers(&proxy, Duration::from_secs(30), || {}).await;
    let simulator = proxy.simulator.clone();
    let mut number = 0;
    let write = || {
        number += 1;
        let (namespace, name) = (["bank", "a"][number % 2], format!("other-{}", number % 7));
        let node = format!("n{}", number % 3);
        let app = ["web", "db", "x"][number % 3];
        let changed = pod(namespace, &name, &[("app", app)], &node);
        simulator.put(&group_resource("pods"), changed).expect("a served resource");
    };
    assert_nearly_all(readers(&proxy, Duration::from_secs(240), write).await);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_as_new_as_the_last_of_its_query_in_any_form() {
    for accept in [UNKNOWN, TABLE] {
        let proxy = Setup::of(cluster()).in_memory();
        let whole = Reader { accept, ..FORWARDED[0] };
        let list = "/api/v1/namespaces/shop/pods";
        proxy.warm(list).await;
        let client = proxy.client();
        for _ in 0..3 {
            proxy.simulator.skip_revisions(5);
            let table = whole.read(&client).await;
            let listed = client.get(list).await;
            assert!(listed.is_hit(), "{}", listed.summary());
            assert_eq!(listed.version(), table.version(), "the content is that of both");
            let exact =
                format!("{list}?resourceVersion={}&resourceVersionMatch=Exact", listed.version());
            assert_eq!(listed.body, proxy.straight().get(&exact).await.body);
        }
    }
}
