//! Recently used list bodies, and the parts of compressed ones for their next state.
//!
//! Invariant: a body is returned only for the snapshot it was made from. Versions need not be
//! unique for this. A body does not keep its snapshot alive. A plain one may keep pages of it, so it
//! is dropped within a second after it. A compressed one keeps no page.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use moka::notification::RemovalCause;
use tokio_util::task::AbortOnDropHandle;

use super::{Chunks, Wanted, gzip::Gzip};
use crate::{
    api::{form::Form, media::Representation, query::Query},
    cache::{
        Cache,
        checkpoint::Checkpoint,
        portion::{Next, Portion},
        stitch::Stitched,
        store::Snapshot,
        table::Moment,
    },
    hash::RandomState,
    metrics::{Limit, Metrics},
};

/// The bodies, one per query, form, part, representation and encoding.
pub(super) struct Bodies {
    kept: Arc<Kept>,
    _tidying: AbortOnDropHandle<()>,
}

/// The bodies within their limit.
struct Kept {
    bodies: ArcSwap<Limited>,
    metrics: Metrics,
}

/// The bodies, and their limit in bytes.
struct Limited {
    bytes_max: u64,
    bodies: moka::future::Cache<Key, Entry, RandomState>,
}

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    /// Uncompressed.
    Identity,
    /// One gzip member.
    Gzip,
}

/// A body as it was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Made {
    /// The body; `None` if it cannot be sent in this encoding.
    pub chunks: Option<Chunks>,
    /// The moment until which it is right, if it changes with time.
    pub until: Option<Moment>,
    /// The parts of a compressed list.
    pub stitched: Option<Arc<Stitched>>,
    /// The state of the replica that it was made from.
    pub checkpoint: Option<Checkpoint>,
    /// `true` if there is no body because too many bytes are on their way to clients.
    pub too_many: bool,
}

/// The body that one target last received, found without a search; it keeps nothing alive.
#[derive(Default)]
pub struct Remembered(ArcSwapOption<Given>);

struct Given {
    snapshot: Weak<Snapshot>,
    portion: Portion,
    representation: Representation,
    encoding: Encoding,
    chunks: Weak<VecDeque<Bytes>>,
}

/// The place of a body. Continue tokens are not in it: they differ in each state of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    query: Query,
    form: Form,
    after: Option<Arc<str>>,
    limit: Option<usize>,
    representation: Representation,
    encoding: Encoding,
}

#[derive(Clone)]
struct Entry {
    snapshot: Weak<Snapshot>,
    next: Option<Next>,
    made: Made,
    /// The rounds of tidying since its last use.
    idle: Arc<AtomicU32>,
}

/// The memory of an entry beside its body, estimated.
const ENTRY_BYTES: usize = 1024;

/// The time after which an unused entry is dropped, so that compressed parts serve slow pollers too.
const IDLE_MAX: Duration = Duration::from_secs(5 * 60);

/// The rounds of tidying after which an unused plain body is dropped: half a minute.
const PLAIN_IDLE_MAX: u32 = 30;

/// The interval at which bodies of dropped snapshots are dropped.
const TIDY_EVERY: Duration = Duration::from_secs(1);

// === impl Bodies ===

impl Bodies {
    /// Creates it; must be called within a tokio runtime.
    pub(super) fn new(cache: Cache, metrics: Metrics, gzip: Arc<Gzip>) -> Self {
        let bytes_max = cache.response_limit_bytes() as u64;
        let bodies = ArcSwap::from_pointee(Limited::new(bytes_max, metrics.clone()));
        let kept = Arc::new(Kept { bodies, metrics });
        let tidying = tokio::spawn(tidy_regularly(kept.clone(), cache, gzip));
        Self { kept, _tidying: AbortOnDropHandle::new(tidying) }
    }

    /// Returns the body made from this snapshot, if there is one.
    pub(super) async fn get(&self, wanted: &Wanted<'_>, encoding: Encoding) -> Option<Chunks> {
        let entry = self.entry(wanted, encoding).await?;
        if entry.is_right(wanted) { entry.made.chunks } else { None }
    }

    /// Returns the same list, compressed, in any earlier state.
    pub(super) async fn earlier(&self, wanted: &Wanted<'_>) -> Option<Made> {
        Some(self.entry(wanted, Encoding::Gzip).await?.made)
    }

    /// Makes a body, once for all concurrent requests for this snapshot, and keeps it until its
    /// bytes change with time.
    pub(super) async fn keep(
        &self,
        wanted: &Wanted<'_>,
        encoding: Encoding,
        make: impl Future<Output = Made>,
    ) -> Made {
        let (key, snapshot) = (Key::of(wanted, encoding), Arc::downgrade(&wanted.snapshot));
        let next = wanted.portion.next.clone();
        let mut make = Some(make);
        let first = async {
            let make = make.take().expect("an entry is made at most once");
            Entry { snapshot, next, made: make.await, idle: Arc::default() }
        };
        let replace = |entry: &Entry| !entry.is_right(wanted);
        let kept = self.kept.bodies.load_full();
        let entry = kept.bodies.entry(key).or_insert_with_if(first, replace).await.into_value();
        match make {
            // Another request's body was being made: it is awaited, whatever its snapshot.
            Some(make) if !entry.is_right(wanted) => make.await,
            _ => entry.made,
        }
    }

    async fn entry(&self, wanted: &Wanted<'_>, encoding: Encoding) -> Option<Entry> {
        let kept = self.kept.bodies.load_full();
        let entry = kept.bodies.get(&Key::of(wanted, encoding)).await?;
        entry.idle.store(0, Ordering::Relaxed);
        Some(entry)
    }
}

async fn tidy_regularly(kept: Arc<Kept>, cache: Cache, gzip: Arc<Gzip>) {
    let mut ticks = tokio::time::interval(TIDY_EVERY);
    loop {
        ticks.tick().await;
        gzip.rest();
        kept.tidy(cache.response_limit_bytes(), cache.spare_bytes()).await;
    }
}

// === impl Kept ===

impl Kept {
    /// Drops what is not needed, or does not fit.
    async fn tidy(&self, bytes_max: usize, spare_bytes: usize) {
        let bytes_max = bytes_max as u64;
        if self.bodies.load().bytes_max != bytes_max {
            self.renew(bytes_max);
        }
        let kept = self.bodies.load_full();
        for (key, entry) in &kept.bodies {
            let is_idle = entry.idle.fetch_add(1, Ordering::Relaxed) >= PLAIN_IDLE_MAX;
            if entry.pins_pages() && (is_idle || entry.snapshot.strong_count() == 0) {
                // moka 0.12.16 forgets an update of the weight if its entry is invalidated before it was
                // applied. An empty entry expires instead.
                kept.bodies.insert((*key).clone(), Entry::empty()).await;
            }
        }
        kept.bodies.run_pending_tasks().await;
        let mut bytes = kept.bodies.weighted_size();
        if bytes > spare_bytes as u64 {
            // They only save time: replicas come first.
            self.metrics.limit_reached(Limit::KeptResponses);
            self.renew(bytes_max);
            bytes = 0;
        }
        self.metrics.kept_responses(bytes);
    }

    /// Drops all.
    fn renew(&self, bytes_max: u64) {
        self.bodies.store(Arc::new(Limited::new(bytes_max, self.metrics.clone())));
    }
}

// === impl Limited ===

impl Limited {
    fn new(bytes_max: u64, metrics: Metrics) -> Self {
        let bodies = moka::future::Cache::builder()
            .max_capacity(bytes_max)
            .weigher(|key: &Key, entry: &Entry| {
                (ENTRY_BYTES + key.bytes() + entry.bytes()).try_into().unwrap_or(u32::MAX)
            })
            .time_to_idle(IDLE_MAX)
            .eviction_listener(move |_, _, cause| {
                if cause == RemovalCause::Size {
                    metrics.limit_reached(Limit::KeptResponses);
                }
            })
            .build_with_hasher(RandomState::default());
        Self { bytes_max, bodies }
    }
}

// === impl Key ===

impl Key {
    fn of(wanted: &Wanted<'_>, encoding: Encoding) -> Self {
        let Wanted { query, representation, ref snapshot, ref portion, .. } = *wanted;
        let (query, form, after) = (query.clone(), snapshot.form(), portion.after.clone());
        let limit = portion.next.as_ref().map(|next| next.limit);
        Self { query, form, after, limit, representation, encoding }
    }

    /// Returns the memory held beside the entry itself.
    fn bytes(&self) -> usize {
        self.query.labels.bytes() + self.query.fields.bytes()
    }
}

// === impl Entry ===

impl Entry {
    fn empty() -> Self {
        Self { snapshot: Weak::new(), next: None, made: Made::default(), idle: Arc::default() }
    }

    fn is_right(&self, wanted: &Wanted<'_>) -> bool {
        let is_in_time = self.made.until.is_none_or(|until| wanted.now < until);
        is_in_time && self.next == wanted.portion.next && is_same(&self.snapshot, &wanted.snapshot)
    }

    fn pins_pages(&self) -> bool {
        self.made.stitched.is_none() && self.made.chunks.is_some()
    }

    fn bytes(&self) -> usize {
        let chunks = self.made.chunks.iter().flat_map(|chunks| chunks.iter());
        match &self.made.stitched {
            // The chunks are those of the parts.
            Some(stitched) => stitched.bytes() + chunks.count() * size_of::<Bytes>(),
            None => chunks.map(Bytes::len).sum(),
        }
    }
}

// === impl Remembered ===

impl Remembered {
    /// Returns the last returned body, if it is the requested one and is still kept.
    pub(super) fn of(&self, wanted: &Wanted<'_>) -> Option<(Encoding, Chunks)> {
        let given = self.0.load();
        let given = given.as_ref().filter(|given| given.is(wanted))?;
        Some((given.encoding, given.chunks.upgrade()?))
    }

    pub(super) fn set(&self, wanted: &Wanted<'_>, encoding: Encoding, chunks: &Chunks) {
        let Wanted { snapshot, portion, representation, .. } = wanted;
        self.0.store(Some(Arc::new(Given {
            snapshot: Arc::downgrade(snapshot),
            portion: portion.clone(),
            representation: *representation,
            encoding,
            chunks: Arc::downgrade(chunks),
        })));
    }
}

// === impl Given ===

impl Given {
    /// Reports whether this is the wanted body; the query is the target's own and need not be
    /// compared.
    fn is(&self, wanted: &Wanted<'_>) -> bool {
        self.representation == wanted.representation
            && self.portion == wanted.portion
            && is_same(&self.snapshot, &wanted.snapshot)
    }
}

/// Reports whether both are the same snapshot; a weak reference prevents the reuse of a dropped
/// snapshot's address.
fn is_same(held: &Weak<Snapshot>, snapshot: &Arc<Snapshot>) -> bool {
    std::ptr::eq(held.as_ptr(), Arc::as_ptr(snapshot))
}

#[cfg(test)]
#[path = "bodies/tests.rs"]
mod tests;
