//! The state of a session for one group-resource. Pure.

mod expected;
mod expired;
mod mark;
mod objects;
mod pages;

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{Floor, Held, Imminence, List, Page, Paging, Source, Verdict};
use crate::{
    api::{
        ObjectKey, Scope, form::Form, query::Query, selector::NAME_PATH, version::ResourceVersion,
    },
    cache::store::Snapshot,
    hash::HashMap,
};
use expected::Expected;
use expired::ExpiredReads;
use mark::{Mark, Marks};
use pages::Pages;

pub use mark::{Doubt, Doubts, Evidence, Origin};

#[cfg(test)]
pub(super) use mark::{MARKS_MAX, SELECTOR_BYTES_MAX};
#[cfg(test)]
pub(super) use objects::{EXPECTED_BYTES_MAX, EXPECTED_MAX};
#[cfg(test)]
pub(super) use pages::UNFINISHED_BYTES_MAX;

/// Marks, expectations and barriers of one group-resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// The highest version shown to the session, and the time it was learned: forwarded reads must
    /// reach it.
    shown: Option<ShownVersion>,
    /// The collections that were shown.
    marks: Marks,
    pages: Pages,
    /// The recent consistent reads: the send time and the returned version of each.
    proofs: VecDeque<(Instant, ResourceVersion)>,
    expected: HashMap<ObjectKey, Expected>,
    /// The memory of the expectations, estimated.
    expected_bytes: usize,
    /// The number of expectations from which a search for superfluous ones is worthwhile.
    crowd: usize,
    /// The replicas of the last removal of superfluous expectations, and the version of each.
    pruned_by: Vec<(Query, Form, ResourceVersion)>,
    sweeps: Vec<Sweep>,
    /// The barrier for versions that were shown and forgotten. It binds every read.
    forgotten: Option<Sweep>,
    /// The scopes of open watches whose events cannot be parsed; connections bound their number.
    pub(super) blind_watches: Vec<Scope>,
    /// `true` if a consistent state was shown since the session began.
    pub(super) has_consistent: bool,
    expired: ExpiredReads,
    /// `true` if a limit was reached since the last check.
    pub(super) overflowed: bool,
}

/// The requirements of a read on a replica.
#[derive(Clone, Copy, Debug)]
struct Requirement<'a> {
    query: &'a Query,
    held: Held<'a>,
}

#[derive(Clone, Debug)]
struct ShownVersion {
    version: ResourceVersion,
    at: Instant,
    source: Source,
}

/// A write over a whole scope, such as deletecollection, or an unparsed list.
#[derive(Clone, Debug)]
struct Sweep {
    scope: Scope,
    at: Instant,
    proven: Option<ResourceVersion>,
}

/// The limit of scope-wide barriers per group-resource; above it they become one over everything.
const SWEEPS_MAX: usize = 64;

/// The limit of proofs per group-resource.
const PROOFS_MAX: usize = 16;

/// The time after which a version's event is no longer expected soon.
pub(super) const IMMINENT: Duration = Duration::from_secs(1);

// === impl Record ===

impl Record {
    /// Decides whether a replica may answer a read of this query.
    pub(super) fn judge(&self, query: &Query, held: Held<'_>, now: Instant) -> Verdict {
        if self.is_blind(query) {
            return Verdict::Barred;
        }
        let requirement = Requirement { query, held };
        let mut verdict = self.marks.judge(&requirement, now).stricter(self.judge_pruned(held));
        let sweeps = self.sweeps.iter().chain(&self.forgotten);
        for sweep in sweeps.filter(|sweep| scopes_meet(&sweep.scope, &query.scope)) {
            let barred = || Verdict::Barred;
            verdict = verdict.stricter(by_version(&sweep.proven, held.snapshot, barred));
        }
        for (key, expected) in self.expected.iter().filter(|(key, _)| touches(query, key)) {
            verdict = verdict.stricter(expected.judge(key, &requirement));
        }
        verdict
    }

    /// Decides the same for a read that only must not go back.
    pub(super) fn judge_shown(&self, query: &Query, held: Held<'_>, now: Instant) -> Verdict {
        let requirement = Requirement { query, held };
        let mut verdict = self.marks.judge(&requirement, now).stricter(self.judge_pruned(held));
        let listed = self.expected.iter().filter(|(_, expected)| expected.listed_by.is_some());
        for (key, expected) in listed.filter(|(key, _)| touches(query, key)) {
            verdict = verdict.stricter(expected.judge(key, &requirement));
        }
        if let Some(Sweep { proven, .. }) = &self.forgotten {
            verdict = verdict.stricter(by_version(proven, held.snapshot, || Verdict::Barred));
        }
        verdict
    }

    /// Refuses a snapshot from before the expectations that were removed as superfluous.
    fn judge_pruned(&self, held: Held<'_>) -> Verdict {
        let pruned_by = self
            .pruned_by
            .iter()
            .find(|(replica, form, _)| replica == held.query && *form == held.snapshot.form());
        match pruned_by {
            Some((.., version)) if held.snapshot.version() < version => {
                Verdict::Behind(version.clone(), Imminence::Likely)
            }
            _ => Verdict::Satisfied,
        }
    }

    pub(super) fn list_version(&self, query: &Query, held: Held<'_>) -> Option<&ResourceVersion> {
        self.marks.list_version(&Requirement { query, held })
    }

    pub(super) fn doubts(&self, query: &Query, held: Held<'_>) -> Vec<Doubt> {
        self.marks.doubts(&Requirement { query, held })
    }

    pub(super) fn clear(&mut self, doubt: &Doubt, replica: &Query, evidence: Evidence) {
        self.marks.clear(doubt, replica, evidence);
    }

    pub(super) fn is_proven_since(&self, held: Held<'_>, since: Instant) -> bool {
        let proves = |(sent_at, version): &(Instant, ResourceVersion)| {
            *sent_at >= since && held.snapshot.version() >= version
        };
        self.proofs.iter().any(proves)
    }

    pub(super) fn floor(&self, query: &Query) -> Floor {
        if self.is_blind(query) {
            return Floor::Consistent;
        }
        let swept = self.sweeps.iter().chain(&self.forgotten);
        let swept = swept.filter(|sweep| scopes_meet(&sweep.scope, &query.scope));
        let expected = self.expected.iter().filter(|(key, _)| touches(query, key));
        let versions = swept
            .map(|sweep| sweep.proven.as_ref().map(|version| (version, Source::Storage)))
            .chain(expected.map(|(_, expected)| expected.floor()));
        let mut floor = self.shown.as_ref().map(|shown| (&shown.version, shown.source));
        for version in versions {
            match version {
                Some(version) => floor = floor.max(Some(version)),
                None => return Floor::Consistent,
            }
        }
        match floor {
            None => Floor::Unknown,
            Some((version, Source::Cache)) => Floor::At(version.clone()),
            Some((_, Source::Storage)) => Floor::Consistent,
        }
    }

    /// Notes that any part of the resource was shown at this version.
    pub(super) fn show(&mut self, version: &ResourceVersion, source: Source, at: Instant) {
        self.reach(version, source, at);
        self.raise_mark(Mark::of_everything(version.clone(), at));
    }

    /// Notes that all or a part of a replica's state was shown.
    pub(super) fn show_replica(
        &mut self,
        (replica, form): (&Query, Form),
        version: &ResourceVersion,
        source: Source,
        at: Instant,
    ) {
        self.reach(version, source, at);
        let origin = Origin::Replica(form);
        if !self.marks.knows(replica, origin, version) {
            self.raise_mark(Mark::new(replica.clone(), origin, version.clone(), at));
        }
    }

    /// Notes that a list from the apiserver was shown.
    pub(super) fn show_list(&mut self, list: List, at: Instant) {
        if let Some(sent_at) = list.consistent_since.filter(|_| list.query.selects_all()) {
            let settled =
                |sweep: &Sweep| sweep.at <= sent_at && list.query.scope.contains(&sweep.scope);
            self.sweeps.retain(|sweep| !settled(sweep));
            self.forgotten = self.forgotten.take().filter(|sweep| !settled(sweep));
        }
        self.reach(&list.version, list.source, at);
        let mut mark = Mark::new(list.query, Origin::List, list.version, at);
        (mark.digest, mark.whole) = (list.digest, list.whole);
        for (replica, from) in list.compared {
            mark.compared(replica, from);
        }
        self.raise_mark(mark);
    }

    fn raise_mark(&mut self, mark: Mark) {
        self.overflowed |= !self.marks.raise(mark);
    }

    /// Raises the version that forwarded reads must reach.
    fn reach(&mut self, version: &ResourceVersion, source: Source, at: Instant) {
        self.has_consistent |= source == Source::Storage;
        let is_newer = |shown: &ShownVersion| (&shown.version, shown.source) < (version, source);
        if self.shown.as_ref().is_none_or(is_newer) {
            self.shown = Some(ShownVersion { version: version.clone(), at, source });
        }
    }

    pub(super) fn page(
        &mut self,
        query: &Query,
        version: &ResourceVersion,
        paging: Paging,
    ) -> Option<Page> {
        self.pages.add(query, version, paging)
    }

    /// Notes that a read's version is useless. Beyond the limit the oldest such read is forgotten.
    pub(super) fn expire(&mut self, query: &Query, name: Option<&str>) {
        self.overflowed |= !self.expired.add(query, name);
    }

    /// Notes that the apiserver answered the read without a version.
    pub(super) fn went_upstream(&mut self, query: &Query, name: Option<&str>) {
        self.expired.settle(query, name);
    }

    pub(super) fn is_expired(&self, query: &Query, name: Option<&str>) -> bool {
        self.expired.contains(query, name)
    }

    pub(super) fn sweep(&mut self, scope: Scope, now: Instant) {
        self.sweeps.retain(|sweep| !scope.contains(&sweep.scope));
        self.sweeps.push(Sweep { scope, at: now, proven: None });
        if self.sweeps.len() > SWEEPS_MAX {
            self.overflowed = true;
            self.sweeps = vec![Sweep { scope: Scope::All, at: now, proven: None }];
        }
    }

    /// Bars every read until a consistent one: versions that were shown are forgotten.
    pub(super) fn forget_shown(&mut self, at: Instant) {
        self.forgotten = Some(Sweep { scope: Scope::All, at, proven: None });
    }

    /// Adds all demands of this record to `heir`, or stricter ones: every version becomes a floor,
    /// and a requirement without a version bars everything.
    pub(super) fn bequeath(&self, heir: &mut Self, now: Instant) {
        if let Some(ShownVersion { version, at, .. }) = &self.shown {
            heir.show(version, Source::Storage, *at);
        }
        let mut unknown = !self.blind_watches.is_empty() || !self.expired.is_empty();
        let expected = self.expected.values().map(Expected::reach);
        let sweeps = self.sweeps.iter().chain(&self.forgotten);
        for version in expected.chain(sweeps.map(|sweep| sweep.proven.as_ref())) {
            match version {
                Some(version) => heir.show(version, Source::Storage, now),
                None => unknown = true,
            }
        }
        if unknown {
            heir.sweep(Scope::All, now);
        }
        if let Some(Sweep { proven: None, .. }) = self.forgotten {
            heir.forget_shown(now);
        }
    }

    /// Reports whether any version was shown, or may have been.
    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some() || self.forgotten.is_some()
    }

    pub(super) fn barriers(&self) -> usize {
        self.expected.len() + self.sweeps.len() + self.marks.len()
    }

    /// Returns the memory held, estimated.
    pub(super) fn bytes(&self) -> usize {
        let sweep = |sweep: &Sweep| size_of::<Sweep>() + sweep.scope.as_str().len();
        let sweeps: usize = self.sweeps.iter().map(sweep).sum();
        let proofs = self.proofs.len() * size_of::<(Instant, ResourceVersion)>();
        let pruned_by = self.pruned_by.iter().map(|pruned| {
            let (replica, ..) = pruned;
            size_of_val(pruned) + replica.selector_bytes()
        });
        let lists = self.marks.bytes() + self.pages.bytes() + self.expired.bytes();
        size_of::<Self>() + self.expected_bytes + lists + sweeps + proofs + pruned_by.sum::<usize>()
    }

    pub(super) fn prove(&mut self, sent_at: Instant, version: &ResourceVersion) {
        if self.is_refuted_by(sent_at, version) {
            self.forget();
            self.show(version, Source::Storage, sent_at);
        }
        let older = |proven: &Option<ResourceVersion>| proven.as_ref().is_none_or(|p| version < p);
        for sweep in self.sweeps.iter_mut().chain(&mut self.forgotten) {
            if sweep.at <= sent_at && older(&sweep.proven) {
                sweep.proven = Some(version.clone());
            }
        }
        for expected in self.expected.values_mut() {
            if expected.at <= sent_at && older(&expected.proven) {
                expected.proven = Some(version.clone());
            }
        }
        if self.proofs.len() == PROOFS_MAX {
            self.proofs.pop_front();
        }
        self.proofs.push_back((sent_at, version.clone()));
    }

    /// Forgets the versions of a storage that was replaced.
    pub(super) fn forget(&mut self) {
        let blind_watches = std::mem::take(&mut self.blind_watches);
        *self = Self { blind_watches, ..Self::default() };
    }

    /// Reports whether an open watch shows objects of this scope that are unknown here.
    fn is_blind(&self, query: &Query) -> bool {
        self.blind_watches.iter().any(|scope| scopes_meet(scope, &query.scope))
    }

    /// Reports whether the storage itself went back, as after a restore of etcd. A consistent read
    /// then returns a version below one that was shown before it was sent (S-CONS-09).
    fn is_refuted_by(&self, sent_at: Instant, version: &ResourceVersion) -> bool {
        let shown = self.shown.iter().map(|shown| (shown.at, Some(&shown.version)));
        let objects = self.expected.values().map(|known| (known.at, known.shown_version()));
        shown.chain(objects).any(|(at, shown)| at < sent_at && shown > Some(version))
    }
}

/// Reports whether an object could be in both scopes.
fn scopes_meet(one: &Scope, other: &Scope) -> bool {
    one.contains(other) || other.contains(one)
}

/// Reports whether the query could select the object of this key, by its name and namespace.
fn touches(query: &Query, key: &ObjectKey) -> bool {
    let in_scope = query.scope.namespace().is_none_or(|namespace| {
        key.namespace().is_none_or(|key_namespace| key_namespace == namespace)
    });
    in_scope
        && query.fields.pinned(NAME_PATH).is_none_or(|name| name == key.name())
        && query
            .fields
            .pinned("metadata.namespace")
            .is_none_or(|namespace| key.namespace() == Some(namespace))
}

/// Decides by a version if there is one; returns `otherwise` if there is none.
fn by_version(
    version: &Option<ResourceVersion>,
    snapshot: &Snapshot,
    otherwise: impl Fn() -> Verdict,
) -> Verdict {
    match version {
        Some(version) if snapshot.version() >= version => Verdict::Satisfied,
        Some(version) => Verdict::Behind(version.clone(), Imminence::Likely),
        None => otherwise(),
    }
}
