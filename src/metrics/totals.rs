//! A few sums that this process reads back, for the page and its timeline.
//!
//! Each is one atomic addition beside the metric of the same meaning. No decision depends on them.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    Metrics,
    labels::{Limit, Origin, Outcome, ServedBy},
};

/// The sums since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Answered client requests, in the order of [`ServedBy::ALL`].
    pub answered: [u64; ServedBy::ALL.len()],
    /// Requests that the apiserver answered, in the order of [`Origin::ALL`].
    pub upstream: [u64; Origin::ALL.len()],
    /// Reached limits, in the order of [`Limit::ALL`].
    pub limits: [u64; Limit::ALL.len()],
    /// Configuration reloads, in the order of [`Outcome::ALL`].
    pub reloads: [u64; Outcome::ALL.len()],
}

/// The growing sums.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) answered: Array<{ ServedBy::ALL.len() }>,
    pub(super) upstream: Array<{ Origin::ALL.len() }>,
    pub(super) limits: Array<{ Limit::ALL.len() }>,
    pub(super) reloads: Array<{ Outcome::ALL.len() }>,
}

/// One sum for each value of a label, in the order of its declaration.
pub(super) struct Array<const N: usize>([AtomicU64; N]);

// === impl Metrics ===

impl Metrics {
    /// Returns the sums so far.
    pub fn totals(&self) -> Totals {
        let Sums { answered, upstream, limits, reloads } = &self.0.sums;
        Totals {
            answered: answered.read(),
            upstream: upstream.read(),
            limits: limits.read(),
            reloads: reloads.read(),
        }
    }
}

// === impl Totals ===

impl Totals {
    /// Returns the number of answered client requests.
    pub fn requests(&self) -> u64 {
        self.answered.iter().sum()
    }

    /// Returns the number of client requests answered by this source.
    pub fn answered_by(&self, by: ServedBy) -> u64 {
        self.answered[by as usize]
    }

    /// Returns the number of requests that the apiserver answered, for any originator.
    pub fn upstream_requests(&self) -> u64 {
        self.upstream.iter().sum()
    }

    /// Returns the number of those that no client sent.
    pub fn upstream_for_itself(&self) -> u64 {
        self.upstream_requests() - self.upstream[Origin::Client as usize]
    }
}

// === impl Array ===

impl<const N: usize> Array<N> {
    /// Adds one at the index of a label's value.
    pub(super) fn increment(&self, index: usize) {
        self.0[index].fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> [u64; N] {
        array::from_fn(|index| self.0[index].load(Ordering::Relaxed))
    }
}

impl<const N: usize> Default for Array<N> {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_values_can_be_read_back() {
        let metrics = Metrics::new();
        metrics.limit_reached(Limit::Watches);
        metrics.limit_reached(Limit::Watches);
        metrics.config_reloaded(Outcome::Failure);
        let totals = metrics.totals();
        assert_eq!(totals.limits[Limit::Watches as usize], 2);
        assert_eq!(totals.limits.iter().sum::<u64>(), 2);
        assert_eq!(totals.reloads, [0, 1]);
        assert_eq!((totals.requests(), totals.upstream_requests()), (0, 0));
    }
}
