//! The limit on the connections of one listener, in all and per peer.
//!
//! No connection waits for a slot. Without a free one, the longest idle connection of the peer
//! with the most connections is closed. A connection is idle while it has no request in flight, and
//! during its TLS handshake. Invariant: a connection with a request in flight is never closed to
//! make room.

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

/// The connection slots of one listener. Clones share them.
#[derive(Clone)]
pub struct ConnectionLimit(Arc<Shared>);

/// The maximum numbers of connections.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The maximum of all connections.
    pub all_max: usize,
    /// The maximum for one IP address. Loopback is exempt, because all local clients share it.
    pub per_peer_max: usize,
}

/// The slot of one connection. Clones share it, and dropping the last one frees it.
#[derive(Clone)]
pub struct ConnectionSlot(Arc<Holder>);

/// A request in flight. The connection is not idle until this is dropped.
pub struct Busy(Option<Arc<Holder>>);

/// The error when no slot is free and no connection is idle.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

struct Shared {
    bounds: Bounds,
    began: Instant,
    /// The time of the last refused connection, in milliseconds since the start, plus one.
    refused: AtomicU64,
    peers: Mutex<Peers>,
}

#[derive(Default)]
struct Peers {
    next: u64,
    taken: usize,
    by_address: HashMap<IpAddr, HashMap<u64, Arc<ConnectionState>>>,
}

struct Holder {
    shared: Arc<Shared>,
    peer: IpAddr,
    number: u64,
    state: Arc<ConnectionState>,
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
        let (refused, peers) = (AtomicU64::new(0), Mutex::default());
        Self(Arc::new(Shared { bounds, began: Instant::now(), refused, peers }))
    }

    /// Takes a slot for a peer's connection. Closes an idle one if none is free.
    pub fn take(&self, peer: IpAddr) -> Result<ConnectionSlot, Full> {
        let peer = peer.to_canonical();
        let mut peers = self.0.lock();
        let own = peers.by_address.get(&peer).map_or(0, HashMap::len);
        let over_share = own >= self.0.bounds.per_peer_max && !peer.is_loopback();
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
        peers.by_address.entry(peer).or_default().insert(number, Arc::clone(&state));
        let shared = Arc::clone(&self.0);
        Ok(ConnectionSlot(Arc::new(Holder { shared, peer, number, state, made_room })))
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
    /// Marks a request as in flight. `None` if the connection was closed to make room.
    pub fn begin(&self) -> Option<Busy> {
        let below = |busy| (busy < CLOSED).then_some(busy + 1);
        let begun = self.0.state.busy.fetch_update(Ordering::AcqRel, Ordering::Acquire, below);
        begun.is_ok().then(|| Busy(Some(Arc::clone(&self.0))))
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
        self.0 = None;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Some(holder) = &self.0 else { return };
        holder.state.idle_since.store(holder.shared.now(), Ordering::Release);
        holder.state.busy.fetch_sub(1, Ordering::AcqRel);
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
        let mut peers: Vec<(usize, IpAddr)> =
            self.by_address.iter().map(|(peer, own)| (own.len(), *peer)).collect();
        peers.sort_unstable_by(|one, other| other.cmp(one));
        peers.into_iter().any(|(_, peer)| self.close_idle_of(peer))
    }

    /// The slot is free at once; the connection's task ends soon after.
    fn close_idle_of(&mut self, peer: IpAddr) -> bool {
        loop {
            let Some(own) = self.by_address.get(&peer) else { return false };
            let idle = own.iter().filter(|(_, state)| state.busy.load(Ordering::Acquire) == 0);
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

    fn free(&mut self, peer: IpAddr, number: u64) {
        let Some(own) = self.by_address.get_mut(&peer) else { return };
        if own.remove(&number).is_some() {
            self.taken -= 1;
        }
        if own.is_empty() {
            self.by_address.remove(&peer);
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.shared.lock().free(self.peer, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn is_closed(slot: &ConnectionSlot) -> bool {
        slot.0.state.closed.is_cancelled()
    }

    #[tokio::test(start_paused = true)]
    async fn the_largest_peers_longest_idle_connection_makes_room() {
        let slots = ConnectionLimit::new(Bounds { all_max: 4, per_peer_max: 3 });
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
        assert!(greedy[1].begin().is_none(), "a closed connection serves no more requests");
        drop(greedy);
        assert_eq!(slots.taken(), 2, "a slot is freed once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_over_its_limit_makes_room_itself_and_loopback_has_no_limit() {
        let slots = ConnectionLimit::new(Bounds { all_max: 10, per_peer_max: 2 });
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
        let slots = ConnectionLimit::new(Bounds { all_max: 2, per_peer_max: 2 });
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
}
