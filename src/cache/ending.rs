//! The end of a replica's task.

use std::sync::{Arc, Weak};

use tokio::time::Instant;

use super::{Inner, Replica, reflector::Ended};

/// The end of a replica's task.
pub(super) struct Ending {
    cache: Weak<Inner>,
    replica: Arc<Replica>,
    ended: Ended,
}

// === impl Ending ===

impl Ending {
    pub(super) fn new(cache: Weak<Inner>, replica: Arc<Replica>) -> Self {
        Self { cache, replica, ended: Ended::Panicked }
    }

    pub(super) async fn of(mut self, task: impl Future<Output = Ended>) {
        self.ended = task.await;
    }
}

impl Drop for Ending {
    /// Removes the replica, however the task ends: no reader waits for a replica without a
    /// reflector.
    fn drop(&mut self) {
        let forget = |cache: Arc<Inner>| cache.forget(&self.replica, self.ended);
        let successor = self.cache.upgrade().and_then(forget);
        self.replica.end(Instant::now(), successor);
    }
}
