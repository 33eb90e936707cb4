//! Memory that lists take while they are read, summed up over all replicas.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The bytes of all lists under way.
#[derive(Debug, Default)]
pub struct Budget(AtomicUsize);

/// The part of one list, given back when it is dropped.
pub(super) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

// === impl Reservation ===

impl Reservation {
    /// A list of which nothing is read yet.
    pub(super) fn of(budget: &Arc<Budget>) -> Self {
        Self { budget: budget.clone(), bytes: 0 }
    }

    /// Takes so many bytes in all, never fewer than before; returns what all lists take together.
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
