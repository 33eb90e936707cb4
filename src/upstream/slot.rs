//! A slot for one request on a connection, held until its response's body ended.
//!
//! Invariant: a connection never has more slots in use than its limit, which is the peer's stream
//! limit. No stream then waits unnoticed inside the HTTP library.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::Notify;

/// A value above any limit.
const CLOSED: usize = usize::MAX / 2;

/// The counter of requests in flight on one connection.
pub(super) struct Slots {
    used: AtomicUsize,
    /// The number of slots ever taken: it shows whether a connection was used between two checks.
    taken: AtomicU64,
    /// The waiters for a slot on any connection of the lane.
    freed: Arc<Notify>,
}

/// The slot of one request, freed when it is dropped.
pub(super) struct Slot(Arc<Slots>);

// === impl Slots ===

impl Slots {
    pub(super) fn new(freed: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), taken: AtomicU64::new(0), freed })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// Takes a slot if fewer than `limit` are in use.
    pub(super) fn take(self: &Arc<Self>, limit: usize) -> Option<Slot> {
        let below = |used| (used < limit).then_some(used + 1);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, below).ok()?;
        self.taken.fetch_add(1, Ordering::AcqRel);
        Some(Slot(Arc::clone(self)))
    }

    /// Closes the slots for good, unless one is in use.
    pub(super) fn close_if_unused(&self) -> bool {
        self.used.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

// === impl Slot ===

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}
