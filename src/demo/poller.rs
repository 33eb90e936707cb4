//! One polling client: LISTs its application's pods repeatedly without a resourceVersion.
//!
//! It also checks each response: it is complete, includes the client's own writes, and is never
//! older than the one before.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, ensure};
use http::Method;
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    connection::Connection,
    pod::{NAMESPACE, PodNumber, app_name},
};

/// The annotation that a poller writes and expects.
const MARKER: &str = "demo.listless.dev/marker";

/// The number of polls between two markers.
const MARK_EVERY: u64 = 3;

/// The pause of a poller while Listless warms up.
const WARM_UP_PERIOD: Duration = Duration::from_millis(250);

/// The number of consecutive responses from memory, about two seconds, after which Listless is
/// warm.
const HITS_WHEN_WARM: u32 = 8;

/// A polling client.
pub(super) struct Poller {
    connection: Connection,
    app: usize,
    pods: usize,
    marker: u64,
    marked: bool,
    version: u64,
}

/// The observations of all pollers of a phase.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Seen>);

/// The sums of a tally.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// The duration of each answered poll, unordered.
    pub latencies: Vec<Duration>,
    /// Responses that Listless had in memory.
    pub from_memory: u64,
    /// Wrong responses.
    pub wrong: u64,
    /// Requests without a usable response.
    pub failed: u64,
    /// The first fault, in words.
    pub first_fault: Option<String>,
}

#[derive(Deserialize)]
struct PodList {
    metadata: ListMetadata,
    items: Vec<Pod>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
}

#[derive(Deserialize)]
struct Pod {
    metadata: PodMetadata,
}

#[derive(Deserialize)]
struct PodMetadata {
    name: String,
    #[serde(default)]
    annotations: std::collections::BTreeMap<String, String>,
}

// === impl Poller ===

impl Poller {
    /// Returns a poller of one application with `pods` pods. Its markers start above `marker`.
    pub(super) fn new(connection: Connection, app: usize, pods: usize, marker: u64) -> Self {
        Self { connection, app, pods, marker, marked: false, version: 0 }
    }

    /// Polls until responses come from memory repeatedly, at most until `end`.
    pub(super) async fn warm_up(mut self, end: Instant, tally: &Tally) {
        let mut hits = 0;
        while hits < HITS_WHEN_WARM && Instant::now() < end {
            hits = if self.poll(tally).await { hits + 1 } else { 0 };
            sleep(WARM_UP_PERIOD).await;
        }
    }

    /// Polls from `start` to `end`, every `period`.
    pub(super) async fn run(
        mut self,
        start: Instant,
        period: Duration,
        end: Instant,
        tally: &Tally,
    ) {
        let mut due = start;
        for poll in 1_u64.. {
            if due >= end {
                return;
            }
            sleep_until(due).await;
            due += period;
            if poll % MARK_EVERY == MARK_EVERY - 1 {
                self.mark(tally).await;
            }
            self.poll(tally).await;
        }
    }

    /// Writes the next marker into the application's first pod.
    async fn mark(&mut self, tally: &Tally) {
        let pod = PodNumber { app: self.app, replica: 0 }.name();
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}");
        let marker = self.marker + 1;
        let patch = serde_json::json!({"metadata": {"annotations": {MARKER: marker.to_string()}}});
        let content = Some(("application/merge-patch+json", patch.to_string()));
        match self.connection.send(Method::PATCH, &path, content).await {
            Ok(_) => (self.marker, self.marked) = (marker, true),
            Err(error) => tally.failed(&error),
        }
    }

    /// Polls once. Returns whether the response came from memory.
    async fn poll(&mut self, tally: &Tally) -> bool {
        let app = app_name(self.app);
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3D{app}");
        let asked = Instant::now();
        match self.connection.send(Method::GET, &path, None).await {
            Err(error) => {
                tally.failed(&error);
                false
            }
            Ok(answer) => {
                tally.answered(asked.elapsed(), answer.from_memory);
                if let Err(error) = self.check(&answer.body) {
                    tally.wrong(&error);
                }
                answer.from_memory
            }
        }
    }

    /// Checks that the apiserver itself could have sent this response now.
    fn check(&mut self, answer: &[u8]) -> anyhow::Result<()> {
        let list: PodList = serde_json::from_slice(answer).context("not a list of pods")?;
        ensure!(
            list.items.len() == self.pods,
            "{} pods instead of {}",
            list.items.len(),
            self.pods
        );
        let version = list.metadata.resource_version.parse().context("not a version")?;
        ensure!(version >= self.version, "version {version} after {}", self.version);
        self.version = version;
        let marked = PodNumber { app: self.app, replica: 0 }.name();
        let pod = list.items.iter().find(|pod| pod.metadata.name == marked);
        let annotations = &pod.context("the marked pod is missing")?.metadata.annotations;
        let marker = annotations.get(MARKER).map_or(Ok(0), |text| text.parse::<u64>())?;
        ensure!(
            marker >= self.marker || !self.marked,
            "found marker {marker} after {} was written",
            self.marker
        );
        Ok(())
    }
}

// === impl Tally ===

impl Tally {
    /// Returns the sums so far.
    pub(super) fn seen(&self) -> Seen {
        self.with(|seen| seen.clone())
    }

    fn answered(&self, latency: Duration, from_memory: bool) {
        self.with(|seen| {
            seen.latencies.push(latency);
            seen.from_memory += u64::from(from_memory);
        });
    }

    fn wrong(&self, fault: &anyhow::Error) {
        self.with(|seen| {
            seen.wrong += 1;
            seen.first_fault.get_or_insert_with(|| format!("{fault:#}"));
        });
    }

    fn failed(&self, fault: &anyhow::Error) {
        self.with(|seen| {
            seen.failed += 1;
            seen.first_fault.get_or_insert_with(|| format!("{fault:#}"));
        });
    }

    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
