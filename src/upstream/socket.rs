//! A connection's byte stream, with a proof of life and the slot of its lifetime.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{dial::Stream, slot::Slot};
use crate::{
    shares::SharePlace,
    stream::{Observed, Observer},
};

/// A byte stream that counts its reads and holds a slot until it is closed.
pub(super) type Socket = Observed<Box<dyn Stream>, Lifetime>;

/// The state of a connection that lives as long as its stream.
#[derive(Default)]
pub(super) struct Lifetime {
    reads: Reads,
    _place: Option<Slot>,
    /// The place in its sender's share.
    _share: Option<SharePlace>,
}

/// The number of reads with bytes: a proof that the peer is alive.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads(Arc<AtomicU64>);

/// Holds a slot, and a place in its sender's share, until the stream is closed.
pub(super) fn holding(stream: Box<dyn Stream>, place: Slot, share: Option<SharePlace>) -> Socket {
    Observed::new(stream, Lifetime { _place: Some(place), _share: share, ..Lifetime::default() })
}

/// Counts the reads of a stream.
pub(super) fn counted(stream: Box<dyn Stream>) -> (Socket, Reads) {
    let lifetime = Lifetime::default();
    let reads = lifetime.reads.clone();
    (Observed::new(stream, lifetime), reads)
}

// === impl Reads ===

impl Reads {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

// === impl Lifetime ===

impl Observer for Lifetime {
    fn received(&mut self, _: &[u8]) {
        self.reads.0.fetch_add(1, Ordering::Release);
    }
}
