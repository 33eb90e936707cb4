//! The bytes of bodies that are made for responses, and why a body is not made.
//!
//! Objects are sent from the pages of a replica, which clients share. Compressed and printed bodies
//! are made, small objects are copied, and pages may be decompressed for one response: as long as clients do not
//! read these, each takes memory of its own.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::{
    cache::Cache,
    held_bytes::HeldBytes,
    metrics::{Limit, Metrics},
};

/// The bytes of all bodies that are made: kept for later requests, or on their way to clients.
#[derive(Clone)]
pub(super) struct MadeBytes {
    held: HeldBytes,
    cache: Cache,
    metrics: Metrics,
}

/// The reason why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotMade {
    /// The cache cannot produce the representation.
    Unprintable,
    /// Too many bytes are on their way to clients.
    TooManyBytes,
}

/// As much as `cache.responseLimit` may be on its way to clients, and at least this.
const UNREAD_BYTES_MIN: usize = 8 << 20;

// === impl MadeBytes ===

impl MadeBytes {
    pub(super) fn new(cache: Cache, metrics: Metrics) -> Self {
        Self { held: HeldBytes::default(), cache, metrics }
    }

    /// Returns the counter, for those who make bodies.
    pub(super) fn held(&self) -> HeldBytes {
        self.held.clone()
    }

    /// Counts the chunks of a printed body, if it fits.
    pub(super) fn hold(&self, chunks: VecDeque<Bytes>) -> Result<VecDeque<Bytes>, NotMade> {
        let chunks = chunks.into_iter().map(|chunk| self.held.hold(chunk)).collect();
        self.fit()?;
        Ok(chunks)
    }

    /// Counts the memory that only this body holds until its last chunk is sent, if it fits.
    pub(super) fn hold_private(
        &self,
        mut chunks: VecDeque<Bytes>,
        private: usize,
    ) -> Result<VecDeque<Bytes>, NotMade> {
        let last = chunks.pop_back();
        chunks.extend(last.map(|last| self.held.hold_as(last, private)));
        self.fit()?;
        Ok(chunks)
    }

    /// Checks that all bodies together fit.
    pub(super) fn fit(&self) -> Result<(), NotMade> {
        let kept_max = self.cache.response_limit_bytes();
        if self.held.total() <= kept_max + kept_max.max(UNREAD_BYTES_MIN) {
            return Ok(());
        }
        self.metrics.limit_reached(Limit::UnreadResponses);
        Err(NotMade::TooManyBytes)
    }
}
