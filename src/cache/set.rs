//! The set of replicas, and the decisions to start or stop one. No I/O; the time is a parameter.
//!
//! The set only decides; the cache starts and stops. At most one replica of each form follows a
//! query, and no replica covers one of another form.

mod member;
mod replaced;
mod wider;

use std::{collections::HashSet, hash::BuildHasher, sync::Arc, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{replaced::Replaced, wider::wider};
use super::{
    Absence, Cache, Settings, View,
    demand::{self, DemandCounter},
    expiring::Expiring,
    replica::{Link, Replica, Start},
};
use crate::{
    api::{
        GroupResource, GroupVersionResource, form::Form, query::Query, version::ResourceVersion,
    },
    hash::{HashMap, RandomState},
};

/// The replicas, and the facts about queries without one.
#[derive(Debug)]
pub(super) struct Set {
    /// By form.
    members: [HashMap<GroupVersionResource, Vec<Member>>; Form::ALL.len()],
    /// The queries that the configuration requires, by form.
    eager: [HashSet<Query>; Form::ALL.len()],
    /// Unsafe reads of queries without a replica.
    demand: DemandCounter,
    /// The queries that were read once, perhaps by an informer, by keyed hash.
    initial: Expiring<()>,
    /// The reasons why queries cannot have a replica for now, by keyed hash.
    absences: Expiring<Absence>,
    replaced: Replaced,
    hasher: RandomState,
}

/// A replica and its stop token.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The replica.
    pub replica: Arc<Replica>,
    /// The token that stops its reflector.
    pub stop: CancellationToken,
}

/// The reason why a replica should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopReason {
    /// It is not read.
    Idle,
    /// A wider one has replaced it.
    Widened,
    /// The memory limit is exceeded, and it was used least recently.
    Memory,
}

/// The limit of queries whose first read may be an informer's.
const INITIAL_MAX: usize = 4096;

/// The limit of queries that cannot have a replica for now.
const ABSENCES_MAX: usize = 4096;

/// The longest wait of a replica with watches until it has reached the start of its successor.
const HANDOVER_MAX: Duration = Duration::from_secs(120);

/// The factor of the refusal time for an expensive attempt that is likely to fail again.
const REFUSAL_TTL_FACTOR: u32 = 10;

// === impl Cache ===

impl Cache {
    /// Returns every replica of a resource, in any API version.
    pub fn views(&self, resource: &GroupResource) -> Vec<View> {
        self.0.set().of_resource(resource).iter().map(Replica::view).collect()
    }
}

// === impl Set ===

impl Set {
    /// Creates an empty set.
    pub(super) fn new() -> Self {
        Self {
            members: Default::default(),
            eager: Default::default(),
            demand: DemandCounter::new(),
            initial: Expiring::new(INITIAL_MAX),
            absences: Expiring::new(ABSENCES_MAX),
            replaced: Replaced::default(),
            hasher: RandomState::default(),
        }
    }

    /// Returns every replica.
    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.groups().flatten()
    }

    /// Returns the replicas of a resource, in any API version, in a stable order.
    pub(super) fn of_resource(&self, resource: &GroupResource) -> Vec<Arc<Replica>> {
        let served = self.members.iter().flatten();
        let served = served.filter(|(served, _)| served.group_resource() == *resource);
        let mut served: Vec<_> = served.collect();
        served.sort_by_key(|(served, _)| &served.version);
        let members = served.into_iter().flat_map(|(_, members)| members);
        members.map(|member| member.replica.clone()).collect()
    }

    /// Returns the number of replicas.
    pub(super) fn len(&self) -> usize {
        self.groups().map(Vec::len).sum()
    }

    /// Returns the best replica that covers a query: one that can answer, with the fewest objects.
    pub(super) fn best(&self, query: &Query, form: Form) -> Option<&Arc<Replica>> {
        let covering = self.of(query, form).iter().filter(|member| member.query().covers(query));
        covering.min_by_key(|member| member.rank()).map(|member| &member.replica)
    }

    /// Returns the best replica of each form.
    pub(super) fn best_of_each(&self, query: &Query) -> impl Iterator<Item = &Arc<Replica>> {
        Form::ALL.into_iter().filter_map(|form| self.best(query, form))
    }

    /// Returns the best of the replicas that cover a query and go on from this version.
    pub(super) fn best_from(
        &self,
        query: &Query,
        form: Form,
        last: &ResourceVersion,
    ) -> Option<&Arc<Replica>> {
        let covering = self.of(query, form).iter().filter(|member| member.query().covers(query));
        let going_on = covering.filter(|member| member.replica.goes_on_from(last));
        going_on.min_by_key(|member| member.rank()).map(|member| &member.replica)
    }

    /// Reports whether a replica of a form follows exactly this query.
    pub(super) fn has(&self, query: &Query, form: Form) -> bool {
        self.of(query, form).iter().any(|member| member.query() == query)
    }

    /// Adds a replica.
    pub(super) fn add(&mut self, member: Member) {
        let (query, form) = (member.query(), member.form());
        self.demand.forget(query, form);
        self.members[form as usize].entry(query.resource.clone()).or_default().push(member);
    }

    /// Removes a replica; returns `false` if it was not in the set.
    pub(super) fn remove(&mut self, replica: &Arc<Replica>) -> bool {
        let resource = &replica.query().resource;
        let of_form = &mut self.members[replica.form() as usize];
        let Some(members) = of_form.get_mut(resource) else {
            return false;
        };
        let before = members.len();
        members.retain(|member| !Arc::ptr_eq(&member.replica, replica));
        let removed = members.len() < before;
        if members.is_empty() {
            of_form.remove(resource);
        }
        removed
    }

    /// Notes that the configuration requires a query in a form.
    pub(super) fn add_eager(&mut self, query: Query, form: Form) {
        self.absences.remove(self.key(&query, form));
        self.eager[form as usize].insert(query);
    }

    /// Returns the reason why a query cannot have a replica of a form for now.
    pub(super) fn absence(&self, query: &Query, form: Form, now: Instant) -> Option<Absence> {
        self.absences.get(self.key(query, form), now).map(|(absence, _)| absence)
    }

    /// Stores the reason why a replica ended, to prevent a restart at once. One that does not fit alone
    /// makes others end on its way: it stays away for longer.
    pub(super) fn end(&mut self, replica: &Replica, absence: Absence, now: Instant, ttl: Duration) {
        let factor = if absence == Absence::OutOfMemory { REFUSAL_TTL_FACTOR } else { 1 };
        self.remember(replica, absence, now, ttl * factor);
    }

    /// Stores the reason why a replica was dropped, to prevent a restart at once.
    pub(super) fn remember(
        &mut self,
        replica: &Replica,
        absence: Absence,
        now: Instant,
        ttl: Duration,
    ) {
        let ttl = match (replica.start(), absence) {
            (Start::Widening, _) | (_, Absence::NotReplicable) => ttl * REFUSAL_TTL_FACTOR,
            _ => ttl,
        };
        self.absences.insert(self.key(replica.query(), replica.form()), absence, now + ttl);
    }

    /// Counts a read that no replica covers; returns the replica to start for it, if any.
    pub(super) fn demanded(
        &mut self,
        query: &Query,
        form: Form,
        demand: super::Demand,
        settings: &Settings,
        now: Instant,
    ) -> Option<(Query, Start)> {
        let key = self.key(query, form);
        match demand {
            super::Demand::Ignore => return None,
            super::Demand::Repeated if self.initial.get(key, now).is_none() => {
                self.initial.insert(key, (), now + settings.demand_window);
                return None;
            }
            super::Demand::Repeated | super::Demand::Count => {}
        }
        let reads = self.demand.count(query, form, now, settings.demand_window);
        let repeated = reads >= settings.demand_reads;
        match self.for_storm(query, form, settings, now) {
            Some(wider) => Some((wider, Start::Widening)),
            None => repeated.then(|| (query.clone(), Start::OnDemand)),
        }
    }

    /// Returns the number of queries whose reads were dropped uncounted since the last call.
    pub(super) fn take_dropped(&mut self) -> u64 {
        self.demand.take_dropped()
    }

    /// Removes expired state.
    pub(super) fn expire(&mut self, now: Instant) {
        self.demand.expire(now);
        while self.initial.expire(now).is_some() {}
        while self.absences.expire(now).is_some() {}
    }

    /// Returns the configured queries that lack a replica of a form.
    pub(super) fn missing_eager(&self, now: Instant) -> Vec<(Query, Form)> {
        let wanted = Form::ALL.into_iter();
        let wanted =
            wanted.flat_map(|form| self.eager[form as usize].iter().map(move |it| (it, form)));
        let missing = |(query, form): &(&Query, Form)| {
            !self.has(query, *form) && self.absence(query, *form, now).is_none()
        };
        wanted.filter(missing).map(|(query, form)| (query.clone(), form)).collect()
    }

    /// Returns the replicas to stop now, with the reason of each.
    pub(super) fn to_stop(&self, settings: &Settings, now: Instant) -> Vec<(Member, StopReason)> {
        let mut stops = Vec::new();
        let mut rest = Vec::new();
        for member in self.members() {
            let idle = now.saturating_duration_since(member.replica.used_at(now));
            if self.is_eager(member) {
                rest.push(member);
            } else if self.is_replaced(member, now) {
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

    /// Returns the wider replicas to start because there are too many narrow ones.
    pub(super) fn to_widen(&self, settings: &Settings, now: Instant) -> Vec<(Query, Form)> {
        self.groups()
            .filter_map(|members| {
                let form = members.first()?.form();
                let candidates = wider(&self.siblings(members), settings.siblings_max);
                let is_new = |query: &Query| {
                    !self.has(query, form) && self.absence(query, form, now).is_none()
                };
                Some((candidates.into_iter().find(is_new)?, form))
            })
            .collect()
    }

    /// Returns the replica to start because many different reads like this one came at once. An
    /// operator that reconciles everything sends each of them once, and none alone would count.
    fn for_storm(
        &self,
        query: &Query,
        form: Form,
        settings: &Settings,
        now: Instant,
    ) -> Option<Query> {
        let single = demand::is_single(query);
        let many = if single { settings.storm_gets_max } else { settings.siblings_max };
        let mut candidates = self.demand.wider(query, form, many).into_iter();
        candidates.find(|wider| self.absence(wider, form, now).is_none())
    }

    fn key(&self, query: &Query, form: Form) -> u64 {
        self.hasher.hash_one((query, form))
    }

    /// Returns the replicas of each resource and form.
    fn groups(&self) -> impl Iterator<Item = &Vec<Member>> {
        self.members.iter().flat_map(HashMap::values)
    }

    fn of(&self, query: &Query, form: Form) -> &[Member] {
        self.members[form as usize].get(&query.resource).map_or(&[], Vec::as_slice)
    }

    /// Returns replicas with watches that a wider one replaces once they have reached its start.
    pub(super) fn handing_over(&self) -> impl Iterator<Item = &Arc<Replica>> {
        let watched = self.members().filter(|member| member.replica.is_watched());
        let waits = |member: &&Member| {
            let mut wider = self.taking_over(member).peekable();
            wider.peek().is_some() && !wider.any(|other| Self::leads_on(member, other))
        };
        watched.filter(waits).map(|member| &member.replica)
    }

    /// Reports whether another replica can answer everything that this one does, without going
    /// back.
    fn is_replaced(&self, member: &Member, now: Instant) -> bool {
        self.taking_over(member).any(|other| {
            !member.replica.is_watched()
                || Self::leads_on(member, other)
                || other.replica.age(now) > HANDOVER_MAX
        })
    }

    /// Returns the wider replicas that have reached a member's version.
    fn taking_over<'a>(&'a self, member: &'a Member) -> impl Iterator<Item = &'a Member> {
        let version = member.replica.version();
        self.of(member.query(), member.form()).iter().filter(move |other| {
            let published = other.replica.published();
            let reached = published.snapshot.as_ref().map(|held| held.version());
            other.query() != member.query()
                && other.query().covers(member.query())
                && published.link == Link::Up
                && reached.is_some()
                && reached >= version.as_ref()
        })
    }

    /// Reports whether watches of a member can continue at another without a gap.
    fn leads_on(member: &Member, other: &Member) -> bool {
        let version = member.replica.version();
        version.is_some_and(|version| other.replica.goes_on_from(&version))
    }

    fn is_eager(&self, member: &Member) -> bool {
        self.eager[member.form() as usize].contains(member.query())
    }

    /// Returns the queries of replicas that were started for reads and that no other one will
    /// replace.
    fn siblings<'a>(&self, members: &'a [Member]) -> Vec<&'a Query> {
        let is_covered = |query: &Query| {
            members.iter().any(|other| other.query() != query && other.query().covers(query))
        };
        let started = members.iter().filter(|member| !self.is_eager(member));
        started.map(Member::query).filter(|query| !is_covered(query)).collect()
    }

    /// Returns the least recently used replicas to stop until the rest fits; configured ones go
    /// last.
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
