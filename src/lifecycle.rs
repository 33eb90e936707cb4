//! Startup and shutdown: the readiness of parts, and their common drain.
//!
//! This module does not decide when to stop; `app` does. A part takes part by holding a value. A
//! dropped value counts as done, so a failed part cannot block the others.

mod heartbeat;
mod signals;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};

pub use heartbeat::Heartbeat;
pub use signals::{Signals, survive_hangup};

/// The readiness of all parts. It is cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Ready(Arc<Mutex<Vec<Part>>>);

/// The readiness of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name of the part.
    pub name: &'static str,
    /// `true` if the part is ready.
    pub ready: bool,
}

/// A guard that keeps a part unready until it is dropped.
#[derive(Debug)]
#[must_use = "dropping this makes the part ready"]
pub struct NotReady {
    parts: Ready,
    index: usize,
}

/// The sender of the drain signal.
#[derive(Debug)]
pub struct Drain(watch::Sender<Option<Instant>>);

/// The receiver of the drain signal. A part drops it when it has stopped.
#[derive(Clone, Debug)]
pub struct Draining(watch::Receiver<Option<Instant>>);

/// The result of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every part stopped.
    Complete,
    /// The number of parts that had not stopped at the deadline.
    Cut(usize),
}

// === impl Ready ===

impl Ready {
    /// Adds a part that is not ready yet.
    pub fn register(&self, name: &'static str) -> NotReady {
        let mut parts = self.lock();
        parts.push(Part { name, ready: false });
        NotReady { parts: self.clone(), index: parts.len() - 1 }
    }

    /// Reports whether every part is ready.
    pub fn is_ready(&self) -> bool {
        self.lock().iter().all(|part| part.ready)
    }

    /// Returns every part, in the order of registration.
    pub fn parts(&self) -> Vec<Part> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Part>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NotReady {
    /// Sets the readiness of the part.
    pub fn set_ready(&self, ready: bool) {
        if let Some(part) = self.parts.lock().get_mut(self.index) {
            part.ready = ready;
        }
    }
}

impl Drop for NotReady {
    fn drop(&mut self) {
        if let Some(part) = self.parts.lock().get_mut(self.index) {
            part.ready = true;
        }
    }
}

// === impl Drain ===

impl Drain {
    /// Returns a drain that has not begun.
    pub fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Adds a part that has to stop.
    pub fn watch(&self) -> Draining {
        Draining(self.0.subscribe())
    }

    /// Begins the drain. Parts still running at the deadline are cut off.
    pub fn begin(&self, deadline: Instant) {
        self.0.send_replace(Some(deadline));
    }

    /// Waits for every part to stop, until the deadline.
    pub async fn finished(&self, deadline: Instant) -> Drained {
        match timeout_at(deadline, self.0.closed()).await {
            Ok(()) => Drained::Complete,
            Err(_) => Drained::Cut(self.0.receiver_count()),
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Draining ===

impl Draining {
    /// Waits until the drain begins. Dropping the [`Drain`] also begins it.
    pub async fn begun(&mut self) {
        // An error means that the sender is gone.
        let _dropped = self.0.wait_for(Option::is_some).await;
    }

    /// Acts at once and then once in each period, until the drain begins.
    pub async fn act_every(mut self, period: Duration, mut act: impl FnMut()) {
        let mut ticks = interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.begun() => return,
                _ = ticks.tick() => act(),
            }
        }
    }

    /// Reports whether the drain has begun.
    pub fn is_begun(&self) -> bool {
        self.deadline().is_some() || self.0.has_changed().is_err()
    }

    /// Returns the deadline of a drain that has begun.
    pub fn deadline(&self) -> Option<Instant> {
        *self.0.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_is_ready_once_every_part_is() {
        let ready = Ready::default();
        let listener = ready.register("listener");
        let admin = ready.register("admin");
        drop(admin);
        assert!(!ready.is_ready());
        let expected =
            [Part { name: "listener", ready: false }, Part { name: "admin", ready: true }];
        assert_eq!(ready.parts(), expected);
        drop(listener);
        assert!(ready.is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_when_the_last_part_stopped() {
        let drain = Drain::new();
        let (mut first, second) = (drain.watch(), drain.watch());
        let deadline = Instant::now() + Duration::from_secs(10);
        assert!(!second.is_begun());
        drain.begin(deadline);
        first.begun().await;
        assert_eq!((second.is_begun(), second.deadline()), (true, Some(deadline)));
        drop(first);
        let stopping = tokio::spawn(async move {
            crate::testing::pass(Duration::from_secs(3)).await;
            drop(second);
        });
        assert_eq!(drain.finished(deadline).await, Drained::Complete);
        assert!(Instant::now() < deadline);
        stopping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_is_cut_at_its_deadline() {
        let drain = Drain::new();
        let _stuck = drain.watch();
        let deadline = Instant::now() + Duration::from_secs(10);
        drain.begin(deadline);
        assert_eq!(drain.finished(deadline).await, Drained::Cut(1));
        assert_eq!(Instant::now(), deadline);
    }

    #[tokio::test]
    async fn parts_also_end_when_the_drain_is_dropped() {
        let drain = Drain::new();
        let mut watching = drain.watch();
        drop(drain);
        watching.begun().await;
        assert!(watching.is_begun());
    }
}
