//! The part of some places that one sender may take: the rest is for the others, whatever one of
//! them leaves unfinished.
//!
//! A sender is whoever costs something to invent: an accepted credential, or a network.

use std::{
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::hash::HashMap;

/// The places that each sender has taken.
///
/// Bounded by the senders that hold places or wait: an entry without one is dropped when the table
/// has doubled.
pub struct Shares<S> {
    table: Mutex<Table<S>>,
    each: usize,
    /// The requests that may wait; only those of senders that have taken their part.
    waiting: Semaphore,
    wait_max: Duration,
}

struct Table<S> {
    places: HashMap<S, Weak<Semaphore>>,
    /// The size at which entries without requests are dropped.
    swept_at: usize,
}

/// The network of an address: itself, or the 64 leading bits of IPv6, whose hosts cost nothing to
/// invent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

/// Each sender may take this part of the places.
const PART: usize = 4;

const SWEPT_AT_MIN: usize = 64;

// === impl Network ===

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
        })
    }
}

// === impl Shares ===

impl<S: Copy + Eq + Hash> Shares<S> {
    /// Creates the shares of so many places. At most `waiting_max` requests wait, each at most
    /// `wait_max`.
    pub fn new(places: usize, waiting_max: usize, wait_max: Duration) -> Self {
        let table = Table { places: HashMap::default(), swept_at: SWEPT_AT_MIN };
        let waiting = Semaphore::new(waiting_max);
        Self { table: Mutex::new(table), each: places.div_ceil(PART), waiting, wait_max }
    }

    /// Waits for a place of a sender; it is free again when the result is dropped. `None` if it
    /// would take too long.
    pub async fn take(&self, sender: S) -> Option<OwnedSemaphorePermit> {
        let places = self.places(sender);
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            return Some(place);
        }
        let _waiting = self.waiting.try_acquire().ok()?;
        tokio::time::timeout(self.wait_max, places.acquire_owned()).await.ok()?.ok()
    }

    fn places(&self, sender: S) -> Arc<Semaphore> {
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
        assert!(shares.take(1).await.is_none());
        held.push(shares.take(2).await.unwrap());
        let (waited, refused) = tokio::join!(shares.take(1), shares.take(1));
        assert!(waited.is_none() && refused.is_none());
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

    #[test]
    fn hosts_of_one_network_are_one_sender() {
        let network = |text: &str| Network::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:2"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }
}
