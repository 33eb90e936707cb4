//! A counter of the bytes of bodies in memory, until their last holder drops them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;

use crate::body::PIECE_OVERHEAD_BYTES;

/// The counter. It is cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct HeldBytes(Arc<AtomicUsize>);

struct HeldChunk {
    chunk: Bytes,
    memory: usize,
    held: HeldBytes,
}

// === impl HeldBytes ===

impl HeldBytes {
    /// Counts a chunk until nothing holds it.
    pub fn hold(&self, chunk: Bytes) -> Bytes {
        let memory = memory(&chunk);
        self.hold_as(chunk, memory)
    }

    /// Counts so many bytes until nothing holds the chunk.
    pub fn hold_as(&self, chunk: Bytes, memory: usize) -> Bytes {
        self.0.fetch_add(memory, Ordering::Relaxed);
        Bytes::from_owner(HeldChunk { chunk, memory, held: self.clone() })
    }

    /// Returns the memory of all chunks that are held now.
    pub fn total(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl HeldChunk ===

impl AsRef<[u8]> for HeldChunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

impl Drop for HeldChunk {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.memory, Ordering::Relaxed);
    }
}

/// Returns the memory of a chunk, estimated.
pub(crate) fn memory(chunk: &Bytes) -> usize {
    chunk.len() + PIECE_OVERHEAD_BYTES
}
