//! Notices from others to the reflector of a replica.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::Replica;

/// One channel for each kind of notice.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The apiserver answers others.
    pub(super) retry_now: Notify,
    /// Readers need a newer proof.
    pub(super) lag: Notify,
    /// The definition of the resource changed.
    pub(super) redefinition: Notify,
    /// The state is wrong.
    distrust: Notify,
    /// The age of the last proof is unknown.
    doubt: Notify,
    /// The number of doubts.
    doubts: AtomicU64,
}

// === impl Replica ===

impl Replica {
    /// Tells the reflector that the state is wrong.
    pub(in crate::cache) fn distrust(&self) {
        // The notification is kept until the reflector takes it.
        self.notices.distrust.notify_one();
    }

    /// Withdraws the last proof, whose age is unknown, and tells the reflector.
    pub(in crate::cache) fn doubt(&self) {
        self.notices.doubts.fetch_add(1, Ordering::Relaxed);
        self.publish(|published| published.proven_at = None);
        self.notices.doubt.notify_one();
    }

    /// Returns the number of such notifications.
    pub(in crate::cache) fn doubts(&self) -> u64 {
        self.notices.doubts.load(Ordering::Relaxed)
    }

    /// Waits for this notification.
    pub(in crate::cache) async fn doubted(&self) {
        self.notices.doubt.notified().await;
    }

    /// Waits for the notification that the state is wrong.
    pub(in crate::cache) async fn distrusted(&self) {
        self.notices.distrust.notified().await;
    }
}
