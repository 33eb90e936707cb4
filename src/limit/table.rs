//! Buckets by what they are for: bounded, and found without a search where they were found before.

use std::{
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::time::Instant;

use super::Bucket;
use crate::hash::HashMap;

/// A bucket for each key, made when it is first asked for.
pub struct Limiter<K> {
    buckets: Mutex<HashMap<K, Arc<Bucket>>>,
    keys_max: usize,
}

/// The bucket of one key, kept where it is asked for again; it keeps nothing alive.
#[derive(Debug, Default)]
pub struct Remembered(Mutex<Weak<Bucket>>);

/// Whether there was room for a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// There was.
    Enough,
    /// Others had to be forgotten, those nearest to full first.
    Made,
}

/// When there is no room, this part of it is made at once.
const PART_FORGOTTEN: usize = 8;

// === impl Limiter ===

impl<K: Eq + Hash + Clone> Limiter<K> {
    /// No buckets yet, and never more than so many.
    pub fn new(keys_max: usize) -> Self {
        Self { buckets: Mutex::default(), keys_max: keys_max.max(1) }
    }

    /// The bucket of a key; `remembered` is of this very key.
    pub fn bucket(
        &self,
        key: impl FnOnce() -> K,
        remembered: &Remembered,
        now: Instant,
    ) -> (Arc<Bucket>, Room) {
        let mut held = lock(&remembered.0);
        if let Some(bucket) = held.upgrade() {
            return (bucket, Room::Enough);
        }
        let (bucket, room) = self.search(key(), now);
        *held = Arc::downgrade(&bucket);
        (bucket, room)
    }

    fn search(&self, key: K, now: Instant) -> (Arc<Bucket>, Room) {
        let mut buckets = lock(&self.buckets);
        if let Some(bucket) = buckets.get(&key) {
            return (bucket.clone(), Room::Enough);
        }
        let mut room = Room::Enough;
        if buckets.len() >= self.keys_max {
            forget(&mut buckets, self.keys_max.div_ceil(PART_FORGOTTEN));
            room = Room::Made;
        }
        let bucket = Arc::new(Bucket::full(now));
        buckets.insert(key, bucket.clone());
        (bucket, room)
    }
}

/// Drops so many buckets: a full one says nothing that a new one would not say.
fn forget<K: Eq + Hash + Clone>(buckets: &mut HashMap<K, Arc<Bucket>>, count: usize) {
    let mut times: Vec<Instant> = buckets.values().map(|bucket| bucket.full_at()).collect();
    let last = count.min(times.len()).saturating_sub(1);
    let (_, threshold, _) = times.select_nth_unstable(last);
    let threshold = *threshold;
    let mut left = count;
    buckets.retain(|_, bucket| {
        let goes = left > 0 && bucket.full_at() <= threshold;
        left -= usize::from(goes);
        !goes
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::limit::Rate;

    fn ask(limiter: &Limiter<u32>, key: u32, now: Instant) -> (Arc<Bucket>, Room) {
        limiter.bucket(|| key, &Remembered::default(), now)
    }

    #[test]
    fn a_key_has_one_bucket_wherever_it_is_asked_for() {
        let (limiter, now) = (Limiter::new(8), Instant::now());
        let remembered = Remembered::default();
        let (first, _) = limiter.bucket(|| 1, &remembered, now);
        let again = limiter.bucket(|| panic!("it is remembered"), &remembered, now).0;
        assert!(Arc::ptr_eq(&first, &again));
        assert!(Arc::ptr_eq(&first, &ask(&limiter, 1, now).0));
        assert!(!Arc::ptr_eq(&first, &ask(&limiter, 2, now).0));
    }

    #[test]
    fn however_many_keys_come_so_many_are_held_and_the_busiest_stay() {
        const KEYS_MAX: usize = 64;
        let (limiter, now) = (Limiter::new(KEYS_MAX), Instant::now());
        let rate = Rate::new(1.0, 2);
        let busy: Vec<_> = (0..8).map(|key| ask(&limiter, key, now).0).collect();
        for bucket in &busy {
            while bucket.take(&rate, now).is_ok() {}
        }
        let mut made = 0;
        for key in 100..100_000 {
            made += usize::from(ask(&limiter, key, now).1 == Room::Made);
            assert!(lock(&limiter.buckets).len() <= KEYS_MAX);
        }
        assert!(made > 0);
        for (key, bucket) in busy.iter().enumerate() {
            let key = u32::try_from(key).expect("a small number");
            let (found, _) = ask(&limiter, key, now);
            assert!(Arc::ptr_eq(bucket, &found), "{key} was forgotten");
            assert!(found.take(&rate, now).is_err());
        }
    }

    #[test]
    fn a_bucket_that_was_forgotten_is_made_anew_where_it_was_remembered() {
        let (limiter, now) = (Limiter::new(1), Instant::now());
        let remembered = Remembered::default();
        let first = Arc::downgrade(&limiter.bucket(|| 1, &remembered, now).0);
        ask(&limiter, 2, now + Duration::from_secs(1));
        assert!(first.upgrade().is_none(), "nothing keeps it");
        let (_, room) = limiter.bucket(|| 1, &remembered, now);
        assert_eq!(room, Room::Made);
    }
}
