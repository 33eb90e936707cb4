//! The schedule of short watches (S-CONS-21, S-WATCH-31). An apiserver proves a quiet collection
//! complete by the bookmark before a watch's end. Without that, it does so only about once a
//! minute.
//!
//! Pure; the time is a parameter. The rate is bounded, and lower while short watches prove nothing.

use std::time::Duration;

use tokio::time::Instant;

/// The short watches of one reflector.
#[derive(Debug)]
pub(super) struct CatchUp {
    state: CatchUpState,
    not_before: Instant,
    rest: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatchUpState {
    Idle,
    /// The next watch is short.
    Due,
    /// The open watch is short.
    Open,
}

/// The shortest watch with a bookmark: the apiserver sends it two seconds before the end.
const SHORT_WATCH: Duration = Duration::from_secs(3);

/// The shortest interval from the end of one short watch to the next.
const REST_MIN: Duration = Duration::from_secs(10);

/// The longest such interval, while short watches prove nothing.
const REST_MAX: Duration = Duration::from_secs(10 * 60);

// === impl CatchUp ===

impl CatchUp {
    pub(super) fn new(now: Instant) -> Self {
        Self { state: CatchUpState::Idle, not_before: now, rest: REST_MIN }
    }

    /// Notes that readers lag behind; reports whether the open watch should end for a short one.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.state == CatchUpState::Idle && now >= self.not_before;
        if due {
            self.state = CatchUpState::Due;
        }
        due
    }

    /// Returns the length of the next watch, if it is to be a short one.
    pub(super) fn begin(&mut self) -> Option<Duration> {
        (self.state != CatchUpState::Idle).then(|| {
            self.state = CatchUpState::Open;
            SHORT_WATCH
        })
    }

    /// Notes the end of a watch and whether it advanced the version.
    pub(super) fn ended(&mut self, moved: bool, now: Instant) {
        if self.state != CatchUpState::Open {
            return;
        }
        self.state = CatchUpState::Idle;
        self.rest = if moved { REST_MIN } else { (self.rest * 2).min(REST_MAX) };
        self.not_before = now + self.rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_short_watches_depends_on_their_proofs() {
        let start = Instant::now();
        let mut catch_up = CatchUp::new(start);
        assert_eq!(catch_up.begin(), None);
        let mut now = start;
        for (moved, rest) in [(true, 10), (false, 20), (false, 40), (true, 10)] {
            assert!(catch_up.is_due(now));
            assert!(!catch_up.is_due(now), "it is on its way");
            catch_up.ended(moved, now);
            assert_eq!(catch_up.begin(), Some(SHORT_WATCH));
            assert!(!catch_up.is_due(now));
            catch_up.ended(moved, now);
            assert_eq!(catch_up.begin(), None);
            let rest = Duration::from_secs(rest);
            assert!(!catch_up.is_due(now + rest - Duration::from_millis(1)));
            now += rest;
        }
        for _ in 0..20 {
            now += REST_MAX;
            assert!(catch_up.is_due(now));
            catch_up.begin();
            catch_up.ended(false, now);
        }
    }
}
