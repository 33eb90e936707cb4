//! A proof for another runtime that this one still runs its tasks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, MissedTickBehavior};

/// The time of the data path's last beat. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    start: Instant,
    last_milliseconds: Arc<AtomicU64>,
}

/// The period of beats.
const PERIOD: Duration = Duration::from_secs(1);

/// The number of missing beats after which the other runtime has stopped for good.
const MISSING_MAX: u32 = 60;

// === impl Heartbeat ===

impl Heartbeat {
    /// Returns a heartbeat that beats once, now.
    pub fn new() -> Self {
        Self { start: Instant::now(), last_milliseconds: Arc::default() }
    }

    /// Beats every second, as long as this runtime runs tasks.
    pub async fn run(self) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.beat();
        }
    }

    /// Beats once.
    pub fn beat(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_milliseconds.store(now, Ordering::Relaxed);
    }

    /// Waits until the other runtime has run no task for a minute.
    ///
    /// The minute is one in which this runtime runs: a process that is paused as a whole has not
    /// stopped.
    pub async fn stopped(self) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut last, mut missing) = (None, 0);
        while missing < MISSING_MAX {
            ticks.tick().await;
            let beat = Some(self.last_milliseconds.load(Ordering::Relaxed));
            missing = if beat == last { missing + 1 } else { 0 };
            last = beat;
        }
    }

    /// Returns the time since the last beat.
    pub fn age(&self) -> Duration {
        let last = Duration::from_millis(self.last_milliseconds.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pass;

    #[tokio::test(start_paused = true)]
    async fn a_running_heartbeat_is_never_older_than_its_period() {
        let heartbeat = Heartbeat::new();
        let running = tokio::spawn(heartbeat.clone().run());
        pass(Duration::from_secs(60)).await;
        assert!(heartbeat.age() <= PERIOD, "{:?}", heartbeat.age());
        running.abort();
        pass(Duration::from_secs(60)).await;
        assert!(heartbeat.age() >= Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_runtime_has_stopped_after_a_minute_without_a_beat() {
        let heartbeat = Heartbeat::new();
        let running = tokio::spawn(heartbeat.clone().run());
        let stopped = tokio::spawn(heartbeat.clone().stopped());
        pass(Duration::from_secs(600)).await;
        running.abort();
        pass(Duration::from_secs(55)).await;
        assert!(!stopped.is_finished());
        heartbeat.beat();
        // The process is paused: this runtime does not run either.
        tokio::time::advance(Duration::from_secs(600)).await;
        pass(Duration::from_secs(55)).await;
        assert!(!stopped.is_finished());
        pass(Duration::from_secs(10)).await;
        assert!(stopped.is_finished());
    }
}
