//! A value that others wait to change, and who waited first is woken first.
//!
//! `tokio::sync::watch` wakes those who wait in random order, so that nothing built on it happens
//! twice in the same way; whoever wants a run to be reproducible waits here. As there, who waits
//! sees the newest value and may miss those in between.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// Where a value is changed.
#[derive(Debug)]
pub struct Publisher<T>(Arc<Shared<T>>);

/// Where a value is looked at and waited for.
#[derive(Debug)]
pub struct Follower<T> {
    shared: Arc<Shared<T>>,
    /// The change that was last noticed.
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
    /// Nothing has changed yet.
    pub fn new(value: T) -> Self {
        let held = Mutex::new(Held { value, changes: 0 });
        Self(Arc::new(Shared { held, changed: Notify::new() }))
    }

    /// Changes the value and wakes those who wait.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        {
            let mut held = self.0.lock();
            change(&mut held.value);
            held.changes += 1;
        }
        self.0.changed.notify_waiters();
    }

    /// Notices what changes from now on.
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
    /// Waits until the value is another than when this was last asked, or made.
    pub async fn changed(&mut self) {
        let mut notified = pin!(self.shared.changed.notified());
        // From here on no change is missed.
        notified.as_mut().enable();
        let changes = self.shared.lock().changes;
        if changes == self.seen {
            notified.await;
        }
        self.seen = self.shared.lock().changes;
    }

    /// Waits until the value is as wanted, and returns it.
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

    /// The value as it is now.
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
    async fn who_waited_first_is_woken_first() {
        let publisher = Publisher::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        let wait = |number: usize| {
            let (mut follower, woken) = (publisher.follow(), woken.clone());
            tokio::spawn(async move {
                let value = follower.until(|value| *value == 7).await;
                woken.lock().expect("no panic holds it").push((number, value));
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
        assert_eq!(*woken.lock().expect("no panic holds it"), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_is_noticed_once_however_late_and_the_next_is_awaited() {
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
