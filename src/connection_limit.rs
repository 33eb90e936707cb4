//! The limits on the connections and requests of one listener, in all and per peer.
//!
//! No connection waits for a slot. Without a free one, the longest idle connection of the peer
//! with the most connections is closed. A connection is idle while it has no request in flight, and
//! during its TLS handshake. Invariant: a connection with a request in flight is never closed to
//! make room. A request beyond its limit does not begin.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::shares::Network;

/// The connection slots of one listener. Clones share them.
#[derive(Clone)]
pub struct ConnectionLimit(Arc<Shared>);

/// The maximum numbers of connections and requests.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The maximum of all connections.
    pub all_max: usize,
    /// The maximum for one peer: an IPv4 address or an IPv6 network. Loopback is exempt, because all
    /// local clients share it.
    pub per_peer_max: usize,
    /// The maximum of all requests in flight.
    pub requests_max: usize,
    /// The maximum of requests in flight for one peer, unless it is loopback. It is never more
    /// than all others have left.
    pub requests_per_peer_max: usize,
}

/// The slot of one connection. Clones share it, and dropping the last one frees it.
#[derive(Clone)]
pub struct ConnectionSlot(Arc<Holder>);

/// A request in flight. The connection is not idle until this is dropped.
pub struct Busy(Option<Arc<Holder>>);

/// The error when no slot is free and no connection is idle.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

/// The reason why a request does not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBegun {
    /// The connection was closed to make room.
    Closed,
    /// A maximum of requests is in flight.
    Full,
}

struct Shared {
    bounds: Bounds,
    began: Instant,
    /// The time of the last refused connection, in milliseconds since the start, plus one.
    refused: AtomicU64,
    /// The number of requests in flight.
    requests: AtomicUsize,
    peers: Mutex<Peers>,
}

#[derive(Default)]
struct Peers {
    next: u64,
    taken: usize,
    by_network: HashMap<Network, Peer>,
}

#[derive(Default)]
struct Peer {
    connections: HashMap<u64, Arc<ConnectionState>>,
    /// The number of its requests in flight.
    requests: Arc<AtomicUsize>,
}

struct Holder {
    shared: Arc<Shared>,
    peer: Network,
    /// `true` if the limits per peer do not apply.
    is_local: bool,
    number: u64,
    state: Arc<ConnectionState>,
    /// The number of the peer's requests in flight.
    requests: Arc<AtomicUsize>,
    /// `true` if another connection was closed for it.
    made_room: bool,
}

/// The state of a connection.
struct ConnectionState {
    /// The number of requests in flight, or [`CLOSED`].
    busy: AtomicUsize,
    /// The start of the idle time, in milliseconds since the start.
    idle_since: AtomicU64,
    closed: CancellationToken,
}

/// A value above any number of requests.
const CLOSED: usize = usize::MAX / 2;

/// The time after a refusal during which the listener counts as full.
const REFUSED_RECENTLY: Duration = Duration::from_secs(5);

// === impl ConnectionLimit ===

impl ConnectionLimit {
    /// Returns the limit with all slots free.
    pub fn new(bounds: Bounds) -> Self {
        let (refused, requests) = (AtomicU64::new(0), AtomicUsize::new(0));
        let peers = Mutex::default();
        Self(Arc::new(Shared { bounds, began: Instant::now(), refused, requests, peers }))
    }

    /// Takes a slot for a peer's connection. Closes an idle one if none is free.
    pub fn take(&self, peer: IpAddr) -> Result<ConnectionSlot, Full> {
        let (is_local, peer) = (peer.to_canonical().is_loopback(), Network::from(peer));
        let mut peers = self.0.lock();
        let own = peers.by_network.get(&peer).map_or(0, |own| own.connections.len());
        let over_share = own >= self.0.bounds.per_peer_max && !is_local;
        let made_room = over_share || peers.taken >= self.0.bounds.all_max;
        let closed = match (over_share, made_room) {
            (true, _) => peers.close_idle_of(peer),
            (false, full) => !full || peers.close_idle(),
        };
        if !closed {
            // A peer over its own limit does not make the listener count as full.
            if !over_share {
                self.0.refused.store(self.0.now() + 1, Ordering::Release);
            }
            return Err(Full);
        }
        peers.next += 1;
        peers.taken += 1;
        let number = peers.next;
        let state = Arc::new(ConnectionState {
            busy: AtomicUsize::new(0),
            idle_since: AtomicU64::new(self.0.now()),
            closed: CancellationToken::new(),
        });
        let own = peers.by_network.entry(peer).or_default();
        own.connections.insert(number, Arc::clone(&state));
        let (shared, requests) = (Arc::clone(&self.0), Arc::clone(&own.requests));
        let holder = Holder { shared, peer, is_local, number, state, requests, made_room };
        Ok(ConnectionSlot(Arc::new(holder)))
    }

    /// Closes the longest idle connection, because the process has run out of a resource.
    pub fn shed(&self) -> bool {
        self.0.lock().close_idle()
    }

    /// Returns the number of taken slots.
    pub fn taken(&self) -> usize {
        self.0.lock().taken
    }

    /// Reports whether no connection was refused in the last seconds.
    pub fn has_room(&self) -> bool {
        let refused = self.0.refused.load(Ordering::Acquire);
        refused == 0 || u128::from(self.0.now() + 1 - refused) > REFUSED_RECENTLY.as_millis()
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// Marks a request as in flight, unless the connection was closed or a maximum is reached.
    pub fn begin(&self) -> Result<Busy, NotBegun> {
        let Holder { shared, is_local, state, requests, .. } = &*self.0;
        let Bounds { requests_max, requests_per_peer_max, .. } = shared.bounds;
        let own_max = if *is_local {
            requests_max
        } else {
            // The more peers take their part, the less is left for one that comes later.
            let left = requests_max.saturating_sub(shared.requests.load(Ordering::Acquire));
            requests_per_peer_max.min(left)
        };
        if !count(&state.busy, CLOSED) {
            return Err(NotBegun::Closed);
        }
        if count(requests, own_max) {
            if count(&shared.requests, requests_max) {
                return Ok(Busy(Some(Arc::clone(&self.0))));
            }
            requests.fetch_sub(1, Ordering::AcqRel);
        }
        state.busy.fetch_sub(1, Ordering::AcqRel);
        Err(NotBegun::Full)
    }

    /// Reports whether another connection was closed for this one: a limit was reached.
    pub fn made_room(&self) -> bool {
        self.0.made_room
    }

    /// Waits until the connection is to be closed to make room.
    pub async fn closed(&self) {
        self.0.state.closed.cancelled().await;
    }

    /// Returns the time without a request in flight.
    pub fn idle_for(&self) -> Duration {
        let idle = self.0.state.busy.load(Ordering::Acquire) == 0;
        let since = self.0.state.idle_since.load(Ordering::Acquire);
        let millis = if idle { self.0.shared.now().saturating_sub(since) } else { 0 };
        Duration::from_millis(millis)
    }
}

// === impl Busy ===

impl Busy {
    /// Keeps the connection busy until it ends, because it no longer carries requests.
    pub fn keep(mut self) {
        if let Some(holder) = self.0.take() {
            holder.uncount();
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Some(holder) = &self.0 else { return };
        holder.uncount();
        holder.state.idle_since.store(holder.shared.now(), Ordering::Release);
        holder.state.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl Holder ===

impl Holder {
    /// Counts one request less of those in flight.
    fn uncount(&self) {
        self.requests.fetch_sub(1, Ordering::AcqRel);
        self.shared.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

// === impl Shared ===

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Peers ===

impl Peers {
    /// Closes the longest idle connection of the peer with the most connections among those with an
    /// idle one.
    fn close_idle(&mut self) -> bool {
        let mut peers: Vec<(usize, Network)> =
            self.by_network.iter().map(|(peer, own)| (own.connections.len(), *peer)).collect();
        peers.sort_unstable_by(|one, other| other.cmp(one));
        peers.into_iter().any(|(_, peer)| self.close_idle_of(peer))
    }

    /// The slot is free at once; the connection's task ends soon after.
    fn close_idle_of(&mut self, peer: Network) -> bool {
        loop {
            let Some(own) = self.by_network.get(&peer) else { return false };
            let connections = own.connections.iter();
            let idle = connections.filter(|(_, state)| state.busy.load(Ordering::Acquire) == 0);
            let longest = idle
                .min_by_key(|(number, state)| (state.idle_since.load(Ordering::Acquire), **number));
            let Some((number, longest)) = longest.map(|(number, state)| (*number, state)) else {
                return false;
            };
            let (order, fail) = (Ordering::AcqRel, Ordering::Acquire);
            if longest.busy.compare_exchange(0, CLOSED, order, fail).is_ok() {
                longest.closed.cancel();
                self.free(peer, number);
                return true;
            }
        }
    }

    fn free(&mut self, peer: Network, number: u64) {
        let Some(own) = self.by_network.get_mut(&peer) else { return };
        if own.connections.remove(&number).is_some() {
            self.taken -= 1;
        }
        if own.connections.is_empty() {
            self.by_network.remove(&peer);
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.shared.lock().free(self.peer, self.number);
    }
}

/// Counts one more, below a maximum.
fn count(counter: &AtomicUsize, max: usize) -> bool {
    let below = |count| (count < max).then_some(count + 1);
    counter.fetch_update(Ordering::AcqRel, Ordering::Acquire, below).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(all_max: usize, per_peer_max: usize) -> ConnectionLimit {
        let (requests_max, requests_per_peer_max) = (8, 2);
        let bounds = Bounds { all_max, per_peer_max, requests_max, requests_per_peer_max };
        ConnectionLimit::new(bounds)
    }

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn is_closed(slot: &ConnectionSlot) -> bool {
        slot.0.state.closed.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_peers_longest_idle_connection_makes_room() {
        let slots = limit(4, 3);
        let mut greedy = Vec::new();
        let modest = slots.take(peer(2)).unwrap();
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(1)).await;
            greedy.push(slots.take(peer(1)).unwrap());
        }
        drop(greedy[0].begin());
        let newcomer = slots.take(peer(3)).unwrap();
        let closed: Vec<_> = greedy.iter().map(is_closed).collect();
        assert_eq!(closed, [false, true, false], "the first was in use a moment ago");
        assert!(!is_closed(&modest) && !is_closed(&newcomer) && slots.has_room());
        assert!(
            greedy[1].begin().err() == Some(NotBegun::Closed),
            "a closed connection serves no more requests"
        );
        drop(greedy);
        assert_eq!(slots.taken(), 2, "a slot is freed once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_over_its_limit_makes_room_itself_and_loopback_has_no_limit() {
        let slots = limit(10, 2);
        let other = slots.take(peer(2)).unwrap();
        let own: Vec<_> = (0..3).map(|_| slots.take(peer(1)).unwrap()).collect();
        assert_eq!(own.iter().map(is_closed).collect::<Vec<_>>(), [true, false, false]);
        assert!(!is_closed(&other));
        let local: Vec<_> =
            (0..7).map(|_| slots.take(IpAddr::from([127, 0, 0, 1])).unwrap()).collect();
        assert!(!local.iter().any(is_closed));
        assert_eq!(slots.taken(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn busy_connections_are_never_closed_and_a_refusal_is_visible_for_a_while() {
        let slots = limit(2, 2);
        let taken = [slots.take(peer(1)).unwrap(), slots.take(peer(1)).unwrap()];
        let busy: Vec<_> = taken.iter().map(|slot| slot.begin().unwrap()).collect();
        assert_eq!(slots.take(peer(1)).err(), Some(Full));
        assert_eq!(slots.take(peer(2)).err(), Some(Full));
        assert!(!slots.has_room() && !slots.shed() && !taken.iter().any(is_closed));
        drop(busy);
        assert!(slots.take(peer(2)).is_ok());
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(slots.has_room());
        assert_eq!(taken[1].idle_for(), Duration::from_secs(6));
    }

    #[test]
    fn few_peers_do_not_take_all_requests() {
        let bounds = Bounds { requests_max: 64, requests_per_peer_max: 16, ..limit(9, 9).0.bounds };
        let slots = ConnectionLimit::new(bounds);
        let begun = |number| {
            let slot = slots.take(peer(number)).unwrap();
            std::iter::from_fn(|| slot.begin().ok()).collect::<Vec<_>>()
        };
        let held: Vec<_> = (1..=7).map(begun).collect();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [16, 16, 16, 8, 4, 2, 1], "of 64");
    }

    #[test]
    fn requests_are_bounded_in_all_and_per_peer_and_loopback_takes_what_is_left() {
        let slots = limit(8, 4);
        let begun = |slot: &ConnectionSlot| -> Vec<Busy> {
            std::iter::from_fn(|| slot.begin().ok()).collect()
        };
        let own = [slots.take(peer(1)).unwrap(), slots.take(peer(1)).unwrap()];
        let mut first = begun(&own[0]);
        assert_eq!((first.len(), begun(&own[1]).len()), (2, 0), "the peer has its part");
        assert_eq!(own[1].begin().err(), Some(NotBegun::Full));
        let (other, local) = (slots.take(peer(2)).unwrap(), IpAddr::from([127, 0, 0, 1]));
        let (others, local) = (begun(&other), slots.take(local).unwrap());
        let locals = begun(&local);
        assert_eq!((others.len(), locals.len()), (2, 4));
        assert!(slots.take(peer(3)).unwrap().begin().is_err(), "all are taken");
        drop(locals);
        first.pop().unwrap().keep();
        assert_eq!(begun(&own[1]).len(), 1, "a tunnel is no request");
        drop((first, others));
        assert_eq!((begun(&own[0]).len(), begun(&other).len(), begun(&local).len()), (2, 2, 4));
        assert_eq!(slots.0.requests.load(Ordering::Acquire), 0);
    }

    #[test]
    fn the_hosts_of_an_ipv6_network_are_one_peer() {
        let slots = limit(9, 2);
        let host = |last: u16| IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, last]);
        let _own: Vec<_> = (1..3).map(|last| slots.take(host(last)).unwrap()).collect();
        assert!(slots.take(host(3)).unwrap().made_room());
        let local = IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]);
        let local: Vec<_> = (0..4).map(|_| slots.take(local).unwrap()).collect();
        assert!(local.iter().all(|slot| !slot.made_room()));
    }
}
