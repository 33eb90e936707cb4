//! Compression of bodies: one gzip member each (S-CLI-02), off the request threads.
//!
//! Invariant: of small and of large bodies no more are compressed at a time than there are
//! processors. More would not be faster, and the allocator keeps freed memory for every thread that
//! has compressed one. A small body does not wait for large ones.

use std::{collections::VecDeque, io::Write, sync::Arc, thread::available_parallelism};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use tokio::sync::Semaphore;

use super::Chunks;
use crate::mutants::{Mutant, is_on};

/// The compressor of bodies.
pub(super) struct Gzip {
    small: Permits,
    large: Permits,
}

/// One permit per body that may be compressed at a time.
type Permits = Arc<Semaphore>;

/// A writer into chunks, which lets a large body need no large allocation.
#[derive(Default)]
struct Pieces {
    done: VecDeque<Bytes>,
    current: Vec<u8>,
}

/// The largest body that counts as small.
const SMALL_BYTES_MAX: usize = 1024 * 1024;

/// The chunk size of compressed bodies.
const PIECE_BYTES: usize = 256 * 1024;

// === impl Gzip ===

impl Gzip {
    /// Compresses all chunks into one gzip member.
    pub(super) async fn compress(&self, chunks: VecDeque<Bytes>) -> Chunks {
        let is_small = super::bytes(&chunks) <= SMALL_BYTES_MAX;
        let permits = if is_small { &self.small } else { &self.large };
        let permit = permits.clone().acquire_owned().await;
        let work = move || {
            let compressed = member(chunks);
            // Not earlier, even if the client has gone away.
            drop(permit);
            compressed
        };
        let compressed = tokio::task::spawn_blocking(work).await;
        Arc::new(compressed.ok().and_then(Result::ok).expect("writing to memory does not fail"))
    }
}

impl Default for Gzip {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        let permits = || Arc::new(Semaphore::new(processors));
        Self { small: permits(), large: permits() }
    }
}

fn member(chunks: VecDeque<Bytes>) -> std::io::Result<VecDeque<Bytes>> {
    let mut encoder = GzEncoder::new(Pieces::default(), Compression::fast());
    for chunk in chunks {
        encoder.write_all(&chunk)?;
        if is_on(Mutant::GzipInMembers) {
            encoder = GzEncoder::new(encoder.finish()?, Compression::fast());
        }
    }
    Ok(encoder.finish()?.into_chunks())
}

// === impl Pieces ===

impl Pieces {
    fn into_chunks(mut self) -> VecDeque<Bytes> {
        self.done.push_back(self.current.into());
        self.done
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.current.extend_from_slice(bytes);
        if self.current.len() >= PIECE_BYTES {
            self.done.push_back(std::mem::take(&mut self.current).into());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[tokio::test]
    async fn a_small_body_does_not_wait_for_large_ones_or_for_clients_that_have_gone() {
        let gzip = Gzip::default();
        let processors = gzip.large.available_permits();
        let held = gzip.large.clone().acquire_many_owned(processors as u32).await.expect("open");
        let large = || VecDeque::from([Bytes::from(vec![b'x'; 2 * SMALL_BYTES_MAX])]);
        for _ in 0..processors {
            // Its client goes away while it waits.
            let waiting = gzip.compress(large());
            assert!(tokio::time::timeout(std::time::Duration::ZERO, waiting).await.is_err());
        }
        let small = gzip.compress(VecDeque::from([Bytes::from("text")])).await;
        let mut text = String::new();
        let whole = small.iter().flatten().copied().collect::<Vec<u8>>();
        flate2::read::GzDecoder::new(&*whole).read_to_string(&mut text).expect("a gzip member");
        assert_eq!(text, "text");
        drop(held);
        gzip.compress(large()).await;
        assert_eq!(gzip.large.available_permits(), processors);
    }
}
