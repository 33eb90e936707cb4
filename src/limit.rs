//! Token buckets: the rate of an operation, and the time of the next one. Pure.
//!
//! The algorithm is the generic cell rate algorithm: a bucket is one instant, the one at which it
//! would be full again. A full bucket can be dropped without loss. The crate `governor` does not
//! fit: it keeps every key until it is swept, takes no token back, and cannot let several waiters
//! share one token.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The rate of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    /// The interval between tokens.
    interval: Duration,
    /// The number of tokens in an unused bucket.
    burst: u32,
}

/// The tokens of one limited operation.
#[derive(Debug)]
pub struct Bucket(Mutex<BucketState>);

/// A bucket with its rate, for an operation that has the same limit everywhere.
#[derive(Debug)]
pub struct Ceiling {
    rate: Rate,
    bucket: Bucket,
}

/// The result of a request for a token that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has a token.
    Now,
    /// It waits until then, together with all that arrive before; one token is for all.
    At(Instant, WaiterPlace),
}

/// The position of a waiter in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterPlace {
    /// The first one.
    First,
    /// A later one.
    Joined,
}

/// The way in which a waiter leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// It gets its response.
    Answered,
    /// Its client has left.
    Away,
}

#[derive(Debug)]
struct BucketState {
    /// The time at which the bucket would be full without further requests; a past time means full.
    full_at: Instant,
    /// The release of the waiters, if there are any.
    released_at: Instant,
    /// The number of waiters.
    waiting: u32,
    /// The token of the waiters.
    token: Token,
}

/// The token that is set aside for the waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// None: their patience ends before the next token, or one of them has used it.
    None,
    /// One, unless all of them leave.
    Reserved,
}

// === impl Rate ===

impl Rate {
    /// Creates a rate of `per_second` and a burst; both are above zero.
    pub fn new(per_second: f64, burst: u32) -> Self {
        Self { interval: Duration::from_secs_f64(per_second.recip()), burst: burst.max(1) }
    }

    /// Returns the interval between tokens.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the number of tokens in an unused bucket.
    pub fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the longest time to full of a bucket that still has a token.
    fn tolerance(&self) -> Duration {
        self.interval.saturating_mul(self.burst - 1)
    }
}

// === impl Ceiling ===

impl Ceiling {
    /// Creates a full bucket with this rate.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, bucket: Bucket::full(now) }
    }

    /// Calls [`Bucket::take`].
    pub fn take(&self, now: Instant) -> Result<(), Duration> {
        self.bucket.take(&self.rate, now)
    }

    /// Calls [`Bucket::reserve`].
    pub fn reserve(&self, patience: Duration, now: Instant) -> Result<Duration, Duration> {
        self.bucket.reserve(&self.rate, patience, now)
    }

    /// Calls [`Bucket::credit`].
    pub fn credit(&self) {
        self.bucket.credit(&self.rate);
    }
}

// === impl Bucket ===

impl Bucket {
    /// Creates a full bucket.
    pub fn full(now: Instant) -> Self {
        let state = BucketState { full_at: now, released_at: now, waiting: 0, token: Token::None };
        Self(Mutex::new(state))
    }

    /// Takes a token; otherwise returns the time until there is one.
    pub fn take(&self, rate: &Rate, now: Instant) -> Result<(), Duration> {
        self.lock().take(rate, now)
    }

    /// Takes the next token, to be used after the returned time; takes none if that time is above
    /// `patience`.
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

    /// Takes a token, or waits for one together with all that arrive before it. A wait ends after
    /// `patience` at the latest, without a token. A waiter [leaves](Self::leave) later.
    pub fn join(&self, rate: &Rate, patience: Duration, now: Instant) -> Turn {
        let mut state = self.lock();
        if now < state.released_at {
            state.waiting = state.waiting.saturating_add(1);
            return Turn::At(state.released_at, WaiterPlace::Joined);
        }
        let Err(wait) = state.take(rate, now) else { return Turn::Now };
        state.token = Token::None;
        if wait <= patience {
            state.spend(rate, now);
            state.token = Token::Reserved;
        }
        state.released_at = now + wait.min(patience);
        state.waiting = 1;
        Turn::At(state.released_at, WaiterPlace::First)
    }

    /// Removes one of the waiters until `released_at`: it gets its response, or its client has
    /// left. If all clients have left, their token is returned.
    pub fn leave(&self, rate: &Rate, released_at: Instant, leaving: Leaving, now: Instant) {
        let mut state = self.lock();
        if state.released_at != released_at {
            // There is a new group of waiters: this one was released by the clock.
            return;
        }
        state.waiting = state.waiting.saturating_sub(1);
        if leaving == Leaving::Answered {
            state.token = Token::None;
        } else if state.waiting == 0 {
            if std::mem::replace(&mut state.token, Token::None) == Token::Reserved {
                state.credit(rate);
            }
            // The next request must not wait in an empty group.
            state.released_at = state.released_at.min(now);
        }
    }

    /// Returns an unused token.
    pub fn credit(&self, rate: &Rate) {
        self.lock().credit(rate);
    }

    /// Takes a token even if there is none. A debt is never more than one token, however many
    /// requests began before the first of them was counted.
    pub fn charge(&self, rate: &Rate, now: Instant) {
        let mut state = self.lock();
        state.spend(rate, now);
        state.full_at = state.full_at.min(now + rate.tolerance() + rate.interval);
    }

    /// Returns the time at which it is full again.
    pub fn full_at(&self) -> Instant {
        self.lock().full_at
    }

    fn lock(&self) -> MutexGuard<'_, BucketState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl BucketState ===

impl BucketState {
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
