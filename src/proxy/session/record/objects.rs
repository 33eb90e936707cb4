//! The expectations of single objects. Pure.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::Instant;

use super::{Expected, ExpiredReads, Pages, Record, Requirement, Sweep, touches};
use crate::{
    api::{ObjectKey, Scope, query::Query, version::ResourceVersion},
    proxy::session::{Expectation, Held, KnownLabels, Source},
};

/// The limit of objects per group-resource; above it the record is collapsed. Each object costs
/// every read of the resource a lookup in the snapshot.
pub(in crate::proxy::session) const EXPECTED_MAX: usize = 512;

/// The limit of their bytes per group-resource, names and labels included.
pub(in crate::proxy::session) const EXPECTED_BYTES_MAX: usize = 256 * 1024;

/// The number of expectations that are kept without a search for superfluous ones.
const CROWD_MIN: usize = 32;

/// The bytes that are kept without such a search, and up to which an object keeps queries that do
/// not select it: the rest is for objects.
const CROWD_BYTES_MIN: usize = EXPECTED_BYTES_MAX / 2;

// === impl Record ===

impl Record {
    pub(in crate::proxy::session) fn expect(
        &mut self,
        key: ObjectKey,
        expectation: Expectation,
        now: Instant,
    ) {
        if let Expectation::AtLeast(version, labels) = &expectation
            && (self.has_left_later(&key, version, labels, now) || self.knows_newer(&key, version))
        {
            return;
        }
        let known = self.expected.get(&key);
        // That it exists says nothing about its absence before, or about an unknown write.
        let expectation = match (expectation, known.map(Expected::is_versioned)) {
            (Expectation::Exists, Some(false)) => Expectation::Uncertain,
            (expectation, _) => expectation,
        };
        let later = |version| known.and_then(|known| known.later(version));
        let expectation = expectation.version().and_then(later).unwrap_or(expectation);
        let before = match &expectation {
            Expectation::AtLeast(..) => None,
            _ => known.and_then(Expected::known),
        };
        let mut expected = Expected::new(expectation, now, before);
        if let Some(replaced) = self.expected.remove(&key) {
            self.expected_bytes -= replaced.bytes(&key);
            expected.listed_by = replaced.listed_by;
        }
        self.expected_bytes += expected.bytes(&key);
        self.expected.insert(key, expected);
        self.bound(now);
    }

    fn bound(&mut self, now: Instant) {
        if self.expected.len() > EXPECTED_MAX || self.expected_bytes > EXPECTED_BYTES_MAX {
            self.overflowed = true;
            self.collapse(now);
        }
    }

    /// Changes the facts about an object, and counts their memory again.
    fn amend(&mut self, key: &ObjectKey, change: impl FnOnce(&mut Expected)) {
        if let Some(expected) = self.expected.get_mut(key) {
            let others = self.expected_bytes - expected.bytes(key);
            change(expected);
            self.expected_bytes = others + expected.bytes(key);
        }
    }

    pub(in crate::proxy::session) fn write(
        &mut self,
        key: ObjectKey,
        outcome: Expectation,
        (sent_at, now): (Instant, Instant),
    ) {
        // A deletion has a version of its own: this is that of the object, of a dry run perhaps.
        let known = self.expected.get(&key).and_then(Expected::object_version);
        let outcome = match outcome {
            Expectation::Gone { uid, version }
                if version.is_some() && known == version.as_ref() =>
            {
                Expectation::Gone { uid, version: None }
            }
            outcome => outcome,
        };
        match self.expected.get(&key).filter(|known| known.at > sent_at) {
            None => self.expect(key, outcome, now),
            Some(_) if outcome.version().is_some() => self.raise(key, outcome, now),
            Some(known) if known.is_absence() => self.expect(key, outcome, now),
            // It may have been before or after the state that was learned meanwhile.
            Some(_) => self.expect(key, Expectation::Uncertain, now),
        }
    }

    pub(in crate::proxy::session) fn observe(
        &mut self,
        key: ObjectKey,
        expectation: Expectation,
        (sent_at, now): (Instant, Instant),
    ) {
        // The response may show the state up to its arrival: only a read sent later proves or
        // replaces what is known. It may still show a newer state.
        let known = self.expected.get(&key);
        if let Some(known) = known.filter(|known| known.at > sent_at) {
            // Both say that it is gone.
            if expectation.version().is_none() && known.is_absence() {
                return self.expect(key, expectation, now);
            }
            return self.raise(key, expectation, now);
        }
        // The storage itself went back (S-CONS-09).
        if let Expectation::AtLeast(version, _) = &expectation
            && known.is_some_and(|it| it.at < sent_at && it.object_version() > Some(version))
        {
            self.forget();
        }
        self.expect(key, expectation, now);
    }

    pub(in crate::proxy::session) fn raise(
        &mut self,
        key: ObjectKey,
        expectation: Expectation,
        now: Instant,
    ) {
        let new = expectation.version();
        // A state without a version is replaced only by a consistent one.
        let is_newer = |known: &Expected| known.version().is_some_and(|at| Some(at) < new);
        let is_unproven = |known: &Expected| known.version().is_none();
        if self.expected.get(&key).is_none_or(is_newer) {
            self.expect(key, expectation, now);
        } else if expectation.is_absence()
            && (new.is_none() || self.expected.get(&key).is_some_and(is_unproven))
        {
            // One of both states has no version: only a consistent read tells which came last.
            self.expect(key, Expectation::Uncertain, now);
        } else if let Expectation::AtLeast(version, labels) = &expectation
            && !self.has_left_later(&key, version, labels, now)
            && self.expected.get(&key).is_some_and(|known| known.shown_version().is_none())
        {
            self.amend(&key, |known| known.also_shown(version, labels));
            self.bound(now);
        }
    }

    /// Returns the objects with expectations that a list fulfils by not showing them, with the last
    /// version of each. These existed at a version not above the list's, or their version is
    /// unknown.
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

    /// Notes that a list showed the object; the send time is set if the list was consistent.
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
        self.note_listed(&key, list, now);
    }

    fn note_listed(&mut self, key: &ObjectKey, list: &Arc<Query>, now: Instant) {
        self.amend(key, |expected| expected.listed_by = Some(list.clone()));
        self.bound(now);
    }

    pub(in crate::proxy::session) fn expects(&self, key: &ObjectKey) -> bool {
        self.expected.contains_key(key)
    }

    /// Notes that a list lacked the object.
    pub(in crate::proxy::session) fn leave(
        &mut self,
        key: ObjectKey,
        left: Expectation,
        (sent_at, now): (Option<Instant>, Instant),
    ) {
        let Expectation::Left { selection, than, version } = left else { return };
        let (list, mut newest) = (selection.clone(), than);
        if let Some(known) = self.expected.get(&key) {
            // A part of the objects shows nothing about the others.
            if known.shown_version().is_none() && !selection.selects_all() {
                self.amend(&key, |known| known.also_missed(&version, (sent_at, now)));
                return self.note_listed(&key, &list, now);
            }
            let is_newer = match (known.shown_version(), known.version(), sent_at) {
                (Some(shown), ..) => *shown > version,
                (None, _, Some(sent_at)) => known.at > sent_at,
                (None, Some(proven), None) => *proven > version,
                // Only a consistent list replaces a state without a version, such as that after a
                // write whose outcome is unknown. Until then the list's own fact stays unknown, too.
                (None, None, None) => {
                    self.expect(key.clone(), Expectation::Uncertain, now);
                    return self.note_listed(&key, &list, now);
                }
            };
            if is_newer {
                return;
            }
            // The object may have returned to the rest of what it left: both are known at this version.
            if known.left().is_some_and(|other| !selection.covers(other)) {
                self.expect(key.clone(), Expectation::Uncertain, now);
                self.amend(&key, |known| known.prove_at(&version));
                return self.note_listed(&key, &list, now);
            }
            if let Some((known, _)) = known.known() {
                newest = newest.max(known);
            }
        }
        self.expect(key.clone(), Expectation::Left { selection, than: newest, version }, now);
        self.note_listed(&key, &list, now);
    }

    /// Returns objects that a snapshot lacks and whose selection by the query depends on fields.
    pub(in crate::proxy::session) fn unseen(
        &self,
        query: &Query,
        held: Held<'_>,
    ) -> Vec<ObjectKey> {
        let requirement = Requirement { query, held };
        let touching = self.expected.iter().filter(|(key, _)| touches(query, key));
        let unseen = touching.filter(|(key, expected)| expected.is_unseen(key, &requirement));
        unseen.map(|(key, _)| key.clone()).collect()
    }

    /// Notes that another replica showed the object, which the query does not select.
    pub(in crate::proxy::session) fn exclude(
        &mut self,
        key: &ObjectKey,
        at: &ResourceVersion,
        query: &Query,
    ) {
        let bytes_max = CROWD_BYTES_MIN.saturating_sub(self.expected_bytes);
        self.amend(key, |expected| expected.exclude(at, query, bytes_max));
    }

    /// Reports whether there are enough expectations to make a search for superfluous ones
    /// worthwhile.
    pub(in crate::proxy::session) fn is_crowded(&self) -> bool {
        self.expected.len() > self.crowd.max(CROWD_MIN) || self.expected_bytes > CROWD_BYTES_MIN
    }

    /// Drops expectations that every existing replica has reached for good. A future replica starts
    /// with a list that is sent later than all of them were shown.
    pub(in crate::proxy::session) fn prune(&mut self, replicas: &[Option<Held<'_>>]) {
        let reached = |key: &ObjectKey, expected: &Expected| {
            // Without a version, no floor would remain of it.
            expected.version().is_some()
                && replicas.iter().all(|held| match held {
                    Some(held) => {
                        !touches(held.query, key) || expected.is_reached(key, held.snapshot)
                    }
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
        // A caller with older views must not take back what a newer view has removed.
        let before = std::mem::take(&mut self.pruned_by);
        let pruned = held.map(|held| {
            let (version, form) = (held.snapshot.version(), held.snapshot.form());
            let mut before = before.iter();
            let earlier = before.find(|(query, of, _)| query == held.query && *of == form);
            let version = earlier.map_or(version, |(.., earlier)| earlier.max(version));
            (held.query.clone(), form, version.clone())
        });
        self.pruned_by = pruned.collect();
    }

    /// Collapses too many objects: raises the floor to the newest version, and bars objects without
    /// a version. Reads whose version is useless become a barrier. Proofs are only made again.
    pub(in crate::proxy::session) fn collapse(&mut self, now: Instant) {
        let expected = std::mem::take(&mut self.expected);
        self.expected_bytes = 0;
        self.pages = Pages::default();
        self.proofs = VecDeque::new();
        self.marks.merge_all();
        let everything = || vec![Sweep { scope: Scope::All, at: now, proven: None }];
        if self.sweeps.len() > 1 || !self.expired.is_empty() {
            self.expired = ExpiredReads::default();
            self.sweeps = everything();
        }
        for expected in expected.into_values() {
            match expected.reach() {
                Some(version) => self.show(version, Source::Storage, now),
                None => self.sweeps = everything(),
            }
        }
    }

    /// Notes a state that precedes the list which the object left; `false` if it is none.
    fn has_left_later(
        &mut self,
        key: &ObjectKey,
        version: &ResourceVersion,
        labels: &KnownLabels,
        now: Instant,
    ) -> bool {
        let mut had = false;
        if self.expected.get(key).is_some_and(|known| known.left().is_some()) {
            self.amend(key, |known| had = known.also_had(version, labels));
            self.bound(now);
        }
        had
    }

    fn knows_newer(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        self.expected
            .get(key)
            .and_then(Expected::shown_version)
            .is_some_and(|known| known > version)
    }
}
