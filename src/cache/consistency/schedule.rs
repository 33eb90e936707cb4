//! The times at which one replica is checked. Pure; time and randomness are passed in.

use std::time::Duration;

use tokio::time::Instant;

use crate::api::version::ResourceVersion;

/// The next check of one replica.
#[derive(Debug)]
pub(super) struct Schedule {
    period: Duration,
    at: Instant,
    /// The number of checks in a row that the apiserver did not answer.
    unanswered: u32,
    /// The version of the last check that found no difference.
    proven: Option<ResourceVersion>,
}

/// The wait after checks without an answer doubles so often at most: up to five hours.
const DOUBLINGS_MAX: u32 = 6;

// === impl Schedule ===

impl Schedule {
    /// The first check of a replica of this age: one to two periods after its start.
    pub(super) fn new(period: Duration, age: Duration, now: Instant, random: f64) -> Self {
        let at = now + spread(period, random).saturating_sub(age);
        Self { period, at, unanswered: 0, proven: None }
    }

    /// The time of the next check.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// Reports whether a check at this version could find anything new.
    pub(super) fn is_worthwhile(&self, version: &ResourceVersion) -> bool {
        self.proven.as_ref() != Some(version)
    }

    /// Waits one to two periods.
    pub(super) fn postpone(&mut self, now: Instant, random: f64) {
        self.at = now + spread(self.period, random);
    }

    /// The replica was equal at a version.
    pub(super) fn equal(&mut self, version: ResourceVersion, now: Instant, random: f64) {
        self.unanswered = 0;
        self.proven = Some(version);
        self.postpone(now, random);
    }

    /// The apiserver could not answer, or asked for a wait.
    pub(super) fn unanswered(&mut self, asked_for: Duration, now: Instant, random: f64) {
        let doubled = self.period * (1 << self.unanswered.min(DOUBLINGS_MAX));
        self.unanswered = self.unanswered.saturating_add(1);
        self.at = now + spread(doubled, random).max(asked_for);
    }
}

/// Between this time and twice as long.
fn spread(time: Duration, random: f64) -> Duration {
    time + time.mul_f64(random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(300);

    fn waits(schedule: &Schedule, now: Instant) -> u64 {
        schedule.at().duration_since(now).as_secs()
    }

    #[test]
    fn two_checks_are_a_period_apart_at_least() {
        let now = Instant::now();
        for (random, expected) in [(0.0, 300), (0.5, 450), (1.0, 600)] {
            let mut schedule = Schedule::new(PERIOD, Duration::from_secs(10), now, random);
            assert_eq!(waits(&schedule, now), expected - 10);
            schedule.equal(ResourceVersion::parse("5").unwrap(), now, random);
            assert_eq!(waits(&schedule, now), expected);
            schedule.postpone(now, random);
            assert_eq!(waits(&schedule, now), expected);
        }
    }

    #[test]
    fn a_version_is_proven_once() {
        let (now, five) = (Instant::now(), ResourceVersion::parse("5").unwrap());
        let mut schedule = Schedule::new(PERIOD, Duration::ZERO, now, 0.0);
        assert!(schedule.is_worthwhile(&five));
        schedule.unanswered(Duration::ZERO, now, 0.0);
        assert!(schedule.is_worthwhile(&five));
        schedule.equal(five.clone(), now, 0.0);
        assert!(!schedule.is_worthwhile(&five));
        assert!(schedule.is_worthwhile(&ResourceVersion::parse("6").unwrap()));
    }

    #[test]
    fn without_answers_checks_become_rare_and_then_regular_again() {
        let now = Instant::now();
        let mut schedule = Schedule::new(PERIOD, Duration::ZERO, now, 0.0);
        for expected in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            schedule.unanswered(Duration::ZERO, now, 0.0);
            assert_eq!(waits(&schedule, now), expected * 300);
        }
        schedule.equal(ResourceVersion::parse("5").unwrap(), now, 0.0);
        schedule.unanswered(Duration::from_secs(3600), now, 0.0);
        assert_eq!(waits(&schedule, now), 3600, "the apiserver asked for an hour");
    }
}
