//! The storage of one replica's pages: the page buffers of all replicas, and compression.
//!
//! Objects of a collection resemble each other. A sample of them is the dictionary of its pages: text
//! that they have in common is not held in each.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::pool::Pool;

/// The storage of one replica's pages.
#[derive(Debug, Default)]
pub struct Storage {
    pool: Arc<Pool>,
    dictionary: OnceLock<Box<[u8]>>,
    /// The number of pages that are held compressed without it.
    without: AtomicUsize,
}

/// A compressed page, one stream of deflate.
#[derive(Debug)]
pub(super) struct Compressed {
    deflated: Box<[u8]>,
    has_dictionary: bool,
}

/// The effort of compression. At 6, pods take a tenth less and a fifth more time.
const LEVEL: u32 = 4;

/// The size of a dictionary.
const DICTIONARY_BYTES: usize = 16 * 1024;

/// The number of pages that are compressed without a dictionary: it saves more than it takes only if
/// there are many.
const PAGES_WITHOUT: usize = 8;

// === impl Storage ===

impl Storage {
    /// Creates the storage of a replica.
    pub fn of(pool: Arc<Pool>) -> Self {
        Self { pool, ..Self::default() }
    }

    /// Returns the page buffers of all replicas.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the memory of the dictionary.
    pub fn bytes(&self) -> usize {
        self.dictionary.get().map_or(0, |dictionary| dictionary.len())
    }

    /// Compresses a page; `None` if that would save too little.
    pub(super) fn compress(&self, raw: &[u8]) -> Option<Compressed> {
        let dictionary = self.dictionary_for(raw);
        let bytes_max = raw.len() / 8 * 7;
        let mut buffer = self.pool.take(bytes_max);
        let mut compress = Compress::new(Compression::new(LEVEL), false);
        if let Some(dictionary) = dictionary {
            compress.set_dictionary(dictionary).expect("a new stream takes a dictionary");
        }
        let status = compress.compress_vec(raw, &mut buffer, FlushCompress::Finish);
        let status = status.expect("the state of the compressor is valid");
        let saves = status == Status::StreamEnd && buffer.len() < bytes_max;
        let deflated = saves.then(|| buffer[..].into());
        self.pool.put(buffer);
        let compressed = Compressed { deflated: deflated?, has_dictionary: dictionary.is_some() };
        if !compressed.has_dictionary {
            self.without.fetch_add(1, Ordering::Relaxed);
        }
        Some(compressed)
    }

    /// Notes that a compressed page is no longer held.
    pub(super) fn release(&self, compressed: &Compressed) {
        if !compressed.has_dictionary {
            self.without.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns a page of this length as it was before compression.
    pub(super) fn decompress(
        &self,
        Compressed { deflated, has_dictionary }: &Compressed,
        length: usize,
    ) -> Bytes {
        let mut buffer = self.pool.take(length);
        let mut decompress = Decompress::new(false);
        if let Some(dictionary) = self.dictionary.get().filter(|_| *has_dictionary) {
            decompress.set_dictionary(dictionary).expect("a new stream takes a dictionary");
        }
        let status = decompress.decompress_vec(deflated, &mut buffer, FlushDecompress::Finish);
        let is_whole = status.is_ok_and(|status| status == Status::StreamEnd);
        assert!(is_whole && buffer.len() == length, "a page is decompressed as it was compressed");
        self.pool.lend(buffer)
    }

    /// Returns the dictionary for a page, of which it may become the sample.
    fn dictionary_for(&self, raw: &[u8]) -> Option<&[u8]> {
        let is_due = || self.without.load(Ordering::Relaxed) >= PAGES_WITHOUT;
        let sample = || raw[..raw.len().min(DICTIONARY_BYTES)].into();
        match self.dictionary.get() {
            None if is_due() => Some(self.dictionary.get_or_init(sample)),
            held => held.map(|dictionary| &**dictionary),
        }
    }
}

// === impl Compressed ===

impl Compressed {
    pub(super) fn len(&self) -> usize {
        self.deflated.len()
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::quality::FixedState;

    use super::*;

    /// Objects of the same members with values of their own.
    fn page(number: u64) -> Vec<u8> {
        let [names, values] = [0, number + 1].map(FixedState::with_seed);
        let member = |member: u64| {
            let name = format!("{:016x}", names.hash_one(member));
            format!("\"{name}/{name}\":{},", values.hash_one(member))
        };
        (0..400).flat_map(|of| member(of).into_bytes()).collect()
    }

    #[test]
    fn many_pages_are_compressed_with_a_sample_of_one_and_each_is_as_it_was() {
        let storage = Storage::default();
        let pages: Vec<_> = (0..2 * PAGES_WITHOUT as u64).map(page).collect();
        let compress = |page: &Vec<u8>| storage.compress(page).expect("it can be compressed");
        let compressed: Vec<_> = pages.iter().map(compress).collect();
        for (number, (page, compressed)) in pages.iter().zip(&compressed).enumerate() {
            assert_eq!(compressed.has_dictionary, number >= PAGES_WITHOUT, "page {number}");
            assert_eq!(storage.decompress(compressed, page.len()), *page, "page {number}");
        }
        let (first, last) = (&compressed[0], &compressed[compressed.len() - 1]);
        assert!(last.len() < first.len() / 10 * 9, "{} and {}", last.len(), first.len());
        assert_eq!(storage.bytes(), pages[0].len().min(DICTIONARY_BYTES));
    }

    #[test]
    fn a_few_pages_have_no_dictionary_however_often_they_change() {
        let storage = Storage::default();
        for number in 0..3 * PAGES_WITHOUT as u64 {
            let compressed = storage.compress(&page(number)).expect("it can be compressed");
            assert!(!compressed.has_dictionary);
            storage.release(&compressed);
        }
        assert_eq!(storage.bytes(), 0);
    }
}
