//! Memory of all replicas together: lists while they are read, page buffers, and what replicas leave
//! free.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{Cache, pool::Pool};

/// The bytes of all lists in progress, and the page buffers.
#[derive(Debug, Default)]
pub struct Budget {
    lists: AtomicUsize,
    pool: Arc<Pool>,
}

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

    /// Returns the bytes of objects that could be compressed but are not.
    pub fn uncompressed_bytes(&self) -> usize {
        self.0.budget.pool.raw_bytes()
    }

    /// Returns the bytes within the memory limit that replicas do not use.
    pub fn spare_bytes(&self) -> usize {
        let limit = self.0.settings.borrow().memory_limit_bytes;
        let used = self.0.set().members().map(|member| member.replica.bytes()).sum();
        limit.saturating_sub(used)
    }
}

// === impl Budget ===

impl Budget {
    /// Returns the page buffers of all replicas.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
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
        self.budget.lists.fetch_add(more, Ordering::Relaxed) + more
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.lists.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
