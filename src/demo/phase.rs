//! One phase of the demo: all pollers on one server, and the apiserver's cost.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::{task::JoinSet, time::Instant};

use super::{
    Scale, Server,
    cluster::{SimulatedCluster, Work, client_config},
    connection::Connection,
    poller::{Poller, Seen, Tally},
};

/// A running phase.
pub(super) struct Phase<'a> {
    cluster: &'a SimulatedCluster,
    before: Work,
    tally: Arc<Tally>,
    pollers: JoinSet<()>,
}

/// The kind of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Poll directly, period by period.
    Straight,
    /// Poll through Listless until it answers from memory.
    WarmUp,
    /// Poll through Listless, period by period.
    Listless,
    /// The same, for a viewer of the page.
    Shown,
}

/// The measurements of a phase.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Measured {
    /// Answered polls.
    pub polls: u64,
    /// Polls that Listless answered from memory.
    pub from_memory: u64,
    /// Reads that reached the apiserver, from any sender.
    pub apiserver_requests: u64,
    /// Writes that reached the apiserver: the pollers' markers.
    pub apiserver_writes: u64,
    /// Bytes that the apiserver sent.
    pub bytes: u64,
    /// CPU time of the apiserver. `None` if the system does not report it.
    #[serde(rename = "apiserverCpuMs")]
    pub processor_ms: Option<u64>,
    /// The median latency of a poll.
    pub p50_ms: f64,
    /// The 99th percentile of the latency.
    pub p99_ms: f64,
    /// Wrong responses.
    pub wrong_answers: u64,
    /// Requests without a usable response.
    pub failed: u64,
    /// The first fault, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_fault: Option<String>,
}

/// The number range of a phase's markers. A poller writes fewer in an hour.
const MARKERS_PER_PHASE: u64 = 1_000_000;

// === impl Phase ===

impl<'a> Phase<'a> {
    /// Starts all pollers, spread over one period.
    pub(super) fn start(
        kind: Kind,
        cluster: &'a SimulatedCluster,
        server: &Server,
        scale: &Scale,
        end: Instant,
    ) -> anyhow::Result<Self> {
        let before = cluster.work();
        let tally = Arc::new(Tally::default());
        let mut pollers = JoinSet::new();
        let config = client_config(&server.ca_pem)?;
        let now = Instant::now();
        for (number, offset) in (0..scale.pollers).zip(0_u32..) {
            let connection = Connection::new(server.address, config.clone(), &server.token)?;
            // A marker of an earlier phase must not count as one of this phase.
            let marker = MARKERS_PER_PHASE * kind as u64;
            let app = number % scale.apps;
            let poller = Poller::new(connection, app, scale.pods_per_app, marker);
            let pollers_total = u32::try_from(scale.pollers).unwrap_or(u32::MAX).max(1);
            let start = now + scale.period * offset / pollers_total;
            let (tally, period) = (tally.clone(), scale.period);
            pollers.spawn(async move {
                match kind {
                    Kind::WarmUp => poller.warm_up(end, &tally).await,
                    Kind::Straight | Kind::Listless | Kind::Shown => {
                        poller.run(start, period, end, &tally).await;
                    }
                }
            });
        }
        Ok(Self { cluster, before, tally, pollers })
    }

    /// Returns the measurements so far.
    pub(super) fn measured(&self) -> Measured {
        Measured::of(self.cluster.work().since(self.before), self.tally.seen())
    }

    /// Waits until every poller is done.
    pub(super) async fn finished(&mut self) {
        while self.pollers.join_next().await.is_some() {}
    }
}

// === impl Measured ===

impl Measured {
    fn of(work: Work, mut seen: Seen) -> Self {
        seen.latencies.sort_unstable();
        Self {
            polls: seen.latencies.len() as u64,
            from_memory: seen.from_memory,
            apiserver_requests: work.reads,
            apiserver_writes: work.writes,
            bytes: work.bytes,
            processor_ms: work
                .processor
                .map(|time| time.as_millis().try_into().unwrap_or(u64::MAX)),
            p50_ms: milliseconds(percentile(&seen.latencies, 50)),
            p99_ms: milliseconds(percentile(&seen.latencies, 99)),
            wrong_answers: seen.wrong,
            failed: seen.failed,
            first_fault: seen.first_fault,
        }
    }
}

/// Returns the smallest latency that this percentage does not exceed. `sorted` is ascending.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_computed_by_rank() {
        let latencies: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        for (percent, expected) in [(50, 100), (99, 198), (100, 200)] {
            assert_eq!(percentile(&latencies, percent), Duration::from_millis(expected));
        }
        assert_eq!(percentile(&latencies[..1], 99), Duration::from_millis(1));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
