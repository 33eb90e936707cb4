//! The time and role in which an ended worker is restarted. Pure: time is passed in.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::Ends;
use crate::metrics::WorkerEnd;

/// The role of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The pod's first worker: no client was answered yet.
    First,
    /// A later worker: clients may have seen newer versions than it has.
    Again,
    /// Safe mode: it forwards everything, without the code that could crash again.
    Safe,
}

/// The workers so far.
#[derive(Debug, Default)]
pub struct Restarts {
    /// The times of the latest crashes, oldest first.
    crashes: VecDeque<Instant>,
    started: u64,
    ends: Ends,
    safe_until: Option<Instant>,
}

/// The number of crashes within [`CRASH_WINDOW`] that lead to safe mode.
const CRASHES_MAX: usize = 3;

/// The period in which [`CRASHES_MAX`] applies.
const CRASH_WINDOW: Duration = Duration::from_secs(60);

/// The duration of safe mode, after which a normal worker starts.
const SAFE_MODE: Duration = Duration::from_secs(10 * 60);

/// The delay before a second restart in a row. It doubles with each further one.
const REST: Duration = Duration::from_millis(25);

/// The maximum delay, because clients are refused during it.
const REST_MAX: Duration = Duration::from_secs(1);

/// The number of stored crashes: enough to reach the maximum delay.
const CRASHES_REMEMBERED: usize = 16;

/// The number of doublings beyond which [`REST_MAX`] applies.
const REST_DOUBLINGS_MAX: usize = 8;

// === impl Role ===

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::First, Self::Again, Self::Safe];

    /// Returns the word on a worker's command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Again => "again",
            Self::Safe => "safe",
        }
    }
}

// === impl Restarts ===

impl Restarts {
    /// Returns the role of the next worker.
    pub fn role(&self) -> Role {
        match (self.safe_until, self.started) {
            (Some(_), _) => Role::Safe,
            (None, 0) => Role::First,
            (None, _) => Role::Again,
        }
    }

    /// Records the start of a worker.
    pub fn started(&mut self) {
        self.started += 1;
    }

    /// Returns the number of ended workers by reason.
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// Returns the end of safe mode, if it is active.
    pub fn safe_until(&self) -> Option<Instant> {
        self.safe_until
    }

    /// Records the end of a worker, or a failed start. Returns the delay before the next one.
    pub fn crashed(&mut self, end: WorkerEnd, now: Instant) -> Duration {
        self.ends.add(end);
        while self.crashes.front().is_some_and(|&crash| now - crash >= CRASH_WINDOW) {
            self.crashes.pop_front();
        }
        self.crashes.push_back(now);
        // Older ones do not change the result.
        if self.crashes.len() > CRASHES_REMEMBERED {
            self.crashes.pop_front();
        }
        if self.crashes.len() >= CRASHES_MAX {
            self.safe_until.get_or_insert(now + SAFE_MODE);
        }
        match self.crashes.len().checked_sub(2) {
            None => Duration::ZERO,
            Some(further) => (REST * (1 << further.min(REST_DOUBLINGS_MAX))).min(REST_MAX),
        }
    }

    /// Ends safe mode and forgets the crashes before it.
    pub fn safe_mode_ended(&mut self) {
        self.ends.add(WorkerEnd::SafeModeOver);
        self.safe_until = None;
        self.crashes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    /// Returns the state with a running first worker.
    fn running() -> Restarts {
        let mut restarts = Restarts::default();
        assert_eq!(restarts.role(), Role::First);
        restarts.started();
        restarts
    }

    #[test]
    fn the_first_crash_is_followed_by_an_immediate_restart() {
        let mut restarts = running();
        assert_eq!(restarts.crashed(WorkerEnd::Exit, Instant::now()), Duration::ZERO);
        assert_eq!(restarts.role(), Role::Again);
        assert_eq!(restarts.ends(), "exit=1".parse().expect("a reason"));
    }

    #[test]
    fn three_crashes_in_a_minute_lead_to_safe_mode_for_ten() {
        let (mut restarts, start) = (running(), Instant::now());
        for seconds in [0, 30] {
            restarts.crashed(WorkerEnd::Exit, after(start, seconds));
            assert_eq!(restarts.role(), Role::Again);
        }
        restarts.crashed(WorkerEnd::Exit, after(start, 59));
        assert_eq!(restarts.role(), Role::Safe);
        let until = after(start, 59) + SAFE_MODE;
        assert_eq!(restarts.safe_until(), Some(until));
        // Crashes of the safe worker do not prolong it.
        restarts.crashed(WorkerEnd::Exit, after(start, 70));
        assert_eq!(restarts.safe_until(), Some(until));
        restarts.safe_mode_ended();
        assert_eq!((restarts.role(), restarts.safe_until()), (Role::Again, None));
        assert_eq!(restarts.ends(), "exit=4,safe_mode_over=1".parse().expect("reasons"));
        assert_eq!(restarts.crashed(WorkerEnd::Exit, after(start, 700)), Duration::ZERO);
    }

    #[test]
    fn rare_crashes_never_lead_to_safe_mode() {
        let (mut restarts, start) = (running(), Instant::now());
        for minute in 0..100 {
            restarts.crashed(WorkerEnd::Exit, after(start, minute * 31));
            assert_eq!(restarts.role(), Role::Again, "{minute}");
        }
    }

    #[test]
    fn the_delay_grows_to_a_second_and_no_further() {
        let (mut restarts, start) = (running(), Instant::now());
        let rests: Vec<u128> =
            (0..12).map(|_| restarts.crashed(WorkerEnd::Exit, start).as_millis()).collect();
        assert_eq!(rests[..7], [0, 25, 50, 100, 200, 400, 800]);
        assert!(rests[7..].iter().all(|rest| *rest == 1000), "{rests:?}");
        for _ in 0..1000 {
            restarts.crashed(WorkerEnd::Exit, start);
        }
        assert!(restarts.crashes.len() <= CRASHES_REMEMBERED);
    }
}
