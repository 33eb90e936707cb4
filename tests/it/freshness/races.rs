//! Writers and readers on several threads at once, in real time: each writer sees all its writes.

use std::sync::Arc;
use std::time::Duration;

use listless::api::Verb;
use serde_json::json;

use crate::harness::{Setup, TestClient, TestProxy, pass, pod};

const PODS: &str = "/api/v1/namespaces/a/pods";

/// Writers that run at the same time; all are one session.
const WRITERS: usize = 8;

/// The number of writes of each.
const ROUNDS: usize = 40;

/// Writes and reads back in turn, with another kind of read each time.
async fn write_and_read(client: TestClient, writer: usize) -> Vec<String> {
    let mut misses = Vec::new();
    let mut check = |what: &str, round: usize, right: bool, said: String| {
        if !right {
            misses.push(format!("{what} in round {round} of {writer}: {said}"));
        }
    };
    for round in 0..ROUNDS {
        let name = format!("w{writer}-{round}");
        let app = format!("w{writer}");
        let (object, key) = (format!("{PODS}/{name}"), format!("a/{name}"));
        let selected = format!("{PODS}?labelSelector=app%3D{app}");
        let created = client.create(PODS, &pod("a", &name, &[("app", &app)], "")).await;
        assert_eq!(created.status, 201, "{}", created.summary());
        let listed = client.get(if round % 2 == 0 { PODS } else { &selected }).await;
        check("create", round, listed.names().contains(&key), listed.summary());
        let patch = json!({"metadata": {"labels": {"round": round.to_string()}}}).to_string();
        let patched = client.patch(&object, "merge-patch", &patch).await.version();
        let read = client.get(&object).await;
        check("patch", round, read.version() >= patched, read.summary());
        let deleted = client.delete(&object).await;
        assert_eq!(deleted.status, 200, "{}", deleted.summary());
        let listed = client.get(if round % 2 == 0 { &selected } else { PODS }).await;
        let said = format!(
            "{} at {} after {}",
            listed.cache_status(),
            listed.version(),
            deleted.version()
        );
        check("delete", round, !listed.names().contains(&key), said);
        check("delete", round, client.get(&object).await.status == 404, deleted.summary());
    }
    misses
}

async fn all_write_and_read(proxy: &Arc<TestProxy>) {
    let writers = (0..WRITERS).map(|writer| {
        let client = proxy.client();
        let client = if writer % 2 == 0 { client } else { client.over_http2() };
        tokio::spawn(write_and_read(client, writer))
    });
    let misses = futures_util::future::join_all(writers).await;
    let misses: Vec<_> = misses.into_iter().flat_map(|one| one.expect("no panic")).collect();
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_writer_reads_its_own_writes_at_once() {
    let proxy = Arc::new(Setup::default().in_memory());
    proxy.warm(PODS).await;
    all_write_and_read(&proxy).await;
    let reads = WRITERS * ROUNDS * 4;
    let forwarded =
        proxy.upstream.count(Verb::List, "pods") + proxy.upstream.count(Verb::Get, "pods");
    assert!(forwarded < reads / 2, "{forwarded} of {reads} reads went upstream");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_writer_reads_its_own_writes_while_watches_break() {
    let proxy = Arc::new(Setup::default().in_memory());
    proxy.warm(PODS).await;
    let breaking = tokio::spawn({
        let simulator = proxy.simulator.clone();
        async move {
            loop {
                pass(Duration::from_millis(30)).await;
                simulator.break_watches();
            }
        }
    });
    all_write_and_read(&proxy).await;
    breaking.abort();
}
