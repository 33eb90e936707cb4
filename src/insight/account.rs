//! One account: the counts of similar requests. Its memory is bounded; recording allocates only
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
    client_group::ClientGroup,
    cost::{Collection, Encoding, Lists, RequestedVersion, Work},
    counts::Counts,
    shape::Shape,
    sketch::Sketch,
};
use crate::{api::Verb, metrics::PollLimit};

/// The counts of similar requests.
#[derive(Debug)]
pub struct Account {
    /// The common properties of the requests.
    pub shape: Shape,
    /// The relation of this client's LISTs and watches of the same selection.
    pub client_group: Arc<ClientGroup>,
    tally: Mutex<Tally>,
    /// `true` after the account was closed to make room. Later records are lost.
    closed: AtomicBool,
}

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The arrival time.
    pub started: Instant,
    /// The duration until the end of the response.
    pub took: Duration,
    /// The source of the response.
    pub answer: Answer,
    /// The status. 410 also for a watch that received it in an event.
    pub code: u16,
    /// The size of the response body.
    pub bytes: u64,
    /// The encoding of the response body.
    pub encoding: Encoding,
    /// The hash of the response's content, for comparison.
    pub content: Option<u32>,
    /// The cached collection, if known.
    pub collection: Option<Collection>,
    /// The Retry-After of the response.
    pub retry_after: Option<Duration>,
    /// The throttling of the request.
    pub pace: Pace,
    /// The effect that mode enforce would have had.
    pub otherwise: Otherwise,
}

/// The source of a response, with the reason if it is not memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Memory.
    Memory,
    /// The response to an identical request.
    Shared(&'static str),
    /// The apiserver.
    Upstream(&'static str),
    /// Listless, with an error or a refusal.
    Own(&'static str),
    /// None: the client closed the request.
    Closed,
}

/// The throttling of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Not throttled.
    Free,
    /// Delayed by this limit on repeated polls.
    Held(PollLimit),
}

/// The effect that mode `enforce` would have had on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// None, or the mode is `enforce`.
    Same,
    /// The request would not have reached the apiserver.
    Saved,
}

/// The place of a request in its account.
#[derive(Clone, Copy, Debug)]
pub struct AccountPlace {
    /// The hash of the requested object or selection.
    pub value: u64,
    /// The hash of the connection.
    pub client: u64,
    /// The hash of the requested version.
    pub version: Option<u64>,
    /// Milliseconds since counting began.
    pub at: u64,
}

/// The facts of an account.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The sums.
    pub counts: Counts,
    /// The time of the first request, in milliseconds since counting began.
    pub first: u64,
    /// The time of the last request.
    pub last: u64,
    /// The distinct connections.
    pub clients: Sketch,
    /// The distinct objects or selections.
    pub values: Sketch,
    /// The latest requests.
    pub arrivals: Ring<Arrival>,
    /// The latest intervals between requests for the same value, for a sample of values.
    pub gaps: Ring<u32>,
    rate: Rate,
    followed: Values,
    collection: Collection,
}

/// The requests of this minute and the last.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    minute: u64,
    now: u32,
    before: u32,
}

/// The maximum number of arrivals that one account stores.
const ARRIVALS_MAX: usize = 384;
/// The maximum number of intervals that one account stores. It covers two rounds of all sampled
/// values, because one round may be longer or shorter than the last. Older ones are dropped.
const GAPS_MAX: usize = 128;

const MINUTE: u64 = 60_000;

// === impl Account ===

impl Account {
    /// Returns an account of these requests.
    pub fn new(shape: Shape, client_group: Arc<ClientGroup>, at: u64) -> Self {
        let tally = Mutex::new(Tally::new(at));
        Self { shape, client_group, tally, closed: AtomicBool::new(false) }
    }

    /// Reports whether the account still records.
    pub fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// Closes the account and returns its counts.
    pub fn close(&self, budget: &Budget) -> Counts {
        self.closed.store(true, Ordering::Relaxed);
        let tally = self.tally();
        budget.give_back(&tally.arrivals);
        budget.give_back(&tally.gaps);
        tally.counts.clone()
    }

    /// Returns the number of requests and the time of the last one.
    pub fn usage(&self) -> (u64, u64) {
        let tally = self.tally();
        (tally.counts.requests, tally.last)
    }

    /// Returns a copy of the current facts.
    pub fn snapshot(&self) -> Tally {
        self.tally().clone()
    }

    /// Counts a finished request.
    pub fn record(&self, place: AccountPlace, record: &Record, lists: Lists, budget: &Budget) {
        self.tally().record(&self.shape, place, record, lists, budget);
        match self.shape.verb {
            Verb::List => self.client_group.listed(place.value, place.version),
            Verb::Watch => {}
            _ => return,
        }
        if record.code == EXPIRED {
            self.client_group.expired(place.value, place.version);
        }
    }

    /// Counts a write by whether it changed the object.
    pub fn wrote(&self, changed: Changed) {
        let mut tally = self.tally();
        tally.counts.writes_compared += 1;
        tally.counts.writes_in_vain += u64::from(changed == Changed::Nothing);
    }

    /// Returns the memory of the account, including its key in the table.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        let Shape { caller, user_agent, resource, query, .. } = &self.shape;
        let texts = caller.len() + user_agent.len() + resource.len() + query.len();
        size_of::<Self>() + size_of::<Shape>() + 2 * texts + self.tally().held_bytes()
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The object's version is unchanged.
    Nothing,
    /// The object has a new version.
    Something,
}

const EXPIRED: u16 = 410;

// === impl AccountPlace ===

impl AccountPlace {
    /// Returns the time as arrivals store it. It wraps after seven weeks.
    fn wrapped_at(self) -> u32 {
        self.at as u32
    }
}

// === impl Tally ===

impl Tally {
    fn new(at: u64) -> Self {
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
            collection: Collection::default(),
        }
    }

    /// Returns the recent requests per second.
    pub fn rate(&self, now: u64) -> f64 {
        self.rate.per_second(now, self.first)
    }

    fn record(
        &mut self,
        shape: &Shape,
        place: AccountPlace,
        record: &Record,
        lists: Lists,
        budget: &Budget,
    ) {
        self.last = place.at;
        self.rate.count(place.at);
        self.clients.add(place.client);
        self.values.add(place.value);
        let (value, client) = ((place.value >> 48) as u16, (place.client >> 48) as u16);
        self.arrivals.push(Arrival { at: place.wrapped_at(), value, client }, budget);
        self.collection = self.collection.max(record.collection.unwrap_or_default());
        self.counts.add_record(record, self.work(shape, lists));
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

    fn work(&self, shape: &Shape, lists: Lists) -> Work {
        match (shape.verb, shape.traits.version) {
            (_, RequestedVersion::NoRead) => Work::Other,
            (Verb::Get, version) => Work::Get(version),
            (Verb::List, version) => Work::List(version, self.collection, lists),
            _ => Work::Other,
        }
    }

    /// Counts facts that need a comparison with the last request for the same value.
    fn follow(&mut self, place: AccountPlace, record: &Record, budget: &Budget) {
        let at = place.wrapped_at();
        let (gap, followed) = match self.followed.came(place.value, at) {
            Followed::Again(gap, followed) => (Some(gap), followed),
            Followed::First(followed) => (None, followed),
            Followed::NotSampled => return,
        };
        if let Some(gap) = gap {
            self.gaps.push(gap, budget);
        }
        let client = (place.client >> 48) as u16;
        if let Some(not_before) = followed.not_before.take()
            && followed.retry_client == client
            && (not_before.wrapping_sub(at) as i32) > 0
        {
            self.counts.came_early += 1;
        }
        if let Some(wait) = record.retry_after {
            let wait = wait.saturating_sub(TOLERANCE).as_millis() as u32;
            let answered = at.wrapping_add(record.took.as_millis() as u32);
            followed.not_before = Some(answered.wrapping_add(wait));
            followed.retry_client = client;
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

/// The tolerance for a client that retries slightly early.
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
    fn count(&mut self, at: u64) {
        self.turn(at / MINUTE);
        self.now += 1;
    }

    fn turn(&mut self, minute: u64) {
        let passed = minute.saturating_sub(self.minute);
        if passed > 0 {
            self.before = if passed == 1 { self.now } else { 0 };
            (self.minute, self.now) = (minute, 0);
        }
    }

    /// Returns the rate over this minute and the remaining part of the last. At the start it covers
    /// less time.
    fn per_second(mut self, now: u64, first: u64) -> f64 {
        self.turn(now / MINUTE);
        let age = now.saturating_sub(first) as f64 / 1000.0;
        let into = (now % MINUTE) as f64 / MINUTE as f64;
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

    #[test]
    fn the_rate_stays_right_after_seven_weeks() {
        let wrap = u64::from(u32::MAX) - 1000;
        let mut rate = Rate::default();
        (0..=600).for_each(|second| rate.count(wrap - 600_000 + second * 1000));
        assert!((rate.per_second(wrap, 0) - 1.0).abs() < 0.05);
        (1..=600).for_each(|second| rate.count(wrap + second * 1000));
        assert!((rate.per_second(wrap + 600_000, 0) - 1.0).abs() < 0.05);
        assert!(rate.per_second(wrap + 800_000, 0).abs() < f64::EPSILON);
    }
}
