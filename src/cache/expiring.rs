//! A bounded table of values with an expiry, by keyed hash. Pure.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::hash::HashMap;

/// Values that expire; a full table drops the one that would expire first.
#[derive(Debug)]
pub(super) struct Expiring<V> {
    entries: HashMap<u64, (V, Instant)>,
    /// The keys by expiry: no operation visits every entry.
    order: BTreeSet<(Instant, u64)>,
    entries_max: usize,
}

// === impl Expiring ===

impl<V: Copy> Expiring<V> {
    /// Creates a table of at most `entries_max` entries.
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: HashMap::default(), order: BTreeSet::new(), entries_max }
    }

    /// Returns the value and its expiry.
    pub(super) fn get(&self, key: u64, now: Instant) -> Option<(V, Instant)> {
        self.entries.get(&key).filter(|(_, until)| *until > now).copied()
    }

    /// Stores a value until a time; returns the value that was dropped to make room.
    pub(super) fn insert(&mut self, key: u64, value: V, until: Instant) -> Option<V> {
        self.remove(key);
        let full = self.entries.len() >= self.entries_max;
        let dropped = if full { self.pop() } else { None };
        self.entries.insert(key, (value, until));
        self.order.insert((until, key));
        dropped
    }

    /// Drops a value.
    pub(super) fn remove(&mut self, key: u64) -> Option<V> {
        let (value, until) = self.entries.remove(&key)?;
        self.order.remove(&(until, key));
        Some(value)
    }

    /// Drops an expired value, if there is one.
    pub(super) fn expire(&mut self, now: Instant) -> Option<V> {
        let (until, _) = self.order.first()?;
        if *until <= now { self.pop() } else { None }
    }

    fn pop(&mut self) -> Option<V> {
        let (_, key) = self.order.pop_first()?;
        self.entries.remove(&key).map(|(value, _)| value)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.entries.len(), self.order.len());
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn values_expire_and_a_full_table_drops_the_first() {
        let mut table = Expiring::new(2);
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(table.insert(1, 'a', at(10)), None);
        assert_eq!(table.insert(2, 'b', at(5)), None);
        assert_eq!(table.get(2, at(4)), Some(('b', at(5))));
        assert_eq!(table.get(2, at(5)), None);
        assert_eq!(table.insert(3, 'c', at(20)), Some('b'));
        assert_eq!(table.get(2, now), None);
        assert_eq!(table.get(1, now), Some(('a', at(10))));
        assert_eq!(table.insert(1, 'd', at(30)), None, "it takes its own place");
        assert_eq!((table.expire(at(15)), table.expire(at(20))), (None, Some('c')));
        assert_eq!((table.expire(at(20)), table.len()), (None, 1));
        assert_eq!((table.remove(1), table.len()), (Some('d'), 0));
    }
}
