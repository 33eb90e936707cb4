//! The limits of the cache. Plain data.

use std::time::Duration;

use super::{Consistency, history::Bounds};

/// The limits of the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The memory limit of all replicas together; above it the least recently used are dropped.
    pub memory_limit_bytes: usize,
    /// The limit of objects that are held uncompressed because they are read, within the memory
    /// limit.
    pub uncompressed_limit_bytes: usize,
    /// The limit of kept responses, which give way to replicas within the memory limit.
    pub response_limit_bytes: usize,
    /// The time without a read after which a replica that was started on demand stops.
    pub idle_timeout: Duration,
    /// The number of unsafe reads within `demand_window` that start a replica.
    pub demand_reads: u32,
    /// The time window of `demand_reads`.
    pub demand_window: Duration,
    /// The limit of narrow replicas of one resource; above it they are widened into one.
    pub siblings_max: usize,
    /// The limit of GETs of different objects within `demand_window`; above it a replica of all of
    /// them starts. For different LISTs, the limit is `siblings_max`.
    pub storm_gets_max: usize,
    /// The time for which a refusal, or a drop for memory, prevents a restart of the replica.
    pub refusal_ttl: Duration,
    /// The limit of replicas.
    pub replicas_max: usize,
    /// The largest accepted object; a larger one counts as invalid data.
    pub item_bytes_max: usize,
    /// The limit of recent events in each replica.
    pub history_events_max: usize,
    /// The limit of the bytes of recent events in each replica.
    pub history_bytes_max: usize,
    /// The age limit of recent events in each replica.
    pub history_age_max: Duration,
    /// The silence of a watch after which a small consistent list checks it.
    pub quiet_after: Duration,
    /// Bounds of the consistency check.
    pub consistency: Consistency,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_limit_bytes: 256 * 1024 * 1024,
            uncompressed_limit_bytes: 64 * 1024 * 1024,
            response_limit_bytes: 32 * 1024 * 1024,
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
    /// Returns the bounds of each replica's history.
    pub(super) fn history_bounds(&self) -> Bounds {
        Bounds {
            events_max: self.history_events_max,
            bytes_max: self.history_bytes_max,
            age_max: self.history_age_max,
        }
    }
}
