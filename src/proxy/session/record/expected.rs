//! The known state of one object, and whether a snapshot shows it. Pure.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use super::{
    super::{Expectation, Imminence, KnownLabels, Source, Verdict},
    Requirement, by_version,
};
use crate::{
    api::{ObjectKey, query::Query, selector::Labels, version::ResourceVersion},
    cache::{object::Head, selection::selects, store::Snapshot},
};

/// An object, and the state that a snapshot must show of it.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    expectation: Expectation,
    pub(super) at: Instant,
    pub(super) proven: Option<ResourceVersion>,
    /// The last known state of an object whose version is unknown now.
    before: Option<(ResourceVersion, KnownLabels)>,
    /// The state that was shown later of an object whose version is unknown.
    after: Option<(ResourceVersion, KnownLabels)>,
    /// The queries that did not select the object at the expected version or later.
    excluded: Vec<Query>,
    /// The last list that showed this state or an earlier one.
    pub(super) listed_by: Option<Arc<Query>>,
}

/// The limit of queries per object; a forgotten one is computed again.
const EXCLUDED_MAX: usize = 8;

// === impl Expected ===

impl Expected {
    pub(super) fn new(
        expectation: Expectation,
        at: Instant,
        before: Option<(ResourceVersion, KnownLabels)>,
    ) -> Self {
        Self {
            expectation,
            at,
            proven: None,
            before,
            after: None,
            excluded: Vec::new(),
            listed_by: None,
        }
    }

    /// Returns the version from which a snapshot certainly holds the expected state.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.shown_version().or(self.proven.as_ref())
    }

    /// Returns the version in the response, of the object or of its deletion.
    pub(super) fn shown_version(&self) -> Option<&ResourceVersion> {
        self.expectation.version()
    }

    /// Returns the version of the object's last known state, or of its deletion. A list that lacks
    /// the object has a version of its own, which the object need not reach.
    pub(super) fn object_version(&self) -> Option<&ResourceVersion> {
        match &self.expectation {
            Expectation::Left { than, .. } => Some(than),
            expectation => expectation.version(),
        }
    }

    /// Reports whether a state of the object is known with its version.
    pub(super) fn is_versioned(&self) -> bool {
        match &self.expectation {
            Expectation::AtLeast(..) | Expectation::Exists => true,
            Expectation::Gone { version, .. } => version.is_some(),
            Expectation::Left { .. } | Expectation::Uncertain => false,
        }
    }

    /// Returns the selection that the object left.
    pub(super) fn left(&self) -> Option<&Arc<Query>> {
        match &self.expectation {
            Expectation::Left { selection, .. } => Some(selection),
            _ => None,
        }
    }

    pub(super) fn is_absence(&self) -> bool {
        self.expectation.is_absence()
    }

    /// Returns the object's last version, and its labels if they were seen.
    pub(super) fn known(&self) -> Option<(ResourceVersion, KnownLabels)> {
        match &self.expectation {
            Expectation::AtLeast(version, labels) => Some((version.clone(), labels.clone())),
            Expectation::Gone { version: Some(version), .. } => Some((version.clone(), None)),
            Expectation::Left { than, .. } => {
                let before = self.before.as_ref().filter(|(version, _)| version == than);
                Some(before.map_or_else(|| (than.clone(), None), Clone::clone))
            }
            _ => self.before.iter().chain(&self.after).max_by_key(|(version, _)| version).cloned(),
        }
    }

    /// Returns the state that was shown later than this version, if that is what is known.
    pub(super) fn later(&self, than: &ResourceVersion) -> Option<Expectation> {
        let (version, labels) = self.after.as_ref().filter(|(version, _)| version > than)?;
        Some(Expectation::AtLeast(version.clone(), labels.clone()))
    }

    /// Returns the version from which a snapshot certainly holds everything that is known.
    pub(super) fn reach(&self) -> Option<&ResourceVersion> {
        let after = self.after.as_ref().map(|(version, _)| version);
        self.version().map(|version| after.map_or(version, |after| version.max(after)))
    }

    /// Returns the same as a floor. An object's version always comes from an event.
    pub(super) fn floor(&self) -> Option<(&ResourceVersion, Source)> {
        let source = match &self.expectation {
            Expectation::AtLeast(..) | Expectation::Gone { version: Some(_), .. } => Source::Cache,
            _ => Source::Storage,
        };
        self.reach().map(|version| (version, source))
    }

    /// Returns the memory held, estimated. Shared selectors count once for each object.
    pub(super) fn bytes(&self, key: &ObjectKey) -> usize {
        let expected = match &self.expectation {
            Expectation::AtLeast(_, labels) => label_bytes(labels),
            Expectation::Left { selection, .. } => selection.selector_bytes(),
            _ => 0,
        };
        let others = self.before.iter().chain(&self.after).map(|(_, labels)| label_bytes(labels));
        let listed_by = self.listed_by.as_ref().map_or(0, |query| query.selector_bytes());
        let excluded = self.excluded.iter().map(excluded_bytes).sum::<usize>();
        size_of::<Self>()
            + key.as_str().len()
            + expected
            + others.sum::<usize>()
            + listed_by
            + excluded
    }

    /// Notes that the object was shown at a time that may be before or after the expected state.
    pub(super) fn also_shown(&mut self, version: &ResourceVersion, labels: &KnownLabels) {
        if self.after.as_ref().is_none_or(|(known, _)| known < version) {
            self.after = Some((version.clone(), labels.clone()));
        }
    }

    /// Notes a state of the object between the last known one and the list that it left. Returns
    /// `false` if it is not of that time.
    pub(super) fn also_had(&mut self, version: &ResourceVersion, labels: &KnownLabels) -> bool {
        let Expectation::Left { than, version: left_at, .. } = &mut self.expectation else {
            return false;
        };
        let is_between = *than < *version && *version <= *left_at;
        if is_between {
            *than = version.clone();
            self.before = Some((version.clone(), labels.clone()));
        }
        is_between
    }

    /// Notes that a list of a part of the objects lacked it, while its state is unknown. `since` is
    /// the time the list was sent, if it was consistent. An object that only exists may have left
    /// that part: what was known of it before is no longer enough.
    pub(super) fn also_missed(
        &mut self,
        version: &ResourceVersion,
        (since, now): (Option<Instant>, Instant),
    ) {
        if matches!(self.expectation, Expectation::Exists) {
            self.expectation = Expectation::Uncertain;
        }
        let is_proof = since.is_some_and(|sent_at| self.at <= sent_at);
        if is_proof || self.proven.is_some() {
            self.prove_at(version);
        } else if since.is_some() {
            return;
        }
        // No list that was sent earlier proves less.
        self.at = now;
    }

    /// Notes that snapshots from this version on satisfy the facts, and no earlier ones.
    pub(super) fn prove_at(&mut self, version: &ResourceVersion) {
        if self.proven.as_ref().is_none_or(|proven| proven < version) {
            self.proven = Some(version.clone());
        }
    }

    /// Notes that the query does not select the object at this version, if that takes at most
    /// `bytes_max`.
    pub(super) fn exclude(&mut self, at: &ResourceVersion, query: &Query, bytes_max: usize) {
        let is_known = self.shown_version().is_some_and(|shown| at >= shown);
        let fits = excluded_bytes(query) <= bytes_max;
        if is_known && fits && !self.excluded.contains(query) {
            if self.excluded.len() == EXCLUDED_MAX {
                self.excluded.remove(0);
            }
            self.excluded.push(query.clone());
        }
    }

    /// Returns the object's last version if a list at `version` that lacks it shows that it was
    /// deleted or left. `consistent_since` is the time the list was sent, if it was consistent.
    pub(super) fn settled_by(
        &self,
        list: &Query,
        version: &ResourceVersion,
        since: Option<Instant>,
    ) -> Option<ResourceVersion> {
        match &self.expectation {
            Expectation::AtLeast(known, labels) => {
                // An object that the list did not select is not missing from it.
                let by_labels = || labels.is_some() && could_match(list, labels);
                let selected = self.listed_by.as_deref() == Some(list)
                    || (list.fields.is_everything() && by_labels())
                    || list.selects_all();
                (selected && known <= version).then(|| known.clone())
            }
            Expectation::Exists | Expectation::Uncertain => {
                since.filter(|sent_at| list.selects_all() && self.at <= *sent_at)?;
                let known = self.before.as_ref().map(|(known, _)| known.clone());
                known.or_else(|| ResourceVersion::parse("1").ok())
            }
            Expectation::Gone { .. } | Expectation::Left { .. } => None,
        }
    }

    /// Reports whether the snapshot may lack the object only because of fields, which are unknown.
    pub(super) fn is_unseen(&self, key: &ObjectKey, requirement: &Requirement<'_>) -> bool {
        let Expectation::AtLeast(version, labels) = &self.expectation else { return false };
        let snapshot = requirement.held.snapshot;
        snapshot.version() < version
            && snapshot.object(key).is_none()
            && could_match(requirement.query, labels)
            && !self.excluded.contains(requirement.query)
    }

    /// Reports whether a replica with this snapshot will satisfy this expectation from now on, at
    /// every later version.
    pub(super) fn is_reached(&self, key: &ObjectKey, snapshot: &Snapshot) -> bool {
        let reached = self.reach().is_some_and(|version| snapshot.version() >= version);
        reached
            || match &self.expectation {
                Expectation::AtLeast(version, _) => {
                    snapshot.object(key).is_some_and(|held| held.version() >= version)
                }
                _ => false,
            }
    }

    pub(super) fn judge(&self, key: &ObjectKey, requirement: &Requirement<'_>) -> Verdict {
        let (query, snapshot) = (requirement.query, requirement.held.snapshot);
        let held = snapshot.object(key);
        let held = held.as_deref();
        let shown = held.filter(|object| selects(query, object));
        // Outside the selection that it left, the object may still exist. A deletion may have been a
        // dry run, whose response looks the same.
        let has_left = self.left().is_some_and(|selection| selection.covers(query));
        if let Some((version, labels)) = &self.before
            && !(has_left && shown.is_none())
            && !self.is_held(held, version, labels, requirement)
        {
            return Verdict::Behind(version.clone(), Imminence::Likely);
        }
        if let Some((version, labels)) = &self.after
            && !self.is_held(held, version, labels, requirement)
        {
            return Verdict::Behind(version.clone(), Imminence::Likely);
        }
        match &self.expectation {
            Expectation::AtLeast(version, labels)
                if self.is_held(held, version, labels, requirement) =>
            {
                Verdict::Satisfied
            }
            Expectation::AtLeast(version, _) => Verdict::Behind(version.clone(), Imminence::Likely),
            // The object is still held as it was before it left; its next state may be selected.
            Expectation::Left { selection, version, .. }
                if !selection.covers(query)
                    && snapshot.version() < version
                    && held.is_some_and(|object| selects(selection, object)) =>
            {
                Verdict::Leaving
            }
            // A snapshot that lacks the object may be from before its creation.
            Expectation::Gone { .. } | Expectation::Left { .. } if shown.is_none() => {
                Verdict::Satisfied
            }
            Expectation::Gone { version: version @ Some(_), .. } => {
                by_version(version, snapshot, || Verdict::Leaving)
            }
            Expectation::Gone { version: None, .. } => {
                by_version(&self.proven, snapshot, || Verdict::Leaving)
            }
            Expectation::Left { selection, than, version } => {
                let moved = held
                    .is_some_and(|object| object.version() >= than && !selects(selection, object));
                if moved || snapshot.version() >= version {
                    return Verdict::Satisfied;
                }
                Verdict::Leaving
            }
            // The object's labels are unknown: only a read without label requirements certainly
            // selects it.
            Expectation::Exists if held.is_some() || !query.labels.is_everything() => {
                Verdict::Satisfied
            }
            _ => by_version(&self.proven, snapshot, || Verdict::Barred),
        }
    }

    /// Reports whether a snapshot shows an object at this version or later. It need not if the
    /// query selects neither the held nor the reported state.
    fn is_held(
        &self,
        held: Option<&Head>,
        version: &ResourceVersion,
        labels: &KnownLabels,
        requirement: &Requirement<'_>,
    ) -> bool {
        let (query, snapshot) = (requirement.query, requirement.held.snapshot);
        let could_match = || could_match(query, labels) && !self.excluded.contains(query);
        snapshot.version() >= version
            || match held {
                Some(object) if object.version() >= version => true,
                Some(object) => !could_match() && !selects(query, object),
                None => !could_match(),
            }
    }
}

/// The size of a label without its text.
const PAIR_OVERHEAD: usize = 64;

fn label_bytes(labels: &KnownLabels) -> usize {
    let pairs = labels.iter().flat_map(|labels| labels.iter());
    pairs.map(|(key, value)| key.len() + value.len() + PAIR_OVERHEAD).sum()
}

fn excluded_bytes(query: &Query) -> usize {
    size_of::<Query>() + query.selector_bytes()
}

fn could_match(query: &Query, labels: &KnownLabels) -> bool {
    labels.as_ref().is_none_or(|labels| query.labels.matches(&KnownSet(labels)))
}

struct KnownSet<'a>(&'a BTreeMap<String, String>);

impl Labels for KnownSet<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}
