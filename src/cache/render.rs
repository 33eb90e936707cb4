//! LIST and GET bodies from snapshots, byte for byte as the apiserver prints them. Pure.
//!
//! Large runs of objects are referenced, small ones copied together: many small chunks cost far
//! more to send than to copy.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{form::Whole, held::Held, portion::Portion, store::Snapshot, table::Moment};
use crate::{
    api::{media::Representation, query::Query, version::ResourceVersion},
    body::WHOLE_BYTES_MIN,
};

/// The response to a LIST, ready to send.
#[derive(Debug)]
pub struct ListBody {
    /// The version in the list's metadata.
    pub version: ResourceVersion,
    /// The body, in order.
    pub chunks: VecDeque<Bytes>,
    /// The number of items.
    pub count: usize,
    /// The length of the body: its exact Content-Length.
    pub bytes: usize,
    /// The memory that only this body holds, in bytes; it shares the rest with the replica.
    pub private: usize,
    /// The moment until which the body stays the same; `None` if it does not change with time.
    pub alike_until: Option<Moment>,
}

/// The collector of pieces into chunks of a good size.
pub(super) struct Gather {
    chunks: VecDeque<Bytes>,
    open: Vec<u8>,
    bytes: usize,
    /// The part of the bytes that was not copied.
    referenced: usize,
}

/// The size at which a chunk is closed. With one more small piece its buffer is still below the size
/// from which an allocator maps each one again.
const CHUNK_BYTES: usize = 48 * 1024;

/// The size up to which an object is one piece. HTTP/2 would write the small piece after a large one
/// apart, in a TLS record of its own.
const RECORD_BYTES: usize = 16 * 1024;

// === impl Snapshot ===

impl Snapshot {
    /// Returns the apiserver's LIST body for a query that this snapshot covers.
    pub fn list_body(&self, query: &Query) -> ListBody {
        let whole = Portion::default();
        let listing = self.listing(query, &whole, Representation::Object, Moment(0));
        listing.body().expect("objects are sent as they are")
    }

    /// Returns the apiserver's GET body for one of this snapshot's objects.
    pub fn object_body(&self, object: Held<'_>) -> VecDeque<Bytes> {
        let mut gather = Gather::new();
        let Whole { head, object, tail } = self.envelope().whole(&object.raw());
        let bytes = head.len() + object.len() + tail.len();
        if bytes <= RECORD_BYTES {
            gather.open.reserve_exact(bytes);
            [&*head, &object, tail].into_iter().for_each(|piece| gather.copy(piece));
        } else {
            gather.copy(&head);
            gather.add(object);
            gather.copy(tail);
        }
        gather.finish().0
    }
}

// === impl Gather ===

impl Gather {
    pub(super) fn new() -> Self {
        Self { chunks: VecDeque::new(), open: Vec::new(), bytes: 0, referenced: 0 }
    }

    pub(super) fn copy(&mut self, piece: &[u8]) {
        self.write(|open| open.extend_from_slice(piece));
    }

    /// Adds what a function appends.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let before = self.open.len();
        let written = write(&mut self.open);
        self.bytes += self.open.len() - before;
        if self.open.len() >= CHUNK_BYTES {
            self.close();
        }
        written
    }

    pub(super) fn add(&mut self, piece: Bytes) {
        if piece.len() < WHOLE_BYTES_MIN {
            return self.copy(&piece);
        }
        self.close();
        self.bytes += piece.len();
        self.referenced += piece.len();
        self.chunks.push_back(piece);
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            // More is likely to follow a full chunk.
            let is_full = self.open.len() >= CHUNK_BYTES;
            let next = Vec::with_capacity(if is_full { CHUNK_BYTES + WHOLE_BYTES_MIN } else { 0 });
            self.chunks.push_back(Bytes::from(std::mem::replace(&mut self.open, next)));
        }
    }

    /// Returns the number of bytes that were copied.
    pub(super) fn copied(&self) -> usize {
        self.bytes - self.referenced
    }

    pub(super) fn finish(mut self) -> (VecDeque<Bytes>, usize) {
        self.close();
        (self.chunks, self.bytes)
    }
}
