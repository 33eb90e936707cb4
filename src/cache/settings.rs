//! The bounds of the cache. Plain data.

use std::time::Duration;

use super::{Consistency, history::Bounds};

/// The bounds of the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Memory all replicas together may hold; above it the least recently used are dropped.
    pub memory_limit_bytes: usize,
    /// After this time without a read a replica that was started on demand stops.
    pub idle_timeout: Duration,
    /// How many unsafe reads within `demand_window` start a replica.
    pub demand_reads: u32,
    /// See `demand_reads`.
    pub demand_window: Duration,
    /// More narrow replicas of one resource than this are widened into one.
    pub siblings_max: usize,
    /// More GETs of different objects than this within `demand_window` start a replica of them all;
    /// of different LISTs, `siblings_max`.
    pub storm_gets_max: usize,
    /// How long a refusal, or a drop for memory, keeps a replica from being started again.
    pub refusal_ttl: Duration,
    /// How many replicas there may be.
    pub replicas_max: usize,
    /// The largest object believed; a larger one is taken for bad data.
    pub item_bytes_max: usize,
    /// How many recent events each replica keeps.
    pub history_events_max: usize,
    /// How many bytes of recent events each replica keeps.
    pub history_bytes_max: usize,
    /// How long each replica keeps recent events.
    pub history_age_max: Duration,
    /// A watch that is silent for this long is questioned by a small consistent list.
    pub quiet_after: Duration,
    /// Bounds of the consistency check.
    pub consistency: Consistency,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_limit_bytes: 256 * 1024 * 1024,
            idle_timeout: Duration::from_secs(10 * 60),
            demand_reads: 2,
            demand_window: Duration::from_secs(60),
            siblings_max: 4,
            storm_gets_max: 32,
            refusal_ttl: Duration::from_secs(60),
            replicas_max: 256,
            item_bytes_max: 16 * 1024 * 1024,
            history_events_max: 4096,
            history_bytes_max: 2 * 1024 * 1024,
            history_age_max: Duration::from_secs(5 * 60),
            quiet_after: Duration::from_secs(75),
            consistency: Consistency::default(),
        }
    }
}

impl Settings {
    /// The bounds of each replica's history.
    pub(super) fn history_bounds(&self) -> Bounds {
        Bounds {
            events_max: self.history_events_max,
            bytes_max: self.history_bytes_max,
            age_max: self.history_age_max,
        }
    }
}
