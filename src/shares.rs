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
    places_each: usize,
    waiting_each: usize,
    /// The requests that may wait; only those of senders that have taken their part.
    waiting: Semaphore,
    wait_max: Duration,
}

/// A place of a sender, free again when this is dropped.
pub struct SharePlace {
    _place: OwnedSemaphorePermit,
    _sender: Arc<Sender>,
}

struct Table<S> {
    senders: HashMap<S, Weak<Sender>>,
    /// The size at which entries without requests are dropped.
    swept_at: usize,
}

/// The rest of one sender's part.
struct Sender {
    places: Arc<Semaphore>,
    /// Of all requests that may wait, one sender's take a part too.
    waiting: Semaphore,
}

/// The network of an address: itself, or the 64 leading bits of IPv6, whose hosts cost nothing to
/// invent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
        let table = Mutex::new(Table { senders: HashMap::default(), swept_at: SWEPT_AT_MIN });
        let (places_each, waiting_each) = (places.div_ceil(PART), waiting_max.div_ceil(PART));
        Self { table, places_each, waiting_each, waiting: Semaphore::new(waiting_max), wait_max }
    }

    /// Waits for a place of a sender. `None` if it would take too long, or too many wait.
    pub async fn take(&self, sender: S) -> Option<SharePlace> {
        let sender = self.sender(sender);
        let places = Arc::clone(&sender.places);
        let place = match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => place,
            Err(_) => {
                let _waiting = self.waiting.try_acquire().ok()?;
                let _own = sender.waiting.try_acquire().ok()?;
                tokio::time::timeout(self.wait_max, places.acquire_owned()).await.ok()?.ok()?
            }
        };
        Some(SharePlace { _place: place, _sender: sender })
    }

    fn sender(&self, sender: S) -> Arc<Sender> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.senders.get(&sender).and_then(Weak::upgrade) {
            return known;
        }
        if table.senders.len() >= table.swept_at {
            table.senders.retain(|_, sender| sender.strong_count() > 0);
            table.swept_at = SWEPT_AT_MIN.max(table.senders.len() * 2);
        }
        let places = Arc::new(Semaphore::new(self.places_each));
        let new = Arc::new(Sender { places, waiting: Semaphore::new(self.waiting_each) });
        table.senders.insert(sender, Arc::downgrade(&new));
        new
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

    #[tokio::test(start_paused = true)]
    async fn one_sender_takes_a_part_of_the_requests_that_may_wait() {
        let shares = Shares::new(8, 8, Duration::from_secs(10));
        let mut held = Vec::new();
        for sender in [1, 1, 2, 2] {
            held.push(shares.take(sender).await.unwrap());
        }
        let greedy = futures_util::future::join_all((0..100).map(|_| shares.take(1)));
        let other = shares.take(2);
        let freed = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            held.pop();
        };
        let (greedy, other, ()) = tokio::join!(greedy, other, freed);
        assert!(greedy.iter().all(Option::is_none) && other.is_some());
        assert_eq!(shares.waiting.available_permits(), 8);
    }

    #[tokio::test]
    async fn senders_without_requests_are_not_kept() {
        let shares = Shares::new(8, 1, Duration::from_secs(10));
        for sender in 0..10_000 {
            drop(shares.take(sender).await.unwrap());
        }
        assert!(shares.table.lock().unwrap().senders.len() <= SWEPT_AT_MIN);
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
