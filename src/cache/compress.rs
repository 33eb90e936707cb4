//! Regular work that saves memory: pages that were not read for a while are compressed, and the
//! allocator returns what it does not use.

use std::{
    hint::black_box,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{
    task::yield_now,
    time::{MissedTickBehavior, interval},
};

use super::{Cache, Inner, store::Snapshot};

/// The time without a read after which a page is compressed.
const ROUND: Duration = Duration::from_secs(10);

/// The size of a block that the allocator does not share between allocations. It is never touched.
const LARGE_BLOCK_BYTES: usize = 1024 * 1024;

/// Compresses the pages that were not read in the last round; above the limit, also others.
pub(super) async fn compress_regularly(cache: Weak<Inner>) {
    let mut rounds = interval(ROUND);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let Some(cache) = cache.upgrade() else { return };
        cache.limit_raw();
        for snapshot in cache.snapshots() {
            compress(&snapshot, &cache).await;
        }
        cache.budget.pool().rest();
        return_unused_memory();
    }
}

async fn compress(snapshot: &Snapshot, cache: &Inner) {
    for page in snapshot.pages().iter() {
        if page.rest(!cache.budget.pool().has_room(0)) {
            // A page takes a tenth of a millisecond.
            yield_now().await;
        }
    }
    snapshot.pages().measure();
}

/// Makes the allocator return memory that was freed a second ago or earlier. It does so mostly
/// when a block like this one is freed, and an idle process frees none.
fn return_unused_memory() {
    drop(black_box(Vec::<u8>::with_capacity(LARGE_BLOCK_BYTES)));
}

// === impl Inner ===

impl Inner {
    /// Limits what stays uncompressed: no replica is dropped to keep others uncompressed.
    fn limit_raw(self: &Arc<Self>) {
        let (pool, limit) = (self.budget.pool(), self.settings.borrow().uncompressed_limit_bytes);
        let room = Cache(self.clone()).spare_bytes() + pool.raw_bytes();
        pool.limit_raw(limit.min(room / 8 * 7));
    }

    /// Returns the published state of every replica.
    fn snapshots(&self) -> Vec<Arc<Snapshot>> {
        let set = self.set();
        set.members().filter_map(|member| member.replica.published().snapshot.clone()).collect()
    }
}
