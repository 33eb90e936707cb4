//! The bytes of a page: as they are while they are read, compressed otherwise.
//!
//! Invariant: every reader gets the same bytes. A single reader decompresses them for itself. They
//! stay decompressed once they are read again in the same round, if the limit permits it.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicUsize, Ordering},
};

use arc_swap::ArcSwap;
use bytes::Bytes;

use super::{
    pool::Pool,
    storage::{Compressed, Storage},
};

/// The bytes of one page.
#[derive(Debug)]
pub(super) struct Text {
    state: ArcSwap<TextState>,
    /// The reads in this round, up to [`READS_MAX`].
    reads: AtomicU8,
    length: usize,
    /// The length of the bytes as they are held.
    held: AtomicUsize,
    storage: Arc<Storage>,
}

#[derive(Debug)]
enum TextState {
    /// As they are.
    Raw(Bytes),
    /// As they are: compression would save too little.
    Incompressible(Bytes),
    /// Compressed.
    Compressed(Compressed),
}

/// The reads in one round that keep bytes decompressed.
const READS_MAX: u8 = 2;

/// The length below which bytes are not compressed.
const LENGTH_MIN: usize = 4 * 1024;

// === impl Text ===

impl Text {
    /// Holds a filled buffer of the storage's pool, uncompressed.
    pub(super) fn new(buffer: Vec<u8>, storage: &Arc<Storage>) -> Self {
        let (length, pool) = (buffer.len(), storage.pool());
        let raw = pool.lend(buffer);
        let is_short = length < LENGTH_MIN;
        let state =
            if is_short { TextState::Incompressible(raw) } else { TextState::raw(raw, pool) };
        let state = ArcSwap::from_pointee(state);
        let held = AtomicUsize::new(length);
        Self { state, reads: AtomicU8::new(0), length, held, storage: storage.clone() }
    }

    /// Returns the length of the bytes.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns the memory held, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.held.load(Ordering::Relaxed) + size_of::<TextState>()
    }

    /// Returns the bytes.
    pub(super) fn raw(&self) -> Bytes {
        self.shared().0
    }

    /// Returns the bytes, and `true` if it keeps the same ones.
    pub(super) fn shared(&self) -> (Bytes, bool) {
        let reads = self.reads.load(Ordering::Relaxed);
        if reads < READS_MAX {
            self.reads.store(reads + 1, Ordering::Relaxed);
        }
        let state = self.state.load();
        let compressed = match &**state {
            TextState::Raw(raw) | TextState::Incompressible(raw) => return (raw.clone(), true),
            TextState::Compressed(compressed) => compressed,
        };
        let raw = self.storage.decompress(compressed, self.length);
        let pool = self.storage.pool();
        let keeps = reads > 0
            && pool.has_room(self.length)
            && self.replace(&state, TextState::raw(raw.clone(), pool));
        (raw, keeps)
    }

    /// Begins a round. Compresses the bytes if they were not read in the last one, or in any case;
    /// returns `true` if that took time.
    pub(super) fn rest(&self, in_any_case: bool) -> bool {
        let is_read = self.reads.swap(0, Ordering::Relaxed) > 0;
        if is_read && !in_any_case {
            return false;
        }
        let state = self.state.load();
        let TextState::Raw(raw) = &**state else { return false };
        let compressed = self.storage.compress(raw).map(TextState::Compressed);
        let next = compressed.unwrap_or_else(|| TextState::Incompressible(raw.clone()));
        self.replace(&state, next);
        true
    }

    /// Replaces a state; returns `false` if another thread has done it.
    fn replace(&self, state: &Arc<TextState>, next: TextState) -> bool {
        let next = Arc::new(next);
        let found = self.state.compare_and_swap(state, next.clone());
        let is_replaced = Arc::ptr_eq(&found, state);
        if is_replaced {
            self.held.store(next.len(), Ordering::Relaxed);
            state.release(&self.storage);
        } else {
            next.release(&self.storage);
        }
        is_replaced
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        self.state.load().release(&self.storage);
    }
}

// === impl TextState ===

impl TextState {
    fn raw(raw: Bytes, pool: &Pool) -> Self {
        pool.add_raw(raw.len());
        Self::Raw(raw)
    }

    fn len(&self) -> usize {
        match self {
            Self::Raw(raw) | Self::Incompressible(raw) => raw.len(),
            Self::Compressed(compressed) => compressed.len(),
        }
    }

    /// Gives back the room of bytes that are no longer held, or never were.
    fn release(&self, storage: &Storage) {
        match self {
            Self::Raw(raw) => storage.pool().remove_raw(raw.len()),
            Self::Compressed(compressed) => storage.release(compressed),
            Self::Incompressible(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use foldhash::quality::FixedState;

    use super::*;

    fn text(of: &[u8], limit: usize) -> (Text, Arc<Pool>) {
        let pool = Arc::<Pool>::default();
        pool.limit_raw(limit);
        let mut buffer = pool.take(of.len());
        buffer.extend_from_slice(of);
        (Text::new(buffer, &Arc::new(Storage::of(pool.clone()))), pool)
    }

    fn is_compressed(text: &Text) -> bool {
        matches!(&**text.state.load(), TextState::Compressed(_))
    }

    fn pods() -> Vec<u8> {
        (0..2_000).flat_map(|pod| format!(r#"{{"name":"pod-{pod}"}},"#).into_bytes()).collect()
    }

    #[test]
    fn bytes_that_are_read_again_and_again_stay_as_they_are() {
        let (pods, limit) = (pods(), 1 << 20);
        let (text, pool) = text(&pods, limit);
        text.raw();
        assert!(!text.rest(false), "they were read");
        assert!(text.rest(false), "they were not read since");
        assert!(is_compressed(&text) && text.bytes() < pods.len() / 4);
        assert_eq!((text.len(), pool.raw_bytes()), (pods.len(), 0));
        assert_eq!(text.shared(), (pods.clone().into(), false));
        assert!(is_compressed(&text), "one read");
        assert_eq!(text.shared(), (pods.clone().into(), true));
        assert!(!is_compressed(&text), "two reads");
        assert_eq!(pool.raw_bytes(), pods.len());
        assert_eq!(text.raw().as_ptr(), text.raw().as_ptr());
        drop(text);
        assert_eq!(pool.raw_bytes(), 0);
    }

    #[test]
    fn above_the_limit_bytes_stay_compressed() {
        let pods = pods();
        let (text, pool) = text(&pods, pods.len() - 1);
        text.raw();
        assert!(!pool.has_room(0) && text.rest(true));
        for _ in 0..5 {
            let (raw, is_kept) = text.shared();
            assert_eq!(raw, pods);
            assert!(is_compressed(&text) && !is_kept);
        }
    }

    #[test]
    fn short_and_random_bytes_are_not_compressed() {
        let hashes = FixedState::with_seed(1);
        let random: Vec<u8> =
            (0..2_500).flat_map(|number: u64| hashes.hash_one(number).to_le_bytes()).collect();
        for of in [&random[..], &pods()[..LENGTH_MIN - 1]] {
            let (text, pool) = text(of, 1 << 20);
            text.rest(true);
            assert!(!is_compressed(&text) && !text.rest(true));
            assert_eq!((text.raw(), pool.raw_bytes()), (of.to_vec().into(), 0));
        }
    }

    #[test]
    fn readers_get_the_same_bytes_while_they_change_state() {
        let pods = pods();
        let (text, pool) = text(&pods, 1 << 20);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..300).for_each(|_| assert_eq!(text.raw(), pods)));
            }
            scope.spawn(|| (0..300).for_each(|_| _ = text.rest(true)));
        });
        text.rest(true);
        assert_eq!(pool.raw_bytes(), 0);
    }

    /// Many pages have a dictionary; one that is compressed again and again is still one.
    #[test]
    fn a_page_that_was_decompressed_is_counted_no_longer() {
        let (text, _) = text(&pods(), 1 << 20);
        for _ in 0..30 {
            assert!(text.rest(true) && is_compressed(&text));
            for _ in 0..2 {
                text.raw();
            }
            assert!(!is_compressed(&text));
        }
        assert_eq!(text.storage.bytes(), 0);
    }
}
