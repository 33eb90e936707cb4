//! The collections that a session has seen, and the replicas known to show as much. Pure.
//!
//! A mark binds a replica that has not reached its version, until it is cleared. It is cleared by
//! the events of a replica that reached the version, or by a comparison with the replica's content.

use tokio::time::Instant;

use super::{IMMINENT, Requirement, scopes_meet};
use crate::{
    api::{ObjectKey, form::Form, query::Query, selector::NAME_PATH, version::ResourceVersion},
    cache::digest::Digest,
    proxy::session::{Held, Imminence, Verdict},
};

/// A collection that was shown at one version.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// The query that selects it; `None` for any part of the resource.
    pub of: Option<Query>,
    pub origin: Origin,
    pub version: ResourceVersion,
    /// The time at which the version was learned.
    pub at: Instant,
    /// The content at that version, if it was read completely.
    pub digest: Option<Digest>,
    /// `true` if its list was compared whole; `false` if only a part of it was.
    pub whole: bool,
    cleared: Vec<Cleared>,
}

/// The way a collection was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// By a replica of the query, in this form; its reads may have selected less.
    Replica(Form),
    /// In a list from the apiserver.
    List,
}

/// A replica that a mark does not bind from a version on.
#[derive(Clone, Debug)]
struct Cleared {
    /// The query of the replica.
    replica: Query,
    /// The version from which it shows as much.
    from: ResourceVersion,
    /// The only version at which it does, if the states after it are unknown.
    only: Option<ResourceVersion>,
    /// The highest version of the mark for which this is known.
    until: ResourceVersion,
    /// `true` if the replica's content equals that of the mark's version; `false` if it only lacks
    /// nothing of it.
    exact: bool,
}

/// A mark that binds a replica, and the versions to examine to clear it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The collection that was shown; `None` for any part of the resource.
    pub of: Option<Query>,
    /// The way it was shown.
    pub origin: Origin,
    /// The version of the replica.
    pub at: ResourceVersion,
    /// The version up to which no change matters.
    pub after: ResourceVersion,
    /// The version after which no change matters: that of the mark, or one from which a replica of the
    /// same query is known to show as much.
    pub until: ResourceVersion,
    /// The content at that version, if it was read completely.
    pub digest: Option<Digest>,
}

/// The reasons why a replica may not show as much as a session has seen.
#[derive(Debug)]
pub struct Doubts {
    /// The marks that keep the replica from answering, although its objects may be unchanged.
    pub marks: Vec<Doubt>,
    /// Objects that the replica lacks and whose selection depends on fields the session has not seen.
    pub unseen: Vec<ObjectKey>,
    /// `true` if the session holds so much of the resource that it should be pruned.
    pub is_crowded: bool,
}

/// The reason why a doubt about a replica is cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The last change that concerns it has this version, or there was none.
    From(Option<ResourceVersion>),
    /// Its objects are those of the mark's version; others may have come and gone in between.
    Equal,
}

/// The marks of one group-resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Marks {
    marks: Vec<Mark>,
    /// The memory of their selectors, estimated.
    selector_bytes: usize,
}

/// The limit of marks per group-resource; above it the oldest becomes part of one over everything.
pub(in crate::proxy::session) const MARKS_MAX: usize = 128;

/// The limit of the bytes of their selectors.
pub(in crate::proxy::session) const SELECTOR_BYTES_MAX: usize = 128 * 1024;

/// The limit of unbound replicas per mark; a forgotten one is examined again.
const CLEARED_MAX: usize = 32;

// === impl Marks ===

impl Marks {
    pub(super) fn judge(&self, requirement: &Requirement<'_>, now: Instant) -> Verdict {
        let verdicts = self.marks.iter().map(|mark| mark.judge(requirement, now));
        verdicts.fold(Verdict::Satisfied, Verdict::stricter)
    }

    /// Returns the lowest version that a list must show, if it is higher than the snapshot's.
    pub(super) fn list_version(&self, requirement: &Requirement<'_>) -> Option<&ResourceVersion> {
        let binding = self.marks.iter().filter(|mark| mark.binds_list(requirement.query));
        let versions = binding.map(|mark| &mark.version);
        versions.max().filter(|version| *version > requirement.held.snapshot.version())
    }

    pub(super) fn doubts(&self, requirement: &Requirement<'_>) -> Vec<Doubt> {
        self.marks.iter().flat_map(|mark| mark.doubts(requirement)).collect()
    }

    /// Reports whether a mark without content would change nothing: most hits show what the last did.
    pub(super) fn knows(&self, of: &Query, origin: Origin, version: &ResourceVersion) -> bool {
        self.marks.iter().any(|mark| {
            let is_same = || mark.origin == origin && mark.of.as_ref() == Some(of);
            let is_higher = mark.version > *version;
            (is_higher || mark.version == *version && mark.cleared.is_empty()) && is_same()
        })
    }

    /// Returns `false` if a bound was reached.
    pub(super) fn raise(&mut self, mark: Mark) -> bool {
        let same = |held: &&mut Mark| held.origin == mark.origin && held.of == mark.of;
        match self.marks.iter_mut().find(same) {
            Some(held) if held.version > mark.version => return true,
            Some(held) if held.version == mark.version => {
                held.join(mark);
                return true;
            }
            // Its replicas are examined again from their known versions.
            Some(held) if matches!(mark.origin, Origin::Replica(_)) => {
                (held.version, held.at) = (mark.version, mark.at);
            }
            Some(held) => held.replace(mark),
            None => {
                self.selector_bytes += mark.selector_bytes();
                self.marks.push(mark);
            }
        }
        let within =
            |marks: &Self| marks.len() <= MARKS_MAX && marks.selector_bytes <= SELECTOR_BYTES_MAX;
        if within(self) {
            return true;
        }
        while !within(self) {
            self.merge_oldest();
        }
        false
    }

    pub(super) fn clear(&mut self, doubt: &Doubt, replica: &Query, evidence: Evidence) {
        let same = |mark: &&mut Mark| mark.origin == doubt.origin && mark.of == doubt.of;
        if let Some(mark) = self.marks.iter_mut().find(same) {
            mark.clear(doubt, replica, evidence);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.marks.len()
    }

    pub(super) fn bytes(&self) -> usize {
        let cleared = self.marks.iter().flat_map(|mark| &mark.cleared);
        let cleared = cleared.map(|it| size_of::<Cleared>() + it.replica.selector_bytes());
        self.selector_bytes + self.marks.len() * size_of::<Mark>() + cleared.sum::<usize>()
    }

    /// Merges all marks into one over everything.
    pub(super) fn merge_all(&mut self) {
        self.selector_bytes = 0;
        let newest = self.marks.drain(..).max_by(|a, b| a.version.cmp(&b.version));
        self.marks.extend(newest.map(|Mark { version, at, .. }| Mark::of_everything(version, at)));
    }

    fn merge_oldest(&mut self) {
        let named = self.marks.iter().enumerate().filter(|(_, mark)| mark.of.is_some());
        let oldest = named.min_by(|(_, a), (_, b)| a.version.cmp(&b.version));
        if let Some((index, _)) = oldest {
            let merged = self.marks.swap_remove(index);
            self.selector_bytes -= merged.selector_bytes();
            let Mark { version, at, .. } = merged;
            self.raise(Mark::of_everything(version, at));
        }
    }
}

// === impl Mark ===

impl Mark {
    pub(super) fn new(of: Query, origin: Origin, version: ResourceVersion, at: Instant) -> Self {
        let (digest, whole, cleared) = (None, false, Vec::new());
        Self { of: Some(of), origin, version, at, digest, whole, cleared }
    }

    /// Returns a mark of an unknown part of the resource.
    pub(super) fn of_everything(version: ResourceVersion, at: Instant) -> Self {
        let (origin, digest, whole, cleared) = (Origin::List, None, false, Vec::new());
        Self { of: None, origin, version, at, digest, whole, cleared }
    }

    /// Notes a comparison: from a version on, the replica lacks nothing except expected single
    /// objects.
    pub(super) fn compared(&mut self, replica: Query, from: ResourceVersion) {
        // Replicas of one query in several forms have the same objects at the same version.
        if let Some(held) = self.cleared.iter_mut().find(|held| held.replica == replica) {
            held.from = held.from.clone().min(from);
            return;
        }
        let until = self.version.clone();
        self.cleared.push(Cleared { replica, from, only: None, until, exact: false });
    }

    fn selector_bytes(&self) -> usize {
        self.of.as_ref().map_or(0, Query::selector_bytes)
    }

    /// Adds the facts of another mark of the same collection at the same version. A replica lacks
    /// nothing of a list in pages only if every page was compared with it.
    fn join(&mut self, other: Self) {
        self.digest = self.digest.or(other.digest);
        self.cleared.retain_mut(|held| self.whole || held.exact || held.is_also(&other));
        if other.whole {
            let is_new = |new: &Cleared| self.cleared.iter().all(|it| it.replica != new.replica);
            let new: Vec<_> = other.cleared.into_iter().filter(is_new).collect();
            self.cleared.extend(new);
            self.whole = true;
        }
    }

    /// Takes the place of an older mark of the same collection. One page says nothing about the
    /// parts of the older list that are elsewhere.
    fn replace(&mut self, mut mark: Self) {
        if !mark.whole {
            mark.cleared.retain_mut(|new| new.from >= self.version || new.is_also(self));
        }
        *self = mark;
    }

    fn judge(&self, requirement: &Requirement<'_>, now: Instant) -> Verdict {
        let snapshot = requirement.held.snapshot;
        if *snapshot.version() >= self.version || !self.concerns(requirement.query) {
            return Verdict::Satisfied;
        }
        let behind = |imminence| Verdict::Behind(self.version.clone(), imminence);
        if self.is_of_replica(requirement.held) {
            return behind(Imminence::Likely);
        }
        let cleared = self.cleared_of(requirement.held.query, snapshot.version());
        let unlikely = || {
            let recent = now.saturating_duration_since(self.at) < IMMINENT;
            behind(if recent { Imminence::Likely } else { Imminence::Unlikely })
        };
        let Some(cleared) = cleared.filter(|cleared| cleared.until >= self.version) else {
            return unlikely();
        };
        if *snapshot.version() < cleared.from {
            return Verdict::Behind(cleared.from.clone(), Imminence::Likely);
        }
        let is_its_list =
            self.origin == Origin::List && self.of.as_ref() == Some(requirement.query);
        match &self.digest {
            _ if !is_its_list || cleared.exact => Verdict::Satisfied,
            Some(digest) if *digest == requirement.content() => Verdict::Satisfied,
            // The difference is about to arrive.
            Some(_) => Verdict::Leaving,
            None => unlikely(),
        }
    }

    /// Reports whether lists of the query may have been shown at the mark's version.
    fn binds_list(&self, query: &Query) -> bool {
        self.of.as_ref().is_none_or(|of| match self.origin {
            Origin::Replica(_) => of.covers(query),
            Origin::List => of == query,
        })
    }

    /// Returns the changes to examine: those up to the version from which a replica of the same query,
    /// perhaps in another form, is known to show as much, and those since the last examination.
    fn doubts(&self, requirement: &Requirement<'_>) -> Vec<Doubt> {
        let at = requirement.held.snapshot.version();
        if *at >= self.version
            || !self.concerns(requirement.query)
            || self.is_of_replica(requirement.held)
        {
            return Vec::new();
        }
        let between = |after: &ResourceVersion, until: &ResourceVersion| {
            let (of, origin, digest) = (self.of.clone(), self.origin, self.digest);
            let (at, after, until) = (at.clone(), after.clone(), until.clone());
            Doubt { of, origin, at, after, until, digest }
        };
        let Some(cleared) = self.cleared_of(requirement.held.query, at) else {
            return vec![between(at, &self.version)];
        };
        let before = (*at < cleared.from).then(|| between(at, &cleared.from));
        let since =
            (cleared.until < self.version).then(|| between(at.max(&cleared.until), &self.version));
        before.into_iter().chain(since).collect()
    }

    /// Returns the known facts about the replica at a version.
    fn cleared_of(&self, replica: &Query, at: &ResourceVersion) -> Option<&Cleared> {
        self.cleared.iter().find(|cleared| cleared.replica == *replica && cleared.holds_at(at))
    }

    fn clear(&mut self, doubt: &Doubt, replica: &Query, evidence: Evidence) {
        let until = doubt.until.clone();
        let (from, only) = match evidence {
            Evidence::From(from) => (from, None),
            Evidence::Equal => (Some(doubt.at.clone()), Some(doubt.at.clone())),
        };
        let continues = |cleared: &&mut Cleared| {
            cleared.replica == *replica
                && cleared.holds_at(&doubt.at)
                && cleared.until >= doubt.after
        };
        if let Some(cleared) = self.cleared.iter_mut().find(continues) {
            // Changes between the examined ones and the known states may matter.
            let is_old = cleared.only.is_some() && doubt.until < cleared.until;
            if is_old || doubt.until < cleared.from {
                return;
            }
            cleared.until = until.max(cleared.until.clone());
            match from {
                Some(from) => (cleared.from, cleared.only) = (from, only),
                None => cleared.from = doubt.after.clone().min(cleared.from.clone()),
            }
            return;
        }
        self.cleared.retain(|cleared| cleared.replica != *replica);
        if self.cleared.len() == CLEARED_MAX {
            self.cleared.remove(0);
        }
        let from = from.unwrap_or_else(|| doubt.after.clone());
        self.cleared.push(Cleared { replica: replica.clone(), from, only, until, exact: true });
    }

    fn is_of_replica(&self, held: Held<'_>) -> bool {
        self.origin == Origin::Replica(held.snapshot.form()) && self.of.as_ref() == Some(held.query)
    }

    /// Reports whether the query may select an object that was shown. Labels and most fields can
    /// change: an object shown with other values is still the same object.
    fn concerns(&self, query: &Query) -> bool {
        let Some(of) = &self.of else { return true };
        let apart = |path| match (of.fields.pinned(path), query.fields.pinned(path)) {
            (Some(one), Some(other)) => one != other,
            _ => false,
        };
        scopes_meet(&of.scope, &query.scope) && !apart(NAME_PATH)
    }
}

// === impl Cleared ===

impl Cleared {
    fn holds_at(&self, version: &ResourceVersion) -> bool {
        self.only.as_ref().is_none_or(|only| only == version)
    }

    /// Reports whether the replica also shows as much as another mark; then from the later of both
    /// versions on.
    fn is_also(&mut self, mark: &Mark) -> bool {
        let known = |other: &&Self| {
            other.replica == self.replica && other.only.is_none() && other.until >= mark.version
        };
        let Some(other) = mark.cleared.iter().find(known) else { return false };
        self.from = self.from.clone().max(other.from.clone());
        true
    }
}

// === impl Requirement ===

impl Requirement<'_> {
    fn content(&self) -> Digest {
        Digest::of(self.held.snapshot.select(self.query).iter())
    }
}
