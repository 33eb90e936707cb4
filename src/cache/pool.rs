//! Unused page buffers, kept for the next pages.
//!
//! Every change lays out a page again. Allocators put small allocations into the holes that old
//! pages leave, and no page fits there later. Under long churn, this costs half as much memory
//! again. Reused buffers leave no holes. The kept memory is bounded.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use crate::api::form::Form;

/// Free buffers, shared by the snapshots of one replica, and the form of its objects.
#[derive(Debug, Default)]
pub struct Pool {
    form: Form,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
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

impl Pool {
    /// Creates an empty pool for objects of a form.
    pub fn new(form: Form) -> Self {
        Self { form, free: Mutex::default() }
    }

    /// Returns the form of the objects.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns an empty buffer of this capacity.
    pub fn take(&self, length: usize) -> Vec<u8> {
        if length < KEPT_BYTES_MIN {
            return Vec::with_capacity(length);
        }
        let capacity = length.next_multiple_of(GRAIN);
        let mut free = self.free();
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

    /// Returns the memory kept in the pool.
    pub fn bytes(&self) -> usize {
        self.free().bytes
    }

    fn put(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut free = self.free();
        free.bytes += buffer.capacity();
        free.buffers.push(buffer);
        // The oldest buffer has fitted nothing for the longest time.
        while free.bytes > KEPT_BYTES_MAX {
            let oldest = free.buffers.remove(0);
            free.bytes -= oldest.capacity();
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
        let pool = Arc::new(Pool::new(Form::Json));
        let whole = lent(&pool, 70_000);
        let (address, part) = (whole.as_ptr(), whole.slice(10..20));
        drop(whole);
        assert_eq!(pool.bytes(), 0);
        drop(part);
        assert_eq!(pool.bytes(), 70_000_usize.next_multiple_of(GRAIN));
        let again = pool.take(67_000);
        assert_eq!((again.as_ptr(), again.len(), pool.bytes()), (address, 0, 0));
    }

    #[test]
    fn a_much_larger_buffer_is_not_reused() {
        let pool = Arc::new(Pool::new(Form::Json));
        drop(lent(&pool, 100_000));
        assert!(pool.take(60_000).capacity() < 70_000);
        assert!(pool.bytes() >= 100_000);
    }

    #[test]
    fn small_and_surplus_buffers_are_not_kept() {
        let pool = Arc::new(Pool::new(Form::Json));
        drop(lent(&pool, 1_000));
        assert_eq!(pool.bytes(), 0);
        let many: Vec<_> = (0..100).map(|_| lent(&pool, 70_000)).collect();
        drop(many);
        assert!(pool.bytes() <= KEPT_BYTES_MAX && pool.bytes() > KEPT_BYTES_MAX / 2);
    }
}
