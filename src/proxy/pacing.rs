//! Polls that repeat too often: whose turn it is, and holding those back whose turn it is not.
//!
//! Invariant: at most [`HELD_MAX`] are held at once; who finds no place is answered at once. A held
//! poll whose client goes away leaves its token to others.

use std::sync::Arc;

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until},
};

use super::{
    decide::{self, Pace, Plan, Poll, PollKey},
    identify::Caller,
    target::Target,
};
use crate::{
    limit::{Bucket, Leaving, Limiter, Place, Rate, Room},
    metrics::{Held, Limit, Metrics},
    policy::ResourcePolicy,
};

/// How often each poll may be repeated.
pub(super) struct Pacing {
    polls: Limiter<PollKey>,
    places: Semaphore,
    metrics: Metrics,
}

/// One poll that waits; dropped before it was released, its client has gone.
struct Waiting {
    bucket: Arc<Bucket>,
    rate: Rate,
    released_at: Instant,
    leaving: Leaving,
}

/// Polls whose repetitions are counted.
const POLLS_MAX: usize = 8192;

/// Polls held back at once.
const HELD_MAX: usize = 1024;

// === impl Pacing ===

impl Pacing {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { polls: Limiter::new(POLLS_MAX), places: Semaphore::new(HELD_MAX), metrics }
    }

    /// What comes of a request before anything else, if it is repeated too often.
    pub(super) fn plan(
        &self,
        target: &Target,
        caller: Caller,
        rules: &ResourcePolicy,
        now: Instant,
    ) -> Option<Plan> {
        let poll = decide::poll(&target.info, caller, rules)?;
        poll.plan(&self.bucket(&poll, target, now), now)
    }

    /// Holds a poll back.
    pub(super) async fn hold(
        &self,
        pace: &Pace,
        target: &Target,
        caller: Caller,
        rules: &ResourcePolicy,
    ) {
        let since = Instant::now();
        let Some(poll) = decide::poll(&target.info, caller, rules) else { return };
        let bucket = self.bucket(&poll, target, since);
        let (rate, released_at) = (pace.terms.rate, pace.released_at);
        let mut waiting = Waiting { bucket, rate, released_at, leaving: Leaving::Away };
        match self.places.try_acquire() {
            Ok(_place) => sleep_until(pace.until).await,
            Err(_) => self.metrics.limit_reached(Limit::PollsHeld),
        }
        waiting.leaving = Leaving::Answered;
        let held = match pace.place {
            Place::First => Held::First,
            Place::Joined => Held::Joined,
        };
        self.metrics.paced(held, since.elapsed());
    }

    fn bucket(&self, poll: &Poll<'_>, target: &Target, now: Instant) -> Arc<Bucket> {
        let (bucket, room) = self.polls.bucket(|| poll.key(), &target.polls, now);
        if room == Room::Made {
            self.metrics.limit_reached(Limit::PollKeys);
        }
        bucket
    }
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        self.bucket.leave(&self.rate, self.released_at, self.leaving, Instant::now());
    }
}
