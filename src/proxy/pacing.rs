//! Limits on repeated reads: one for reads that reach the apiserver, one for responses from memory.
//!
//! Invariants: at most [`HELD_MAX`] reads are held at once, and further ones are answered at once.
//! A read whose client leaves while it is held returns its token. Nothing is kept of a read before
//! its caller was allowed it: by an access review, or by a successful response of the apiserver.
//! Two kinds of reads are not counted: those after a write of their session to that type, and those
//! with a changed response.

mod repeats;

use std::sync::Arc;

use http::{Response, StatusCode};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until},
};

pub(super) use self::repeats::Remembered;
use self::repeats::{Repeats, Table};
use super::{
    decide::{self, Pace, Plan, Poll},
    identify::Caller,
    target::Target,
};
use crate::{
    api::{request::RequestInfo, version::ResourceVersion},
    limit::{Leaving, Rate, WaiterPlace},
    metrics::{Held, Limit, Metrics, PollLimit, ServedBy},
    policy::ResourcePolicy,
};

/// The limits on repeated reads.
pub(super) struct Pacing {
    table: Arc<Table>,
    places: Semaphore,
    metrics: Metrics,
}

/// The outcome of a check against the limits.
#[derive(Default)]
pub(super) struct Paced {
    /// The plan that holds or refuses the read; `None` lets it pass.
    pub(super) plan: Option<Plan>,
    /// Settled when the response ends.
    pub(super) toll: Option<Toll>,
}

/// A read that reaches the apiserver, and the token it costs unless its response changed.
pub(super) struct Toll {
    table: Arc<Table>,
    repeats: Option<Arc<Repeats>>,
    key: u64,
    writes: u32,
    rate: Rate,
    charge: Charge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charge {
    /// It costs nothing.
    Free,
    /// Its token is taken when its caller turns out to be allowed.
    Due,
    /// Its token is taken already.
    Paid,
}

/// A read that is held; dropped before its release, its client has left.
struct Waiting {
    repeats: Arc<Repeats>,
    pace: Pace,
    leaving: Leaving,
}

/// The limit of reads held at once.
const HELD_MAX: usize = 1024;

// === impl Pacing ===

impl Pacing {
    pub(super) fn new(metrics: Metrics) -> Self {
        let table = Arc::new(Table::new(metrics.clone()));
        Self { table, places: Semaphore::new(HELD_MAX), metrics }
    }

    /// Checks a plan against the limits.
    pub(super) fn check(
        &self,
        plan: &Plan,
        target: &Target,
        caller: Caller,
        rules: &ResourcePolicy,
        arrived: Instant,
    ) -> Paced {
        let Some(poll) = decide::poll(&target.info, caller, rules) else { return Paced::default() };
        match (poll.limit(plan), plan) {
            (Some(PollLimit::Memory), Plan::Read(read)) => {
                self.check_memory(&poll, target, read.snapshot.version(), arrived)
            }
            (Some(PollLimit::Upstream), _) => self.check_upstream(&poll, target, arrived),
            _ => Paced::default(),
        }
    }

    fn check_memory(
        &self,
        poll: &Poll<'_>,
        target: &Target,
        version: &ResourceVersion,
        arrived: Instant,
    ) -> Paced {
        let (limit, now) = (PollLimit::Memory, Instant::now());
        let writes = self.writes(poll);
        let key = || self.table.key(&poll.key());
        let found = self.table.find(key, &target.polls);
        let repeats = found.unwrap_or_else(|| self.table.make(key(), writes, now));
        // Both are recorded, whatever the other returns.
        if repeats.after_write(writes) | repeats.moved(version) {
            return Paced::default();
        }
        let plan = poll.plan(limit, repeats.bucket(limit), now, now - arrived);
        Paced { plan, toll: None }
    }

    fn check_upstream(&self, poll: &Poll<'_>, target: &Target, arrived: Instant) -> Paced {
        let (limit, now) = (PollLimit::Upstream, Instant::now());
        let writes = self.writes(poll);
        let key = || self.table.key(&poll.key());
        let repeats = self.table.find(key, &target.polls);
        let (plan, charge) = match &repeats {
            None => (None, Charge::Due),
            Some(repeats) if repeats.after_write(writes) => (None, Charge::Free),
            Some(repeats) => {
                let plan = poll.plan(limit, repeats.bucket(limit), now, now - arrived);
                let charge = if plan.is_none() { Charge::Paid } else { Charge::Free };
                (plan, charge)
            }
        };
        let (table, rate) = (self.table.clone(), poll.rate(limit));
        Paced { plan, toll: Some(Toll { table, repeats, key: key(), writes, rate, charge }) }
    }

    /// Holds a read until its release.
    pub(super) async fn hold(
        &self,
        pace: Pace,
        target: &Target,
        caller: Caller,
        rules: &ResourcePolicy,
    ) {
        let since = Instant::now();
        let Some(poll) = decide::poll(&target.info, caller, rules) else { return };
        let key = || self.table.key(&poll.key());
        let Some(repeats) = self.table.find(key, &target.polls) else { return };
        let mut waiting = Waiting { repeats, pace, leaving: Leaving::Away };
        match self.places.try_acquire() {
            Ok(_place) => sleep_until(pace.until).await,
            Err(_) => self.metrics.limit_reached(Limit::PollsHeld),
        }
        waiting.leaving = Leaving::Answered;
        let held = match pace.place {
            WaiterPlace::First => Held::First,
            WaiterPlace::Joined => Held::Joined,
        };
        self.metrics.paced(held, pace.limit, since.elapsed());
    }

    /// Counts a write, unless the apiserver did not know or allow its caller.
    pub(super) fn wrote<B>(&self, caller: Caller, info: &RequestInfo, response: &Response<B>) {
        let refused = matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let known = matches!(caller, Caller::Own | Caller::Bearer(_));
        let request = info.resource_request().filter(|request| request.verb.is_write());
        if let (Some(request), true, false) = (request, known, refused) {
            self.table.wrote(caller, &request.resource);
        }
    }

    fn writes(&self, poll: &Poll<'_>) -> u32 {
        self.table.writes(poll.caller, &poll.read.query.resource)
    }
}

// === impl Toll ===

impl Toll {
    /// Takes or returns the token, by the response of the apiserver: one that changed, or that another
    /// request brought, is free.
    pub(super) fn settle(self, served_by: ServedBy, code: StatusCode, content: Option<u32>) {
        let shared = served_by == ServedBy::Coalesced;
        if !code.is_success() || !(shared || served_by == ServedBy::Upstream) {
            return;
        }
        let now = Instant::now();
        let make = || self.table.make(self.key, self.writes, now);
        let repeats = self.repeats.unwrap_or_else(make);
        let bucket = repeats.bucket(PollLimit::Upstream);
        match (self.charge, shared || repeats.changed(content)) {
            (Charge::Due, false) => bucket.charge(&self.rate, now),
            (Charge::Paid, true) => bucket.credit(&self.rate),
            _ => {}
        }
    }
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        let Pace { limit, rate, released_at, .. } = self.pace;
        self.repeats.bucket(limit).leave(&rate, released_at, self.leaving, Instant::now());
    }
}
