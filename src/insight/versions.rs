//! The last seen versions of objects, which reveal writes without a change.
//!
//! Bounded: each object has one place, and of two in the same place the later stays.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

/// Versions by object, both as hashes.
#[derive(Debug, Default)]
pub struct Versions(OnceLock<Box<[AtomicU64]>>);

/// The maximum number of stored objects.
const OBJECTS_MAX: usize = 8192;

// === impl Versions ===

impl Versions {
    /// Stores the current version of an object, and returns its earlier one.
    pub fn note(&self, object: u64, version: u32) -> Option<u32> {
        let places = self.0.get_or_init(|| (0..OBJECTS_MAX).map(|_| AtomicU64::new(0)).collect());
        let place = &places[object as usize % OBJECTS_MAX];
        // The lower bits selected the place.
        let name = (object >> 32) << 32;
        let before = place.swap(name | u64::from(version), Ordering::Relaxed);
        (before != 0 && before >> 32 == name >> 32).then_some(before as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_version_is_returned_once_it_was_stored() {
        let versions = Versions::default();
        let object = 7 << 32 | 5;
        assert_eq!(versions.note(object, 1), None);
        assert_eq!(versions.note(object, 1), Some(1));
        assert_eq!(versions.note(object, 2), Some(1));
        let neighbour = 8 << 32 | 5;
        assert_eq!(versions.note(neighbour, 9), None, "they share a place");
        assert_eq!(versions.note(object, 2), None);
    }
}
