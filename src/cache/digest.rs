//! The content of a collection in a few bytes: which objects there are, and at which versions. Pure.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;

use super::object::Object;
use crate::api::{ObjectKey, version::ResourceVersion};

/// Equal for collections of the same objects at the same versions, in whatever order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    sum: u64,
    count: u64,
}

/// The same in every run, so that a run can be repeated.
const HASHES: FixedState = FixedState::with_seed(0);

// === impl Digest ===

impl Digest {
    /// The digest of some objects.
    pub fn of<'a>(objects: impl Iterator<Item = &'a Object>) -> Self {
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

    /// Adds other objects.
    pub fn join(&mut self, others: Self) {
        self.sum = self.sum.wrapping_add(others.sum);
        self.count += others.count;
    }
}
