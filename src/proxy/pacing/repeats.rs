//! Counters of repeated reads, found by a keyed hash of the read.
//!
//! Bounded: at most [`REPEATS_MAX`] reads in [`REPEATS_BYTES_MAX`] bytes, however long their selectors
//! are. When the table is full, the reads with the fullest buckets go first.

use std::{
    cmp::Ordering,
    hash::{BuildHasher, Hash},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{self, AtomicU32},
    },
};

use tokio::time::Instant;

use crate::{
    api::{GroupVersionResource, version::ResourceVersion},
    hash::{HashMap, RandomState},
    limit::Bucket,
    metrics::{Limit, Metrics, PollLimit},
    proxy::identify::Caller,
};

/// The counters of all repeated reads, and of the writes between them.
pub(super) struct Table {
    reads: Mutex<HashMap<u64, Arc<Repeats>>>,
    writes: Box<[AtomicU32]>,
    hasher: RandomState,
    metrics: Metrics,
}

/// The counters of one read of one caller.
#[derive(Debug)]
pub(in crate::proxy) struct Repeats {
    upstream: Bucket,
    memory: Bucket,
    last: Mutex<Last>,
}

/// The last response to a read.
#[derive(Debug)]
struct Last {
    /// The fingerprint of the last response from the apiserver.
    content: Option<u32>,
    /// The version of the last response from memory.
    version: Option<ResourceVersion>,
    /// The count of the session's writes when the read last came.
    writes: u32,
}

/// The counters of one read, kept where the read is remembered; they keep nothing alive.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Remembered(Mutex<Weak<Repeats>>);

/// The limit of reads with counters.
const REPEATS_MAX: usize = 8192;

/// Memory of all counters together: a map holds up to twice as many slots as entries.
const REPEATS_BYTES_MAX: usize = 4 << 20;

const _: () = {
    let counters = size_of::<Repeats>() + 2 * size_of::<usize>();
    let slots = 2 * (size_of::<(u64, Arc<Repeats>)>() + 1);
    assert!(REPEATS_MAX * (counters + slots) <= REPEATS_BYTES_MAX, "the named bound holds");
};

/// A full table drops this part of its entries.
const PART_DROPPED: usize = 8;

/// Counters of writes; sessions and types that share one only make a read uncounted.
const WRITES_MAX: usize = 4096;

// === impl Table ===

impl Table {
    pub(super) fn new(metrics: Metrics) -> Self {
        let writes = (0..WRITES_MAX).map(|_| AtomicU32::default()).collect();
        Self { reads: Mutex::default(), writes, hasher: RandomState::default(), metrics }
    }

    /// Returns the keyed hash of a read.
    pub(super) fn key(&self, read: &impl Hash) -> u64 {
        self.hasher.hash_one(read)
    }

    /// Returns the counters of a read, if it has some; `remembered` belongs to this read.
    pub(super) fn find(
        &self,
        key: impl FnOnce() -> u64,
        remembered: &Remembered,
    ) -> Option<Arc<Repeats>> {
        let mut held = lock(&remembered.0);
        if let Some(repeats) = held.upgrade() {
            return Some(repeats);
        }
        let repeats = lock(&self.reads).get(&key())?.clone();
        *held = Arc::downgrade(&repeats);
        Some(repeats)
    }

    /// Returns the counters of a read that its caller was allowed; makes them if there are none.
    pub(super) fn make(&self, key: u64, writes: u32, now: Instant) -> Arc<Repeats> {
        let mut reads = lock(&self.reads);
        if let Some(repeats) = reads.get(&key) {
            return repeats.clone();
        }
        if reads.len() >= REPEATS_MAX {
            make_room(&mut reads);
            self.metrics.limit_reached(Limit::PollKeys);
        }
        let repeats = Arc::new(Repeats::new(writes, now));
        reads.insert(key, repeats.clone());
        repeats
    }

    /// Counts a write.
    pub(super) fn wrote(&self, caller: Caller, resource: &GroupVersionResource) {
        self.slot(caller, resource).fetch_add(1, atomic::Ordering::Relaxed);
    }

    /// Returns the count of a session's writes to a type.
    pub(super) fn writes(&self, caller: Caller, resource: &GroupVersionResource) -> u32 {
        self.slot(caller, resource).load(atomic::Ordering::Relaxed)
    }

    fn slot(&self, caller: Caller, resource: &GroupVersionResource) -> &AtomicU32 {
        let hash = self.hasher.hash_one((caller, &resource.group, &resource.resource));
        &self.writes[hash as usize % WRITES_MAX]
    }
}

/// Drops the entries with the fullest buckets: a full bucket and a new one are the same.
fn make_room(reads: &mut HashMap<u64, Arc<Repeats>>) {
    let count = REPEATS_MAX.div_ceil(PART_DROPPED);
    let mut times: Vec<Instant> = reads.values().map(|repeats| repeats.full_at()).collect();
    let (_, threshold, _) = times.select_nth_unstable(count - 1);
    let threshold = *threshold;
    let mut left = count - reads.values().filter(|held| held.full_at() < threshold).count();
    reads.retain(|_, repeats| match repeats.full_at().cmp(&threshold) {
        Ordering::Less => false,
        Ordering::Equal if left > 0 => {
            left -= 1;
            false
        }
        _ => true,
    });
}

// === impl Repeats ===

impl Repeats {
    fn new(writes: u32, now: Instant) -> Self {
        Self {
            upstream: Bucket::full(now),
            memory: Bucket::full(now),
            last: Mutex::new(Last { content: None, version: None, writes }),
        }
    }

    /// Returns the tokens of a limit.
    pub(super) fn bucket(&self, limit: PollLimit) -> &Bucket {
        match limit {
            PollLimit::Upstream => &self.upstream,
            PollLimit::Memory => &self.memory,
        }
    }

    /// Reports whether the session wrote since the read last came.
    pub(super) fn after_write(&self, writes: u32) -> bool {
        std::mem::replace(&mut lock(&self.last).writes, writes) != writes
    }

    /// Reports whether memory is at another version than when the read last came.
    pub(super) fn moved(&self, version: &ResourceVersion) -> bool {
        let mut last = lock(&self.last);
        let moved = last.version.as_ref() != Some(version);
        if moved {
            last.version = Some(version.clone());
        }
        moved
    }

    /// Reports whether a response differs from the last one; `false` if they cannot be compared.
    pub(super) fn changed(&self, content: Option<u32>) -> bool {
        let before = std::mem::replace(&mut lock(&self.last).content, content);
        matches!((before, content), (Some(before), Some(content)) if before != content)
    }

    fn full_at(&self) -> Instant {
        self.upstream.full_at().max(self.memory.full_at())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Rate;

    fn table() -> Table {
        Table::new(Metrics::new())
    }

    #[test]
    fn a_read_has_counters_only_once_they_were_made() {
        let (table, now) = (table(), Instant::now());
        let remembered = Remembered::default();
        assert!(table.find(|| 1, &remembered).is_none());
        let made = table.make(1, 0, now);
        let found = table.find(|| 1, &remembered).expect("they were made");
        assert!(Arc::ptr_eq(&made, &found));
        let again = table.find(|| panic!("they are remembered"), &remembered);
        assert!(Arc::ptr_eq(&made, &again.expect("they are held")));
        assert!(Arc::ptr_eq(&made, &table.make(1, 0, now)));
        assert!(table.find(|| 2, &Remembered::default()).is_none());
    }

    #[test]
    fn the_table_is_bounded_and_keeps_the_busiest_reads() {
        let (table, now) = (table(), Instant::now());
        let rate = Rate::new(1.0, 2);
        let busy: Vec<_> = (0..8).map(|key| table.make(key, 0, now)).collect();
        for repeats in &busy {
            while repeats.bucket(PollLimit::Upstream).take(&rate, now).is_ok() {}
        }
        for key in 100..20_000 {
            table.make(key, 0, now);
            assert!(lock(&table.reads).len() <= REPEATS_MAX);
        }
        for (key, repeats) in (0_u64..).zip(&busy) {
            let found = table.find(|| key, &Remembered::default()).expect("it is busy");
            assert!(Arc::ptr_eq(repeats, &found), "{key} was dropped");
        }
    }

    #[test]
    fn a_reference_to_counters_does_not_keep_them_alive() {
        let (table, now) = (table(), Instant::now());
        let remembered = Remembered::default();
        table.make(1, 0, now);
        table.find(|| 1, &remembered).expect("they were made");
        for key in 10..10 + REPEATS_MAX as u64 {
            table.make(key, 0, now + Duration::from_secs(1));
        }
        assert!(table.find(|| 1, &remembered).is_none());
    }

    #[test]
    fn a_response_changed_only_if_both_can_be_compared() {
        let repeats = Repeats::new(0, Instant::now());
        let expected = [(Some(1), false), (Some(1), false), (Some(2), true), (None, false)];
        for (content, changed) in expected.into_iter().chain([(Some(3), false)]) {
            assert_eq!(repeats.changed(content), changed, "{content:?}");
        }
    }
}
