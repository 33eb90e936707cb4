//! Compression of bodies between other work: one gzip member each (S-CLI-02).
//!
//! Invariant: no body holds a compressor while others are served. So as many exist as there are
//! threads of the data path, however many bodies are in progress.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use tokio::task::yield_now;

use super::made::{MadeBytes, NotMade};
use crate::{
    api::media::Representation,
    cache::{
        listing::Listing,
        portion::Portion,
        stitch::{Joined, Stitched, Stitcher},
        store::Snapshot,
    },
    gzip::{Deflaters, Effort, Member},
};

/// The compressor of bodies.
pub(super) struct Gzip {
    idle: Mutex<Vec<Deflaters>>,
    made: MadeBytes,
}

/// The text that is compressed before other requests have their turn, about a millisecond's.
const SLICE_BYTES: usize = 256 * 1024;

// === impl Gzip ===

impl Gzip {
    pub(super) fn new(made: MadeBytes) -> Self {
        Self { idle: Mutex::default(), made }
    }

    /// Compresses a list, based on an earlier state of it.
    pub(super) async fn list(
        &self,
        listing: Listing<'_>,
        base: Option<Arc<Stitched>>,
    ) -> Result<Joined, NotMade> {
        let mut stitcher = Stitcher::new(listing, base);
        let mut step = || self.with(|deflaters| stitcher.step(deflaters, SLICE_BYTES));
        while !step().ok_or(NotMade::Unprintable)? {
            self.made.fit()?;
            yield_now().await;
        }
        self.with(|deflaters| stitcher.finish(deflaters)).ok_or(NotMade::Unprintable)
    }

    /// Joins the items of a compressed list as the same list in another state.
    pub(super) fn again(
        &self,
        stitched: &Stitched,
        snapshot: &Snapshot,
        portion: &Portion,
        representation: Representation,
    ) -> Option<VecDeque<Bytes>> {
        self.with(|deflaters| stitched.rejoin(snapshot, portion, representation, deflaters))
    }

    /// Compresses a body of which no part will be used again.
    pub(super) async fn whole(&self, chunks: VecDeque<Bytes>) -> Result<VecDeque<Bytes>, NotMade> {
        let mut member = Member::new(chunks.len());
        let mut before = Bytes::new();
        for mut chunk in chunks {
            while !chunk.is_empty() {
                let slice = chunk.split_to(chunk.len().min(SLICE_BYTES));
                let effort = Effort::Fast;
                member.append(&self.with(|deflaters| deflaters.segment(effort, &before, &slice)));
                before = slice;
                self.made.fit()?;
                yield_now().await;
            }
        }
        Ok(member.finish())
    }

    /// Frees the compressors until the next use.
    pub(super) fn rest(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn with<T>(&self, work: impl FnOnce(&mut Deflaters) -> T) -> T {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut deflaters = idle().pop().unwrap_or_else(|| Deflaters::counting(self.made.held()));
        let done = work(&mut deflaters);
        idle().push(deflaters);
        done
    }
}
