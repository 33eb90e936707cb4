//! The result of a review and its lifetime.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

/// The result of a review, kept where the next identical question finds it without a search.
#[derive(Default)]
pub struct Remembered(pub(super) ArcSwapOption<Decided>);

/// The result of a review.
pub(super) struct Decided {
    /// `true` if the apiserver allowed it.
    pub(super) allowed: bool,
    /// The time of the review.
    pub(super) at: Instant,
    /// The time for which the result is valid.
    pub(super) lifetime: Duration,
    /// The age from which a result in use is renewed.
    pub(super) renew_after: Duration,
    /// `true` while a renewal is in progress.
    pub(super) renewing: AtomicBool,
    /// `true` once its age is unknown.
    pub(super) void: AtomicBool,
}

/// The lifetime of a review of Listless's own user: its permissions filled the replicas.
pub(super) const OWN_TTL: Duration = Duration::from_secs(60);

/// The age from which such a review is renewed if it is in use.
pub(super) const OWN_RENEW_AFTER: Duration = Duration::from_secs(50);

// === impl Decided ===

impl Decided {
    /// Returns a result for Listless's own user, asked at `at`.
    pub(super) fn of_own(allowed: bool, at: Instant) -> Self {
        let (lifetime, renew_after) = (OWN_TTL, OWN_RENEW_AFTER);
        Self { allowed, at, lifetime, renew_after, renewing: false.into(), void: false.into() }
    }

    /// Returns the time of expiry.
    pub(super) fn believed_until(&self) -> Instant {
        self.at + self.lifetime
    }

    /// Reports whether it has not expired.
    pub(super) fn is_valid(&self) -> bool {
        self.is_younger_than(self.lifetime)
    }

    /// Reports whether a renewal is not yet due.
    pub(super) fn is_fresh(&self) -> bool {
        self.is_younger_than(self.lifetime.min(self.renew_after))
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        self.at.elapsed() < age && !self.void.load(Ordering::Relaxed)
    }

    /// Reports whether a renewal is due that nobody has begun. The caller begins it.
    pub(super) fn begin_renewal(&self) -> bool {
        !self.is_fresh() && !self.renewing.swap(true, Ordering::Relaxed)
    }

    /// Returns the same result as the answer to another question, which is renewed by itself.
    pub(super) fn with_own_renewal(&self) -> Self {
        let void = self.void.load(Ordering::Relaxed);
        Self { renewing: false.into(), void: void.into(), ..*self }
    }
}

// === impl Remembered ===

impl Remembered {
    /// Returns the result until a renewal is due.
    pub(super) fn fresh(&self) -> Option<Arc<Decided>> {
        self.0.load().as_ref().filter(|decided| decided.is_fresh()).cloned()
    }
}
