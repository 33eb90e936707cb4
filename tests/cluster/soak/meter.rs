//! What Listless holds: its memory during the load, and its tables before and after it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Range;
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
/// The growth that is allowed, as a share.
const GROWTH_MAX: f64 = 0.02;

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

/// How much the memory grew, as a share of its mean.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    share: f64,
    /// The standard error of the share.
    error: f64,
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
    /// The growth after the warm-up: the straight line that fits the levels of the calm times best.
    ///
    /// While the apiserver runs, memory stays within a percent; each start of the apiserver makes all lists
    /// anew and moves it to another level, up or down. One level against another therefore says nothing.
    pub fn growth(&self, calm: &[Range<Duration>]) -> Growth {
        let calm = calm.iter().filter(|time| time.start >= WARM_UP);
        let levels: Vec<(f64, f64)> = calm.filter_map(|time| self.level(time)).collect();
        let count = levels.len() as f64;
        assert!(count >= 3.0, "{count} calm times cannot show any growth");
        let mean = |of: fn(&(f64, f64)) -> f64| levels.iter().map(of).sum::<f64>() / count;
        let (middle, level) = (mean(|(at, _)| *at), mean(|(_, bytes)| *bytes));
        let away = || levels.iter().map(|(at, bytes)| (at - middle, bytes - level));
        let spread = away().map(|(at, _)| at * at).sum::<f64>();
        let slope = away().map(|(at, bytes)| at * bytes).sum::<f64>() / spread;
        let rest = away().map(|(at, bytes)| (bytes - slope * at).powi(2)).sum::<f64>();
        let span = (levels[levels.len() - 1].0 - levels[0].0) / level;
        let error = (rest / (count - 2.0) / spread).sqrt();
        Growth { share: slope * span, error: error * span }
    }

    /// The middle of a calm time in seconds, and the mean of the bytes in it.
    fn level(&self, calm: &Range<Duration>) -> Option<(f64, f64)> {
        let within = self.samples.iter().filter(|(at, _)| calm.contains(at));
        let (mut sum, mut count) = (0.0, 0.0);
        for (_, bytes) in within {
            sum += *bytes as f64;
            count += 1.0;
        }
        let middle = (calm.start + calm.end).as_secs_f64() / 2.0;
        (count > 0.0).then(|| (middle, sum / count))
    }
}

impl Growth {
    /// Whether it exceeds what is allowed, and chance does not explain it.
    pub fn is_too_much(&self) -> bool {
        self.share > GROWTH_MAX.max(2.0 * self.error)
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        let (share, error) = (percent(self.share), percent(self.error));
        write!(out, "{share:+.1} % after the first minutes (standard error {error:.1})")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels of five minutes each.
    fn growth(levels: &[u64]) -> Growth {
        let mut course = Course::default();
        let mut calm = Vec::new();
        for (number, level) in levels.iter().enumerate() {
            let begin = WARM_UP * (number as u32 + 1);
            calm.push(begin..begin + WARM_UP);
            course.samples.extend((0..60).map(|tick| (begin + PERIOD * tick, level * 1000)));
        }
        course.growth(&calm)
    }

    #[test]
    fn levels_that_go_up_and_down_are_no_growth() {
        let wandering = growth(&[163, 165, 168, 164, 159, 161, 160, 163, 165, 164, 165]);
        assert!(!wandering.is_too_much(), "{wandering}");
        let little = growth(&[1600, 1602, 1604, 1606, 1608, 1610, 1612]);
        assert!(!little.is_too_much(), "{little}");
    }

    #[test]
    fn levels_that_rise_are_growth_even_if_they_wander() {
        let rising = growth(&[163, 166, 170, 167, 163, 166, 166, 170, 173, 173, 175]);
        assert!(rising.is_too_much(), "{rising}");
        let straight = growth(&[1600, 1610, 1620, 1630, 1640]);
        assert!(straight.is_too_much(), "{straight}");
    }
}
