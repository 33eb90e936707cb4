//! The connections of one lane: the assignment of requests to slots, and the opening of
//! connections.
//!
//! Invariants: no lock is held across an await. A dial outlives the request that needed it. There
//! is one HTTP/2 dial at a time, whose failure reaches every request that waited for it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use super::{
    Memory, Settings,
    http1::Http1,
    http2::{Driver, Http2},
};
use crate::upstream::{
    Error,
    connect::{ConnectError, Connector, Offer, Protocol},
    slot::{Slot, Slots},
};

/// The limit of concurrent HTTP/1.1 dials.
const HTTP1_DIALS_MAX: usize = 8;

/// The pause after a failed dial while older connections still work.
const REDIAL_DELAY: Duration = Duration::from_secs(1);

/// The growth of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Growth {
    pub(super) connections_max: usize,
    /// The number of requests on every connection from which another one is opened ahead of need.
    pub(super) busy_at: usize,
}

/// The connections of one lane.
pub(super) struct Lane {
    connector: Arc<Connector>,
    settings: Settings,
    growth: Growth,
    memory: Memory,
    state: Mutex<LaneState>,
    freed: Arc<Notify>,
    /// The slots for HTTP/1.1 connections, open or idle.
    http1_places: Arc<Slots>,
}

/// The right to send one request.
pub(super) enum Lease {
    Http2(Http2, Slot),
    Http1(Http1),
}

#[derive(Default)]
struct LaneState {
    http2: Vec<Http2>,
    /// The idle connections with the time since when; the oldest first.
    http1_idle: VecDeque<(Http1, Instant)>,
    /// `true` while a task closes idle HTTP/1.1 connections.
    sweeping: bool,
    speaks: Speaks,
    dials: usize,
    dials_started: u64,
    failure: Option<LaneFailure>,
    waiting: usize,
}

/// The protocol that the server last used.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Speaks {
    #[default]
    Unknown,
    Http2,
    Http1,
}

struct LaneFailure {
    /// The number of the failed dial.
    dial: u64,
    error: ConnectError,
    at: Instant,
}

/// A waiting request; counted.
struct Waiter<'a>(&'a Lane);

enum Connection {
    Http2(Http2, Box<Driver>),
    Http1(Http1),
}

// === impl Lane ===

impl Lane {
    pub(super) fn new(
        connector: Arc<Connector>,
        settings: Settings,
        growth: Growth,
        memory: Memory,
    ) -> Arc<Self> {
        let freed = Arc::new(Notify::new());
        let http1_places = Slots::new(Arc::clone(&freed));
        let state = Mutex::default();
        Arc::new(Self { connector, settings, growth, memory, state, freed, http1_places })
    }

    /// Waits for a slot on a connection; opens one if needed.
    pub(super) async fn acquire(self: &Arc<Self>) -> Result<Lease, Error> {
        if let Some(lease) = self.pick() {
            return Ok(lease);
        }
        let waiter = Waiter::register(self)?;
        let waited = tokio::time::timeout(self.settings.wait_max, self.wait()).await;
        drop(waiter);
        waited.unwrap_or(Err(Error::Saturated("upstream places")))
    }

    async fn wait(self: &Arc<Self>) -> Result<Lease, Error> {
        let first_dial = self.lock().next_dial();
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(lease) = self.pick() {
                return Ok(lease);
            }
            if let Some(error) = self.lock().failed_since(first_dial) {
                return Err(error);
            }
            self.dial_if_allowed();
            // After a failed dial, no notification says when another one is allowed.
            let _ = tokio::time::timeout(REDIAL_DELAY, freed).await;
        }
    }

    /// Returns the best free slot; opens another connection when all are busy.
    fn pick(self: &Arc<Self>) -> Option<Lease> {
        let mut state = self.lock();
        while let Some((connection, _)) = state.http1_idle.pop_back() {
            if !connection.is_closed() {
                return Some(Lease::Http1(connection));
            }
        }
        // The least used one may be full: connections have limits of their own.
        let free = state.http2.iter().filter(|one| !one.is_retired() && one.used() < one.limit());
        let best = free.min_by_key(|one| one.used())?;
        let slot = best.take_slot()?;
        let busy = best.used() >= self.growth.busy_at.min(best.limit());
        let lease = Lease::Http2(best.clone(), slot);
        let grow = busy && state.dials == 0 && state.http2.len() < self.growth.connections_max;
        drop(state);
        if grow {
            self.dial_if_allowed();
        }
        Some(lease)
    }

    fn dial_if_allowed(self: &Arc<Self>) {
        let (number, place) = {
            let mut state = self.lock();
            state.forget_retired();
            if !state.may_dial(&self.growth) {
                return;
            }
            let Some(place) = self.http1_places.take(self.settings.http1_connections_max) else {
                return;
            };
            state.dials += 1;
            state.dials_started += 1;
            (state.dials_started, place)
        };
        let lane = Arc::clone(self);
        tokio::spawn(async move { lane.dial(number, place).await });
    }

    async fn dial(self: Arc<Self>, number: u64, place: Slot) {
        let outcome = self.open(place).await;
        let driver = {
            let mut state = self.lock();
            state.dials -= 1;
            match outcome {
                Ok(Connection::Http2(connection, driver)) => {
                    state.speaks = Speaks::Http2;
                    state.http2.push(connection);
                    Some(driver)
                }
                Ok(Connection::Http1(connection)) => {
                    state.speaks = Speaks::Http1;
                    self.keep_idle(&mut state, connection);
                    None
                }
                Err(error) => {
                    state.failure = Some(LaneFailure { dial: number, error, at: Instant::now() });
                    None
                }
            }
        };
        self.freed.notify_waiters();
        if let Some(driver) = driver {
            let lane = Arc::downgrade(&self);
            drop(self);
            driver.run(move || forget_retired(&lane)).await;
        }
    }

    async fn open(&self, place: Slot) -> Result<Connection, ConnectError> {
        let (stream, protocol) = self.connector.connect(Offer::Any).await?;
        match protocol {
            Protocol::Http2 => {
                let freed = Arc::clone(&self.freed);
                let memory = self.memory.clone();
                let (connection, driver) = Http2::start(stream, &self.settings, freed, memory)
                    .await
                    .map_err(ConnectError::new)?;
                Ok(Connection::Http2(connection, Box::new(driver)))
            }
            Protocol::Http1 => {
                let connection = Http1::start(stream, place).await.map_err(ConnectError::new)?;
                Ok(Connection::Http1(connection))
            }
        }
    }

    /// Accepts an idle HTTP/1.1 connection back.
    pub(super) fn give_back(self: &Arc<Self>, connection: Http1) {
        if !connection.is_closed() {
            self.keep_idle(&mut self.lock(), connection);
        }
        self.freed.notify_one();
    }

    /// Stores an idle HTTP/1.1 connection; one task at a time closes those unused for long.
    fn keep_idle(self: &Arc<Self>, state: &mut LaneState, connection: Http1) {
        state.http1_idle.push_back((connection, Instant::now()));
        if !state.sweeping {
            state.sweeping = true;
            tokio::spawn(sweep(Arc::downgrade(self), self.settings.idle_timeout));
        }
    }

    /// Sends no more requests over the existing connections.
    pub(super) fn retire_all(&self) {
        let mut state = self.lock();
        state.http1_idle.clear();
        for connection in state.http2.drain(..) {
            connection.retire();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes HTTP/1.1 connections unused for `idle_timeout`; ends when none is idle.
async fn sweep(lane: Weak<Lane>, idle_timeout: Duration) {
    loop {
        let next = match lane.upgrade() {
            Some(lane) => lane.lock().close_idle(Instant::now(), idle_timeout),
            None => None,
        };
        let Some(next) = next else { return };
        tokio::time::sleep_until(next).await;
    }
}

fn forget_retired(lane: &Weak<Lane>) {
    if let Some(lane) = lane.upgrade() {
        lane.lock().forget_retired();
        lane.freed.notify_waiters();
    }
}

// === impl LaneState ===

impl LaneState {
    fn forget_retired(&mut self) {
        self.http2.retain(|connection| !connection.is_retired());
        self.http1_idle.retain(|(connection, _)| !connection.is_closed());
    }

    /// Closes connections that were idle for too long; returns the time of the next one.
    fn close_idle(&mut self, now: Instant, idle_timeout: Duration) -> Option<Instant> {
        while let Some((_, since)) = self.http1_idle.front() {
            if now < *since + idle_timeout {
                return Some(*since + idle_timeout);
            }
            self.http1_idle.pop_front();
        }
        self.sweeping = false;
        None
    }

    fn may_dial(&self, growth: &Growth) -> bool {
        let dials_max = if self.speaks == Speaks::Http1 { HTTP1_DIALS_MAX } else { 1 };
        let resting = match &self.failure {
            Some(failure) => !self.http2.is_empty() && failure.at.elapsed() < REDIAL_DELAY,
            None => false,
        };
        let room =
            self.http2.len() + self.dials < growth.connections_max || self.speaks == Speaks::Http1;
        let room_to_come = self.http2.iter().any(Http2::is_unsettled);
        let wanted = self.dials < self.waiting.max(1) && !room_to_come;
        self.dials < dials_max && wanted && room && !resting
    }

    /// Returns the number of the dial whose result a new waiter will get.
    fn next_dial(&self) -> u64 {
        if self.dials > 0 { self.dials_started } else { self.dials_started + 1 }
    }

    /// Returns the reason why a wait that began at dial `first` is useless: dials fail and no
    /// connection is open.
    fn failed_since(&self, first: u64) -> Option<Error> {
        let failure = self.failure.as_ref()?;
        let vain = failure.dial >= first && self.dials == 0 && self.http2.is_empty();
        vain.then(|| failure.error.clone().into())
    }
}

// === impl Waiter ===

impl<'a> Waiter<'a> {
    fn register(lane: &'a Lane) -> Result<Self, Error> {
        let mut state = lane.lock();
        if state.waiting >= lane.settings.waiting_max {
            return Err(Error::Saturated("upstream queue"));
        }
        state.waiting += 1;
        drop(state);
        Ok(Self(lane))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}
