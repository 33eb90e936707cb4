//! What a session expects of single objects. Pure.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Demand, Expected, Record, Sweep, touches};
use crate::{
    api::{ObjectKey, Scope, query::Query, version::ResourceVersion},
    proxy::session::{Expectation, Held, Source},
};

/// Objects remembered per group-resource; beyond it the record is collapsed. Each costs every read
/// of the resource a look into the snapshot.
pub(in crate::proxy::session) const EXPECTED_MAX: usize = 512;

/// Bytes of objects remembered per group-resource, names and labels included.
pub(in crate::proxy::session) const EXPECTED_BYTES_MAX: usize = 256 * 1024;

/// So many expectations are kept without being looked through.
const CROWD_MIN: usize = 32;

// === impl Record ===

impl Record {
    pub(in crate::proxy::session) fn expect(
        &mut self,
        key: ObjectKey,
        expectation: Expectation,
        now: Instant,
    ) {
        if let Expectation::AtLeast(version, _) = &expectation
            && self.knows_newer(&key, version)
        {
            return;
        }
        let before = match &expectation {
            Expectation::AtLeast(..)
            | Expectation::Left { .. }
            | Expectation::Gone { version: Some(_), .. } => None,
            _ => self.expected.get(&key).and_then(Expected::known),
        };
        let expected = Expected::new(expectation, now, before);
        self.expected_bytes += expected.bytes(&key);
        if let Some(replaced) = self.expected.insert(key.clone(), expected) {
            self.expected_bytes -= replaced.bytes(&key);
            if let Some(expected) = self.expected.get_mut(&key) {
                expected.listed_by = replaced.listed_by;
            }
        }
        if self.expected.len() > EXPECTED_MAX || self.expected_bytes > EXPECTED_BYTES_MAX {
            self.overflowed = true;
            self.collapse(now);
        }
    }

    pub(in crate::proxy::session) fn observe(
        &mut self,
        key: ObjectKey,
        expectation: Expectation,
        (sent_at, now): (Instant, Instant),
    ) {
        // It may show what happened until it came: only what is sent later proves it or replaces it.
        if self.expected.get(&key).is_none_or(|known| known.at <= sent_at) {
            self.expect(key, expectation, now);
        }
    }

    pub(in crate::proxy::session) fn raise(
        &mut self,
        key: ObjectKey,
        expectation: Expectation,
        now: Instant,
    ) {
        let new = expectation.version();
        // What has no version is only replaced by what is known to be consistent.
        let is_newer = |known: &Expected| known.version().is_some_and(|at| Some(at) < new);
        if self.expected.get(&key).is_none_or(is_newer) {
            self.expect(key, expectation, now);
        } else if let (Some(known), Expectation::AtLeast(version, labels)) =
            (self.expected.get_mut(&key), &expectation)
            && known.told().is_none()
        {
            known.also_shown(version, labels);
        }
    }

    /// Objects of which something is expected, and which a list that lacks them settles: those that were
    /// there at a version not above the list's, or whose version is unknown; with the version each was
    /// known at last.
    pub(in crate::proxy::session) fn settled_by(
        &self,
        query: &Query,
        version: &ResourceVersion,
        consistent_since: Option<Instant>,
    ) -> Vec<(ObjectKey, ResourceVersion)> {
        let touched = self.expected.iter().filter(|(key, _)| touches(query, key));
        let settled = touched.filter_map(|(key, expected)| {
            Some((key.clone(), expected.settled_by(query, version, consistent_since)?))
        });
        settled.collect()
    }

    /// A list showed the object; it was sent at the given time if it was consistent.
    pub(in crate::proxy::session) fn list(
        &mut self,
        key: ObjectKey,
        item: Expectation,
        list: &Arc<Query>,
        (since, now): (Option<Instant>, Instant),
    ) {
        match since {
            Some(sent_at) => self.observe(key.clone(), item, (sent_at, now)),
            None => self.raise(key.clone(), item, now),
        }
        self.note_listed(&key, list);
    }

    fn note_listed(&mut self, key: &ObjectKey, list: &Arc<Query>) {
        if let Some(expected) = self.expected.get_mut(key) {
            expected.listed_by = Some(list.clone());
        }
    }

    pub(in crate::proxy::session) fn expects(&self, key: &ObjectKey) -> bool {
        self.expected.contains_key(key)
    }

    /// A list did not have the object.
    pub(in crate::proxy::session) fn leave(
        &mut self,
        key: ObjectKey,
        left: Expectation,
        (sent_at, now): (Instant, Instant),
    ) {
        let Expectation::Left { selection, than, version } = left else { return };
        let mut newest = than;
        if let Some(known) = self.expected.get(&key) {
            let is_newer = match known.told() {
                Some(told) => *told > version,
                None => known.at > sent_at,
            };
            if is_newer {
                return;
            }
            if let Some((known, _)) = known.known() {
                newest = newest.max(known);
            }
        }
        let list = selection.clone();
        self.expect(key.clone(), Expectation::Left { selection, than: newest, version }, now);
        self.note_listed(&key, &list);
    }

    /// Objects that a snapshot lacks and whose fields decide whether the query selects them.
    pub(in crate::proxy::session) fn unseen(
        &self,
        query: &Query,
        held: Held<'_>,
    ) -> Vec<ObjectKey> {
        let demand = Demand { query, held };
        let touching = self.expected.iter().filter(|(key, _)| touches(query, key));
        let unseen = touching.filter(|(key, expected)| expected.is_unseen(key, &demand));
        unseen.map(|(key, _)| key.clone()).collect()
    }

    /// Another replica showed the object, which the query does not select.
    pub(in crate::proxy::session) fn exclude(
        &mut self,
        key: &ObjectKey,
        at: &ResourceVersion,
        query: &Query,
    ) {
        if let Some(expected) = self.expected.get_mut(key) {
            expected.exclude(at, query);
        }
    }

    /// Whether there are so many expectations that superfluous ones are worth looking for.
    pub(in crate::proxy::session) fn is_crowded(&self) -> bool {
        self.expected.len() > self.crowd.max(CROWD_MIN)
            || self.expected_bytes > EXPECTED_BYTES_MAX / 2
    }

    /// Drops what every replica there is has reached for good. One that is yet to come begins with a
    /// list that is sent after all this was shown.
    pub(in crate::proxy::session) fn prune(&mut self, replicas: &[Option<Held<'_>>]) {
        let reached = |key: &ObjectKey, expected: &Expected| {
            replicas.iter().all(|held| match held {
                Some(held) => !touches(held.query, key) || expected.is_reached(key, held.snapshot),
                None => false,
            })
        };
        let superfluous: Vec<_> =
            self.expected.iter().filter(|(key, expected)| reached(key, expected)).collect();
        let superfluous: Vec<_> = superfluous.into_iter().map(|(key, _)| key.clone()).collect();
        for key in superfluous {
            if let Some(dropped) = self.expected.remove(&key) {
                self.expected_bytes -= dropped.bytes(&key);
                if let Some((version, source)) = dropped.floor() {
                    self.reach(version, source, dropped.at);
                }
            }
        }
        let reached = |sweep: &Sweep| {
            let proven = sweep.proven.as_ref();
            let has = |held: &Option<Held<'_>>| match (held, proven) {
                (Some(held), Some(proven)) => held.snapshot.version() >= proven,
                _ => false,
            };
            proven.is_some() && replicas.iter().all(has)
        };
        self.sweeps.retain(|sweep| !reached(sweep));
        self.crowd = 2 * self.expected.len();
        let held = replicas.iter().flatten();
        let held = held.map(|held| (held.query.clone(), held.snapshot.version().clone()));
        self.pruned_by = held.collect();
    }

    /// Too many objects: raise the floor to the newest version, and bar what has none.
    pub(in crate::proxy::session) fn collapse(&mut self, now: Instant) {
        let expected = std::mem::take(&mut self.expected);
        self.expected_bytes = 0;
        self.marks.merge_all();
        for expected in expected.into_values() {
            match expected.version() {
                Some(version) => self.show(version, Source::Storage, now),
                None => self.sweeps = vec![Sweep { scope: Scope::All, at: now, proven: None }],
            }
        }
    }

    fn knows_newer(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        self.expected.get(key).and_then(Expected::told).is_some_and(|known| known > version)
    }
}
