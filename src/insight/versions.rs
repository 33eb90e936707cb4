//! The version objects were last seen at, for the few that fit: a write whose answer has the version
//! that was there before has changed nothing.
//!
//! Bounded: each object has one place, and of two that share it the later stays.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

/// Versions by object, both as hashes.
#[derive(Debug, Default)]
pub struct Versions(OnceLock<Box<[AtomicU64]>>);

/// Objects remembered.
const OBJECTS_MAX: usize = 8192;

// === impl Versions ===

impl Versions {
    /// Notes the version an object has now, and tells the one it was noted at before, if it was.
    pub fn note(&self, object: u64, version: u32) -> Option<u32> {
        let places = self.0.get_or_init(|| (0..OBJECTS_MAX).map(|_| AtomicU64::new(0)).collect());
        let place = &places[object as usize % OBJECTS_MAX];
        // The lower bits chose the place.
        let name = (object >> 32) << 32;
        let before = place.swap(name | u64::from(version), Ordering::Relaxed);
        (before != 0 && before >> 32 == name >> 32).then_some(before as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_before_is_told_once_it_was_noted() {
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
