//! Unsafe reads of queries without a replica: repetitions of one, and storms of many different
//! ones. Pure.
//!
//! Queries are stored only as keyed hashes: at most [`QUERIES_MAX`] in [`DEMAND_BYTES_MAX`] bytes,
//! however long their selectors are. The time to count a read does not depend on the number of
//! counted queries.

use std::{
    hash::{BuildHasher, Hash},
    time::Duration,
};

use tokio::time::Instant;

use super::expiring::Expiring;
use crate::{
    api::{Scope, form::Form, query::Query, selector::NAME_PATH},
    hash::{HashMap, RandomState},
};

/// The reads within the window.
#[derive(Debug)]
pub(super) struct DemandCounter {
    queries: Expiring<Counted>,
    /// The queries of one resource and form: those of single objects, and all others.
    groups: HashMap<u64, Group>,
    hasher: RandomState,
    dropped: u64,
}

/// The reads of one query.
#[derive(Clone, Copy, Debug)]
struct Counted {
    reads: u32,
    group: u64,
    scope: u64,
    selection: u64,
}

/// Sums over the queries of one group.
#[derive(Debug, Default)]
struct Group {
    queries: usize,
    scopes: Tally,
    selections: Tally,
}

/// The counts by hash.
#[derive(Debug, Default)]
struct Tally {
    counts: HashMap<u64, usize>,
    /// The hashes that are counted more than once.
    crowded: usize,
}

/// The limit of counted queries.
const QUERIES_MAX: usize = 4096;

/// The memory of all counts together. Each query has an entry and a position in the order of
/// expiry. It has at most one entry in each of three further tables.
const DEMAND_BYTES_MAX: usize = 4 << 20;

const _: () = {
    let entry = size_of::<(u64, (Counted, Instant))>() + 2 * size_of::<(Instant, u64)>();
    let group = size_of::<(u64, Group)>() + 2 * 4 * size_of::<(u64, usize)>();
    // A table has up to twice as many slots as entries.
    assert!(QUERIES_MAX * 2 * (entry + group) <= DEMAND_BYTES_MAX, "the named bound holds");
};

// === impl DemandCounter ===

impl DemandCounter {
    /// Creates an empty counter.
    pub(super) fn new() -> Self {
        Self {
            queries: Expiring::new(QUERIES_MAX),
            groups: HashMap::default(),
            hasher: RandomState::default(),
            dropped: 0,
        }
    }

    /// Counts a read; returns the number of reads of its query within the window.
    pub(super) fn count(
        &mut self,
        query: &Query,
        form: Form,
        now: Instant,
        window: Duration,
    ) -> u32 {
        self.expire(now);
        let key = self.hash(&(query, form));
        if let Some((counted, until)) = self.queries.get(key, now) {
            let reads = counted.reads.saturating_add(1);
            self.queries.insert(key, Counted { reads, ..counted }, until);
            return reads;
        }
        let counted = Counted {
            reads: 1,
            group: self.group(query, form),
            scope: self.hash(&query.scope),
            selection: self.hash(&(&query.labels, &query.fields)),
        };
        self.groups.entry(counted.group).or_default().enter(&counted);
        if let Some(dropped) = self.queries.insert(key, counted, now + window) {
            self.leave(&dropped);
            self.dropped += 1;
        }
        1
    }

    /// Forgets a query of a form.
    pub(super) fn forget(&mut self, query: &Query, form: Form) {
        if let Some(counted) = self.queries.remove(self.hash(&(query, form))) {
            self.leave(&counted);
        }
    }

    /// Removes reads that have left the window.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(counted) = self.queries.expire(now) {
            self.leave(&counted);
        }
    }

    /// Returns the wider queries, best first, that cover this one and could replace the queries of
    /// its group. There are none unless the group has more than `queries_max` queries.
    pub(super) fn wider(&self, query: &Query, form: Form, queries_max: usize) -> Vec<Query> {
        let group = self.groups.get(&self.group(query, form));
        let Some(group) = group.filter(|group| group.queries > queries_max) else {
            return Vec::new();
        };
        let everywhere = || Query::all(query.resource.clone(), Scope::All);
        if group.scopes.crowded == 0 {
            let same = group.selections.counts.len() == 1;
            let wider = || Query { scope: Scope::All, ..query.clone() };
            return vec![if same { wider() } else { everywhere() }];
        }
        let of = |scope: &Scope| group.scopes.counts.get(&self.hash(scope)).copied().unwrap_or(0);
        let (own, all) = (of(&query.scope), of(&Scope::All));
        let own = (own, Query::all(query.resource.clone(), query.scope.clone()));
        let mut wider = vec![(all, everywhere())];
        if query.scope != Scope::All {
            wider.push(own);
        }
        wider.retain(|(count, _)| *count > 1);
        wider.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        wider.into_iter().map(|(_, query)| query).collect()
    }

    /// Returns the number of queries dropped since the last call because the table was full.
    pub(super) fn take_dropped(&mut self) -> u64 {
        std::mem::take(&mut self.dropped)
    }

    fn leave(&mut self, counted: &Counted) {
        if let Some(group) = self.groups.get_mut(&counted.group) {
            group.leave(counted);
            if group.queries == 0 {
                self.groups.remove(&counted.group);
            }
        }
    }

    fn group(&self, query: &Query, form: Form) -> u64 {
        self.hash(&(&query.resource, form, is_single(query)))
    }

    fn hash(&self, value: &impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }
}

/// Reports whether a query is of a single object.
pub(super) fn is_single(query: &Query) -> bool {
    query.fields.pinned(NAME_PATH).is_some()
}

// === impl Group and Tally ===

impl Group {
    fn enter(&mut self, counted: &Counted) {
        self.queries += 1;
        self.scopes.add(counted.scope);
        self.selections.add(counted.selection);
    }

    fn leave(&mut self, counted: &Counted) {
        self.queries -= 1;
        self.scopes.remove(counted.scope);
        self.selections.remove(counted.selection);
    }
}

impl Tally {
    fn add(&mut self, hash: u64) {
        let count = self.counts.entry(hash).or_default();
        *count += 1;
        self.crowded += usize::from(*count == 2);
    }

    fn remove(&mut self, hash: u64) {
        let Some(count) = self.counts.get_mut(&hash) else { return };
        *count -= 1;
        self.crowded -= usize::from(*count == 1);
        if *count == 0 {
            self.counts.remove(&hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::fixture::query;

    const WINDOW: Duration = Duration::from_secs(60);

    fn texts(queries: &[Query]) -> Vec<String> {
        let text = |query: &Query| {
            let namespace = query.scope.namespace().unwrap_or("*");
            format!("{namespace}:{}", query.labels)
        };
        queries.iter().map(text).collect()
    }

    #[test]
    fn wider_queries_cover_the_crowded_scope_or_everything() {
        let now = Instant::now();
        let mut demand = DemandCounter::new();
        for label in ["a", "b", "c"] {
            demand.count(&query(Some("shop"), label, ""), Form::Json, now, WINDOW);
        }
        let last = query(Some("shop"), "c", "");
        assert_eq!(texts(&demand.wider(&last, Form::Json, 3)), [""; 0]);
        assert_eq!(texts(&demand.wider(&last, Form::Json, 2)), ["shop:"]);
        // In another scope it would not cover the query.
        assert_eq!(texts(&demand.wider(&query(Some("other"), "c", ""), Form::Json, 2)), [""; 0]);
        for label in ["a", "b", "c", "d"] {
            demand.count(&query(None, label, ""), Form::Json, now, WINDOW);
        }
        assert_eq!(texts(&demand.wider(&last, Form::Json, 2)), ["*:", "shop:"]);
        let mut spread = DemandCounter::new();
        for namespace in ["n1", "n2", "n3"] {
            spread.count(&query(Some(namespace), "app", ""), Form::Json, now, WINDOW);
        }
        assert_eq!(texts(&spread.wider(&query(Some("n3"), "app", ""), Form::Json, 2)), ["*:app"]);
        spread.count(&query(Some("n4"), "other", ""), Form::Json, now, WINDOW);
        assert_eq!(texts(&spread.wider(&query(Some("n3"), "app", ""), Form::Json, 2)), ["*:"]);
    }

    #[test]
    fn removed_queries_leave_the_sums() {
        let now = Instant::now();
        let mut demand = DemandCounter::new();
        let read = |number: usize| query(Some("shop"), &format!("l{number}"), "");
        for number in 0..3 * QUERIES_MAX {
            demand.count(
                &read(number),
                Form::Json,
                now + Duration::from_micros(number as u64),
                WINDOW,
            );
            assert!(demand.queries.len() <= QUERIES_MAX);
        }
        assert_eq!(demand.take_dropped(), 2 * QUERIES_MAX as u64);
        let sums = |demand: &DemandCounter| {
            demand
                .groups
                .values()
                .map(|group| (group.queries, group.selections.counts.len()))
                .next()
        };
        assert_eq!(sums(&demand), Some((QUERIES_MAX, QUERIES_MAX)));
        demand.forget(&read(3 * QUERIES_MAX - 1), Form::Json);
        assert_eq!(sums(&demand), Some((QUERIES_MAX - 1, QUERIES_MAX - 1)));
        demand.expire(now + WINDOW + Duration::from_secs(1));
        assert_eq!((sums(&demand), demand.queries.len()), (None, 0));
        assert_eq!(demand.count(&read(1), Form::Json, now + 2 * WINDOW, WINDOW), 1);
        assert_eq!(demand.count(&read(1), Form::Json, now + 2 * WINDOW, WINDOW), 2);
    }

    /// Checks that a read among many queries takes as long as one among few: it holds the lock of
    /// the set.
    #[test]
    fn the_time_to_count_a_read_is_independent_of_their_number() {
        let now = Instant::now();
        let took = |counted: usize| {
            let mut demand = DemandCounter::new();
            let read = |number: usize| query(Some("shop"), &format!("l{number}"), "");
            for number in 0..counted {
                demand.count(&read(number), Form::Json, now, WINDOW);
            }
            let queries: Vec<_> = (0..500).map(|number| read(counted + number)).collect();
            let started = std::time::Instant::now();
            for query in &queries {
                demand.count(query, Form::Json, now, WINDOW);
                demand.wider(query, Form::Json, 4);
            }
            started.elapsed()
        };
        // The minimum of some runs excludes other load on the machine.
        let best = |counted| (0..5).map(|_| took(counted)).min().expect("some");
        let (few, many) = (best(1), best(QUERIES_MAX));
        assert!(many < 8 * few, "{many:?} with many counted, {few:?} with few");
    }
}
