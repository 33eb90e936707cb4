//! The set of replicas: the queries that are held, started, widened, stopped and bounded.
//!
//! A read gets the best replica from [`Cache::lookup`] and is answered from its [`View`]. Other
//! modules decide whether the response is fresh enough and who may see it. No lock is held during
//! I/O.

mod absence;
mod batch;
mod bookmark;
mod budget;
pub mod checkpoint;
pub mod clock;
mod compress;
mod consistency;
pub mod counters;
mod demand;
pub mod digest;
mod ending;
mod envelope;
mod event;
mod expired;
mod expiring;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod fixture;
pub mod form;
mod held;
pub mod history;
mod index;
pub mod listing;
mod metadata;
pub mod object;
pub mod outstanding;
mod page;
mod pages;
mod pair;
mod pool;
pub mod portion;
pub mod reader;
mod rebuild;
mod redefine;
pub mod reflector;
pub mod render;
mod replay;
mod replica;
pub mod selection;
mod set;
mod settings;
mod split;
pub mod stitch;
mod storage;
pub mod store;
pub mod subscription;
pub mod table;
#[cfg(test)]
pub mod testing;
mod text;
mod view;

pub use absence::Absence;
pub use consistency::{Consistency, OnDifference};
pub use replica::{
    Attached, Link, Published, Reach, Replica, ReplicaStatus, Start, SyncState, View,
};
pub use settings::Settings;

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
    budget::Budget,
    clock::Clock,
    compress::compress_regularly,
    consistency::Checker,
    counters::Counters,
    ending::Ending,
    history::History,
    outstanding::Outstanding,
    reflector::{Ended, Random, Reflector},
    set::{Member, Set, StopReason},
};
use crate::{
    api::{form::Form, query::Query},
    suspension::Suspension,
    upstream,
};

/// The set of replicas; cheap to clone.
#[derive(Clone)]
pub struct Cache(Arc<Inner>);

struct Inner {
    client: Arc<dyn upstream::Client>,
    settings: watch::Receiver<Settings>,
    random: Random,
    clock: Clock,
    counters: Arc<Counters>,
    budget: Arc<Budget>,
    set: Mutex<Set>,
    outstanding: Outstanding,
    suspension: Suspension,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// The demand for a replica that a read counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// It never starts a replica.
    Ignore,
    /// The read costs the apiserver little, and may be an informer's initial list: the first one
    /// does not count, and repetitions do.
    Repeated,
    /// The read is unsafe: enough of them start a replica.
    Count,
}

/// The result of a lookup.
pub enum Lookup {
    /// A replica that covers it.
    Found(View),
    /// None; the payload says why.
    Absent(Absence),
}

/// The interval at which the set starts missing replicas and stops idle, surplus and large ones.
const TIDY_EVERY: Duration = Duration::from_secs(1);

// === impl Cache ===

impl Cache {
    /// Creates a set without replicas, which reads through `client`; `random` is in 0..1.
    ///
    /// It must be called within a tokio runtime, which then runs the replicas.
    pub fn new(
        client: Arc<dyn upstream::Client>,
        settings: watch::Receiver<Settings>,
        random: Random,
        clock: Clock,
        suspension: Suspension,
    ) -> Self {
        let inner = Arc::new(Inner {
            client,
            settings,
            random,
            clock,
            counters: Arc::default(),
            budget: Arc::default(),
            set: Mutex::new(Set::new()),
            outstanding: Outstanding::default(),
            suspension,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        inner.run(tidy_regularly(Arc::downgrade(&inner)));
        inner.run(compress_regularly(Arc::downgrade(&inner)));
        if let Some(period) = inner.settings.borrow().consistency.period {
            inner.run(Checker::new(Arc::downgrade(&inner), period).run());
        }
        Self(inner)
    }

    /// Starts a replica that is never stopped as idle.
    pub fn start(&self, query: Query, form: Form) {
        let mut set = self.0.set();
        set.add_eager(query.clone(), form);
        if !set.has(&query, form) {
            self.0.spawn(&mut set, query, form, Start::Eager);
        }
    }

    /// Returns the best replica of a form that covers the query; marks it as used.
    pub fn lookup(&self, query: &Query, form: Form, demand: Demand) -> Lookup {
        let now = Instant::now();
        let mut set = self.0.set();
        self.0.doubt_after_suspension(&set);
        if let Some(replica) = set.best(query, form) {
            replica.usage().used_at = now;
            return Lookup::Found(replica.view());
        }
        if let Some(absence) = set.absence(query, form, now) {
            return Lookup::Absent(absence);
        }
        let settings = self.0.settings.borrow();
        let wanted = set.demanded(query, form, demand, &settings, now);
        self.0.counters.demands_dropped.add(set.take_dropped());
        let Some((wanted, start)) = wanted else {
            return Lookup::Absent(Absence::NotDemanded);
        };
        if set.len() >= settings.replicas_max {
            return Lookup::Absent(Absence::TooMany);
        }
        drop(settings);
        Lookup::Found(self.0.spawn(&mut set, wanted, form, start).view())
    }

    /// Returns the best replica of a form that covers the query, without marking it as used.
    pub fn peek(&self, query: &Query, form: Form) -> Option<View> {
        self.0.set().best(query, form).map(Replica::view)
    }

    /// Returns the same, or else the reason why there is none. Nothing is counted or started.
    pub fn held(&self, query: &Query, form: Form) -> Lookup {
        let absence = || self.0.set().absence(query, form, Instant::now());
        let absent = || Lookup::Absent(absence().unwrap_or(Absence::NotDemanded));
        self.peek(query, form).map_or_else(absent, Lookup::Found)
    }

    /// Notes that the apiserver has just answered a read of this query, though its replica has lost
    /// its link.
    pub fn retry_now(&self, query: &Query) {
        self.0.set().best_of_each(query).for_each(|replica| replica.retry_now());
    }

    /// Notes that a read of this query was forwarded because its replica has not proved a version
    /// that was shown elsewhere. Only a bookmark can prove it (S-CONS-21).
    pub fn lags(&self, query: &Query) {
        self.0.set().best_of_each(query).for_each(|replica| replica.lags());
    }

    /// Returns the status of every replica.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        let now = Instant::now();
        let members: Vec<_> = self.0.set().members().cloned().collect();
        members.iter().map(|member| member.replica.status(now)).collect()
    }

    /// Returns a random number in 0..1.
    pub fn fraction(&self) -> f64 {
        (self.0.random)()
    }

    /// Returns the counters of the cache.
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

    /// Runs a task until the cache stops.
    fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(task).await });
    }

    fn spawn(
        self: &Arc<Self>,
        set: &mut Set,
        query: Query,
        form: Form,
        start: Start,
    ) -> Arc<Replica> {
        let history = History::new(self.settings.borrow().history_bounds());
        let replica = Replica::new(query, form, start, history, Instant::now());
        let replica = Arc::new(replica.with_clock(self.clock.clone()));
        let reflector = Reflector::new(
            replica.clone(),
            self.client.clone(),
            self.settings.clone(),
            self.random.clone(),
            self.counters.clone(),
            self.budget.clone(),
        );
        let stop = self.stop.child_token();
        set.add(Member { replica: replica.clone(), stop: stop.clone() });
        self.counters.started.increment();
        let ending = Ending::new(Arc::downgrade(self), replica.clone());
        self.tasks.spawn(ending.of(reflector.run(stop)));
        replica
    }

    /// Removes a replica whose reflector has ended. Others may start one again, but not at once.
    /// Returns the replica that continues where it ended.
    fn forget(&self, replica: &Arc<Replica>, ended: Ended) -> Option<Arc<Replica>> {
        let absence = match ended {
            Ended::Stopped => None,
            Ended::Refused { code } => Some(Absence::Refused { code }),
            Ended::NotReplicable | Ended::Panicked => Some(Absence::NotReplicable),
            Ended::OutOfMemory => Some(Absence::OutOfMemory),
        };
        let (mut set, now) = (self.set(), Instant::now());
        set.remove(replica);
        if let Some(absence) = absence {
            let count = match absence {
                Absence::OutOfMemory => &self.counters.dropped_for_memory,
                _ => &self.counters.refused,
            };
            count.increment();
            set.end(replica, absence, now, self.settings.borrow().refusal_ttl);
        }
        // Whoever is refused this query is not shown it by a wider one.
        let is_refused = matches!(ended, Ended::Refused { .. });
        let last = replica.version().filter(|_| replica.is_watched() && !is_refused)?;
        let successor = set.best_from(replica.query(), replica.form(), &last).cloned()?;
        set.note_replaced(replica, now);
        Some(successor)
    }

    /// Starts missing replicas and stops superfluous ones.
    fn tidy(self: &Arc<Self>, now: Instant) {
        let settings = self.settings.borrow().clone();
        self.counters.outstanding_dropped.add(self.outstanding.tidy(now));
        let mut set = self.set();
        self.doubt_after_suspension(&set);
        set.expire(now);
        set.close_replaced(now);
        for (query, form) in set.missing_eager(now) {
            self.spawn(&mut set, query, form, Start::Eager);
        }
        // A bookmark soon shows the version they have reached.
        set.handing_over().for_each(|replica| replica.lags());
        for (member, reason) in set.to_stop(&settings, now) {
            self.stop_member(&mut set, &member, reason, &settings, now);
        }
        for (query, form) in set.to_widen(&settings, now) {
            if set.len() < settings.replicas_max {
                self.spawn(&mut set, query, form, Start::Widening);
            }
        }
    }

    /// Takes the proof from each replica if the machine was suspended or the process stopped.
    fn doubt_after_suspension(&self, set: &Set) {
        if self.suspension.is_over() {
            set.members().for_each(|member| member.replica.doubt());
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
