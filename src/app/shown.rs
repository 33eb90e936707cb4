//! The data that the admin server shows of a running proxy.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, time::Instant};

use crate::{
    admin::{ProcessStatus, Sources},
    cache::{Cache, Link, ReplicaStatus, SyncState, counters::Counters},
    config::Config,
    explain,
    insight::{
        Insight,
        report::{Apiserver, Report},
    },
    lifecycle::{Draining, Heartbeat, Ready},
    metrics::{Metrics, ReplicaCheck, Totals},
    policy::Mode,
    tap::Tap,
    timeline::{Outages, Sums, Timeline},
    upstream::health::{Health, HealthState, OutageSums},
};

/// Health of the process, apart from the proxy.
pub struct ProcessHealth {
    /// The readiness of each part.
    pub ready: Ready,
    /// The drain flag.
    pub draining: Draining,
    /// The heartbeat of the data path.
    pub heartbeat: Heartbeat,
    /// The host names that browsers may use, besides IP addresses and localhost.
    pub names: Vec<String>,
}

/// A function that makes the report.
type Reporter = Box<dyn Fn() -> Report + Send + Sync>;

/// State that is kept only for display.
pub(super) struct Shown {
    pub(super) tap: Tap,
    pub(super) timeline: Arc<Timeline>,
    config: watch::Receiver<Arc<Config>>,
    metrics: Metrics,
    upstream: String,
    health: Health,
    started_at: Instant,
}

// === impl Shown ===

impl Shown {
    pub(super) fn new(
        config: watch::Receiver<Arc<Config>>,
        metrics: Metrics,
        upstream: String,
        health: Health,
    ) -> Self {
        let (tap, timeline) = (Tap::new(metrics.clone()), Arc::default());
        Self { tap, timeline, config, metrics, upstream, health, started_at: Instant::now() }
    }

    pub(super) fn sources(
        &self,
        process_health: ProcessHealth,
        cache: &Cache,
        report: Reporter,
    ) -> Sources {
        let ProcessHealth { ready, draining, heartbeat, names } = process_health;
        let (config, upstream, started_at) =
            (self.config.clone(), self.upstream.clone(), self.started_at);
        let health = self.health.clone();
        let process_status = move || {
            let config = config.borrow();
            ProcessStatus {
                apiserver: apiserver(&health.state(), Instant::now(), SystemTime::now()),
                mode: config.policy.mode().as_str(),
                upstream: upstream.clone(),
                up: started_at.elapsed(),
                memory_limit_bytes: config.memory_limit_bytes,
            }
        };
        let (config, held, shown) = (self.config.clone(), cache.clone(), cache.clone());
        Sources {
            ready,
            draining,
            heartbeat,
            has_room: Box::new(|| true),
            names,
            metrics: self.metrics.clone(),
            tap: self.tap.clone(),
            timeline: self.timeline.clone(),
            process_status: Box::new(process_status),
            report,
            replicas: Box::new(move || shown.replicas()),
            explain: Box::new(move |question| {
                let config = config.borrow().clone();
                explain::explain(question, &config, Some(&held))
            }),
        }
    }
}

/// The gap below which a closed watch is no incident: a watch reopens every few minutes.
const REOPENING: Duration = Duration::from_secs(3);

/// Returns the sources for a process without an apiserver: only its vitals.
pub(super) fn nothing(process_health: ProcessHealth, metrics: Metrics) -> Sources {
    let ProcessHealth { ready, draining, heartbeat, names } = process_health;
    let insight = Insight::new(metrics.clone(), Instant::now());
    let started_at = Instant::now();
    let process_status = move || ProcessStatus {
        mode: Mode::default().as_str(),
        apiserver: Apiserver::default(),
        upstream: String::new(),
        up: started_at.elapsed(),
        memory_limit_bytes: 0,
    };
    Sources {
        ready,
        draining,
        heartbeat,
        has_room: Box::new(|| true),
        names,
        tap: Tap::new(metrics.clone()),
        metrics,
        timeline: Arc::default(),
        process_status: Box::new(process_status),
        report: Box::new(move || insight.report(Mode::default().as_str(), Instant::now())),
        replicas: Box::new(Vec::new),
        explain: Box::new(|question| explain::explain(question, &Config::default(), None)),
    }
}

/// Describes the state of the apiserver; `now` and `time` are the same moment on two clocks.
pub(super) fn apiserver(state: &HealthState, now: Instant, time: SystemTime) -> Apiserver {
    let Some(outage) = state.outage() else {
        let word = if state.is_known() { "reachable" } else { "unknown" };
        return Apiserver { state: word.to_owned(), ..Apiserver::default() };
    };
    let lasted = now.saturating_duration_since(outage.since);
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let since = since.saturating_sub(lasted);
    let word = if outage.cause.is_refusal() { "refusing" } else { "unreachable" };
    Apiserver {
        state: word.to_owned(),
        cause: Some(outage.cause.as_str().to_owned()),
        message: Some(outage.cause.headline()),
        since: Some(since.as_secs()),
        for_seconds: Some(lasted.as_secs_f64()),
        failures: outage.failures,
    }
}

/// Returns the sums from which the timeline is computed.
pub(super) fn sums(
    totals: &Totals,
    outages: OutageSums,
    counters: &Counters,
    replicas: &[ReplicaStatus],
    now: Instant,
) -> Sums {
    let is_cut_off = |replica: &&ReplicaStatus| match replica.link {
        Link::Lost { since } if replica.state == SyncState::Synced => {
            now.saturating_duration_since(since) > REOPENING
        }
        _ => false,
    };
    Sums {
        totals: *totals,
        outages: Outages {
            failing: outages.failing.iter().sum(),
            recovered: outages.recovered,
            cause: outages.cause,
        },
        relists: counters.relists.get(),
        epochs: counters.epochs.get(),
        differences: counters.checks.get(ReplicaCheck::Different),
        memory_drops: counters.dropped_for_memory.get(),
        links_lost: replicas.iter().filter(is_cut_off).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{GroupVersionResource, Scope, form::Form, query::Query},
        cache::Start,
    };

    #[test]
    fn a_reopened_watch_is_no_incident() {
        let (since, query) = (Instant::now(), GroupVersionResource::new("", "v1", "pods"));
        let replica = ReplicaStatus {
            query: Query::all(query, Scope::All),
            form: Form::Json,
            start: Start::Eager,
            state: SyncState::Synced,
            link: Link::Lost { since },
            version: None,
            objects: 0,
            bytes: 0,
            relists: 0,
            watch_restarts: 0,
            last_error: None,
            age: Duration::ZERO,
            idle: Duration::ZERO,
            unproven: None,
        };
        let lost = |replica: &ReplicaStatus, after: Duration| {
            let (totals, counters) = (Totals::default(), Counters::default());
            let outages = OutageSums::default();
            sums(&totals, outages, &counters, std::slice::from_ref(replica), since + after)
                .links_lost
        };
        assert_eq!(lost(&replica, REOPENING), 0);
        assert_eq!(lost(&replica, REOPENING * 2), 1);
        let starting = ReplicaStatus { state: SyncState::Starting, ..replica };
        assert_eq!(lost(&starting, REOPENING * 2), 0);
    }
}
