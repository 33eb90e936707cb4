//! The division of the demo's time over its phases. Pure.

use std::time::Duration;

use super::phase::Kind;

/// The time of each phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The polls that go directly to the apiserver.
    pub straight: Duration,
    /// The maximum time until Listless answers every poller from memory.
    pub warm_up_max: Duration,
    /// The time from the start of the demo to its end.
    pub total: Duration,
}

/// The least part of the time for the polls through Listless, as a divisor.
const LISTLESS_MIN: u32 = 4;

// === impl Plan ===

impl Plan {
    /// Divides a time: 45 % directly, at most 25 % for the warm-up, and at most 45 % through Listless.
    pub(super) fn of(total: Duration) -> Self {
        Self { straight: total * 9 / 20, warm_up_max: total / 4, total }
    }

    /// Returns the time of a phase that starts this long after the demo began.
    ///
    /// The last phase is as long as the first, or shorter if the time before was longer than planned.
    pub(super) fn time(&self, kind: Kind, elapsed: Duration) -> Duration {
        match kind {
            Kind::Straight => self.straight,
            Kind::WarmUp => self.warm_up_max,
            Kind::Listless | Kind::Shown => {
                let rest = self.total.saturating_sub(elapsed);
                rest.max(self.total / LISTLESS_MIN).min(self.straight)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_phases_together_take_the_given_time() {
        for seconds in [2, 8, 20, 3600] {
            let total = Duration::from_secs(seconds);
            let plan = Plan::of(total);
            let before = plan.straight + plan.warm_up_max;
            assert_eq!(before + plan.time(Kind::Listless, before), total);
            // A quick warm-up leaves the demo shorter, and its two measurements equally long.
            let quick = plan.straight + total / 20;
            assert_eq!(plan.time(Kind::Listless, quick), plan.time(Kind::Straight, Duration::ZERO));
            assert!(quick + plan.straight > total * 9 / 10);
        }
    }

    #[test]
    fn a_late_start_leaves_time_for_the_last_phase() {
        let plan = Plan::of(Duration::from_secs(20));
        assert_eq!(plan.time(Kind::Listless, Duration::from_secs(30)), Duration::from_secs(5));
    }
}
