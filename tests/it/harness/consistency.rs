//! Consistency checks in tests: often, and a difference fails the test.

use std::time::Duration;

use listless::{
    cache::{Cache, Consistency, OnDifference},
    metrics::ReplicaCheck,
};

use super::Setup;

/// Looks at the end of a test whether a replica differed from the apiserver.
pub(super) struct Inspection(Cache);

// === impl Setup ===

impl Setup {
    /// Checks replicas as told.
    pub(crate) fn consistency(mut self, consistency: Consistency) -> Self {
        self.consistency = consistency;
        self
    }
}

/// A check every few seconds, and no difference is allowed.
pub(super) fn checked_often() -> Consistency {
    Consistency { period: Some(Duration::from_secs(5)), ..checked_as_shipped() }
}

/// Checks as often as in use, and no difference is allowed.
pub(crate) fn checked_as_shipped() -> Consistency {
    Consistency { on_difference: OnDifference::Panic, ..Consistency::default() }
}

// === impl Inspection ===

impl Inspection {
    pub(super) fn of(cache: &Cache) -> Self {
        Self(cache.clone())
    }
}

impl Drop for Inspection {
    fn drop(&mut self) {
        let different = self.0.counters().checks.get(ReplicaCheck::Different);
        // A second panic would abort the whole run.
        assert!(
            std::thread::panicking() || different == 0,
            "a replica differed from the apiserver"
        );
    }
}
