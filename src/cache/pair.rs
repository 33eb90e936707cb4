//! Interned label and field pairs: the common `app=web` of a thousand pods is stored once.
//!
//! One interner belongs to one reflector; snapshots hold only its pairs. When the table has
//! doubled, pairs that no object holds are removed.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// The kind of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairKind {
    /// A label.
    Label,
    /// The value of a selectable field.
    Field,
}

/// A key with its value, shared between the objects that carry it.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    hash: u64,
    kind: PairKind,
    /// The length of the key within the text.
    split: u32,
    /// Key and value in one allocation, because many pairs belong to one object only.
    text: Box<str>,
}

/// The table of pairs in use.
#[derive(Debug, Default)]
pub(super) struct Interner {
    pairs: HashMap<u64, Arc<Pair>>,
    bytes: usize,
    sweep_at: usize,
}

/// The number of pairs below which the table is not swept.
const SWEEP_MIN: usize = 1024;

/// The estimated table slot, reference counts and allocator overhead of one pair.
const PAIR_OVERHEAD: usize = size_of::<Pair>() + 64;

// === impl Pair ===

impl Pair {
    /// Returns the label key or field path.
    pub fn key(&self) -> &str {
        &self.text[..self.split as usize]
    }

    /// Returns the value.
    pub fn value(&self) -> &str {
        &self.text[self.split as usize..]
    }

    /// Returns the kind.
    pub fn kind(&self) -> PairKind {
        self.kind
    }

    /// Returns the hash that indexes use.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the hash of a pair with these parts.
    pub fn hash_of(kind: PairKind, key: &str, value: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (kind, key, value).hash(&mut hasher);
        hasher.finish()
    }

    fn bytes(&self) -> usize {
        PAIR_OVERHEAD + self.text.len()
    }
}

// === impl Interner ===

impl Interner {
    /// Returns the shared pair with these parts; creates it if it is new.
    pub(super) fn pair(&mut self, kind: PairKind, key: &str, value: &str) -> Arc<Pair> {
        let hash = Pair::hash_of(kind, key, value);
        if let Some(pair) = self.pairs.get(&hash)
            && (pair.kind, pair.key(), pair.value()) == (kind, key, value)
        {
            return pair.clone();
        }
        let split = u32::try_from(key.len()).unwrap_or(u32::MAX);
        let pair = Arc::new(Pair { hash, kind, split, text: [key, value].concat().into() });
        // On a hash collision the newer pair takes the slot; the older one stays with its objects.
        self.bytes += pair.bytes();
        if let Some(replaced) = self.pairs.insert(hash, pair.clone()) {
            self.bytes -= replaced.bytes();
        }
        self.sweep();
        pair
    }

    /// Returns the memory of the table and its pairs, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn sweep(&mut self) {
        if self.pairs.len() < self.sweep_at.max(SWEEP_MIN) {
            return;
        }
        self.pairs.retain(|_, pair| Arc::strong_count(pair) > 1);
        self.bytes = self.pairs.values().map(|pair| pair.bytes()).sum();
        self.sweep_at = self.pairs.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pairs_are_shared_and_kinds_kept_apart() {
        let mut interner = Interner::default();
        let first = interner.pair(PairKind::Label, "app", "web");
        let again = interner.pair(PairKind::Label, "app", "web");
        let field = interner.pair(PairKind::Field, "app", "web");
        assert!(Arc::ptr_eq(&first, &again));
        assert!(!Arc::ptr_eq(&first, &field));
        assert_ne!(first.hash(), field.hash());
    }

    #[test]
    fn unused_pairs_are_swept() {
        let mut interner = Interner::default();
        let held = interner.pair(PairKind::Label, "app", "held");
        for number in 0..10 * SWEEP_MIN {
            interner.pair(PairKind::Label, "job", &number.to_string());
        }
        assert!(interner.pairs.len() <= SWEEP_MIN + 1, "{}", interner.pairs.len());
        assert!(Arc::ptr_eq(&held, &interner.pair(PairKind::Label, "app", "held")));
        let held: usize = interner.pairs.values().map(|pair| pair.bytes()).sum();
        assert_eq!(interner.bytes(), held);
    }
}
