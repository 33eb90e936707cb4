//! A picture of a replica, as a request is decided by. Plain data.

#[cfg(test)]
use std::ops::DerefMut;
use std::{ops::Deref, sync::Arc};

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
    /// What it shows.
    pub(super) published: Arc<Published>,
}

/// What the reflector last published.
#[derive(Clone)]
pub struct Published {
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

impl Deref for View {
    type Target = Published;

    fn deref(&self) -> &Published {
        &self.published
    }
}

/// Tests show what no reflector has published.
#[cfg(test)]
impl DerefMut for View {
    fn deref_mut(&mut self) -> &mut Published {
        Arc::make_mut(&mut self.published)
    }
}

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

// === impl Published ===

impl Published {
    /// Before the first list.
    pub(super) fn nothing(link: Link, epoch: u32) -> Self {
        let (state, snapshot, proven_at, oldest) = (State::Starting, None, None, None);
        Self { state, snapshot, link, proven_at, epoch, oldest }
    }

    /// What is shown was the newest state at some moment.
    pub(super) fn prove(&mut self, at: Instant) {
        self.proven_at = self.proven_at.max(Some(at));
    }
}
