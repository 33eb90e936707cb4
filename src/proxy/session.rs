//! What one session has seen and written: floors, expectations and barriers per group-resource.
//!
//! Pure state; time is passed in. [`Session::judge`] says whether a snapshot may be shown to the
//! session without going back in time or hiding its own writes (S-WRITE-21, S-WRITE-22, S-CONS-32).
//! Every bound here errs towards the apiserver: what does not fit is collapsed into something stricter.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    api::{
        GroupResource, ObjectKey, Scope, query::Query, selector::Labels, version::ResourceVersion,
    },
    cache::store::Snapshot,
};

/// Everything remembered of one session (S-CONS-45).
#[derive(Debug, Default)]
pub struct Session {
    records: HashMap<GroupResource, Record>,
    /// More group-resources than fit: those without a record are barred.
    overflowed: bool,
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
    /// At least this version.
    At(ResourceVersion),
    /// Something happened whose version is unknown: the read must be consistent.
    Barred,
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

#[derive(Debug, Default)]
struct Record {
    /// The highest version of a collection shown to the session, and when it came to be known.
    shown: Option<(ResourceVersion, Instant)>,
    /// Consistent reads of late: when each was sent, and the version it returned.
    proofs: VecDeque<(Instant, ResourceVersion)>,
    expected: HashMap<ObjectKey, Expected>,
    sweeps: Vec<Sweep>,
    /// Watches being shown to the session whose events cannot be read along.
    blind_watches: usize,
    upstream_next: bool,
}

#[derive(Debug)]
struct Expected {
    expectation: Expectation,
    at: Instant,
    proven: Option<ResourceVersion>,
}

/// A write over a whole scope, such as deletecollection.
#[derive(Debug)]
struct Sweep {
    scope: Scope,
    at: Instant,
    proven: Option<ResourceVersion>,
}

/// Objects remembered per group-resource; beyond it the record is collapsed. Each costs every read
/// of the resource a look into the snapshot.
const EXPECTED_MAX: usize = 512;

/// Scope-wide barriers remembered per group-resource; beyond it they become one over everything.
const SWEEPS_MAX: usize = 64;

/// Group-resources remembered per session; those an apiserver serves are far fewer.
const RECORDS_MAX: usize = 2048;

/// Proofs remembered per group-resource.
const PROOFS_MAX: usize = 16;

/// How long after it became known a version's event may be expected.
const IMMINENT: Duration = Duration::from_secs(1);

// === impl Session ===

impl Session {
    /// Whether `snapshot`, taken from a replica that covers `query`, may answer it at the level
    /// `session` (S-CONS-32).
    pub fn judge(&self, query: &Query, snapshot: &Snapshot, now: Instant) -> Verdict {
        let Some(record) = self.record(query) else { return self.judge_unrecorded() };
        if record.blind_watches > 0 {
            return Verdict::Barred;
        }
        let mut verdict = record.judge_shown(snapshot, now);
        for sweep in &record.sweeps {
            if sweep.touches(&query.scope) {
                verdict = verdict
                    .stricter(judge_unversioned(&sweep.proven, snapshot, || Verdict::Barred));
            }
        }
        for (key, expected) in &record.expected {
            if touches(query, key) {
                verdict = verdict.stricter(expected.judge(key, query, snapshot));
            }
        }
        verdict
    }

    /// Like [`Session::judge`], for reads that only must not go back: resourceVersion=0 or N, and
    /// the level `any`.
    pub fn judge_monotonic(&self, query: &Query, snapshot: &Snapshot, now: Instant) -> Verdict {
        self.record(query).map_or(Verdict::Satisfied, |record| record.judge_shown(snapshot, now))
    }

    /// Whether a consistent read sent no earlier than `since` proves the snapshot (S-CONS-31).
    pub fn is_proven_since(&self, query: &Query, snapshot: &Snapshot, since: Instant) -> bool {
        self.record(query).is_some_and(|record| {
            record
                .proofs
                .iter()
                .any(|(sent_at, version)| *sent_at >= since && snapshot.version() >= version)
        })
    }

    /// What a forwarded read of `query` must not be older than.
    pub fn floor(&self, query: &Query) -> Floor {
        let Some(record) = self.record(query) else {
            return if self.overflowed { Floor::Barred } else { Floor::Unknown };
        };
        if record.blind_watches > 0 {
            return Floor::Barred;
        }
        let mut floor = record.shown.as_ref().map(|(version, _)| version);
        let swept = record.sweeps.iter().filter(|sweep| sweep.touches(&query.scope));
        let expected = record.expected.iter().filter(|(key, _)| touches(query, key));
        let versions = swept
            .map(|sweep| sweep.proven.as_ref())
            .chain(expected.map(|(_, expected)| expected.version()));
        for version in versions {
            match version {
                Some(version) => floor = floor.max(Some(version)),
                None => return Floor::Barred,
            }
        }
        floor.map_or(Floor::Unknown, |version| Floor::At(version.clone()))
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
    pub fn shown(&mut self, resource: &GroupResource, version: &ResourceVersion, now: Instant) {
        if let Some(record) = self.record_mut(resource) {
            record.raise(version, now);
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
        let Some(record) = self.record_mut(resource) else { return };
        if let Expectation::AtLeast(version, _) = &expectation
            && record.knows_newer(&key, version)
        {
            return;
        }
        record.expected.insert(key, Expected { expectation, at: now, proven: None });
        if record.expected.len() > EXPECTED_MAX {
            record.collapse(now);
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
        let newer = self
            .records
            .get(resource)
            .and_then(|record| record.expected.get(&key))
            .is_some_and(|expected| expected.at > sent_at);
        if !newer {
            self.expect(resource, key, expectation, sent_at);
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
        let new = Expected { expectation, at: now, proven: None };
        let known = self.records.get(resource).and_then(|record| record.expected.get(&key));
        // What has no version is only replaced by what is known to be consistent.
        if known.is_none_or(|known| known.version().is_some_and(|at| Some(at) < new.version())) {
            self.expect(resource, key, new.expectation, now);
        }
    }

    /// Objects of a whole scope may have changed by `now` in ways no answer told.
    pub fn swept(&mut self, resource: &GroupResource, scope: Scope, now: Instant) {
        let Some(record) = self.record_mut(resource) else { return };
        record.sweeps.retain(|sweep| !scope.contains(&sweep.scope));
        record.sweeps.push(Sweep { scope, at: now, proven: None });
        if record.sweeps.len() > SWEEPS_MAX {
            record.sweeps = vec![Sweep { scope: Scope::All, at: now, proven: None }];
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
        }
        self.swept(resource, Scope::All, now);
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
            if record.is_refuted_by(sent_at, version) {
                let blind_watches = record.blind_watches;
                *record = Record { blind_watches, ..Record::default() };
                record.raise(version, sent_at);
            }
            record.prove(sent_at, version);
        }
    }

    /// How many expectations and barriers are held, for the metrics.
    pub fn barriers(&self) -> usize {
        self.records.values().map(|record| record.expected.len() + record.sweeps.len()).sum()
    }

    fn judge_unrecorded(&self) -> Verdict {
        if self.overflowed { Verdict::Barred } else { Verdict::Satisfied }
    }

    fn record(&self, query: &Query) -> Option<&Record> {
        self.records.get(&query.resource.group_resource())
    }

    fn record_mut(&mut self, resource: &GroupResource) -> Option<&mut Record> {
        if self.records.len() >= RECORDS_MAX && !self.records.contains_key(resource) {
            self.overflowed = true;
            return None;
        }
        Some(self.records.entry(resource.clone()).or_default())
    }
}

// === impl Record ===

impl Record {
    fn judge_shown(&self, snapshot: &Snapshot, now: Instant) -> Verdict {
        match &self.shown {
            Some((version, at)) if snapshot.version() < version => {
                let recent = now.saturating_duration_since(*at) < IMMINENT;
                let imminence = if recent { Imminence::Likely } else { Imminence::Unlikely };
                Verdict::Behind(version.clone(), imminence)
            }
            _ => Verdict::Satisfied,
        }
    }

    fn raise(&mut self, version: &ResourceVersion, now: Instant) {
        if self.shown.as_ref().is_none_or(|(shown, _)| shown < version) {
            self.shown = Some((version.clone(), now));
            self.forget_implied();
        }
    }

    /// Whether the data itself went back, as a restored etcd's: a consistent read came out below what
    /// was shown before it was sent (S-CONS-09).
    fn is_refuted_by(&self, sent_at: Instant, version: &ResourceVersion) -> bool {
        self.shown.as_ref().is_some_and(|(shown, at)| version < shown && *at < sent_at)
    }

    fn prove(&mut self, sent_at: Instant, version: &ResourceVersion) {
        let older = |proven: &Option<ResourceVersion>| proven.as_ref().is_none_or(|p| version < p);
        for sweep in &mut self.sweeps {
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
        self.forget_implied();
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
        let Some((shown, _)) = &self.shown else { return };
        let implied =
            |version: Option<&ResourceVersion>| version.is_some_and(|version| version <= shown);
        self.sweeps.retain(|sweep| !implied(sweep.proven.as_ref()));
        self.expected.retain(|_, expected| !implied(expected.version()));
    }

    /// Too many objects: raise the floor to the newest version, and bar what has none.
    fn collapse(&mut self, now: Instant) {
        let expected = std::mem::take(&mut self.expected);
        for expected in expected.into_values() {
            match expected.version() {
                Some(version) => self.raise(version, now),
                None => self.sweeps = vec![Sweep { scope: Scope::All, at: now, proven: None }],
            }
        }
    }
}

// === impl Expected ===

impl Expected {
    /// The version from which a snapshot is sure to hold what is expected.
    fn version(&self) -> Option<&ResourceVersion> {
        match &self.expectation {
            Expectation::AtLeast(version, _) | Expectation::Gone { version: Some(version), .. } => {
                Some(version)
            }
            _ => self.proven.as_ref(),
        }
    }

    fn judge(&self, key: &ObjectKey, query: &Query, snapshot: &Snapshot) -> Verdict {
        let held = snapshot.object(key);
        match &self.expectation {
            Expectation::AtLeast(version, labels) => {
                let in_time = snapshot.version() >= version
                    || match held {
                        Some(object) => object.version() >= version,
                        None => !could_match(query, labels),
                    };
                if in_time {
                    Verdict::Satisfied
                } else {
                    Verdict::Behind(version.clone(), Imminence::Likely)
                }
            }
            Expectation::Gone { uid, version } => {
                let Some(object) = held else { return Verdict::Satisfied };
                if uid.as_ref().is_some_and(|uid| **uid != *object.uid()) {
                    return Verdict::Satisfied;
                }
                match version {
                    Some(version) if object.version() >= version => Verdict::Satisfied,
                    Some(_) => judge_unversioned(version, snapshot, || Verdict::Leaving),
                    None => judge_unversioned(&self.proven, snapshot, || Verdict::Leaving),
                }
            }
            // Which labels it carries is unknown: only a read without label requirements can miss it.
            Expectation::Exists if held.is_some() || !query.labels.is_everything() => {
                Verdict::Satisfied
            }
            Expectation::Exists | Expectation::Uncertain => {
                judge_unversioned(&self.proven, snapshot, || Verdict::Barred)
            }
        }
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

fn could_match(query: &Query, labels: &KnownLabels) -> bool {
    labels.as_ref().is_none_or(|labels| query.labels.matches(&KnownSet(labels)))
}

/// Judges by a version when there is one, and says `otherwise` when there is none.
fn judge_unversioned(
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

struct KnownSet<'a>(&'a BTreeMap<String, String>);

impl Labels for KnownSet<'_> {
    fn label(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

#[cfg(test)]
mod tests;
