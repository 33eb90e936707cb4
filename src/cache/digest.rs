//! A digest of the objects in a collection and their versions. Pure.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;

use super::held::Held;
use crate::api::{ObjectKey, version::ResourceVersion};

/// A digest, equal for collections of the same objects at the same versions in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    sum: u64,
    count: u64,
}

/// The hash seed: it is constant, to make runs repeatable.
const HASHES: FixedState = FixedState::with_seed(0);

// === impl Digest ===

impl Digest {
    /// Returns the digest of some objects.
    pub fn of<'a>(objects: impl Iterator<Item = Held<'a>>) -> Self {
        let mut digest = Self::default();
        objects.for_each(|object| digest.add(object.key(), object.version()));
        digest
    }

    /// Adds an object.
    pub fn add(&mut self, key: &ObjectKey, version: &ResourceVersion) {
        let mut hasher = HASHES.build_hasher();
        hasher.write(key.as_str().as_bytes());
        hasher.write_u8(0);
        hasher.write(version.as_str().as_bytes());
        self.sum = self.sum.wrapping_add(hasher.finish());
        self.count += 1;
    }

    /// Returns the digest in fewer bits.
    pub fn folded(&self) -> u32 {
        let mut hasher = HASHES.build_hasher();
        hasher.write_u64(self.sum);
        hasher.write_u64(self.count);
        let hash = hasher.finish();
        (hash ^ (hash >> 32)) as u32
    }

    /// Adds other objects.
    pub fn join(&mut self, others: Self) {
        self.sum = self.sum.wrapping_add(others.sum);
        self.count += others.count;
    }
}
