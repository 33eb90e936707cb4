//! The parts of a replica that only its Tables need.

use super::Replica;
use crate::cache::clock::Clock;

// === impl Replica ===

impl Replica {
    /// Uses an estimate of the apiserver's clock.
    pub(in crate::cache) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the estimate of the apiserver's clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Reports whether the apiserver's bookmarks have a known form.
    pub fn knows_bookmark(&self) -> bool {
        self.bookmark.load().is_some()
    }
}
