//! The limits of access reviews. Reads above them are forwarded, which costs no more than without
//! Listless.
//!
//! Invariant: tokens that the apiserver has not accepted use up none of what the others need.

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};

use super::NoReview;
use crate::{
    hash::RandomState,
    limit::{Ceiling, Rate},
    metrics::{Limit, Metrics},
    proxy::identify::BearerId,
    upstream::Judgement,
};

/// The limits of all callers.
pub(super) struct Quotas {
    /// The limit of Listless's own user and of accepted bearers.
    whole: Quota,
    /// The limit of all other bearers.
    strangers: Quota,
    /// Bearers whose tokens the apiserver has accepted.
    accepted: Accepted,
}

type Accepted = moka::future::Cache<BearerId, (), RandomState>;

/// The permits and the rate of reviews.
pub(super) struct Quota {
    places: Semaphore,
    ceiling: Ceiling,
}

/// The limit of concurrent reviews of bearers. Callers that keep changing their tokens therefore cost
/// the apiserver hardly more than they would without Listless.
pub(super) const BEARER_REVIEWS_MAX: usize = 128;

/// The limit of reviews per second.
const REVIEWS_PER_SECOND: f64 = 500.0;

/// The burst above [`REVIEWS_PER_SECOND`].
const REVIEWS_BURST: u32 = 1000;

/// Tokens that were not accepted yet have limits of this part.
pub(super) const STRANGERS_PART: u32 = 4;

// === impl Quotas ===

impl Quotas {
    /// Creates them with a bounded table for accepted bearers.
    pub(super) fn new(accepted: Accepted) -> Self {
        Self { whole: Quota::of_part(1), strangers: Quota::of_part(STRANGERS_PART), accepted }
    }

    /// Returns the limits of a bearer, or of Listless's own user.
    pub(super) fn of(&self, bearer: Option<BearerId>) -> &Quota {
        let is_stranger = bearer.is_some_and(|id| !self.have_accepted(id));
        if is_stranger { &self.strangers } else { &self.whole }
    }

    /// Reports whether the apiserver has accepted a bearer's token.
    pub(super) fn have_accepted(&self, bearer: BearerId) -> bool {
        self.accepted.contains_key(&bearer)
    }

    /// Learns from the response to a request with a bearer's token.
    pub(super) async fn learn(&self, bearer: BearerId, judgement: Judgement) {
        let accepted = self.accepted.get(&bearer).await.is_some();
        match (judgement, accepted) {
            (Judgement::Accepted, false) => self.accepted.insert(bearer, ()).await,
            (Judgement::Refused, true) => self.accepted.invalidate(&bearer).await,
            _ => {}
        }
    }
}

// === impl Quota ===

impl Quota {
    fn of_part(part: u32) -> Self {
        let rate = Rate::new(REVIEWS_PER_SECOND / f64::from(part), REVIEWS_BURST / part);
        let places = Semaphore::new(BEARER_REVIEWS_MAX / part as usize);
        Self { places, ceiling: Ceiling::new(rate, Instant::now()) }
    }

    /// Takes a place until the result is dropped.
    pub(super) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// Counts a review; an error above the rate.
    pub(super) fn may_ask(&self, metrics: &Metrics) -> Result<(), NoReview> {
        self.ceiling.take(Instant::now()).map_err(|_| {
            metrics.limit_reached(Limit::OwnRequests);
            NoReview
        })
    }
}
