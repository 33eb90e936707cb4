//! Replicas that ended while followers still read their events.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::Set;
use crate::cache::replica::Replica;

/// The replicas whose followers continue at another one, and the time of the end of each.
#[derive(Debug, Default)]
pub(super) struct Replaced(Vec<(Weak<Replica>, Instant)>);

/// The longest time for which the window of an ended replica is kept for followers that still read
/// it; no memory limit counts it.
const READ_OUT_MAX: Duration = Duration::from_secs(60);

// === impl Set ===

impl Set {
    /// Notes that a replica has ended, and that its followers continue at another one once they
    /// have read its window.
    pub(in crate::cache) fn note_replaced(&mut self, replica: &Arc<Replica>, now: Instant) {
        self.replaced.0.push((Arc::downgrade(replica), now));
    }

    /// Closes the windows that followers did not read in time.
    pub(in crate::cache) fn close_replaced(&mut self, now: Instant) {
        self.replaced.0.retain(|(replica, ended_at)| {
            let replica = replica.upgrade();
            let is_late = now.saturating_duration_since(*ended_at) > READ_OUT_MAX;
            if let Some(replica) = replica.as_ref().filter(|_| is_late) {
                replica.history().close();
            }
            replica.is_some() && !is_late
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{GroupVersionResource, Scope, query::Query, version::ResourceVersion},
        cache::testing::view,
    };

    #[tokio::test]
    async fn a_window_is_closed_when_its_followers_do_not_read_it_in_time() {
        let now = Instant::now();
        let version = ResourceVersion::parse("5").expect("a version");
        let pods = Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All);
        let replica = view(pods, None, now).replica;
        replica.history().reset(version.clone());
        let mut set = Set::new();
        set.note_replaced(&replica, now);
        set.close_replaced(now + READ_OUT_MAX);
        assert!(replica.history().start_at(&version).is_ok());
        set.close_replaced(now + READ_OUT_MAX + Duration::from_secs(1));
        assert!(replica.history().start_at(&version).is_err());
        assert!(set.replaced.0.is_empty());
    }

    #[tokio::test]
    async fn a_replica_without_followers_is_forgotten_at_once() {
        let now = Instant::now();
        let pods = Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All);
        let mut set = Set::new();
        set.note_replaced(&view(pods, None, now).replica, now);
        set.close_replaced(now);
        assert!(set.replaced.0.is_empty());
    }
}
