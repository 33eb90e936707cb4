//! The set of replicas: which queries are held, started, widened, stopped and bounded.
//!
//! Reads ask [`Cache::lookup`] for the best replica and answer from its [`View`]; whether an
//! answer is fresh enough, and who may see it, is decided elsewhere. Nobody waits for a lock that
//! is held during I/O.

mod batch;
mod bookmark;
pub mod counters;
mod envelope;
mod event;
mod expiring;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fixture;
pub mod history;
mod metadata;
pub mod object;
mod page;
mod pair;
mod pool;
mod reader;
mod rebuild;
pub mod reflector;
pub mod render;
mod replica;
mod roll;
pub mod selection;
mod set;
mod split;
pub mod store;
pub mod subscription;
#[cfg(test)]
pub mod testing;
mod view;

pub use replica::{Attached, Link, Published, Reach, Replica, ReplicaStatus, Start, State, View};

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    counters::Counters,
    history::{Bounds, History},
    reflector::{Ended, Random, Reflector},
    set::{Member, Set, StopReason},
};
use crate::{api::query::Query, upstream};

/// The bounds of the cache; the default is the design's.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Memory all replicas together may hold; above it the least recently used are dropped.
    pub memory_limit_bytes: usize,
    /// After this time without a read a replica that was started on demand stops.
    pub idle_timeout: Duration,
    /// How many unsafe reads within `demand_window` start a replica.
    pub demand_reads: u32,
    /// See `demand_reads`.
    pub demand_window: Duration,
    /// More narrow replicas of one resource than this are widened into one.
    pub siblings_max: usize,
    /// More GETs of different objects than this within `demand_window` start a replica of them all;
    /// of different LISTs, `siblings_max`.
    pub storm_gets_max: usize,
    /// How long a refusal, or a drop for memory, keeps a replica from being started again.
    pub refusal_ttl: Duration,
    /// How many replicas there may be.
    pub replicas_max: usize,
    /// The largest object believed; a larger one is taken for bad data.
    pub item_bytes_max: usize,
    /// How many recent events each replica keeps.
    pub history_events_max: usize,
    /// How many bytes of recent events each replica keeps.
    pub history_bytes_max: usize,
    /// How long each replica keeps recent events.
    pub history_age_max: Duration,
    /// A watch that is silent for this long is questioned by a small consistent list.
    pub quiet_after: Duration,
}

/// The set of replicas; cheap to clone.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    client: Arc<dyn upstream::Client>,
    settings: watch::Receiver<Settings>,
    random: Random,
    counters: Arc<Counters>,
    set: Mutex<Set>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Whether a read may start a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// It may not.
    Ignore,
    /// It is an unsafe read: enough of them start a replica.
    Count,
}

/// What the set has for a query.
pub enum Lookup {
    /// A replica that covers it.
    Found(View),
    /// None, and why.
    Absent(Absence),
}

/// Why no replica covers a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Absence {
    /// It was not asked for often enough.
    NotDemanded,
    /// The apiserver does not let us list or watch it.
    Refused {
        /// The HTTP status.
        code: u16,
    },
    /// It, or a replica dropped lately, did not fit into the memory limit.
    OutOfMemory,
    /// There are as many replicas as allowed.
    TooMany,
    /// The apiserver's lists of it do not look as known ones do.
    NotReplicable,
}

/// So often replicas are looked over: idle ones, too many, too large, missing.
const TIDY_EVERY: Duration = Duration::from_secs(1);

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_limit_bytes: 256 * 1024 * 1024,
            idle_timeout: Duration::from_secs(10 * 60),
            demand_reads: 2,
            demand_window: Duration::from_secs(60),
            siblings_max: 4,
            storm_gets_max: 32,
            refusal_ttl: Duration::from_secs(60),
            replicas_max: 256,
            item_bytes_max: 16 * 1024 * 1024,
            history_events_max: 4096,
            history_bytes_max: 2 * 1024 * 1024,
            history_age_max: Duration::from_secs(5 * 60),
            quiet_after: Duration::from_secs(75),
        }
    }
}

// === impl Cache ===

impl Cache {
    /// A set without replicas, which reads through `client`; `random` is in 0..1.
    ///
    /// To be called within a tokio runtime, on which replicas then live.
    pub fn new(
        client: Arc<dyn upstream::Client>,
        settings: watch::Receiver<Settings>,
        random: Random,
    ) -> Self {
        let inner = Arc::new(Inner {
            client,
            settings,
            random,
            counters: Arc::default(),
            set: Mutex::new(Set::new()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        let tidying = tidy_regularly(Arc::downgrade(&inner));
        let stop = inner.stop.clone();
        inner.tasks.spawn(async move { stop.run_until_cancelled(tidying).await });
        Self(inner)
    }

    /// Starts a replica that is never stopped for idleness.
    pub fn start(&self, query: Query) {
        let mut set = self.0.set();
        set.add_eager(query.clone());
        if !set.has(&query) {
            self.0.spawn(&mut set, query, Start::Eager);
        }
    }

    /// The best replica that covers the query; marks it as used.
    pub fn lookup(&self, query: &Query, demand: Demand) -> Lookup {
        let now = Instant::now();
        let mut set = self.0.set();
        if let Some(replica) = set.best(query) {
            replica.usage().used_at = now;
            return Lookup::Found(replica.view());
        }
        if let Some(absence) = set.absence(query, now) {
            return Lookup::Absent(absence);
        }
        let settings = self.0.settings.borrow();
        let Some((wanted, start)) = set.demanded(query, demand, &settings, now) else {
            return Lookup::Absent(Absence::NotDemanded);
        };
        if set.len() >= settings.replicas_max {
            return Lookup::Absent(Absence::TooMany);
        }
        drop(settings);
        Lookup::Found(self.0.spawn(&mut set, wanted, start).view())
    }

    /// The best replica that covers the query, without taking it for used.
    pub fn peek(&self, query: &Query) -> Option<View> {
        self.0.set().best(query).map(Replica::view)
    }

    /// The same, and otherwise why there is none; nothing is counted or started.
    pub fn held(&self, query: &Query) -> Lookup {
        let absence = || self.0.set().absence(query, Instant::now());
        self.peek(query).map_or_else(
            || Lookup::Absent(absence().unwrap_or(Absence::NotDemanded)),
            Lookup::Found,
        )
    }

    /// The apiserver has just answered a read of this query, though its replica is cut off.
    pub fn nudge(&self, query: &Query) {
        if let Some(replica) = self.0.set().best(query) {
            replica.nudge();
        }
    }

    /// A read of this query was passed on because its replica has not proved a version that was
    /// shown elsewhere, and only a bookmark can prove it (S-CONS-21).
    pub fn lags(&self, query: &Query) {
        if let Some(replica) = self.0.set().best(query) {
            replica.lags();
        }
    }

    /// Every replica in figures.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        let now = Instant::now();
        let members: Vec<_> = self.0.set().members().cloned().collect();
        members.iter().map(|member| member.replica.status(now)).collect()
    }

    /// A number in 0..1, drawn anew.
    pub fn fraction(&self) -> f64 {
        (self.0.random)()
    }

    /// What the cache has done so far.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Stops every replica and waits for their tasks.
    pub async fn shutdown(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

// === impl Inner ===

impl Inner {
    fn set(&self) -> MutexGuard<'_, Set> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Self>, set: &mut Set, query: Query, start: Start) -> Arc<Replica> {
        let history = History::new(self.settings.borrow().history_bounds());
        let replica = Arc::new(Replica::new(query, start, history, Instant::now()));
        let reflector = Reflector::new(
            replica.clone(),
            self.client.clone(),
            self.settings.clone(),
            self.random.clone(),
            self.counters.clone(),
        );
        let stop = self.stop.child_token();
        set.add(Member { replica: replica.clone(), stop: stop.clone() });
        self.counters.started.increment();
        let (cache, followed) = (Arc::downgrade(self), replica.clone());
        self.tasks.spawn(async move {
            let ended = reflector.run(stop).await;
            followed.end(Instant::now());
            if let Some(cache) = cache.upgrade() {
                cache.forget(&followed, ended);
            }
        });
        replica
    }

    /// A reflector has ended: others may start one again, but not at once.
    fn forget(&self, replica: &Arc<Replica>, ended: Ended) {
        let absence = match ended {
            Ended::Stopped => None,
            Ended::Refused { code } => Some(Absence::Refused { code }),
            Ended::NotReplicable => Some(Absence::NotReplicable),
            Ended::OutOfMemory => Some(Absence::OutOfMemory),
        };
        let mut set = self.set();
        set.remove(replica);
        let Some(absence) = absence else { return };
        let count = match absence {
            Absence::OutOfMemory => &self.counters.dropped_for_memory,
            _ => &self.counters.refused,
        };
        count.increment();
        set.remember(replica, absence, Instant::now(), self.settings.borrow().refusal_ttl);
    }

    /// Starts what is missing and stops what is superfluous.
    fn tidy(self: &Arc<Self>, now: Instant) {
        let settings = self.settings.borrow().clone();
        let mut set = self.set();
        set.expire(now);
        for query in set.missing_eager(now) {
            self.spawn(&mut set, query, Start::Eager);
        }
        for (member, reason) in set.to_stop(&settings, now) {
            self.stop_member(&mut set, &member, reason, &settings, now);
        }
        for query in set.to_widen(&settings, now) {
            if set.len() < settings.replicas_max {
                self.spawn(&mut set, query, Start::Widening);
            }
        }
    }

    fn stop_member(
        &self,
        set: &mut Set,
        member: &Member,
        reason: StopReason,
        settings: &Settings,
        now: Instant,
    ) {
        set.remove(&member.replica);
        member.stop.cancel();
        let query = member.replica.query();
        tracing::info!(resource = %query.resource, scope = query.scope.as_str(), ?reason, "stopped");
        match reason {
            StopReason::Idle => self.counters.stopped_idle.increment(),
            StopReason::Widened => self.counters.stopped_widened.increment(),
            StopReason::Memory => {
                self.counters.dropped_for_memory.increment();
                set.remember(&member.replica, Absence::OutOfMemory, now, settings.refusal_ttl);
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Settings {
    fn history_bounds(&self) -> Bounds {
        Bounds {
            events_max: self.history_events_max,
            bytes_max: self.history_bytes_max,
            age_max: self.history_age_max,
        }
    }
}

async fn tidy_regularly(cache: Weak<Inner>) {
    let mut ticks = tokio::time::interval(TIDY_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match cache.upgrade() {
            Some(cache) => cache.tidy(Instant::now()),
            None => return,
        }
    }
}

#[cfg(test)]
mod tests;
