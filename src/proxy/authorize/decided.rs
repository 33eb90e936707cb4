//! What a review came to, and for how long that is believed.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

/// What a review came to, kept where the next identical question finds it without a search.
#[derive(Default)]
pub struct Remembered(pub(super) ArcSwapOption<Decided>);

/// What a review came to.
pub(super) struct Decided {
    /// Whether the apiserver said yes.
    pub(super) allowed: bool,
    /// When it was asked.
    pub(super) at: Instant,
    /// It is believed for so long.
    pub(super) lifetime: Duration,
    /// After so long it is renewed while it is in use.
    pub(super) renew_after: Duration,
    /// Whether someone is asking again already.
    pub(super) renewing: AtomicBool,
}

/// How long a review of our own user is believed: its rights filled the replicas.
pub(super) const OWN_TTL: Duration = Duration::from_secs(60);

/// A review in use that is older than this is renewed while it is still believed.
pub(super) const OWN_RENEW_AFTER: Duration = Duration::from_secs(50);

// === impl Decided ===

impl Decided {
    /// About our own user, asked at a time.
    pub(super) fn of_own(allowed: bool, at: Instant) -> Self {
        let (lifetime, renew_after) = (OWN_TTL, OWN_RENEW_AFTER);
        Self { allowed, at, lifetime, renew_after, renewing: false.into() }
    }

    /// When it has run out.
    pub(super) fn believed_until(&self) -> Instant {
        self.at + self.lifetime
    }

    /// Reports whether it is not yet time to ask again.
    pub(super) fn is_fresh(&self) -> bool {
        self.at.elapsed() < self.lifetime.min(self.renew_after)
    }
}

// === impl Remembered ===

impl Remembered {
    /// What was decided, until it is time to ask again.
    pub(super) fn fresh(&self) -> Option<Arc<Decided>> {
        self.0.load().as_ref().filter(|decided| decided.is_fresh()).cloned()
    }
}
