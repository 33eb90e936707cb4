//! A bounded table of things that are remembered about queries for a while. Pure.

use tokio::time::Instant;

use crate::{api::query::Query, hash::HashMap};

/// Values that vanish at their time; when the table is full, the one that would vanish first.
#[derive(Debug)]
pub(super) struct Expiring<V> {
    entries: HashMap<Query, (V, Instant)>,
    entries_max: usize,
}

// === impl Expiring ===

impl<V: Copy> Expiring<V> {
    /// Holds at most so many entries.
    pub(super) fn new(entries_max: usize) -> Self {
        Self { entries: HashMap::default(), entries_max }
    }

    /// The value and when it vanishes.
    pub(super) fn get(&self, query: &Query, now: Instant) -> Option<(V, Instant)> {
        self.entries.get(query).filter(|(_, until)| *until > now).copied()
    }

    /// Remembers a value until a time.
    pub(super) fn insert(&mut self, query: Query, value: V, until: Instant) {
        self.entries.insert(query, (value, until));
        if self.entries.len() > self.entries_max {
            let first = self.entries.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(first) = first.map(|(query, _)| query.clone()) {
                self.entries.remove(&first);
            }
        }
    }

    /// The queries something is remembered about.
    pub(super) fn queries(&self, now: Instant) -> impl Iterator<Item = &Query> {
        self.entries.iter().filter(move |(_, (_, until))| *until > now).map(|(query, _)| query)
    }

    /// Forgets a value.
    pub(super) fn remove(&mut self, query: &Query) {
        self.entries.remove(query);
    }

    /// Forgets what has vanished.
    pub(super) fn expire(&mut self, now: Instant) {
        self.entries.retain(|_, (_, until)| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cache::fixture::query;

    #[tokio::test(start_paused = true)]
    async fn values_vanish_at_their_time_and_the_first_when_full() {
        let mut table = Expiring::new(2);
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let (one, two, three) =
            (query(Some("1"), "", ""), query(Some("2"), "", ""), query(Some("3"), "", ""));
        table.insert(one.clone(), 1, at(10));
        table.insert(two.clone(), 2, at(5));
        assert_eq!(table.get(&two, at(4)), Some((2, at(5))));
        assert_eq!(table.get(&two, at(5)), None);
        table.insert(three.clone(), 3, at(20));
        assert_eq!(table.get(&two, now), None);
        assert_eq!(table.get(&one, now), Some((1, at(10))));
        table.expire(at(15));
        assert_eq!(table.entries.len(), 1);
        table.remove(&three);
        assert!(table.entries.is_empty());
    }
}
