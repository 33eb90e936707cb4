//! Builds all parts in order, binds every listener first, and ends the process.
//!
//! The command line parses the options and prints: this module never does.

mod announce;
mod certificate;
mod check;
mod gateway;
mod injector;
pub mod kubeconfig;
mod local;
pub mod options;
mod serve;
mod shown;
mod sidecar;
mod upstream_clients;
mod wire;

use std::{sync::Arc, time::SystemTime};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Duration, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

use crate::{
    admin,
    audit::Audit,
    cache::{
        self, Cache, Consistency, ReplicaStatus, SyncState, clock::Clock, counters::Counters,
        reflector::Random,
    },
    config::Config,
    connection_limit::ConnectionLimit,
    insight::{Insight, report::Report},
    metrics::{Limit, Metrics, ReplicaEnd, ReplicaSample, ReplicaState, ReplicaTotals},
    proxy::{
        Parts, Proxy,
        authorize::Authorize,
        discovery::Discovery,
        forward::Clients,
        identify::Identify,
        listen::{self, Bound, ListenerTls},
        repeated_headers::RepeatedHeaders,
        request_log::{Audience, Records},
        sessions::Past,
    },
    suspension::Suspension,
    timeline::Timeline,
    upstream::{
        Client,
        health::{self, Health},
    },
};

pub use announce::{Announce, Announcement, reachable};
pub use check::check;
pub use gateway::gateway;
pub use injector::injector;
pub use local::local;
pub use serve::Ended;
pub use shown::ProcessHealth;
pub use sidecar::sidecar;

use shown::Shown;
use upstream_clients::UpstreamClients;

/// The inputs of a running proxy.
pub struct Foundation {
    /// The listeners for clients.
    pub listeners: Vec<Bound>,
    /// The TLS and plain-text handling of accepted connections.
    pub tls: ListenerTls,
    /// The method that identifies callers.
    pub identify: Identify,
    /// The versions that clients may have seen from an earlier process.
    pub past: Past,
    /// The clients to the apiserver, with Listless's identity and with the caller's.
    pub clients: Clients,
    /// The current configuration.
    pub config: watch::Receiver<Arc<Config>>,
    /// The metrics of this process.
    pub metrics: Metrics,
    /// The apiserver's address for display.
    pub upstream: String,
}

/// A running proxy.
pub struct Running {
    proxy: Arc<Proxy>,
    cache: Cache,
    audit: Audit,
    insight: Insight,
    config: watch::Receiver<Arc<Config>>,
    shown: Shown,
    slots: ConnectionLimit,
    health: Health,
    /// Learns the state of the apiserver.
    prober: Arc<dyn Client>,
    begin_drain: CancellationToken,
    listening: JoinHandle<()>,
    /// Background tasks that end with the proxy.
    helpers: Vec<JoinHandle<()>>,
}

/// The time that in-flight requests have to finish after a stop signal.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(10);

/// The time for which a Service's backend still accepts clients after a stop signal. Nodes need it
/// to remove the endpoint.
const LEAVE_TIME: Duration = Duration::from_secs(5);

/// The period at which gauges are updated.
const GAUGES_PERIOD: Duration = Duration::from_secs(1);

// === impl Running ===

impl Running {
    /// Starts serving.
    pub fn start(foundation: Foundation) -> Self {
        let (random, clock) = (Arc::new(random_fraction), Clock::system());
        Self::start_with(foundation, random, clock, Consistency::default())
    }

    /// Starts serving. `random` returns the jitter's fractions in 0..1.
    pub fn start_with(
        foundation: Foundation,
        random: Random,
        clock: Clock,
        consistency: Consistency,
    ) -> Self {
        let Foundation { listeners, tls, identify, past, clients, config, metrics, upstream } =
            foundation;
        let (health, repeated) = (Health::default(), RepeatedHeaders::default());
        let shown = Shown::new(config.clone(), metrics.clone(), upstream, health.clone());
        let (settings, settings_task) = cache_settings(config.clone(), consistency);
        let insight = Insight::new(metrics.clone(), Instant::now());
        let clients = UpstreamClients::new(&clients, &metrics, &repeated, &insight, &health);
        let suspension = Suspension::of_process();
        let cache = Cache::new(clients.follower, settings, random.clone(), clock, suspension);
        let counted = (metrics.clone(), insight.clone());
        let discovery = Discovery::new(clients.discoverer, random.clone(), counted, cache.clone());
        let audit = Audit::new(metrics.clone());
        let auditing = audit.follow(config.clone());
        start_eager(&config.borrow(), &cache);
        let eager = tokio::spawn(keep_starting_eager(config.clone(), cache.clone()));
        let prober = clients.prober;
        let probing = health::keep_probing(prober.clone(), health.clone(), random.clone());
        let probing = tokio::spawn(probing);
        let gauges = tokio::spawn(keep_gauges(
            metrics.clone(),
            health.clone(),
            cache.clone(),
            discovery.clone(),
            clients.authorize.clone(),
            insight.clone(),
            shown.timeline.clone(),
        ));
        let listener_metrics = metrics.clone();
        let (seen, audited) = (insight.clone(), audit.clone());
        let tap = shown.tap.clone();
        let audience = Audience { metrics, insight: seen, audit: audited, tap };
        let parts = Parts {
            identify,
            past,
            config: config.clone(),
            cache: cache.clone(),
            discovery,
            clients: clients.clients,
            authorize: clients.authorize,
            caller_names: clients.caller_names,
            aggregation: clients.aggregation,
            repeated,
            records: Records::new(audience, config.clone(), random),
        };
        let begin_drain = CancellationToken::new();
        let proxy = Arc::new(Proxy::new(parts));
        let (slots, listening) =
            start_listening(listeners, tls, proxy.clone(), listener_metrics, begin_drain.clone());
        Self {
            proxy,
            cache,
            audit,
            insight,
            config,
            shown,
            slots,
            health,
            prober,
            begin_drain,
            listening,
            helpers: vec![settings_task, eager, gauges, auditing, probing],
        }
    }

    /// Returns the request handler, for callers without a listener.
    pub fn proxy(&self) -> &Arc<Proxy> {
        &self.proxy
    }

    /// Returns the replicas, for pages and readiness.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the data sources of the admin server.
    pub fn sources(&self, process_health: ProcessHealth) -> admin::Sources {
        let slots = self.slots.clone();
        let shown = self.shown.sources(process_health, &self.cache, self.reporter());
        admin::Sources { has_room: Box::new(move || slots.has_room()), ..shown }
    }

    /// Asks the apiserver for its version, and returns what is wrong with it by `within`.
    pub async fn first_contact(&self, within: Duration) -> Option<String> {
        let (prober, health) = (self.prober.clone(), self.health.clone());
        let probe = tokio::spawn(async move { health::probe(&*prober, &health).await });
        let in_time = tokio::time::timeout(within, probe).await.is_ok();
        match self.health.state().outage() {
            Some(outage) if outage.cause.is_refusal() => Some(outage.cause.headline()),
            Some(outage) => Some(unreachable(outage.cause.text())),
            None if in_time => None,
            None => Some(unreachable(&format!("no response within {} s", within.as_secs()))),
        }
    }

    /// Returns a function that makes the report: clients, their requests, the cost and the
    /// recommended fixes.
    pub fn reporter(&self) -> Box<dyn Fn() -> Report + Send + Sync> {
        let (insight, config, health) =
            (self.insight.clone(), self.config.clone(), self.health.clone());
        Box::new(move || {
            let (mode, now) = (config.borrow().policy.mode(), Instant::now());
            let apiserver = shown::apiserver(&health.state(), now, SystemTime::now());
            Report { apiserver, ..insight.report(mode.as_str(), now) }
        })
    }

    /// Stops accepting, waits up to [`DRAIN_DEADLINE`] for in-flight requests, then stops.
    pub async fn drain(self) {
        self.begin_drain.cancel();
        self.proxy.close_watches();
        if let Err(error) = self.listening.await {
            tracing::error!(%error, "the listener task failed");
        }
        self.cache.shutdown().await;
        self.helpers.iter().for_each(JoinHandle::abort);
        let audit = self.audit;
        if tokio::task::spawn_blocking(move || audit.close()).await.is_err() {
            tracing::error!("the audit task did not end");
        }
    }
}

/// Serves clients until the drain; returns their connections' slots and the task.
fn start_listening(
    listeners: Vec<Bound>,
    tls: ListenerTls,
    proxy: Arc<Proxy>,
    metrics: Metrics,
    begin: CancellationToken,
) -> (ConnectionLimit, JoinHandle<()>) {
    let drain = listen::Drain { begin, deadline: DRAIN_DEADLINE };
    let limits = listen::Limits::default();
    let slots = limits.connection_limit();
    let bounded = (limits, slots.clone());
    let serving = listen::serve(listeners, tls, proxy, bounded, drain, metrics);
    (slots, tokio::spawn(serving))
}

fn unreachable(cause: &str) -> String {
    format!("apiserver not reachable yet: {cause}")
}

/// Publishes the cache's settings of the current configuration until the configuration closes.
fn cache_settings(
    mut config: watch::Receiver<Arc<Config>>,
    consistency: Consistency,
) -> (watch::Receiver<cache::Settings>, JoinHandle<()>) {
    let current = settings_of(&config.borrow(), &consistency);
    let (publish, settings) = watch::channel(current);
    let task = tokio::spawn(async move {
        while config.changed().await.is_ok() {
            publish.send_replace(settings_of(&config.borrow_and_update(), &consistency));
        }
    });
    (settings, task)
}

/// Starts the configured eager replicas that do not exist yet.
fn start_eager(config: &Config, cache: &Cache) {
    for (query, form) in config.policy.eager() {
        cache.start(query.clone(), *form);
    }
}

/// Starts missing eager replicas after each change of configuration.
async fn keep_starting_eager(mut config: watch::Receiver<Arc<Config>>, cache: Cache) {
    while config.changed().await.is_ok() {
        start_eager(&config.borrow_and_update(), &cache);
    }
}

fn settings_of(config: &Config, consistency: &Consistency) -> cache::Settings {
    cache::Settings {
        memory_limit_bytes: config.memory_limit_bytes,
        uncompressed_limit_bytes: config.uncompressed_limit_bytes,
        response_limit_bytes: config.response_limit_bytes,
        idle_timeout: config.idle_timeout,
        consistency: consistency.clone(),
        ..cache::Settings::default()
    }
}

/// Returns an evenly distributed fraction from 0 to 1.
fn random_fraction() -> f64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    // The version bits are in the lower half; the upper 32 bits are random.
    f64::from((high >> 32) as u32) / f64::from(u32::MAX)
}

async fn keep_gauges(
    metrics: Metrics,
    health: Health,
    cache: Cache,
    discovery: Discovery,
    authorize: Authorize,
    insight: Insight,
    timeline: Arc<Timeline>,
) {
    let mut unix_time = Duration::ZERO;
    let mut ticks = tokio::time::interval(GAUGES_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let replicas = cache.replicas();
        metrics.replicas(&replicas.iter().map(sample).collect::<Vec<_>>());
        metrics.replica_totals(&totals(cache.counters()));
        metrics.uncompressed_objects(cache.uncompressed_bytes());
        metrics.unproven_cells(&cache.counters().unproven_cells.all());
        let counters = cache.counters();
        metrics.limit_total(Limit::DemandedQueries, counters.demands_dropped.get());
        metrics.limit_total(Limit::OutstandingPages, counters.outstanding_dropped.get());
        discovery.report();
        discovery.tend(Instant::now());
        authorize.report().await;
        let outages = health.state().sums();
        metrics.upstream_outages(health.state().outage().is_none(), &outages.failing);
        metrics.accounts(insight.accounts());
        metrics.run_upkeep();
        // The timeline never goes back, and the other clocks stand still while the machine is suspended.
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        unix_time = unix_time.max(clock.unwrap_or_default());
        let now = Instant::now();
        let sums = shown::sums(&metrics.totals(), outages, cache.counters(), &replicas, now);
        timeline.add(unix_time.as_secs(), sums);
    }
}

fn totals(counters: &Counters) -> ReplicaTotals {
    ReplicaTotals {
        started: counters.started.get(),
        ended: [
            (ReplicaEnd::Refused, counters.refused.get()),
            (ReplicaEnd::Memory, counters.dropped_for_memory.get()),
            (ReplicaEnd::Idle, counters.stopped_idle.get()),
            (ReplicaEnd::Widened, counters.stopped_widened.get()),
        ],
        lists: counters.lists.get(),
        lists_again: counters.relists.get(),
        watches: counters.watches.get(),
        watches_again: counters.watch_restarts.get(),
        watches_ended: counters.watches_ended.get(),
        events: counters.events.get(),
        bookmarks: counters.bookmarks.get(),
        catch_ups: counters.catch_ups.get(),
        probes: counters.probes.get(),
        failures: counters.failures.get(),
        epochs: counters.epochs.get(),
        checks: counters.checks.all(),
    }
}

fn sample(replica: &ReplicaStatus) -> ReplicaSample<'_> {
    let state = match replica.state {
        SyncState::Starting => ReplicaState::Starting,
        SyncState::Synced => ReplicaState::Synced,
        SyncState::Failing => ReplicaState::Failing,
    };
    ReplicaSample {
        resource: &replica.query.resource,
        state,
        objects: replica.objects,
        bytes: replica.bytes,
        unproven: replica.unproven,
    }
}
