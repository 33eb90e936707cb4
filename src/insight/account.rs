//! One account: everything counted of requests that are alike. Fixed memory; recording allocates only
//! while its buffers grow.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    arrivals::{Arrival, Budget, Followed, Ring, Values},
    cost::{Freshness, Work},
    counts::Counts,
    kin::Kin,
    shape::Shape,
    sketch::Sketch,
};
use crate::{api::Verb, metrics::PollLimit};

/// Requests alike, counted together.
#[derive(Debug)]
pub struct Account {
    /// What they have in common.
    pub shape: Shape,
    /// How this client's LISTs and watches of the same belong together.
    pub kin: Arc<Kin>,
    tally: Mutex<Tally>,
    /// Given up to make room: what is recorded here is no longer seen.
    closed: AtomicBool,
}

/// One request that ended.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// When it came.
    pub started: Instant,
    /// How long its answer took.
    pub took: Duration,
    /// What answered it.
    pub answer: Answer,
    /// The answer's status; 410 also for a watch that was told so in an event.
    pub code: u16,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// What the answer said, for comparison.
    pub content: Option<u32>,
    /// Objects held of the collection it reads, where that is known.
    pub objects: Option<u32>,
    /// How long the client was told to stay away.
    pub retry_after: Option<Duration>,
    /// Whether it was held for a while.
    pub pace: Pace,
    /// What another mode would have done.
    pub otherwise: Otherwise,
}

/// What answered a request, and why not memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Memory.
    Memory,
    /// The answer to an identical one.
    Shared(&'static str),
    /// The apiserver.
    Upstream(&'static str),
    /// Listless, with an error or a refusal.
    Own(&'static str),
    /// Nothing: its client hung up before.
    Closed,
}

/// Whether a request was slowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// It was not held.
    Free,
    /// This limit on polls that repeat held it.
    Held(PollLimit),
}

/// What would have become of a request in mode `enforce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The same, or the mode is `enforce`.
    Same,
    /// It would not have reached the apiserver.
    Saved,
}

/// Where in its account a request belongs.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Which object or selection it asks for, as a hash.
    pub value: u64,
    /// On which connection, as a hash.
    pub client: u64,
    /// The version it names, as a hash.
    pub version: Option<u64>,
    /// Milliseconds since the counting began.
    pub at: u32,
}

/// What is known of an account.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Sums.
    pub counts: Counts,
    /// When the first request came, in milliseconds since the counting began.
    pub first: u32,
    /// When the last one came.
    pub last: u32,
    /// Connections seen.
    pub clients: Sketch,
    /// Objects or selections asked for.
    pub values: Sketch,
    /// The latest requests.
    pub arrivals: Ring<Arrival>,
    /// The latest times between two requests for the same, of a sample.
    pub gaps: Ring<u32>,
    rate: Rate,
    followed: Values,
    objects: u32,
}

/// Requests in this minute and the last.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    minute: u32,
    now: u32,
    before: u32,
}

/// Arrivals remembered of one account.
const ARRIVALS_MAX: usize = 384;
/// Gaps remembered of one account: two rounds of all values that are followed, for one round alone
/// may be shorter or longer than the one before; what was before that is forgotten.
const GAPS_MAX: usize = 128;

const MINUTE: u32 = 60_000;

// === impl Account ===

impl Account {
    /// An account of these requests.
    pub fn new(shape: Shape, kin: Arc<Kin>, at: u32) -> Self {
        let tally = Mutex::new(Tally::new(at));
        Self { shape, kin, tally, closed: AtomicBool::new(false) }
    }

    /// Whether what is recorded here is still seen.
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// Gives it up; what was counted is returned.
    pub fn close(&self, budget: &Budget) -> Counts {
        self.closed.store(true, Ordering::Relaxed);
        let tally = self.tally();
        budget.give_back(&tally.arrivals);
        budget.give_back(&tally.gaps);
        tally.counts.clone()
    }

    /// How many requests there were, and when the last one came.
    pub fn usage(&self) -> (u64, u32) {
        let tally = self.tally();
        (tally.counts.requests, tally.last)
    }

    /// Everything, as it is now.
    pub fn snapshot(&self) -> Tally {
        self.tally().clone()
    }

    /// Counts a request that ended.
    pub fn record(&self, place: Place, record: &Record, budget: &Budget) {
        self.tally().record(&self.shape, place, record, budget);
        match self.shape.verb {
            Verb::List => self.kin.listed(place.value, place.version),
            Verb::Watch => {}
            _ => return,
        }
        if record.code == EXPIRED {
            self.kin.expired(place.value, place.version);
        }
    }

    /// Counts what a write's answer told: whether anything changed.
    pub fn wrote(&self, changed: Changed) {
        let mut tally = self.tally();
        tally.counts.writes_compared += 1;
        tally.counts.writes_in_vain += u64::from(changed == Changed::Nothing);
    }

    /// The memory it takes, the key of its place in the table included.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        let Shape { user_agent, resource, query, .. } = &self.shape;
        let texts = user_agent.len() + resource.len() + query.len();
        size_of::<Self>() + size_of::<Shape>() + 2 * texts + self.tally().held_bytes()
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The object has the version it had.
    Nothing,
    /// It has another one.
    Something,
}

const EXPIRED: u16 = 410;

// === impl Tally ===

impl Tally {
    fn new(at: u32) -> Self {
        Self {
            counts: Counts::default(),
            first: at,
            last: at,
            clients: Sketch::default(),
            values: Sketch::default(),
            arrivals: Ring::new(ARRIVALS_MAX),
            gaps: Ring::new(GAPS_MAX),
            rate: Rate::default(),
            followed: Values::default(),
            objects: 0,
        }
    }

    /// Requests per second, of late.
    pub fn rate(&self, now: u32) -> f64 {
        self.rate.per_second(now, self.first)
    }

    fn record(&mut self, shape: &Shape, place: Place, record: &Record, budget: &Budget) {
        self.last = place.at;
        self.rate.count(place.at);
        self.clients.add(place.client);
        self.values.add(place.value);
        let (value, client) = ((place.value >> 48) as u16, (place.client >> 48) as u16);
        self.arrivals.push(Arrival { at: place.at, value, client }, budget);
        self.objects = self.objects.max(record.objects.unwrap_or_default());
        self.counts.add_record(record, self.work(shape));
        if shape.verb == Verb::Watch {
            self.counts.watched += record.took.as_millis() as u64;
        }
        self.follow(place, record, budget);
    }

    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        let reasons = self.counts.reasons.capacity() * size_of::<(&str, u64)>();
        let rings = self.arrivals.held_bytes() + self.gaps.held_bytes();
        reasons + rings + self.followed.held_bytes()
    }

    fn work(&self, shape: &Shape) -> Work {
        match (shape.verb, shape.traits.freshness) {
            (_, Freshness::NoRead) => Work::Other,
            (Verb::Get, freshness) => Work::Get(freshness),
            (Verb::List, freshness) => Work::List(freshness, self.objects),
            _ => Work::Other,
        }
    }

    /// What can be told only by comparing with the last request for the same.
    fn follow(&mut self, place: Place, record: &Record, budget: &Budget) {
        let (gap, followed) = match self.followed.came(place.value, place.at) {
            Followed::Again(gap, followed) => (Some(gap), followed),
            Followed::First(followed) => (None, followed),
            Followed::NotSampled => return,
        };
        if let Some(gap) = gap {
            self.gaps.push(gap, budget);
        }
        let client = (place.client >> 48) as u16;
        if let Some(not_before) = followed.not_before.take()
            && followed.told == client
            && (not_before.wrapping_sub(place.at) as i32) > 0
        {
            self.counts.came_early += 1;
        }
        if let Some(wait) = record.retry_after {
            let wait = wait.saturating_sub(TOLERANCE).as_millis() as u32;
            let answered = place.at.wrapping_add(record.took.as_millis() as u32);
            followed.not_before = Some(answered.wrapping_add(wait));
            followed.told = client;
        }
        if let Some(content) = record.content {
            if let Some(before) = followed.content {
                self.counts.compared += 1;
                self.counts.unchanged += u64::from(before == content);
            }
            followed.content = Some(content);
        }
    }
}

/// Who comes so little sooner than told has waited.
const TOLERANCE: Duration = Duration::from_millis(200);

// === impl Answer ===

impl Answer {
    pub(super) fn index(self) -> usize {
        match self {
            Self::Memory => 0,
            Self::Shared(_) => 1,
            Self::Upstream(_) => 2,
            Self::Own(_) => 3,
            Self::Closed => 4,
        }
    }
}

// === impl Rate ===

impl Rate {
    fn count(&mut self, at: u32) {
        self.turn(at / MINUTE);
        self.now += 1;
    }

    fn turn(&mut self, minute: u32) {
        let passed = minute.saturating_sub(self.minute);
        if passed > 0 {
            self.before = if passed == 1 { self.now } else { 0 };
            (self.minute, self.now) = (minute, 0);
        }
    }

    /// Over this minute and what of the last makes it a whole one; over less at the beginning.
    fn per_second(mut self, now: u32, first: u32) -> f64 {
        self.turn(now / MINUTE);
        let age = f64::from(now.saturating_sub(first)) / 1000.0;
        let into = f64::from(now % MINUTE) / f64::from(MINUTE);
        if age < 60.0 {
            return f64::from(self.now + self.before) / age.max(1.0);
        }
        (f64::from(self.now) + f64::from(self.before) * (1.0 - into)) / 60.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_minute() {
        let mut rate = Rate::default();
        (0..600).for_each(|second| rate.count(second * 1000));
        assert!((rate.per_second(600_000, 0) - 1.0).abs() < 0.05);
        assert!((rate.per_second(630_000, 0) - 0.5).abs() < 0.05);
        assert!(rate.per_second(800_000, 0).abs() < f64::EPSILON);
        let mut young = Rate::default();
        (0..10).for_each(|second| young.count(second * 1000));
        assert!((young.per_second(10_000, 0) - 1.0).abs() < 0.05);
    }
}
