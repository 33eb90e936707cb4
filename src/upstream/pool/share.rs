//! The part of a lane that the requests of one sender may take: the rest is for the others, whatever
//! one of them leaves unread.
//!
//! A sender is an accepted credential, or the address of requests whose credential is not accepted
//! yet: such a credential costs nothing to invent.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{hash::HashMap, upstream::Error};

/// The places of each sender that has requests in flight, by a keyed hash.
///
/// Bounded by these requests: an entry without one is dropped when the table has doubled.
pub(super) struct Shares {
    table: Mutex<Table>,
    each: usize,
    /// The requests that may wait; only those of senders that have taken their part.
    waiting: Semaphore,
    wait_max: Duration,
}

struct Table {
    places: HashMap<u64, Weak<Semaphore>>,
    /// The size at which entries without requests are dropped.
    swept_at: usize,
}

/// Lanes give each sender this part.
const PART: usize = 4;

const SWEPT_AT_MIN: usize = 64;

// === impl Shares ===

impl Shares {
    /// Creates the shares of a lane of this size.
    pub(super) fn new(slots: usize, waiting_max: usize, wait_max: Duration) -> Self {
        let table = Table { places: HashMap::default(), swept_at: SWEPT_AT_MIN };
        let waiting = Semaphore::new(waiting_max);
        Self { table: Mutex::new(table), each: slots.div_ceil(PART), waiting, wait_max }
    }

    /// Waits for a place of a sender; it is free again when the result is dropped.
    pub(super) async fn take(&self, sender: u64) -> Result<OwnedSemaphorePermit, Error> {
        let places = self.places(sender);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            return Ok(place);
        }
        let saturated = || Error::Saturated("upstream places of one caller");
        let _waiting = self.waiting.try_acquire().map_err(|_| saturated())?;
        let taken = tokio::time::timeout(self.wait_max, places.acquire_owned()).await;
        taken.ok().and_then(Result::ok).ok_or_else(saturated)
    }

    fn places(&self, sender: u64) -> Arc<Semaphore> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = table.places.get(&sender).and_then(Weak::upgrade) {
            return places;
        }
        if table.places.len() >= table.swept_at {
            table.places.retain(|_, places| places.strong_count() > 0);
            table.swept_at = SWEPT_AT_MIN.max(table.places.len() * 2);
        }
        let places = Arc::new(Semaphore::new(self.each));
        table.places.insert(sender, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sender_takes_its_part_and_leaves_the_rest() {
        let shares = Shares::new(8, 1, Duration::from_secs(10));
        let mut held = vec![shares.take(1).await.unwrap(), shares.take(1).await.unwrap()];
        assert!(matches!(shares.take(1).await, Err(Error::Saturated(_))));
        held.push(shares.take(2).await.unwrap());
        {
            let waiting = shares.take(1);
            let (waited, refused) = tokio::join!(waiting, shares.take(1));
            assert!(waited.is_err() && refused.is_err());
        }
        drop(held.remove(0));
        drop(shares.take(1).await.expect("a place is free again"));
    }

    #[tokio::test]
    async fn senders_without_requests_are_not_kept() {
        let shares = Shares::new(8, 1, Duration::from_secs(10));
        for sender in 0..10_000 {
            drop(shares.take(sender).await.unwrap());
        }
        assert!(shares.table.lock().unwrap().places.len() <= SWEPT_AT_MIN);
    }
}
