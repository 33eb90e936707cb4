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
}
