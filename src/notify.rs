//! A value whose waiters are woken in the order in which they began to wait.
//!
//! `tokio::sync::watch` wakes waiters in random order, so runs that use it are not reproducible.
//! Like there, a waiter sees the newest value and may miss those in between.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// The sender of a value.
#[derive(Debug)]
pub struct Publisher<T>(Arc<Shared<T>>);

/// The receiver of a value.
#[derive(Debug)]
pub struct Follower<T> {
    shared: Arc<Shared<T>>,
    /// The last noticed change.
    seen: u64,
}

#[derive(Debug)]
struct Shared<T> {
    held: Mutex<Held<T>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Held<T> {
    value: T,
    changes: u64,
}

// === impl Publisher ===

impl<T> Publisher<T> {
    /// Returns a publisher without changes.
    pub fn new(value: T) -> Self {
        let held = Mutex::new(Held { value, changes: 0 });
        Self(Arc::new(Shared { held, changed: Notify::new() }))
    }

    /// Changes the value and wakes the waiters.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        {
            let mut held = self.0.lock();
            change(&mut held.value);
            held.changes += 1;
        }
        self.0.changed.notify_waiters();
    }

    /// Returns a follower that notices changes from now on.
    pub fn follow(&self) -> Follower<T> {
        let seen = self.0.lock().changes;
        Follower { shared: self.0.clone(), seen }
    }
}

impl<T: Default> Default for Publisher<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

// === impl Follower ===

impl<T> Follower<T> {
    /// Waits for a change since the last call, or since creation.
    pub async fn changed(&mut self) {
        let mut notified = pin!(self.shared.changed.notified());
        // No change is missed from here on.
        notified.as_mut().enable();
        let changes = self.shared.lock().changes;
        if changes == self.seen {
            notified.await;
        }
        self.seen = self.shared.lock().changes;
    }

    /// Waits until the value satisfies a condition, and returns it.
    pub async fn until(&mut self, wanted: impl Fn(&T) -> bool) -> T
    where
        T: Copy,
    {
        loop {
            let value = self.value();
            if wanted(&value) {
                return value;
            }
            self.changed().await;
        }
    }

    /// Returns the present value.
    pub fn value(&self) -> T
    where
        T: Copy,
    {
        self.shared.lock().value
    }
}

// === impl Shared ===

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Held<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_waiter_is_woken_first() {
        let publisher = Publisher::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let wait = |number: usize| {
            let (mut follower, woken) = (publisher.follow(), woken.clone());
            tokio::spawn(async move {
                let value = follower.until(|value| *value == 7).await;
                woken.lock().expect("no panic occurs while it is locked").push((number, value));
            })
        };
        let waiting: Vec<_> = (0..100).map(wait).collect();
        // Until all of them wait.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        publisher.change(|value| *value = 7);
        for waiting in waiting {
            waiting.await.expect("no panic");
        }
        let expected: Vec<_> = (0..100).map(|number| (number, 7)).collect();
        assert_eq!(*woken.lock().expect("no panic occurs while it is locked"), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_follower_notices_a_change_once_and_waits_for_the_next() {
        let publisher = Publisher::new(());
        let mut follower = publisher.follow();
        publisher.change(|()| {});
        publisher.change(|()| {});
        follower.changed().await;
        let second = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(second, follower.changed()).await.is_err());
        publisher.change(|()| {});
        follower.changed().await;
    }
}
