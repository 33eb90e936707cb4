//! A reflector against a fake apiserver, in virtual time.

mod following;
mod listing;
mod watching;

use std::time::Duration;

use tokio::task::JoinHandle;

use super::*;
use crate::{
    api::{form::Form, query::Query},
    cache::{
        fake::{Call, Calls, Pipe, fake},
        fixture::{self, Pod, query, version},
        history::{Change, History},
        replica::{Reach, Start, View},
    },
};

const LIST: &str = "/api/v1/pods";
const PROBE: &str = "/api/v1/pods?fieldSelector=metadata.name%3Dlistless-probe";
const PROBE_WITHIN: &str =
    "/api/v1/namespaces/default/pods?fieldSelector=metadata.name%3Dlistless-probe";

/// A running reflector and its environment.
struct Scene {
    replica: Arc<Replica>,
    calls: Calls,
    counters: Arc<Counters>,
    stop: CancellationToken,
    task: JoinHandle<Ended>,
    _settings: watch::Sender<Settings>,
}

impl Scene {
    fn new() -> Self {
        Self::with(query(None, "", ""), Settings::default())
    }

    fn with(query: Query, settings: Settings) -> Self {
        let (client, calls) = fake();
        let history = History::new(settings.history_bounds());
        let (sender, settings) = watch::channel(settings);
        let replica =
            Arc::new(Replica::new(query, Form::Json, Start::OnDemand, history, Instant::now()));
        let counters = Arc::new(Counters::default());
        let random = Arc::new(|| 0.5);
        let (shared, budget) = (counters.clone(), Arc::default());
        let reflector = Reflector::new(replica.clone(), client, settings, random, shared, budget);
        let stop = CancellationToken::new();
        let task = tokio::spawn(reflector.run(stop.clone()));
        Self { replica, calls, counters, stop, task, _settings: sender }
    }

    /// Returns a scene whose list was answered and whose watch is open.
    async fn watching(at: u64, pods: &[Pod]) -> (Self, Pipe) {
        let mut scene = Self::new();
        scene.calls.expect(LIST).await.json(200, fixture::list(at, pods));
        let watch = scene.calls.expect_watch(at).await.pipe();
        scene.settle().await;
        (scene, watch)
    }

    /// Runs all tasks until they wait for time to pass.
    async fn settle(&self) {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }

    fn view(&self) -> View {
        self.replica.view()
    }

    /// Returns the published objects, as `key@version` of each.
    fn objects(&self) -> Vec<String> {
        let snapshot = self.view().snapshot.clone();
        let query = query(None, "", "");
        let objects =
            snapshot.iter().flat_map(|held| held.select(&query).iter().collect::<Vec<_>>());
        objects.map(|object| format!("{}@{}", object.key().as_str(), object.version())).collect()
    }

    fn shown(&self) -> Option<u64> {
        self.view().snapshot.as_ref()?.version().as_str().parse().ok()
    }

    fn last_error(&self) -> String {
        self.replica.usage().last_error.clone().unwrap_or_default()
    }

    async fn ended(self) -> Ended {
        tokio::time::timeout(Duration::from_secs(60), self.task)
            .await
            .expect("an end")
            .expect("no panic")
    }
}

fn pod(name: &str, version: u64) -> Pod {
    Pod::new("a", name, version)
}

fn bookmark(version: u64) -> String {
    format!(
        "{{\"type\":\"BOOKMARK\",\"object\":{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"{version}\"}},\"spec\":{{\"containers\":null}},\"status\":{{}}}}}}\n"
    )
}

fn status(code: u16, message: &str, retry_after: u32) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"X","details":{{"retryAfterSeconds":{retry_after}}},"code":{code}}}"#
    )
}

fn error_event(code: u16, message: &str) -> String {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(code, message, 0))
}
