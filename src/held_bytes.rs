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
    held: HeldBytes,
}

// === impl HeldBytes ===

impl HeldBytes {
    /// Counts a chunk until nothing holds it.
    pub fn hold(&self, chunk: Bytes) -> Bytes {
        self.0.fetch_add(memory(&chunk), Ordering::Relaxed);
        Bytes::from_owner(HeldChunk { chunk, held: self.clone() })
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
        self.held.0.fetch_sub(memory(&self.chunk), Ordering::Relaxed);
    }
}

/// Returns the memory of a chunk, estimated.
pub(crate) fn memory(chunk: &Bytes) -> usize {
    chunk.len() + PIECE_OVERHEAD_BYTES
}
