//! Snapshots with outstanding pages: they are kept so that later pages show the same version.
//!
//! They share unchanged pages with the current snapshot. Count, bytes and time are bounded. A
//! snapshot that is dropped early costs an upstream request: the apiserver honours the token, too.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Cache,
    page::Page,
    replica::{Replica, SyncState},
    store::Snapshot,
};
use crate::{
    api::{
        GroupResource, continue_token::TokenForm, form::Form, query::Query,
        version::ResourceVersion,
    },
    hash::HashMap,
};

/// A snapshot that may be asked for its next page.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The replica that it came from.
    pub replica: Arc<Replica>,
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// The query whose content it has at its version.
    pub query: Query,
}

/// The kept snapshots, and the form of the apiserver's tokens.
#[derive(Debug, Default)]
pub(super) struct Outstanding(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The oldest first.
    entries: Vec<Entry>,
    forms: HashMap<GroupResource, TokenForm>,
}

#[derive(Debug)]
struct Entry {
    kept: Kept,
    /// The epoch of its replica when the snapshot was kept.
    epoch: u32,
    /// The replica's relists at the time: a later list may show other bytes.
    relists: u64,
    until: Instant,
}

/// The longest time that a snapshot is kept.
const KEPT_MAX: Duration = Duration::from_secs(300);

/// The limit of kept snapshots.
const SNAPSHOTS_MAX: usize = 64;

/// The memory limit of pages that only kept snapshots hold.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// The limit of resources whose form of tokens is known.
const FORMS_MAX: usize = 1024;

// === impl Cache ===

impl Cache {
    /// Keeps a snapshot whose next page may be requested.
    pub fn keep(&self, kept: Kept, now: Instant) {
        let dropped = self.0.outstanding.table().keep(kept, now);
        self.0.counters.outstanding_dropped.add(dropped);
    }

    /// Returns the state at exactly this version, if a snapshot of this form that covers the query
    /// is held.
    pub fn kept(
        &self,
        query: &Query,
        form: Form,
        version: &ResourceVersion,
        now: Instant,
    ) -> Option<Kept> {
        let kept = self.0.outstanding.table().get(query, form, version, now);
        let kept = kept.or_else(|| {
            let replica = self.0.set().best(query, form)?.clone();
            let published = replica.published();
            let snapshot = published.snapshot.clone()?;
            let is_current = published.state == SyncState::Synced && snapshot.version() == version;
            let query = replica.query().clone();
            is_current.then_some(Kept { replica, snapshot, query })
        })?;
        kept.replica.usage().used_at = now;
        Some(kept)
    }

    /// Returns the form of the apiserver's tokens for a resource, once one was seen.
    pub fn token_form(&self, resource: &GroupResource) -> Option<TokenForm> {
        self.0.outstanding.table().forms.get(resource).copied()
    }

    /// Notes the form of a first page's token.
    pub fn learn_token_form(&self, resource: &GroupResource, form: TokenForm) {
        let forms = &mut self.0.outstanding.table().forms;
        if forms.len() >= FORMS_MAX && !forms.contains_key(resource) {
            forms.clear();
        }
        forms.insert(resource.clone(), form);
    }
}

// === impl Outstanding ===

impl Outstanding {
    /// Drops what has expired or no longer fits; returns the number of those that did not fit.
    pub(super) fn tidy(&self, now: Instant) -> u64 {
        self.table().tidy(now)
    }

    /// Forgets everything: another release of the apiserver may answer.
    pub(super) fn forget(&self) {
        *self.table() = Table::default();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Table ===

impl Table {
    fn keep(&mut self, kept: Kept, now: Instant) -> u64 {
        let (form, version) = (kept.snapshot.form(), kept.snapshot.version());
        if self.get(&kept.query, form, version, now).is_some() {
            return 0;
        }
        let epoch = kept.replica.published().epoch;
        let relists = kept.replica.usage().relists;
        self.entries.push(Entry { kept, epoch, relists, until: now + KEPT_MAX });
        self.tidy(now)
    }

    fn get(
        &self,
        query: &Query,
        form: Form,
        version: &ResourceVersion,
        now: Instant,
    ) -> Option<Kept> {
        let is_wanted = |entry: &&Entry| {
            entry.kept.snapshot.version() == version
                && entry.kept.snapshot.form() == form
                && entry.kept.query.covers(query)
                && entry.is_valid(now)
        };
        self.entries.iter().find(is_wanted).map(|entry| entry.kept.clone())
    }

    fn tidy(&mut self, now: Instant) -> u64 {
        self.entries.retain(|entry| entry.is_valid(now));
        let mut dropped = 0;
        while self.entries.len() > SNAPSHOTS_MAX || self.bytes() > BYTES_MAX {
            self.entries.remove(0);
            dropped += 1;
        }
        dropped
    }

    /// Returns the memory of the pages that no current snapshot holds.
    fn bytes(&self) -> usize {
        let mut known: HashSet<*const Page> = HashSet::new();
        for entry in &self.entries {
            if let Some(current) = &entry.kept.replica.published().snapshot {
                known.extend(current.pages().iter().map(Arc::as_ptr));
            }
        }
        let kept = self.entries.iter().flat_map(|entry| entry.kept.snapshot.pages().iter());
        kept.filter(|page| known.insert(Arc::as_ptr(page))).map(|page| page.bytes()).sum()
    }
}

// === impl Entry ===

impl Entry {
    /// Reports whether the replica still stands for the bytes of its earlier snapshots.
    fn is_valid(&self, now: Instant) -> bool {
        now < self.until
            && self.kept.replica.published().state == SyncState::Synced
            && self.kept.replica.published().epoch == self.epoch
            && self.kept.replica.usage().relists == self.relists
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{GroupVersionResource, Scope},
        cache::testing::{self, pods},
    };

    fn all() -> Query {
        Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All)
    }

    fn version(number: u64) -> ResourceVersion {
        ResourceVersion::parse(&number.to_string()).expect("a version")
    }

    /// A replica that was published, and a snapshot of it.
    fn kept(number: u64, now: Instant) -> Kept {
        let snapshot = pods(number, &[("a", "web", "u", 1, "web")]);
        let replica = testing::view(all(), None, now).replica;
        replica.publish(|published| {
            published.state = SyncState::Synced;
            published.snapshot = Some(snapshot.clone());
        });
        Kept { replica, snapshot, query: all() }
    }

    #[test]
    fn a_snapshot_is_kept_for_five_minutes() {
        let now = Instant::now();
        let mut table = Table::default();
        table.keep(kept(7, now), now);
        let later = |seconds| now + Duration::from_secs(seconds);
        assert!(table.get(&all(), Form::Json, &version(7), later(299)).is_some());
        assert!(table.get(&all(), Form::Json, &version(8), now).is_none());
        let nodes = Query::all(GroupVersionResource::new("", "v1", "nodes"), Scope::All);
        assert!(table.get(&nodes, Form::Json, &version(7), now).is_none());
        // Another page of the same list does not prolong the time.
        let again = table.get(&all(), Form::Json, &version(7), later(200)).expect("kept");
        table.keep(again, later(200));
        assert_eq!(table.entries.len(), 1);
        assert!(table.get(&all(), Form::Json, &version(7), later(300)).is_none());
        table.tidy(later(300));
        assert!(table.entries.is_empty());
    }

    #[test]
    fn a_replica_that_lists_again_or_fails_ends_its_snapshots() {
        let now = Instant::now();
        let mut table = Table::default();
        let (one, other) = (kept(7, now), kept(8, now));
        table.keep(one.clone(), now);
        table.keep(other.clone(), now);
        let third = kept(9, now);
        table.keep(third.clone(), now);
        one.replica.usage().relists += 1;
        other.replica.publish(|published| published.state = SyncState::Failing);
        // The state was found to be wrong, and the replica is synced again.
        third.replica.publish(|published| published.epoch += 1);
        for number in [7, 8, 9] {
            assert!(table.get(&all(), Form::Json, &version(number), now).is_none(), "{number}");
        }
    }

    #[test]
    fn count_and_bytes_are_bounded() {
        let now = Instant::now();
        let mut table = Table::default();
        let mut dropped = 0;
        for number in 1..=SNAPSHOTS_MAX as u64 + 5 {
            dropped += table.keep(kept(number, now), now);
        }
        assert_eq!((table.entries.len(), dropped), (SNAPSHOTS_MAX, 5));
        assert!(table.get(&all(), Form::Json, &version(5), now).is_none());
        assert!(table.get(&all(), Form::Json, &version(6), now).is_some());
        // Pages of the current snapshot cost nothing; those that it has left do.
        assert_eq!(table.bytes(), 0);
        let entry = &table.entries[0];
        let newer = pods(1000, &[("a", "web", "u", 1000, "web")]);
        entry.kept.replica.publish(|published| published.snapshot = Some(newer));
        assert!(table.bytes() > 0);
    }
}
