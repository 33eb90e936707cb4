//! The part of a lane that the requests of one credential may take: the rest is for the others,
//! whatever one of them leaves unread.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{hash::HashMap, upstream::Error};

/// The places of each credential that has requests in flight, by a keyed hash.
///
/// Bounded by these requests: an entry without one is dropped when the table has doubled.
pub(super) struct Shares {
    table: Mutex<Table>,
    each: usize,
    wait_max: Duration,
}

struct Table {
    places: HashMap<u64, Weak<Semaphore>>,
    /// The size at which entries without requests are dropped.
    swept_at: usize,
}

/// Lanes give each credential this part.
const PART: usize = 4;

const SWEPT_AT_MIN: usize = 64;

// === impl Shares ===

impl Shares {
    /// Creates the shares of a lane of this size.
    pub(super) fn new(slots: usize, wait_max: Duration) -> Self {
        let table = Table { places: HashMap::default(), swept_at: SWEPT_AT_MIN };
        Self { table: Mutex::new(table), each: slots.div_ceil(PART), wait_max }
    }

    /// Waits for a place of a credential; it is free again when the result is dropped.
    pub(super) async fn take(&self, credential: u64) -> Result<OwnedSemaphorePermit, Error> {
        let places = self.places(credential);
        let taken = tokio::time::timeout(self.wait_max, places.acquire_owned()).await;
        taken.ok().and_then(Result::ok).ok_or(Error::Saturated("upstream places of one caller"))
    }

    fn places(&self, credential: u64) -> Arc<Semaphore> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = table.places.get(&credential).and_then(Weak::upgrade) {
            return places;
        }
        if table.places.len() >= table.swept_at {
            table.places.retain(|_, places| places.strong_count() > 0);
            table.swept_at = SWEPT_AT_MIN.max(table.places.len() * 2);
        }
        let places = Arc::new(Semaphore::new(self.each));
        table.places.insert(credential, Arc::downgrade(&places));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_credential_takes_its_part_and_leaves_the_rest() {
        let shares = Shares::new(8, Duration::from_secs(10));
        let mut held = vec![shares.take(1).await.unwrap(), shares.take(1).await.unwrap()];
        assert!(matches!(shares.take(1).await, Err(Error::Saturated(_))));
        held.push(shares.take(2).await.unwrap());
        drop(held.remove(0));
        drop(shares.take(1).await.expect("a place is free again"));
    }

    #[tokio::test]
    async fn credentials_without_requests_are_not_kept() {
        let shares = Shares::new(8, Duration::from_secs(10));
        for credential in 0..10_000 {
            drop(shares.take(credential).await.unwrap());
        }
        assert!(shares.table.lock().unwrap().places.len() <= SWEPT_AT_MIN);
    }
}
