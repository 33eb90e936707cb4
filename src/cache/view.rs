//! A picture of a replica, as a request is decided by. Plain data.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    replica::{Link, Replica, State},
    store::Snapshot,
};
use crate::api::version::ResourceVersion;

/// An immutable picture of a replica, taken once per request.
#[derive(Clone)]
pub struct View {
    /// Where the picture was taken, to wait for a newer one.
    pub replica: Arc<Replica>,
    /// Whether there is something to answer from.
    pub state: State,
    /// The objects; present exactly when synced.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Whether news would arrive now.
    pub link: Link,
    /// When the last event or bookmark, or the list, came.
    pub proven_at: Option<Instant>,
    /// Counts declared breaks in the sequence of versions, such as a restored etcd.
    pub epoch: u32,
    /// The lowest version a watch can start at.
    pub oldest: Option<ResourceVersion>,
}

/// What a reader waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Any snapshot.
    Synced,
    /// A snapshot at this version or a later one.
    Version(ResourceVersion),
    /// A snapshot later than this version.
    Newer(ResourceVersion),
}

// === impl View ===

impl View {
    /// Whether the wanted is already there.
    pub fn reaches(&self, wanted: &Reach) -> bool {
        self.snapshot.as_ref().is_some_and(|snapshot| match wanted {
            Reach::Synced => true,
            Reach::Version(version) => snapshot.version() >= version,
            Reach::Newer(version) => snapshot.version() > version,
        })
    }
}
