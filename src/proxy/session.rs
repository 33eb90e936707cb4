//! What one session has seen and written: floors, expectations and barriers per group-resource.
//!
//! Pure state; time is passed in. [`Session::judge`] says whether a snapshot may be shown to the
//! session without going back in time or hiding its own writes (S-WRITE-21, S-WRITE-22, S-CONS-32).
//! Every bound here errs towards the apiserver: what does not fit is collapsed into something stricter.

mod record;

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use crate::{
    api::{GroupResource, ObjectKey, Scope, query::Query, version::ResourceVersion},
    cache::store::Snapshot,
    hash::HashMap,
};
use record::Record;

/// Everything remembered of one session (S-CONS-45).
#[derive(Clone, Debug, Default)]
pub struct Session {
    records: HashMap<GroupResource, Record>,
    /// Something was seen or written, beyond what was inherited.
    lived: bool,
    /// More group-resources than fit: those without a record are barred.
    overflowed: bool,
    /// Something may have been seen of any resource before the session began.
    past_unknown: bool,
}

/// Whether a snapshot may answer a read of this session, from the mildest to the strictest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing shown or written is missing from it.
    Satisfied,
    /// It must first reach this version.
    Behind(ResourceVersion, Imminence),
    /// An object that was deleted must first leave it.
    Leaving,
    /// Something happened whose version is unknown; only the apiserver can answer.
    Barred,
}

/// Whether waiting a little for a version is likely to help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Imminence {
    /// It was seen long enough ago for its event to have arrived: none is to be expected, and only
    /// a bookmark will tell.
    Unlikely,
    /// Its event should be on the way.
    Likely,
}

/// What a forwarded read must not be older than.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Nothing was shown or written yet.
    Unknown,
    /// At least this version, which the apiserver's caches are sure to reach.
    At(ResourceVersion),
    /// It must be consistent: something happened whose version is unknown, or which a cache may not
    /// reach for a long time.
    Consistent,
}

/// Where a version was seen.
///
/// A consistent read of an old release has the revision of the whole storage; the cache of a quiet
/// resource reaches it only with its next event or bookmark, and answers 504 until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// In a consistent list, or one of ours.
    Storage,
    /// In an answer of the apiserver's cache, or in an object.
    Cache,
}

/// Labels of an object as a write's answer or a GET showed them; `None` when they were not seen.
pub type KnownLabels = Option<Arc<BTreeMap<String, String>>>;

/// What the session knows of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It was shown or written at this version.
    AtLeast(ResourceVersion, KnownLabels),
    /// It was deleted; the version of the deletion is known where the answer was an object.
    Gone {
        /// The deleted object's uid, when the answer told it.
        uid: Option<Arc<str>>,
        /// The version of the deletion, when the answer told it.
        version: Option<ResourceVersion>,
    },
    /// A create was refused because it exists.
    Exists,
    /// A write's outcome is unknown, or it was refused because our view was stale.
    Uncertain,
}

/// Group-resources remembered per session; those an apiserver serves are far fewer.
const RECORDS_MAX: usize = 2048;

// === impl Session ===

impl Session {
    /// The session of clients that another process answered before.
    ///
    /// What a replica holds is newer than all they saw, for its first list is consistent and came after
    /// it. A cache of the apiserver's need not be: reads that are forwarded stay consistent until
    /// something newer was shown.
    pub fn of_unknown_past() -> Self {
        Self { past_unknown: true, ..Self::default() }
    }

    /// Whether `snapshot`, taken from a replica that covers `query`, may answer it at the level
    /// `session` (S-CONS-32).
    pub fn judge(&self, query: &Query, snapshot: &Snapshot, now: Instant) -> Verdict {
        match self.record(query) {
            Some(record) => record.judge(query, snapshot, now),
            None if self.overflowed => Verdict::Barred,
            None => Verdict::Satisfied,
        }
    }

    /// Like [`Session::judge`], for reads that only must not go back: resourceVersion=0 or N, and
    /// the level `any`.
    pub fn judge_monotonic(&self, query: &Query, snapshot: &Snapshot, now: Instant) -> Verdict {
        self.record(query).map_or(Verdict::Satisfied, |record| record.judge_shown(snapshot, now))
    }

    /// Whether a consistent read sent no earlier than `since` proves the snapshot (S-CONS-31).
    pub fn is_proven_since(&self, query: &Query, snapshot: &Snapshot, since: Instant) -> bool {
        self.record(query).is_some_and(|record| record.is_proven_since(snapshot, since))
    }

    /// What a forwarded read of `query` must not be older than.
    pub fn floor(&self, query: &Query) -> Floor {
        match self.record(query) {
            Some(record) if self.past_unknown && !record.has_consistent => Floor::Consistent,
            Some(record) => record.floor(query),
            None if self.overflowed || self.past_unknown => Floor::Consistent,
            None => Floor::Unknown,
        }
    }

    /// Whether the next read must go upstream, because the last answer was 410 or 504.
    pub fn must_go_upstream(&self, resource: &GroupResource) -> bool {
        self.records.get(resource).is_some_and(|record| record.upstream_next)
    }

    /// A read of the resource was answered upstream as a consistent read.
    pub fn went_upstream(&mut self, resource: &GroupResource) {
        if let Some(record) = self.records.get_mut(resource) {
            record.upstream_next = false;
        }
    }

    /// The session was told 410 or 504: the version it holds is of no use (clients.md rule 9).
    pub fn expired(&mut self, resource: &GroupResource) {
        if let Some(record) = self.record_mut(resource) {
            record.upstream_next = true;
        }
    }

    /// A collection was shown at this version.
    pub fn shown(
        &mut self,
        resource: &GroupResource,
        version: &ResourceVersion,
        source: Source,
        now: Instant,
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.show(version, source, now);
        }
    }

    /// Something was learned of one object at `now`; it replaces what was known of it.
    pub fn expect(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        expectation: Expectation,
        now: Instant,
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.expect(key, expectation, now);
        }
    }

    /// A consistent GET sent at `sent_at` showed one object, or that there is none. It replaces
    /// what was known before it was sent, and nothing that came to be known since.
    pub fn observe(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        expectation: Expectation,
        sent_at: Instant,
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.observe(key, expectation, sent_at);
        }
    }

    /// A read that was not consistent showed one object; it only ever adds to what is known.
    pub fn raise(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        expectation: Expectation,
        now: Instant,
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.raise(key, expectation, now);
        }
    }

    /// Whether the session is known to have been shown this version of an object already.
    pub fn has_seen(
        &self,
        resource: &GroupResource,
        key: &ObjectKey,
        version: &ResourceVersion,
    ) -> bool {
        self.records.get(resource).is_some_and(|record| record.has_seen(key, version))
    }

    /// Objects of a whole scope may have changed by `now` in ways no answer told.
    pub fn swept(&mut self, resource: &GroupResource, scope: Scope, now: Instant) {
        if let Some(record) = self.record_mut(resource) {
            record.sweep(scope, now);
        }
    }

    /// A watch that cannot be read along opened: until it ends, nothing is known of what it shows.
    pub fn blinded(&mut self, resource: &GroupResource) {
        if let Some(record) = self.record_mut(resource) {
            record.blind_watches += 1;
        }
    }

    /// Such a watch ended: what it showed is in the next consistent read.
    pub fn sighted(&mut self, resource: &GroupResource, now: Instant) {
        if let Some(record) = self.record_mut(resource) {
            record.blind_watches = record.blind_watches.saturating_sub(1);
            record.sweep(Scope::All, now);
        }
    }

    /// A consistent LIST sent at `sent_at` returned `version`: whatever was acknowledged before is
    /// in it (S-CONS-20).
    pub fn proven(
        &mut self,
        resource: &GroupResource,
        sent_at: Instant,
        version: &ResourceVersion,
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.prove(sent_at, version);
        }
    }

    /// A session that demands whatever this one demands, and has not seen anything itself.
    #[must_use]
    pub fn heir(&self) -> Self {
        Self { lived: false, ..self.clone() }
    }

    /// Whether it has seen or written anything itself.
    pub fn has_lived(&self) -> bool {
        self.lived
    }

    /// Makes `heir` demand everything this session demands, or more.
    pub fn bequeath(&self, heir: &mut Self, now: Instant) {
        heir.overflowed |= self.overflowed;
        heir.past_unknown |= self.past_unknown;
        for (resource, record) in &self.records {
            if let Some(inherited) = heir.record_mut(resource) {
                record.bequeath(inherited, now);
            }
        }
    }

    /// Keeps of single objects only what their whole resource must then live up to.
    pub fn coarsen(&mut self, now: Instant) {
        self.records.values_mut().for_each(|record| record.collapse(now));
    }

    /// How many expectations and barriers are held, for the metrics.
    pub fn barriers(&self) -> usize {
        self.records.values().map(Record::barriers).sum()
    }

    fn record(&self, query: &Query) -> Option<&Record> {
        self.records.get(&query.resource.group_resource())
    }

    fn record_mut(&mut self, resource: &GroupResource) -> Option<&mut Record> {
        self.lived = true;
        if self.records.len() >= RECORDS_MAX && !self.records.contains_key(resource) {
            self.overflowed = true;
            return None;
        }
        Some(self.records.entry(resource.clone()).or_default())
    }
}

// === impl Verdict ===

impl Verdict {
    fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Behind(a, how_a), Self::Behind(b, how_b)) => {
                Self::Behind(a.max(b), how_a.min(how_b))
            }
            (a, b) if a.rank() >= b.rank() => a,
            (_, b) => b,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Satisfied => 0,
            Self::Behind(..) => 1,
            Self::Leaving => 2,
            Self::Barred => 3,
        }
    }
}

#[cfg(test)]
mod tests;
