//! The memory of lists while they are read, summed over all replicas.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The bytes of all lists in progress.
#[derive(Debug, Default)]
pub struct Budget(AtomicUsize);

/// The bytes of one list, released when it is dropped.
pub(super) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

// === impl Reservation ===

impl Reservation {
    /// Creates the reservation of a list before its first byte.
    pub(super) fn of(budget: &Arc<Budget>) -> Self {
        Self { budget: budget.clone(), bytes: 0 }
    }

    /// Raises the list's bytes to a total, never lowers it; returns the sum of all lists.
    pub(super) fn grow_to(&mut self, bytes: usize) -> usize {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes += more;
        self.budget.0.fetch_add(more, Ordering::Relaxed) + more
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
