//! Which replicas there are, and which should start or stop. No I/O; time is passed in.
//!
//! The set only decides; the cache starts and stops. At most one replica follows a query.

use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Absence, Demand, Settings,
    expiring::Expiring,
    replica::{Link, Replica, Start, State},
};
use crate::{
    api::{GroupVersionResource, Scope, query::Query, selector::NAME_PATH},
    hash::HashMap,
};

/// The replicas, and what is remembered about queries without one.
#[derive(Debug)]
pub(super) struct Set {
    members: HashMap<GroupVersionResource, Vec<Member>>,
    /// Queries that the configuration asks for.
    eager: HashSet<Query>,
    /// Unsafe reads of queries without a replica.
    reads: Expiring<u32>,
    /// Why queries cannot have a replica for now.
    absences: Expiring<Absence>,
}

/// One replica and the way to stop it.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The replica.
    pub replica: Arc<Replica>,
    /// Stops its reflector.
    pub stop: CancellationToken,
}

/// Why a replica should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// Nobody reads it.
    Idle,
    /// A wider one took over.
    Widened,
    /// Memory is short, and it was used least recently.
    Memory,
}

/// So many queries without a replica are remembered at most.
const REMEMBERED_MAX: usize = 4096;

/// What is dear and likely to fail again is tried after so many refusal times only.
const PATIENCE: u32 = 10;

// === impl Set ===

impl Set {
    /// No replicas.
    pub(super) fn new() -> Self {
        Self {
            members: HashMap::default(),
            eager: HashSet::new(),
            reads: Expiring::new(REMEMBERED_MAX),
            absences: Expiring::new(REMEMBERED_MAX),
        }
    }

    /// Every replica.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values().flatten()
    }

    /// How many replicas there are.
    pub(super) fn len(&self) -> usize {
        self.members.values().map(Vec::len).sum()
    }

    /// The best replica that covers a query: one that can answer, with the fewest objects.
    pub(super) fn best(&self, query: &Query) -> Option<&Arc<Replica>> {
        let covering = self.of(query).iter().filter(|member| member.query().covers(query));
        covering.min_by_key(|member| member.rank()).map(|member| &member.replica)
    }

    /// Whether a replica follows exactly this query.
    pub(super) fn has(&self, query: &Query) -> bool {
        self.of(query).iter().any(|member| member.query() == query)
    }

    /// Adds a replica.
    pub(super) fn add(&mut self, member: Member) {
        let query = member.query();
        self.reads.remove(query);
        self.members.entry(query.resource.clone()).or_default().push(member);
    }

    /// Takes a replica out; false when it was not in.
    pub(super) fn remove(&mut self, replica: &Arc<Replica>) -> bool {
        let resource = &replica.query().resource;
        let Some(members) = self.members.get_mut(resource) else {
            return false;
        };
        let before = members.len();
        members.retain(|member| !Arc::ptr_eq(&member.replica, replica));
        let removed = members.len() < before;
        if members.is_empty() {
            self.members.remove(resource);
        }
        removed
    }

    /// Notes that the configuration asks for a query.
    pub(super) fn add_eager(&mut self, query: Query) {
        self.absences.remove(&query);
        self.eager.insert(query);
    }

    /// Why a query cannot have a replica for now.
    pub(super) fn absence(&self, query: &Query, now: Instant) -> Option<Absence> {
        self.absences.get(query, now).map(|(absence, _)| absence)
    }

    /// Remembers why a replica ended, so that it is not started again at once.
    pub(super) fn remember(
        &mut self,
        replica: &Replica,
        absence: Absence,
        now: Instant,
        ttl: Duration,
    ) {
        let ttl = match (replica.start(), absence) {
            (Start::Widening, _) | (_, Absence::NotReplicable) => ttl * PATIENCE,
            _ => ttl,
        };
        self.absences.insert(replica.query().clone(), absence, now + ttl);
    }

    /// Counts a read that no replica covers; returns the replica it calls for, if any.
    pub(super) fn demanded(
        &mut self,
        query: &Query,
        demand: Demand,
        settings: &Settings,
        now: Instant,
    ) -> Option<(Query, Start)> {
        if demand == Demand::Ignore {
            return None;
        }
        let repeated = self.count_read(query, now, settings.demand_window) >= settings.demand_reads;
        match self.for_storm(query, settings, now) {
            Some(wider) => Some((wider, Start::Widening)),
            None => repeated.then(|| (query.clone(), Start::OnDemand)),
        }
    }

    /// Counts an unsafe read; returns how many there were within the window.
    fn count_read(&mut self, query: &Query, now: Instant, window: Duration) -> u32 {
        let (count, until) = self.reads.get(query, now).unwrap_or((0, now + window));
        self.reads.insert(query.clone(), count + 1, until);
        count + 1
    }

    /// Forgets what is no longer true.
    pub(super) fn expire(&mut self, now: Instant) {
        self.reads.expire(now);
        self.absences.expire(now);
    }

    /// The configured queries that lack a replica.
    pub(super) fn missing_eager(&self, now: Instant) -> Vec<Query> {
        let missing = |query: &&Query| !self.has(query) && self.absence(query, now).is_none();
        self.eager.iter().filter(missing).cloned().collect()
    }

    /// Which replicas should stop now, and why.
    pub(super) fn to_stop(&self, settings: &Settings, now: Instant) -> Vec<(Member, StopReason)> {
        let mut stops = Vec::new();
        let mut rest = Vec::new();
        for member in self.members() {
            let idle = now.saturating_duration_since(member.replica.used_at(now));
            if self.is_eager(member) {
                rest.push(member);
            } else if self.is_replaced(member) {
                stops.push((member.clone(), StopReason::Widened));
            } else if idle > settings.idle_timeout {
                stops.push((member.clone(), StopReason::Idle));
            } else {
                rest.push(member);
            }
        }
        let memory = self.over_limit(rest, settings.memory_limit_bytes, now);
        stops.extend(memory.into_iter().map(|member| (member.clone(), StopReason::Memory)));
        stops
    }

    /// The wider replicas that should start because there are too many narrow ones.
    pub(super) fn to_widen(&self, settings: &Settings, now: Instant) -> Vec<Query> {
        let members = self.members.values();
        members
            .filter_map(|members| {
                let candidates = wider(&self.siblings(members), settings.siblings_max);
                let is_new = |query: &Query| !self.has(query) && self.absence(query, now).is_none();
                candidates.into_iter().find(is_new)
            })
            .collect()
    }

    /// The replica that should start because many different reads like this one came at once, as
    /// when an operator reconciles everything: each of them once, so that none alone would count.
    fn for_storm(&self, query: &Query, settings: &Settings, now: Instant) -> Option<Query> {
        let single = |query: &Query| query.fields.pinned(NAME_PATH).is_some();
        let alike =
            |other: &&Query| other.resource == query.resource && single(other) == single(query);
        let reads: Vec<_> = self.reads.queries(now).filter(alike).collect();
        let many = if single(query) { settings.storm_gets_max } else { settings.siblings_max };
        let mut candidates = wider(&reads, many).into_iter();
        candidates.find(|wider| wider.covers(query) && self.absence(wider, now).is_none())
    }

    fn of(&self, query: &Query) -> &[Member] {
        self.members.get(&query.resource).map_or(&[], Vec::as_slice)
    }

    /// Whether another replica can answer all that this one does, without going back.
    fn is_replaced(&self, member: &Member) -> bool {
        let version =
            member.replica.published().snapshot.as_ref().map(|held| held.version().clone());
        self.of(member.query()).iter().any(|other| {
            let published = other.replica.published();
            let reached = published.snapshot.as_ref().map(|held| held.version().clone());
            other.query() != member.query()
                && other.query().covers(member.query())
                && published.link == Link::Up
                && reached.is_some()
                && reached >= version
        })
    }

    fn is_eager(&self, member: &Member) -> bool {
        self.eager.contains(member.query())
    }

    /// Queries of replicas that were started for reads and that no other one will take over.
    fn siblings<'a>(&self, members: &'a [Member]) -> Vec<&'a Query> {
        let is_covered = |query: &Query| {
            members.iter().any(|other| other.query() != query && other.query().covers(query))
        };
        let started = members.iter().filter(|member| !self.is_eager(member));
        started.map(Member::query).filter(|query| !is_covered(query)).collect()
    }

    /// The least recently used replicas without which the rest fits; configured ones go last.
    fn over_limit<'a>(
        &self,
        mut members: Vec<&'a Member>,
        limit: usize,
        now: Instant,
    ) -> Vec<&'a Member> {
        let mut bytes: usize = members.iter().map(|member| member.replica.bytes()).sum();
        members.sort_by_key(|member| (self.is_eager(member), member.replica.used_at(now)));
        let mut dropped = Vec::new();
        for member in members {
            if bytes <= limit {
                break;
            }
            bytes = bytes.saturating_sub(member.replica.bytes());
            dropped.push(member);
        }
        dropped
    }
}

/// What could take the place of too many siblings, best first: first selectors go, then scope.
fn wider(siblings: &[&Query], siblings_max: usize) -> Vec<Query> {
    let Some(first) = siblings.first().filter(|_| siblings.len() > siblings_max) else {
        return Vec::new();
    };
    let mut scopes: HashMap<&Scope, usize> = HashMap::default();
    for query in siblings {
        *scopes.entry(&query.scope).or_default() += 1;
    }
    let mut crowded: Vec<_> = scopes.into_iter().filter(|(_, count)| *count > 1).collect();
    crowded.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    if !crowded.is_empty() {
        let all = |scope: &Scope| Query::all(first.resource.clone(), scope.clone());
        return crowded.into_iter().map(|(scope, _)| all(scope)).collect();
    }
    let same = siblings
        .iter()
        .all(|query| (&query.labels, &query.fields) == (&first.labels, &first.fields));
    let everywhere = Query { scope: Scope::All, ..Query::clone(first) };
    vec![if same { everywhere } else { Query::all(first.resource.clone(), Scope::All) }]
}

// === impl Member ===

impl Member {
    fn query(&self) -> &Query {
        self.replica.query()
    }

    /// Lower is better.
    fn rank(&self) -> (u8, usize) {
        let published = self.replica.published();
        let state = match (published.state, published.link) {
            (State::Synced, Link::Up) => 0,
            (State::Synced, Link::Lost { .. }) => 1,
            (State::Starting, _) => 2,
            (State::Failing, _) => 3,
        };
        (state, published.snapshot.as_ref().map_or(0, |held| held.len()))
    }
}
