//! Notices that the machine was suspended (a closed laptop, a paused virtual machine), or this process
//! stopped (a frozen container).
//!
//! The clock of timers and ages stands still while the machine is suspended. Everything whose age
//! counts is then older than it seems. After either, what the apiserver sent meanwhile is unread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// The suspensions since the last question.
#[derive(Clone)]
pub struct Suspension {
    /// Returns the time that the clock of timers has missed so far.
    missed: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The part of it that is known, in milliseconds.
    known: Arc<AtomicU64>,
}

/// A clock that also counts while the machine is suspended.
#[cfg(target_os = "linux")]
const UNINTERRUPTED: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const UNINTERRUPTED: ClockId = ClockId::Monotonic;

/// The shortest suspension that counts: both clocks are not read at the same instant.
const SUSPENSION_MIN: Duration = Duration::from_secs(1);

/// The shortest time without a question after which the process counts as stopped meanwhile.
const STOP_MIN: Duration = Duration::from_secs(5);

// === impl Suspension ===

impl Suspension {
    /// Creates one of this machine.
    pub fn of_machine() -> Self {
        Self::of(Arc::new(missed_by_timers()))
    }

    /// Creates one of this machine and of this process, which counts as stopped while nobody asks for
    /// five seconds.
    pub fn of_process() -> Self {
        let (suspended, stopped) = (missed_by_timers(), stopped(interrupted));
        Self::of(Arc::new(move || suspended() + stopped()))
    }

    /// Creates one from a source of the missed time.
    pub fn of(missed: Arc<dyn Fn() -> Duration + Send + Sync>) -> Self {
        let known = Arc::new(AtomicU64::new(millis(missed())));
        Self { missed, known }
    }

    /// Reports whether the machine was suspended, or the process stopped, since the last call; `true`
    /// once for each time.
    pub fn is_over(&self) -> bool {
        let missed = millis((self.missed)());
        let known = self.known.load(Ordering::Relaxed);
        missed.saturating_sub(known) >= millis(SUSPENSION_MIN)
            && self.known.swap(missed, Ordering::Relaxed) != missed
    }
}

/// Returns a function that returns the time for which the machine was suspended since now.
fn missed_by_timers() -> impl Fn() -> Duration {
    let (all, counted) = (uninterrupted(), interrupted());
    move || {
        let counted = interrupted().saturating_sub(counted);
        uninterrupted().saturating_sub(all).saturating_sub(counted)
    }
}

/// Returns a function that adds up the long times between its calls.
fn stopped(clock: impl Fn() -> Duration) -> impl Fn() -> Duration {
    let (last, sum) = (AtomicU64::new(millis(clock())), AtomicU64::default());
    move || {
        let now = millis(clock());
        let gap = now.saturating_sub(last.fetch_max(now, Ordering::Relaxed));
        let gap = if gap >= millis(STOP_MIN) { gap } else { 0 };
        Duration::from_millis(sum.fetch_add(gap, Ordering::Relaxed) + gap)
    }
}

fn uninterrupted() -> Duration {
    read(UNINTERRUPTED)
}

/// The clock of timers. It is not tokio's, which tests pause.
#[cfg(target_os = "linux")]
fn interrupted() -> Duration {
    read(ClockId::Monotonic)
}

#[cfg(not(target_os = "linux"))]
fn interrupted() -> Duration {
    static START: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(tokio::time::Instant::now).elapsed()
}

fn read(clock: ClockId) -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(clock);
    let nanos = u32::try_from(tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(tv_sec).unwrap_or_default(), nanos)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suspension_is_reported_once() {
        let missed = Arc::new(AtomicU64::new(7_000));
        let source = missed.clone();
        let missed_so_far = move || Duration::from_millis(source.load(Ordering::Relaxed));
        let suspension = Suspension::of(Arc::new(missed_so_far));
        assert!(!suspension.is_over(), "before the process started");
        missed.store(7_900, Ordering::Relaxed);
        assert!(!suspension.is_over(), "the clocks were not read at once");
        missed.store(8_000, Ordering::Relaxed);
        assert!(suspension.is_over());
        assert!(!suspension.is_over());
    }

    #[test]
    fn only_a_long_time_without_a_question_counts_as_a_stop() {
        let clock = Arc::new(AtomicU64::new(1_000));
        let now = clock.clone();
        let stopped = stopped(move || Duration::from_millis(now.load(Ordering::Relaxed)));
        for (at, sum) in
            [(5_999, 0), (10_998, 0), (15_998, 5_000), (16_998, 5_000), (76_998, 65_000)]
        {
            clock.store(at, Ordering::Relaxed);
            assert_eq!(stopped(), Duration::from_millis(sum), "at {at}");
        }
    }

    /// While a test's clock stands still, the machine's goes on.
    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_no_suspension() {
        let (suspension, start) = (Suspension::of_process(), uninterrupted());
        while uninterrupted().saturating_sub(start) <= SUSPENSION_MIN {
            assert!(!suspension.is_over());
        }
        assert!(!suspension.is_over());
    }
}
