//! The timer that wakes a waiting watch without an event.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is reset only if it would fire too late. An event that only postpones it costs
/// nothing. A waiter may wake too early, never too late.
pub(super) struct WakeTimer(Pin<Box<Sleep>>);

// === impl WakeTimer ===

impl WakeTimer {
    /// Creates a timer that fires at this time.
    pub(super) fn at(time: Instant) -> Self {
        Self(Box::pin(sleep_until(time)))
    }

    /// Waits until this time at the latest.
    pub(super) async fn until(&mut self, time: Instant) {
        if self.0.is_elapsed() || self.0.deadline() > time {
            self.0.as_mut().reset(time);
        }
        self.0.as_mut().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_postponed_timer_fires_early_once_and_never_late() {
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let mut wake_timer = WakeTimer::at(after(10));
        wake_timer.until(after(30)).await;
        assert_eq!(Instant::now(), after(10));
        wake_timer.until(after(30)).await;
        assert_eq!(Instant::now(), after(30));
        let mut wake_timer = WakeTimer::at(after(50));
        wake_timer.until(after(40)).await;
        assert_eq!(Instant::now(), after(40));
    }
}
