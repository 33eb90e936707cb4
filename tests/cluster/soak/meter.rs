//! What Listless holds: its memory during the load, and its tables before and after it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::histories::World;
use crate::rig::process::resident_bytes;
use crate::rig::proxy_process::ProxyProcess;

const PERIOD: Duration = Duration::from_secs(5);
/// Memory counts as settled from then on.
const WARM_UP: Duration = Duration::from_secs(300);

/// Gauges that say something else than how much a table or a socket pool holds, or what is meant to stay within
/// its bound: the accounts of the report, discovery documents, and expired reviews, with which mode `observe` predicts.
const OTHER_GAUGES: [&str; 21] = [
    "listless_access_reviews_cached",
    "listless_build_info",
    "listless_certificate_expiry_timestamp_seconds",
    "listless_certificate_last_reload_successful",
    "listless_certificate_lifetime_seconds",
    "listless_config_last_reload_successful",
    "listless_config_last_success_timestamp_seconds",
    "listless_discovery_bytes",
    "listless_discovery_documents",
    "listless_insight_accounts",
    "listless_ready",
    "listless_replica_bytes_limit",
    "listless_replica_unproven_seconds",
    "listless_service_account_token_expiry_timestamp_seconds",
    "listless_upstream_reachable",
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
    "process_threads",
];
/// Connections to the apiserver that are kept for a while, and their descriptors.
const KEPT_CONNECTIONS: f64 = 4.0;

/// Reads the memory of Listless until it is stopped.
#[derive(Debug)]
pub struct Meter {
    stop: watch::Sender<bool>,
    task: JoinHandle<Course>,
}

/// The memory over time.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The time since the start of the load, and the bytes.
    pub samples: Vec<(Duration, u64)>,
    descriptors_max: usize,
}

/// The content of all tables, by gauge.
#[derive(Clone, Debug)]
pub struct Tables(BTreeMap<String, f64>);

// === impl Meter ===

impl Meter {
    /// Starts to read.
    pub fn start(world: Arc<World>) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let (began, mut course) = (Instant::now(), Course::default());
            let mut ticks = tokio::time::interval(PERIOD);
            while !*stopped.borrow_and_update() {
                let process = world.proxy.id();
                let bytes = resident_bytes(process).expect("the process runs");
                course.samples.push((began.elapsed(), bytes));
                let open = fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count);
                course.descriptors_max = course.descriptors_max.max(open);
                tokio::select! { _ = ticks.tick() => {}, _ = stopped.changed() => {} }
            }
            course
        });
        Self { stop, task }
    }

    /// Ends; returns what was read.
    pub async fn stop(self) -> Course {
        self.stop.send_replace(true);
        self.task.await.expect("no panic")
    }
}

// === impl Course ===

impl Course {
    /// The growth from the time after the warm-up to the last minutes, as a share.
    pub fn growth(&self, time: Duration) -> f64 {
        let window = (time.saturating_sub(WARM_UP) / 5).max(Duration::from_secs(10));
        let first = self.mean(WARM_UP.min(time / 2), window);
        self.mean(time.saturating_sub(window), window) / first - 1.0
    }

    /// The mean of the bytes from a moment on.
    fn mean(&self, from: Duration, window: Duration) -> f64 {
        let within = |at: &Duration| (from..from + window).contains(at);
        let bytes: Vec<f64> = self
            .samples
            .iter()
            .filter(|(at, _)| within(at))
            .map(|(_, bytes)| *bytes as f64)
            .collect();
        bytes.iter().sum::<f64>() / bytes.len() as f64
    }
}

impl fmt::Display for Course {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let bytes = || self.samples.iter().map(|(_, bytes)| *bytes);
        let (most, last) = (bytes().max().unwrap_or(0), bytes().next_back().unwrap_or(0));
        let (most, last) = (mib(most), mib(last));
        write!(
            out,
            "memory {last:.1} MiB at the end, {most:.1} at most, {} descriptors",
            self.descriptors_max
        )
    }
}

// === impl Tables ===

impl Tables {
    /// Reads them all.
    pub async fn read(proxy: &ProxyProcess) -> Result<Self> {
        let text = proxy.metrics_text().await?;
        let gauges = text.lines().filter_map(|line| {
            line.strip_prefix("# TYPE ")?
                .strip_suffix(" gauge")
                .filter(|name| !OTHER_GAUGES.contains(name))
        });
        let metrics = crate::rig::control_plane::RequestCounts::parse(&text);
        Ok(Self(gauges.map(|name| (name.to_owned(), metrics.sum(name, &[]))).collect()))
    }

    /// The gauges that are above what they were, in words.
    pub fn above(&self, before: &Self) -> Vec<String> {
        let allowed = |name: &str| {
            let kept = if name.ends_with("_fds") || name.ends_with("upstream_connections") {
                KEPT_CONNECTIONS
            } else {
                0.0
            };
            before.0.get(name).copied().unwrap_or(0.0) + kept
        };
        let above = self.0.iter().filter(|(name, held)| **held > allowed(name));
        above
            .map(|(name, held)| format!("{name} is {held}, was {:?}", before.0.get(name)))
            .collect()
    }
}

impl fmt::Display for Tables {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.0.iter().filter(|(_, held)| **held > 0.0);
        let held: Vec<String> = held.map(|(name, held)| format!("{name} {held}")).collect();
        write!(out, "{}", if held.is_empty() { "nothing".to_owned() } else { held.join(", ") })
    }
}
