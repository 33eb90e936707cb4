//! Page buffers: unused ones, kept for the next pages, and the bytes of those that could be
//! compressed.
//!
//! Every change lays out a page again. Allocators put small allocations into the holes that old
//! pages leave, and no page fits there later. Under long churn, this costs half as much memory
//! again. Reused buffers leave no holes. The kept memory is bounded.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;

/// The page buffers of all replicas.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Free>,
    /// The bytes of pages that could be compressed but are not.
    raw: AtomicUsize,
    raw_limit: AtomicUsize,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// A buffer was taken or came back since the last round.
    is_used: bool,
}

/// A buffer in use; it returns when no part of it is referenced.
struct Lent {
    buffer: Vec<u8>,
    pool: Arc<Pool>,
}

/// The smallest buffer that is kept.
const KEPT_BYTES_MIN: usize = 16 * 1024;

/// The granularity of capacities, which lets buffers of similar pages fit each other.
const GRAIN: usize = 64;

/// The largest excess of a kept buffer over the requested size.
const SLACK_BYTES_MAX: usize = 4 * 1024;

/// The limit of kept bytes.
const KEPT_BYTES_MAX: usize = 1024 * 1024;

// === impl Pool ===

impl Default for Pool {
    /// Creates an empty pool, without a limit of uncompressed bytes.
    fn default() -> Self {
        let raw_limit = AtomicUsize::new(usize::MAX);
        Self { free: Mutex::default(), raw: AtomicUsize::default(), raw_limit }
    }
}

impl Pool {
    /// Returns the bytes of pages that could be compressed but are not.
    pub fn raw_bytes(&self) -> usize {
        self.raw.load(Ordering::Relaxed)
    }

    /// Limits the bytes of such pages.
    pub fn limit_raw(&self, bytes: usize) {
        self.raw_limit.store(bytes, Ordering::Relaxed);
    }

    /// Reports whether so many more bytes can stay uncompressed.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.raw_bytes().saturating_add(bytes) <= self.raw_limit.load(Ordering::Relaxed)
    }

    pub(super) fn add_raw(&self, bytes: usize) {
        self.raw.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove_raw(&self, bytes: usize) {
        self.raw.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns an empty buffer of this capacity.
    pub fn take(&self, length: usize) -> Vec<u8> {
        if length < KEPT_BYTES_MIN {
            return Vec::with_capacity(length);
        }
        let capacity = length.next_multiple_of(GRAIN);
        let mut free = self.free();
        free.is_used = true;
        let fits =
            |buffer: &Vec<u8>| (capacity..=capacity + SLACK_BYTES_MAX).contains(&buffer.capacity());
        let Some(index) = free.buffers.iter().position(fits) else {
            drop(free);
            return Vec::with_capacity(capacity);
        };
        let buffer = free.buffers.remove(index);
        free.bytes -= buffer.capacity();
        buffer
    }

    /// Makes a filled buffer shareable; it returns to the pool when it is no longer shared.
    pub fn lend(self: &Arc<Self>, buffer: Vec<u8>) -> Bytes {
        if buffer.capacity() < KEPT_BYTES_MIN {
            return Bytes::from(buffer);
        }
        Bytes::from_owner(Lent { buffer, pool: self.clone() })
    }

    /// Takes back a buffer.
    pub fn put(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() < KEPT_BYTES_MIN {
            return;
        }
        buffer.clear();
        let mut free = self.free();
        free.is_used = true;
        free.bytes += buffer.capacity();
        free.buffers.push(buffer);
        // The oldest buffer has fitted nothing for the longest time.
        while free.bytes > KEPT_BYTES_MAX {
            let oldest = free.buffers.remove(0);
            free.bytes -= oldest.capacity();
        }
    }

    /// Begins a round. Drops the unused buffers if none was needed in the last one.
    pub fn rest(&self) {
        let mut free = self.free();
        if !mem::take(&mut free.is_used) {
            *free = Free::default();
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Lent ===

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.pool.put(mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(pool: &Arc<Pool>, length: usize) -> Bytes {
        let mut buffer = pool.take(length);
        buffer.resize(length, 1);
        pool.lend(buffer)
    }

    #[test]
    fn a_buffer_returns_when_no_part_of_it_is_referenced() {
        let pool = Arc::<Pool>::default();
        let whole = lent(&pool, 70_000);
        let (address, part) = (whole.as_ptr(), whole.slice(10..20));
        drop(whole);
        assert_eq!(pool.free().bytes, 0);
        drop(part);
        assert_eq!(pool.free().bytes, 70_000_usize.next_multiple_of(GRAIN));
        let again = pool.take(67_000);
        assert_eq!((again.as_ptr(), again.len(), pool.free().bytes), (address, 0, 0));
    }

    #[test]
    fn unused_buffers_are_kept_only_while_pages_are_laid_out() {
        let pool = Arc::<Pool>::default();
        drop(lent(&pool, 70_000));
        pool.rest();
        assert!(pool.free().bytes > 0, "one was used in this round");
        pool.rest();
        assert_eq!(pool.free().bytes, 0);
    }

    #[test]
    fn a_much_larger_buffer_is_not_reused() {
        let pool = Arc::<Pool>::default();
        drop(lent(&pool, 100_000));
        assert!(pool.take(60_000).capacity() < 70_000);
        assert!(pool.free().bytes >= 100_000);
    }

    #[test]
    fn small_and_surplus_buffers_are_not_kept() {
        let pool = Arc::<Pool>::default();
        drop(lent(&pool, 1_000));
        assert_eq!(pool.free().bytes, 0);
        let many: Vec<_> = (0..100).map(|_| lent(&pool, 70_000)).collect();
        drop(many);
        assert!(pool.free().bytes <= KEPT_BYTES_MAX && pool.free().bytes > KEPT_BYTES_MAX / 2);
    }
}
