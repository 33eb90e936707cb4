//! The view of a replica that decides a request. Plain data.

#[cfg(test)]
use std::ops::DerefMut;
use std::{ops::Deref, sync::Arc};

use tokio::time::Instant;

use super::{
    replica::{Link, Replica, SyncState},
    store::Snapshot,
};
use crate::api::version::ResourceVersion;

/// An immutable view of a replica, taken once per request.
#[derive(Clone)]
pub struct View {
    /// The replica, to wait for a newer view.
    pub replica: Arc<Replica>,
    /// The published state.
    pub(super) published: Arc<Published>,
}

/// The state that the reflector last published.
#[derive(Clone)]
pub struct Published {
    /// The state of the replica.
    pub state: SyncState,
    /// The objects; present if and only if synced.
    pub snapshot: Option<Arc<Snapshot>>,
    /// State of the watch connection.
    pub link: Link,
    /// The time of the last event, bookmark or list.
    pub proven_at: Option<Instant>,
    /// The number of declared breaks in the sequence of versions, such as a restore of etcd.
    pub epoch: u32,
    /// `true` if the apiserver's versions went back: clients may hold versions that are gone.
    pub restored: bool,
    /// The lowest version at which a watch can start.
    pub oldest: Option<ResourceVersion>,
}

/// The state that a reader waits for.
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

/// Tests need views that no reflector has published.
#[cfg(test)]
impl DerefMut for View {
    fn deref_mut(&mut self) -> &mut Published {
        Arc::make_mut(&mut self.published)
    }
}

impl View {
    /// Reports whether the wanted state is reached.
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
    /// Returns the state before the first list.
    pub(super) fn nothing(link: Link, epoch: u32) -> Self {
        let (state, snapshot, proven_at, oldest) = (SyncState::Starting, None, None, None);
        Self { state, snapshot, link, proven_at, epoch, restored: false, oldest }
    }

    /// Notes that the published state was the newest at some time.
    pub(super) fn prove(&mut self, at: Instant) {
        self.proven_at = self.proven_at.max(Some(at));
    }
}
