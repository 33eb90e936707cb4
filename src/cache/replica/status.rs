//! The status of a replica.

use std::time::Duration;

use tokio::time::Instant;

use super::{Link, Replica, Start, SyncState};
use crate::api::{form::Form, query::Query, version::ResourceVersion};

/// The status of one replica, for pages, readiness and metrics.
#[derive(Clone, Debug)]
pub struct ReplicaStatus {
    /// The query that it follows.
    pub query: Query,
    /// The form of its objects.
    pub form: Form,
    /// The reason of its start.
    pub start: Start,
    /// Its state.
    pub state: SyncState,
    /// State of the watch connection.
    pub link: Link,
    /// The snapshot's version.
    pub version: Option<ResourceVersion>,
    /// The number of objects.
    pub objects: usize,
    /// Memory held, estimated.
    pub bytes: usize,
    /// The number of lists after the first one.
    pub relists: u64,
    /// The number of watches after the first one.
    pub watch_restarts: u64,
    /// The last error, as text.
    pub last_error: Option<String>,
    /// Time since it was started.
    pub age: Duration,
    /// Time since a read last used it.
    pub idle: Duration,
    /// Time since the last event, bookmark or list.
    pub unproven: Option<Duration>,
}

// === impl Replica ===

impl Replica {
    /// Returns the status.
    pub(in crate::cache) fn status(&self, now: Instant) -> ReplicaStatus {
        let (bytes, used_at) = (self.bytes(), self.used_at(now));
        let (published, usage) = (self.published.load_full(), self.usage());
        let snapshot = published.snapshot.as_ref();
        ReplicaStatus {
            query: self.query.clone(),
            form: self.form,
            start: self.start,
            state: published.state,
            link: published.link,
            version: snapshot.map(|held| held.version().clone()),
            objects: snapshot.map_or(0, |held| held.len()),
            bytes,
            relists: usage.relists,
            watch_restarts: usage.watch_restarts,
            last_error: usage.last_error.clone(),
            age: self.age(now),
            idle: now.saturating_duration_since(used_at),
            unproven: published.proven_at.map(|at| now.saturating_duration_since(at)),
        }
    }
}
