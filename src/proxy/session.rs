//! The memory of one session, of everything it has seen and written: marks, expectations and
//! barriers per group-resource.
//!
//! Pure state; the time is a parameter. [`Session::judge`] decides whether a replica may answer a
//! read. The session's own writes must be visible. Objects must never get older, and lists of one
//! query must never go back (S-WRITE-21, S-WRITE-22, S-CONS-32). An older version is allowed where
//! the content is known to be equal. Every limit here favours the apiserver: state that does not
//! fit becomes stricter.

mod bounds;
mod facts;
mod inheritance;
mod record;
mod verdict;

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    api::{GroupResource, ObjectKey, Scope, form::Form, query::Query, version::ResourceVersion},
    hash::HashMap,
};
pub use facts::{Expectation, KnownLabels, List, Page, Paging, Source};
use record::Record;
pub use record::{Doubt, Doubts, Evidence, Origin};
pub use verdict::{Floor, Held, Imminence, Verdict};

/// The state of one session (S-CONS-45).
#[derive(Clone, Debug, Default)]
pub struct Session {
    records: HashMap<GroupResource, Arc<Record>>,
    /// The inherited demands, which bind resources without an own record.
    past: Option<Arc<Self>>,
    /// `true` if something was seen or written, beyond inherited state.
    lived: bool,
    /// The last time at which facts about unnamed resources were lost: resources without a record
    /// are barred until a later consistent read.
    lost_at: Option<Instant>,
    /// `true` if versions that were shown are lost, too.
    forgot: bool,
    /// `true` if there were more group-resources than fit: those without a record are barred.
    overflowed: bool,
    /// `true` if the client may have seen any resource before the session began.
    past_unknown: bool,
}

/// The limit of group-resources per session; apiservers serve far fewer.
const RECORDS_MAX: usize = 2048;

/// The limit of the bytes of a group-resource: no apiserver serves a longer one, so nothing of it
/// can be shown.
const RESOURCE_BYTES_MAX: usize = 512;

// === impl Session ===

impl Session {
    /// Decides whether a replica that covers `query` may answer it at the level `session`
    /// (S-CONS-32).
    pub fn judge(&self, query: &Query, held: Held<'_>, now: Instant) -> Verdict {
        match (self.own_record(query), &self.past) {
            (Some(record), _) => record.judge(query, held, now),
            (None, _) if self.overflowed || self.lost_at.is_some() => Verdict::Barred,
            (None, Some(past)) => past.judge(query, held, now),
            (None, None) => Verdict::Satisfied,
        }
    }

    /// Decides like [`Session::judge`], for reads that only must not go back: resourceVersion=0 or
    /// N, and the level `any`.
    pub fn judge_monotonic(&self, query: &Query, held: Held<'_>, now: Instant) -> Verdict {
        match (self.own_record(query), &self.past) {
            (Some(record), _) => record.judge_shown(query, held, now),
            (None, _) if self.overflowed || self.forgot => Verdict::Barred,
            (None, Some(past)) => past.judge_monotonic(query, held, now),
            (None, None) => Verdict::Satisfied,
        }
    }

    /// Returns the version for a list of `query` from the replica, if it is higher than the
    /// replica's: the content at both versions is equal.
    pub fn list_version(&self, query: &Query, held: Held<'_>) -> Option<ResourceVersion> {
        self.record(query)?.list_version(query, held).cloned()
    }

    /// Returns the reasons why the replica may not answer `query`, although its objects may be
    /// unchanged.
    pub fn doubts(&self, query: &Query, held: Held<'_>) -> Option<Doubts> {
        let record = self.record(query)?;
        let depends_on_fields = !query.fields.is_everything();
        Some(Doubts {
            marks: record.doubts(query, held),
            unseen: if depends_on_fields { record.unseen(query, held) } else { Vec::new() },
            is_crowded: record.is_crowded(),
        })
    }

    /// Clears a doubt: the replica shows everything that it is about.
    pub fn clear(&mut self, doubt: &Doubt, replica: &Query, evidence: Evidence) {
        if let Some(record) = self.record_mut(&replica.resource.group_resource()) {
            record.clear(doubt, replica, evidence);
        }
    }

    /// Notes that `query` does not select the object at this version.
    pub fn exclude(&mut self, query: &Query, key: &ObjectKey, at: &ResourceVersion) {
        if let Some(record) = self.own_record_mut(&query.resource.group_resource()) {
            record.exclude(key, at, query);
        }
    }

    /// Reports whether a consistent read sent no earlier than `since` proves the replica
    /// (S-CONS-31).
    pub fn is_proven_since(&self, query: &Query, held: Held<'_>, since: Instant) -> bool {
        self.record(query).is_some_and(|record| record.is_proven_since(held, since))
    }

    /// Returns the floor of a forwarded read of `query`.
    pub fn floor(&self, query: &Query) -> Floor {
        match (self.own_record(query), &self.past) {
            (Some(record), _) if self.past_unknown && !record.has_consistent => Floor::Consistent,
            (Some(record), _) => record.floor(query),
            (None, _) if self.overflowed || self.lost_at.is_some() => Floor::Consistent,
            (None, Some(past)) => past.floor(query),
            (None, None) if self.past_unknown => Floor::Consistent,
            (None, None) => Floor::Unknown,
        }
    }

    /// Reports whether this read without a version must go upstream: with its last version it was
    /// told 410 or 504. `name` is that of the object, if it reads only one.
    pub fn must_go_upstream(&self, query: &Query, name: Option<&str>) -> bool {
        self.record(query).is_some_and(|record| record.is_expired(query, name))
    }

    /// Notes that the apiserver answered the read without a version.
    pub fn went_upstream(&mut self, query: &Query, name: Option<&str>) {
        if let Some(record) = self.own_record_mut(&query.resource.group_resource()) {
            record.went_upstream(query, name);
        }
    }

    /// Notes a 410 or 504 response: the version in the read or watch is useless (S-CLI-03). The same
    /// read without a version goes to the apiserver, so that its client surely leaves the error.
    pub fn expired(&mut self, query: &Query, name: Option<&str>) {
        if let Some(record) = self.record_mut(&query.resource.group_resource()) {
            record.expire(query, name);
        }
    }

    /// Notes that all or a part of a replica's state was shown.
    pub fn shown_by(
        &mut self,
        (replica, form): (&Query, Form),
        version: &ResourceVersion,
        source: Source,
        now: Instant,
    ) {
        if let Some(record) = self.record_mut(&replica.resource.group_resource()) {
            record.show_replica((replica, form), version, source, now);
        }
    }

    /// Notes that a list from the apiserver was shown.
    pub fn listed(&mut self, list: List, now: Instant) {
        if let Some(record) = self.record_mut(&list.query.resource.group_resource()) {
            record.show_list(list, now);
        }
    }

    /// Notes that an unknown part of the resource was shown at this version.
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

    /// Stores a fact about one object, learned at `now`; it replaces what was known of the object.
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

    /// Notes that the outcome of a write is unknown. `key` is that of its object, if it has only one.
    ///
    /// As long as nothing else is known of the caller, the apiserver may not even accept it: then all
    /// resources are barred, and no name is stored that it chose.
    pub fn lost_write(
        &mut self,
        resource: &GroupResource,
        (key, scope): (Option<ObjectKey>, Scope),
        now: Instant,
    ) {
        match key {
            Some(key) if self.lived => self.expect(resource, key, Expectation::Uncertain, now),
            None if self.lived => self.swept(resource, scope, now),
            // Nothing has a record yet.
            _ => self.lose(false, now),
        }
    }

    /// Stores the outcome of a write sent at `sent_at`; what was learned since may be newer.
    pub fn written(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        outcome: Expectation,
        (sent_at, now): (Instant, Instant),
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.write(key, outcome, (sent_at, now));
        }
    }

    /// Stores that a consistent GET sent at `sent_at` now shows one object, or that there is none.
    /// It replaces facts from before it was sent, and none that were learned since.
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

    /// Stores that a read that was not consistent showed one object; it only adds to the known
    /// facts.
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

    /// Returns the objects whose expectations a list of `query` at `version` fulfils by not showing
    /// them, with the version of each. `consistent_since` is the time the list was sent, if it was
    /// consistent.
    pub fn settled_by(
        &self,
        query: &Query,
        version: &ResourceVersion,
        consistent_since: Option<Instant>,
    ) -> Vec<(ObjectKey, ResourceVersion)> {
        self.record(query)
            .map_or_else(Vec::new, |record| record.settled_by(query, version, consistent_since))
    }

    /// Reports whether an object has an expectation.
    pub fn expects(&self, resource: &GroupResource, key: &ObjectKey) -> bool {
        self.records.get(resource).is_some_and(|record| record.expects(key))
    }

    /// Notes that a list showed an object; the send time is set if the list was consistent.
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

    /// Notes that a list sent at `sent_at` lacked an object, as `left` states.
    pub fn leave(
        &mut self,
        resource: &GroupResource,
        key: ObjectKey,
        left: Expectation,
        (sent_at, now): (Option<Instant>, Instant),
    ) {
        if let Some(record) = self.record_mut(resource) {
            record.leave(key, left, (sent_at, now));
        }
    }

    /// Adds a page of a list to the pages before it; returns `None` if they are unknown.
    pub fn page(
        &mut self,
        query: &Query,
        version: &ResourceVersion,
        paging: Paging,
    ) -> Option<Page> {
        self.record_mut(&query.resource.group_resource())?.page(query, version, paging)
    }

    /// Reports whether there are enough expectations to make [`Session::prune`] worthwhile.
    pub fn is_crowded(&self, resource: &GroupResource) -> bool {
        self.records.get(resource).is_some_and(|record| record.is_crowded())
    }

    /// Removes everything that all replicas of the resource have reached; every replica must hold a
    /// snapshot.
    pub fn prune(&mut self, resource: &GroupResource, replicas: &[Option<Held<'_>>]) {
        if let Some(record) = self.own_record_mut(resource) {
            record.prune(replicas);
        }
    }

    /// Reports whether a limit was reached since the last call.
    pub fn has_overflowed(&mut self, resource: &GroupResource) -> bool {
        let record = self.records.get_mut(resource).filter(|record| record.overflowed);
        record.is_some_and(|record| std::mem::take(&mut Arc::make_mut(record).overflowed))
    }

    /// Notes that objects of a whole scope may have changed by `now` in ways that no response
    /// showed.
    pub fn swept(&mut self, resource: &GroupResource, scope: Scope, now: Instant) {
        if let Some(record) = self.record_mut(resource) {
            record.sweep(scope, now);
        }
    }

    /// Notes that a watch of this scope opened that cannot be parsed: until it ends, its events are
    /// unknown.
    pub fn blinded(&mut self, resource: &GroupResource, scope: Scope) {
        if let Some(record) = self.record_mut(resource) {
            record.blind_watches.push(scope);
        }
    }

    /// Notes the end of such a watch: the next consistent read contains its events.
    pub fn sighted(&mut self, resource: &GroupResource, scope: &Scope, now: Instant) {
        if let Some(record) = self.record_mut(resource) {
            let open = record.blind_watches.iter().position(|blind| blind == scope);
            open.map(|index| record.blind_watches.swap_remove(index));
            record.sweep(scope.clone(), now);
        }
    }

    /// Notes that a consistent LIST sent at `sent_at` returned `version`: it contains everything
    /// acknowledged before (S-CONS-20).
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

    /// Returns the own record of the query's resource, or the inherited one.
    fn record(&self, query: &Query) -> Option<&Record> {
        self.own_record(query).or_else(|| self.past.as_ref()?.record(query))
    }

    fn own_record(&self, query: &Query) -> Option<&Record> {
        self.records.get(&query.resource.group_resource()).map(|record| &**record)
    }

    fn own_record_mut(&mut self, resource: &GroupResource) -> Option<&mut Record> {
        self.records.get_mut(resource).map(Arc::make_mut)
    }

    fn record_mut(&mut self, resource: &GroupResource) -> Option<&mut Record> {
        if resource.group.len() + resource.resource.len() > RESOURCE_BYTES_MAX {
            return None;
        }
        self.lived = true;
        if !self.records.contains_key(resource) {
            if self.records.len() >= RECORDS_MAX {
                self.overflowed = true;
                return None;
            }
            let record = self.first_record(resource);
            self.records.insert(resource.clone(), record);
        }
        self.own_record_mut(resource)
    }
}

#[cfg(test)]
mod tests;
