//! The memory of lists while they are read, summed over all replicas, and what replicas leave free.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::Cache;

/// The bytes of all lists in progress.
#[derive(Debug, Default)]
pub struct Budget(AtomicUsize);

/// The bytes of one list, released when it is dropped.
pub(super) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

// === impl Cache ===

impl Cache {
    /// Returns the limit of kept responses, in bytes.
    pub fn response_limit_bytes(&self) -> usize {
        self.0.settings.borrow().response_limit_bytes
    }

    /// Returns the bytes within the memory limit that replicas do not use.
    pub fn spare_bytes(&self) -> usize {
        let limit = self.0.settings.borrow().memory_limit_bytes;
        let used = self.0.set().members().map(|member| member.replica.bytes()).sum();
        limit.saturating_sub(used)
    }
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
