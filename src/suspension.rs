//! Notices that the machine was suspended: a closed laptop, a paused virtual machine.
//!
//! The clock of timers and ages stands still meanwhile. Everything whose age counts is then older than
//! it seems.

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

// === impl Suspension ===

impl Suspension {
    /// Creates one of this machine.
    pub fn system() -> Self {
        let (all, counted) = (uninterrupted(), interrupted());
        Self::of(Arc::new(move || {
            let counted = interrupted().saturating_sub(counted);
            uninterrupted().saturating_sub(all).saturating_sub(counted)
        }))
    }

    /// Creates one from a source of the missed time.
    pub fn of(missed: Arc<dyn Fn() -> Duration + Send + Sync>) -> Self {
        let known = Arc::new(AtomicU64::new(millis(missed())));
        Self { missed, known }
    }

    /// Reports whether the machine was suspended since the last call; `true` once for each time.
    pub fn is_over(&self) -> bool {
        let missed = millis((self.missed)());
        let known = self.known.load(Ordering::Relaxed);
        missed.saturating_sub(known) >= millis(SUSPENSION_MIN)
            && self.known.swap(missed, Ordering::Relaxed) != missed
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

    /// While a test's clock stands still, the machine's goes on.
    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_is_no_suspension() {
        let (suspension, start) = (Suspension::system(), uninterrupted());
        while uninterrupted().saturating_sub(start) <= SUSPENSION_MIN {
            assert!(!suspension.is_over());
        }
        assert!(!suspension.is_over());
    }
}
