//! The set of replicas: which queries are held, started, widened, stopped and bounded.

mod batch;
pub mod counters;
mod envelope;
pub mod history;
pub mod object;
mod page;
mod pair;
mod reader;
mod rebuild;
pub mod reflector;
pub mod render;
mod replica;
pub mod selection;
mod split;
pub mod store;
#[cfg(test)]
pub mod testing;

pub use replica::{Link, Reach, Replica, ReplicaStatus, State, View};

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{api::query::Query, upstream};

/// The bounds of the cache; the default is the design's.
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
}

/// The set of replicas; cheap to clone.
#[derive(Clone)]
pub struct Cache {}

/// Whether a read may start a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// It may not.
    Ignore,
    /// It is an unsafe read: enough of them start a replica.
    Count,
}

/// What the set has for a query.
pub enum Lookup {
    /// A replica that covers it.
    Found(View),
    /// None, and why.
    Absent(Absence),
}

/// Why no replica covers a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// It was not asked for often enough.
    NotDemanded,
    /// The apiserver does not let us list or watch it.
    Refused {
        /// The HTTP status.
        code: u16,
    },
    /// It, or a replica dropped lately, did not fit into the memory limit.
    OutOfMemory,
    /// There are as many replicas as allowed.
    TooMany,
    /// The apiserver's lists of it do not look as known ones do.
    NotReplicable,
}

impl Cache {
    /// A set without replicas, which reads through `client`.
    pub fn new(
        _client: Arc<dyn upstream::Client>,
        _settings: watch::Receiver<Settings>,
        _random: Arc<dyn Fn() -> f64 + Send + Sync>,
    ) -> Self {
        todo!()
    }

    /// Starts a replica that is never stopped for idleness.
    pub fn start(&self, _query: Query) {
        todo!()
    }

    /// The best replica that covers the query; marks it as used.
    pub fn lookup(&self, _query: &Query, _demand: Demand) -> Lookup {
        todo!()
    }

    /// Every replica in figures.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        todo!()
    }

    /// Stops every replica and waits for their tasks.
    pub async fn shutdown(&self) {
        todo!()
    }
}
