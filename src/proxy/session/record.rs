//! What a session knows of one group-resource. Pure.

mod expected;

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{Expectation, Floor, Imminence, Source, Verdict};
use crate::{
    api::{ObjectKey, Scope, query::Query, version::ResourceVersion},
    cache::store::Snapshot,
    hash::HashMap,
    mutants::{Mutant, is_on},
};
use expected::Expected;

/// Floors, expectations and barriers of one group-resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// The highest version of a collection shown to the session, and when it came to be known.
    shown: Option<ShownVersion>,
    /// Consistent reads of late: when each was sent, and the version it returned.
    proofs: VecDeque<(Instant, ResourceVersion)>,
    expected: HashMap<ObjectKey, Expected>,
    sweeps: Vec<Sweep>,
    /// Watches being shown to the session whose events cannot be read along.
    pub(super) blind_watches: usize,
    /// A consistent state was shown since the session began.
    pub(super) has_consistent: bool,
    /// The last answer was 410 or 504.
    pub(super) upstream_next: bool,
}

#[derive(Clone, Debug)]
struct ShownVersion {
    version: ResourceVersion,
    at: Instant,
    source: Source,
}

/// A write over a whole scope, such as deletecollection.
#[derive(Clone, Debug)]
struct Sweep {
    scope: Scope,
    at: Instant,
    proven: Option<ResourceVersion>,
}

/// Objects remembered per group-resource; beyond it the record is collapsed. Each costs every read
/// of the resource a look into the snapshot.
pub(super) const EXPECTED_MAX: usize = 512;

/// Scope-wide barriers remembered per group-resource; beyond it they become one over everything.
const SWEEPS_MAX: usize = 64;

/// Proofs remembered per group-resource.
const PROOFS_MAX: usize = 16;

/// How long after it became known a version's event may be expected.
pub(super) const IMMINENT: Duration = Duration::from_secs(1);

// === impl Record ===

impl Record {
    /// Whether a snapshot may answer a read of this query.
    pub(super) fn judge(&self, query: &Query, snapshot: &Snapshot, now: Instant) -> Verdict {
        if self.blind_watches > 0 {
            return Verdict::Barred;
        }
        let mut verdict = self.judge_shown(snapshot, now);
        for sweep in self.sweeps.iter().filter(|sweep| sweep.touches(&query.scope)) {
            verdict = verdict.stricter(by_version(&sweep.proven, snapshot, || Verdict::Barred));
        }
        for (key, expected) in self.expected.iter().filter(|(key, _)| touches(query, key)) {
            verdict = verdict.stricter(expected.judge(key, query, snapshot));
        }
        verdict
    }

    /// Whether a snapshot is as new as what was shown.
    pub(super) fn judge_shown(&self, snapshot: &Snapshot, now: Instant) -> Verdict {
        match &self.shown {
            Some(ShownVersion { version, at, .. }) if snapshot.version() < version => {
                let recent = now.saturating_duration_since(*at) < IMMINENT;
                let imminence = if recent { Imminence::Likely } else { Imminence::Unlikely };
                Verdict::Behind(version.clone(), imminence)
            }
            _ => Verdict::Satisfied,
        }
    }

    pub(super) fn is_proven_since(&self, snapshot: &Snapshot, since: Instant) -> bool {
        let proves = |(sent_at, version): &(Instant, ResourceVersion)| {
            *sent_at >= since && snapshot.version() >= version
        };
        self.proofs.iter().any(proves)
    }

    pub(super) fn floor(&self, query: &Query) -> Floor {
        if self.blind_watches > 0 {
            return Floor::Consistent;
        }
        let swept = self.sweeps.iter().filter(|sweep| sweep.touches(&query.scope));
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

    pub(super) fn show(&mut self, version: &ResourceVersion, source: Source, at: Instant) {
        self.has_consistent |= source == Source::Storage;
        let is_newer = |shown: &ShownVersion| (&shown.version, shown.source) < (version, source);
        if self.shown.as_ref().is_none_or(is_newer) {
            self.shown = Some(ShownVersion { version: version.clone(), at, source });
            self.forget_implied();
        }
    }

    pub(super) fn expect(&mut self, key: ObjectKey, expectation: Expectation, now: Instant) {
        if let Expectation::AtLeast(version, _) = &expectation
            && self.knows_newer(&key, version)
        {
            return;
        }
        let before = match &expectation {
            Expectation::AtLeast(..) | Expectation::Gone { version: Some(_), .. } => None,
            _ => self.expected.get(&key).and_then(Expected::known),
        };
        self.expected.insert(key, Expected { expectation, at: now, proven: None, before });
        if self.expected.len() > EXPECTED_MAX {
            self.collapse(now);
        }
    }

    pub(super) fn observe(&mut self, key: ObjectKey, expectation: Expectation, sent_at: Instant) {
        if self.expected.get(&key).is_none_or(|known| known.at <= sent_at) {
            self.expect(key, expectation, sent_at);
        }
    }

    pub(super) fn raise(&mut self, key: ObjectKey, expectation: Expectation, now: Instant) {
        let new = Expected { expectation, at: now, proven: None, before: None };
        // What has no version is only replaced by what is known to be consistent.
        let is_newer =
            |known: &Expected| known.version().is_some_and(|at| Some(at) < new.version());
        if self.expected.get(&key).is_none_or(is_newer) {
            self.expect(key, new.expectation, now);
        }
    }

    pub(super) fn has_seen(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        let in_collection = self.shown.as_ref().is_some_and(|shown| shown.version >= *version);
        let expected = || self.expected.get(key).and_then(Expected::version);
        in_collection || expected().is_some_and(|known| known >= version)
    }

    pub(super) fn sweep(&mut self, scope: Scope, now: Instant) {
        self.sweeps.retain(|sweep| !scope.contains(&sweep.scope));
        self.sweeps.push(Sweep { scope, at: now, proven: None });
        if self.sweeps.len() > SWEEPS_MAX {
            self.sweeps = vec![Sweep { scope: Scope::All, at: now, proven: None }];
        }
    }

    /// Demands of `heir` everything demanded here, or more: every version becomes a floor, and what
    /// has none bars everything.
    pub(super) fn bequeath(&self, heir: &mut Self, now: Instant) {
        if let Some(ShownVersion { version, at, .. }) = &self.shown {
            heir.show(version, Source::Storage, *at);
        }
        let mut unknown = self.blind_watches > 0 || self.upstream_next;
        let expected = self.expected.values().map(Expected::version);
        for version in expected.chain(self.sweeps.iter().map(|sweep| sweep.proven.as_ref())) {
            match version {
                Some(version) => heir.show(version, Source::Storage, now),
                None => unknown = true,
            }
        }
        if unknown {
            heir.sweep(Scope::All, now);
        }
    }

    pub(super) fn barriers(&self) -> usize {
        self.expected.len() + self.sweeps.len()
    }

    pub(super) fn prove(&mut self, sent_at: Instant, version: &ResourceVersion) {
        if self.is_refuted_by(sent_at, version) {
            let blind_watches = self.blind_watches;
            *self = Self { blind_watches, ..Self::default() };
            self.show(version, Source::Storage, sent_at);
        }
        let older = |proven: &Option<ResourceVersion>| proven.as_ref().is_none_or(|p| version < p);
        for sweep in &mut self.sweeps {
            if sweep.at <= sent_at && older(&sweep.proven) {
                sweep.proven = Some(version.clone());
            }
        }
        for expected in self.expected.values_mut() {
            if (expected.at <= sent_at || is_on(Mutant::BarrierLiftedEarly))
                && older(&expected.proven)
            {
                expected.proven = Some(version.clone());
            }
        }
        if self.proofs.len() == PROOFS_MAX {
            self.proofs.pop_front();
        }
        self.proofs.push_back((sent_at, version.clone()));
        self.forget_implied();
    }

    /// Whether the data itself went back, as a restored etcd's: a consistent read came out below what
    /// was shown before it was sent (S-CONS-09).
    fn is_refuted_by(&self, sent_at: Instant, version: &ResourceVersion) -> bool {
        let refutes = |shown: &ShownVersion| *version < shown.version && shown.at < sent_at;
        self.shown.as_ref().is_some_and(refutes)
    }

    fn knows_newer(&self, key: &ObjectKey, version: &ResourceVersion) -> bool {
        match self.expected.get(key).map(|expected| &expected.expectation) {
            Some(
                Expectation::AtLeast(known, _) | Expectation::Gone { version: Some(known), .. },
            ) => known > version,
            _ => false,
        }
    }

    /// Drops what the shown floor already demands.
    fn forget_implied(&mut self) {
        let Some(ShownVersion { version: shown, .. }) = &self.shown else { return };
        let implied =
            |version: Option<&ResourceVersion>| version.is_some_and(|version| version <= shown);
        self.sweeps.retain(|sweep| !implied(sweep.proven.as_ref()));
        self.expected.retain(|_, expected| !implied(expected.version()));
    }

    /// Too many objects: raise the floor to the newest version, and bar what has none.
    pub(super) fn collapse(&mut self, now: Instant) {
        let expected = std::mem::take(&mut self.expected);
        for expected in expected.into_values() {
            match expected.version() {
                Some(version) => self.show(version, Source::Storage, now),
                None => self.sweeps = vec![Sweep { scope: Scope::All, at: now, proven: None }],
            }
        }
    }
}

// === impl Sweep ===

impl Sweep {
    fn touches(&self, scope: &Scope) -> bool {
        self.scope.contains(scope) || scope.contains(&self.scope)
    }
}

/// Whether the object of this key could be selected by the query, by its name and namespace.
fn touches(query: &Query, key: &ObjectKey) -> bool {
    let in_scope = query.scope.namespace().is_none_or(|namespace| {
        key.namespace().is_none_or(|key_namespace| key_namespace == namespace)
    });
    in_scope
        && query.fields.pinned("metadata.name").is_none_or(|name| name == key.name())
        && query
            .fields
            .pinned("metadata.namespace")
            .is_none_or(|namespace| key.namespace() == Some(namespace))
}

/// Judges by a version when there is one, and says `otherwise` when there is none.
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
