//! The wait before the next attempt: exponential with full jitter. Pure.

use std::time::Duration;

/// The number of consecutive failures.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

const BASE: Duration = Duration::from_millis(800);
const CAP: Duration = Duration::from_secs(30);

// === impl Backoff ===

impl Backoff {
    /// Returns the wait after one more failure; `random` is in 0..1.
    pub(super) fn next(&mut self, random: f64) -> Duration {
        let bound = BASE.saturating_mul(1 << self.failures.min(16)).min(CAP);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(random.clamp(0.0, 1.0))
    }

    /// Resets the wait after a success.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_reset() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(waits, [800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        backoff.reset();
        assert_eq!(backoff.next(0.5), Duration::from_millis(400));
        for _ in 0..100 {
            assert!(backoff.next(1.0) <= CAP);
        }
        assert_eq!(backoff.next(0.0), Duration::ZERO);
    }
}
