//! Interned label and field pairs: the same `app=web` of a thousand pods is held once.
//!
//! One interner belongs to one reflector; snapshots only hold its pairs. Pairs that no object
//! holds any more are swept when the table has doubled.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// What a pair says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairKind {
    /// A label.
    Label,
    /// The value of a field that selectors may name.
    Field,
}

/// A key with its value, shared between the objects that carry it.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair {
    hash: u64,
    kind: PairKind,
    /// How many bytes of the text are the key.
    split: u32,
    /// Key and value: one allocation, for many pairs belong to one object alone.
    text: Box<str>,
}

/// The table of pairs in use.
#[derive(Debug, Default)]
pub(super) struct Interner {
    pairs: HashMap<u64, Arc<Pair>>,
    bytes: usize,
    sweep_at: usize,
}

/// Below this many pairs a sweep is not worth it.
const SWEEP_MIN: usize = 1024;

/// Table slot, reference counts and allocator overhead of one pair, roughly.
const PAIR_OVERHEAD: usize = size_of::<Pair>() + 64;

// === impl Pair ===

impl Pair {
    /// The label key or field path.
    pub fn key(&self) -> &str {
        &self.text[..self.split as usize]
    }

    /// The value.
    pub fn value(&self) -> &str {
        &self.text[self.split as usize..]
    }

    /// What it says of an object.
    pub fn kind(&self) -> PairKind {
        self.kind
    }

    /// The number page filters know the pair by.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The number a pair with these parts has.
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
    /// The shared pair with these parts, made if it is new.
    pub(super) fn pair(&mut self, kind: PairKind, key: &str, value: &str) -> Arc<Pair> {
        let hash = Pair::hash_of(kind, key, value);
        if let Some(pair) = self.pairs.get(&hash)
            && (pair.kind, pair.key(), pair.value()) == (kind, key, value)
        {
            return pair.clone();
        }
        let split = u32::try_from(key.len()).unwrap_or(u32::MAX);
        let pair = Arc::new(Pair { hash, kind, split, text: [key, value].concat().into() });
        // On a collision the newer pair takes the slot; the older stays with its objects.
        self.bytes += pair.bytes();
        if let Some(replaced) = self.pairs.insert(hash, pair.clone()) {
            self.bytes -= replaced.bytes();
        }
        self.sweep();
        pair
    }

    /// Memory held by the table and its pairs, estimated.
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
    fn pairs_nobody_holds_are_swept() {
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
