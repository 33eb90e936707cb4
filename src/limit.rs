//! Token buckets: how often something may happen, and when it may happen next. Pure.
//!
//! The generic cell rate algorithm: a bucket is one moment, the one at which it would be full again.
//! A full bucket can be forgotten without loss. The crate `governor` was no fit: it keeps every key
//! until it is swept, takes nothing back, and cannot let several wait for one token.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How often something may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// From one token to the next.
    interval: Duration,
    /// How many tokens an unused bucket holds.
    burst: u32,
}

/// The tokens of one thing that may happen so often.
#[derive(Debug)]
pub struct Bucket(Mutex<State>);

/// A bucket for one thing that is done everywhere alike, with its rate.
#[derive(Debug)]
pub struct Ceiling {
    rate: Rate,
    bucket: Bucket,
}

/// What becomes of one who comes for a token and may be asked to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has one.
    Now,
    /// It waits until then, together with all who come in the meantime; one token is for all.
    At(Instant, Place),
}

/// Whether one who waits began the waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nobody waited yet.
    First,
    /// Others waited already.
    Joined,
}

/// How one who waited leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// To be answered.
    Answered,
    /// Its client has gone.
    Away,
}

#[derive(Debug)]
struct State {
    /// When the bucket would be full if nobody came any more; in the past, it is.
    full_at: Instant,
    /// Those who wait, if any do, are released then.
    released_at: Instant,
    /// How many wait for that.
    waiting: u32,
    /// Whether a token was set aside for them.
    token: Token,
}

/// What there is for those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// Nothing: their patience ends before there is one; or one of them made use of it.
    None,
    /// One, unless all of them go away.
    Reserved,
}

// === impl Rate ===

impl Rate {
    /// So many a second, and so many at once; both above zero.
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self { interval: Duration::from_secs_f64(per_second.recip()), burst: burst.max(1) }
    }

    /// From one token to the next.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// How many may come at once.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// How far from full a bucket may be that still holds a token.
    fn tolerance(&self) -> Duration {
        self.interval.saturating_mul(self.burst - 1)
    }
}

// === impl Ceiling ===

impl Ceiling {
    /// As much as the rate says, and all of its burst at once to begin with.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, bucket: Bucket::full(now) }
    }

    /// As [`Bucket::take`].
    pub fn take(&self, now: Instant) -> Result<(), Duration> {
        self.bucket.take(&self.rate, now)
    }

    /// As [`Bucket::reserve`].
    pub fn reserve(&self, patience: Duration, now: Instant) -> Result<Duration, Duration> {
        self.bucket.reserve(&self.rate, patience, now)
    }

    /// As [`Bucket::credit`].
    pub fn credit(&self) {
        self.bucket.credit(&self.rate);
    }
}

// === impl Bucket ===

impl Bucket {
    /// A full one.
    pub fn full(now: Instant) -> Self {
        let state = State { full_at: now, released_at: now, waiting: 0, token: Token::None };
        Self(Mutex::new(state))
    }

    /// Takes a token; otherwise says how long it is until there is one.
    pub fn take(&self, rate: &Rate, now: Instant) -> Result<(), Duration> {
        self.lock().take(rate, now)
    }

    /// Takes the next token, to be used after the returned time; without one if that is too long.
    pub fn reserve(
        &self,
        rate: &Rate,
        patience: Duration,
        now: Instant,
    ) -> Result<Duration, Duration> {
        let mut state = self.lock();
        match state.take(rate, now) {
            Ok(()) => Ok(Duration::ZERO),
            Err(wait) if wait > patience => Err(wait),
            Err(wait) => {
                state.spend(rate, now);
                Ok(wait)
            }
        }
    }

    /// Takes a token, or waits for one with all who come before there is one; for no longer than
    /// this patience, after which they are released without. Who waits [leaves](Self::leave) later.
    pub fn join(&self, rate: &Rate, patience: Duration, now: Instant) -> Turn {
        let mut state = self.lock();
        if now < state.released_at {
            state.waiting = state.waiting.saturating_add(1);
            return Turn::At(state.released_at, Place::Joined);
        }
        let Err(wait) = state.take(rate, now) else { return Turn::Now };
        state.token = Token::None;
        if wait <= patience {
            state.spend(rate, now);
            state.token = Token::Reserved;
        }
        state.released_at = now + wait.min(patience);
        state.waiting = 1;
        Turn::At(state.released_at, Place::First)
    }

    /// One of those who wait until `released_at` goes: to be answered, or away. The token of those
    /// who have all gone away is given back.
    pub fn leave(&self, rate: &Rate, released_at: Instant, leaving: Leaving, now: Instant) {
        let mut state = self.lock();
        if state.released_at != released_at {
            // Others wait by now: whoever is late was released by the clock.
            return;
        }
        state.waiting = state.waiting.saturating_sub(1);
        if leaving == Leaving::Answered {
            state.token = Token::None;
        } else if state.waiting == 0 {
            if std::mem::replace(&mut state.token, Token::None) == Token::Reserved {
                state.credit(rate);
            }
            // Whoever comes next does not wait with nobody.
            state.released_at = state.released_at.min(now);
        }
    }

    /// Gives a token back that was not used.
    pub fn credit(&self, rate: &Rate) {
        self.lock().credit(rate);
    }

    /// Takes a token even if there is none.
    pub fn charge(&self, rate: &Rate, now: Instant) {
        self.lock().spend(rate, now);
    }

    /// Returns the time at which it is full again.
    pub fn full_at(&self) -> Instant {
        self.lock().full_at
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn take(&mut self, rate: &Rate, now: Instant) -> Result<(), Duration> {
        let lacking = self.full_at.saturating_duration_since(now);
        match lacking.checked_sub(rate.tolerance()) {
            None | Some(Duration::ZERO) => {
                self.spend(rate, now);
                Ok(())
            }
            Some(wait) => Err(wait),
        }
    }

    fn spend(&mut self, rate: &Rate, now: Instant) {
        self.full_at = self.full_at.max(now) + rate.interval;
    }

    fn credit(&mut self, rate: &Rate) {
        self.full_at = self.full_at.checked_sub(rate.interval).unwrap_or(self.full_at);
    }
}

#[cfg(test)]
mod tests;
