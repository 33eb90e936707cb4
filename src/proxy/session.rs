//! What one session has seen and written: marks, expectations and barriers per group-resource.
//!
//! Pure state; time is passed in. [`Session::judge`] says whether a replica may answer a read: its own
//! writes are shown, objects never age, and lists of one query never go back (S-WRITE-21, S-WRITE-22,
//! S-CONS-32). An older version is no obstacle where the content is known to be the same. Every bound
//! here errs towards the apiserver: what does not fit is collapsed into something stricter.

mod lesson;
mod record;
mod verdict;

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    api::{GroupResource, ObjectKey, Scope, query::Query, version::ResourceVersion},
    hash::HashMap,
};
pub use lesson::{Expectation, KnownLabels, List, Page, Paging, Source};
use record::Record;
pub use record::{Doubt, Origin};
pub use verdict::{Floor, Held, Imminence, Verdict};

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

    /// Whether a replica that covers `query` may answer it at the level `session` (S-CONS-32).
    pub fn judge(&self, query: &Query, held: Held<'_>, now: Instant) -> Verdict {
        match self.record(query) {
            Some(record) => record.judge(query, held, now),
            None if self.overflowed => Verdict::Barred,
            None => Verdict::Satisfied,
        }
    }

    /// Like [`Session::judge`], for reads that only must not go back: resourceVersion=0 or N, and
    /// the level `any`.
    pub fn judge_monotonic(&self, query: &Query, held: Held<'_>, now: Instant) -> Verdict {
        self.record(query).map_or(Verdict::Satisfied, |record| record.judge_shown(query, held, now))
    }

    /// The version to give a list of `query` that the replica may answer, if it is above the
    /// replica's: its content is that of both.
    pub fn list_version(&self, query: &Query, held: Held<'_>) -> Option<ResourceVersion> {
        self.record(query)?.list_version(query, held).cloned()
    }

    /// The marks that keep the replica from answering `query`, although perhaps nothing changed that it
    /// selects.
    pub fn doubts(&self, query: &Query, held: Held<'_>) -> Vec<Doubt> {
        self.record(query).map_or_else(Vec::new, |record| record.doubts(query, held))
    }

    /// The replica shows all that a doubt is about: from its present version on, or `from` a later one,
    /// at which the last change comes that concerns it.
    pub fn clear(&mut self, doubt: &Doubt, replica: &Query, from: Option<ResourceVersion>) {
        if let Some(record) = self.records.get_mut(&replica.resource.group_resource()) {
            record.clear(doubt, replica, from);
        }
    }

    /// Objects the replica lacks, which `query` selects or not by fields that the session was not told.
    pub fn unseen(&self, query: &Query, held: Held<'_>) -> Vec<ObjectKey> {
        match self.record(query) {
            Some(record) if !query.fields.is_everything() => record.unseen(query, held),
            _ => Vec::new(),
        }
    }

    /// At this version `query` does not select the object.
    pub fn exclude(&mut self, query: &Query, key: &ObjectKey, at: &ResourceVersion) {
        if let Some(record) = self.records.get_mut(&query.resource.group_resource()) {
            record.exclude(key, at, query);
        }
    }

    /// Whether a consistent read sent no earlier than `since` proves the replica (S-CONS-31).
    pub fn is_proven_since(&self, query: &Query, held: Held<'_>, since: Instant) -> bool {
        self.record(query).is_some_and(|record| record.is_proven_since(held, since))
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

    /// The session was told 410 or 504: the version it holds is of no use (S-CLI-03).
    pub fn expired(&mut self, resource: &GroupResource) {
        if let Some(record) = self.record_mut(resource) {
            record.upstream_next = true;
        }
    }

    /// A replica's state was shown, or a part of it.
    pub fn shown_by(
        &mut self,
        replica: &Query,
        version: &ResourceVersion,
        source: Source,
        now: Instant,
    ) {
        if let Some(record) = self.record_mut(&replica.resource.group_resource()) {
            record.show_replica(replica, version, source, now);
        }
    }

    /// A list of the apiserver's was shown.
    pub fn listed(&mut self, list: List, now: Instant) {
        if let Some(record) = self.record_mut(&list.query.resource.group_resource()) {
            record.show_list(list, now);
        }
    }

    /// Something of the resource was shown at this version, and it cannot be told what.
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

    /// A consistent GET sent at `sent_at` shows now one object, or that there is none. It replaces
    /// what was known before it was sent, and nothing that came to be known since.
    pub fn observe(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        expectation: Expectation,
        (sent_at, now): (Instant, Instant),
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.observe(key, expectation, (sent_at, now));
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

    /// Objects of which something is expected that a list of `query` at `version` settles if it lacks
    /// them, with the version each was known at; it was sent at the given time if it was consistent.
    pub fn settled_by(
        &self,
        query: &Query,
        version: &ResourceVersion,
        consistent_since: Option<Instant>,
    ) -> Vec<(ObjectKey, ResourceVersion)> {
        self.record(query)
            .map_or_else(Vec::new, |record| record.settled_by(query, version, consistent_since))
    }

    /// Whether something is expected of an object.
    pub fn expects(&self, resource: &GroupResource, key: &ObjectKey) -> bool {
        self.records.get(resource).is_some_and(|record| record.expects(key))
    }

    /// A list showed an object; it was sent at the given time if it was consistent.
    pub fn list(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        item: Expectation,
        list: &Arc<Query>,
        (since, now): (Option<Instant>, Instant),
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.list(key, item, list, (since, now));
        }
    }

    /// A list sent at `sent_at` did not have an object, as `left` says.
    pub fn leave(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        left: Expectation,
        (sent_at, now): (Instant, Instant),
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.leave(key, left, (sent_at, now));
        }
    }

    /// Adds a page of a list to those before it; nothing, if they are not known.
    pub fn page(
        &mut self,
        query: &Query,
        version: &ResourceVersion,
        paging: Paging,
    ) -> Option<Page> {
        self.record_mut(&query.resource.group_resource())?.page(query, version, paging)
    }

    /// Whether so much is expected of single objects that [`Session::prune`] is worth its while.
    pub fn is_crowded(&self, resource: &GroupResource) -> bool {
        self.records.get(resource).is_some_and(Record::is_crowded)
    }

    /// Forgets what all replicas of the resource have reached; none of them is one that holds nothing.
    pub fn prune(&mut self, resource: &GroupResource, replicas: &[Option<Held<'_>>]) {
        if let Some(record) = self.records.get_mut(resource) {
            record.prune(replicas);
        }
    }

    /// Whether a bound was reached since this was last asked.
    pub fn has_overflowed(&mut self, resource: &GroupResource) -> bool {
        let record = self.records.get_mut(resource);
        record.is_some_and(|record| std::mem::take(&mut record.overflowed))
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

    /// Memory held, estimated.
    pub fn bytes(&self) -> usize {
        self.records.values().map(Record::bytes).sum()
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

#[cfg(test)]
mod tests;
