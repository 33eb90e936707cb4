//! Recently used list bodies, each kept as long as its snapshot is current.
//!
//! Invariant: a body is returned only for the snapshot it was made from. Versions need not be
//! unique for this. A body does not keep its snapshot alive. It may keep pages of it, so it is
//! dropped within a second after it.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio_util::task::AbortOnDropHandle;

use super::{Chunks, Wanted};
use crate::{
    api::{form::Form, media::Representation, query::Query},
    cache::{portion::Portion, store::Snapshot, table::Moment},
    hash::RandomState,
    mutants::{Mutant, is_on},
};

/// The bodies, one per query, form, representation and encoding.
pub(super) struct Bodies {
    kept: Cache,
    _tidying: AbortOnDropHandle<()>,
}

type Cache = moka::future::Cache<Key, Kept, RandomState>;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    /// Uncompressed.
    Identity,
    /// One gzip member.
    Gzip,
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    query: Query,
    form: Form,
    portion: Portion,
    representation: Representation,
    encoding: Encoding,
}

#[derive(Clone)]
struct Kept {
    snapshot: Weak<Snapshot>,
    /// The moment until which it is right, if it changes with time.
    until: Option<Moment>,
    chunks: Chunks,
}

/// The limit of all bodies together, in bytes.
const BYTES_MAX: u64 = 32 * 1024 * 1024;

/// The memory of an entry beside its body, estimated.
const ENTRY_BYTES: usize = 1024;

/// The time after which an unused body is dropped.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The interval at which bodies of dropped snapshots are dropped.
const TIDY_EVERY: Duration = Duration::from_secs(1);

// === impl Bodies ===

impl Bodies {
    /// Returns the body made from this snapshot, if there is one.
    pub(super) async fn get(&self, wanted: &Wanted<'_>, encoding: Encoding) -> Option<Chunks> {
        let kept = self.kept.get(&Key::of(wanted, encoding)).await?;
        kept.is_right(wanted).then_some(kept.chunks)
    }

    /// Makes a body, once for all concurrent requests for this snapshot, and keeps it until its
    /// bytes change with time.
    pub(super) async fn keep(
        &self,
        wanted: &Wanted<'_>,
        until: Option<Moment>,
        encoding: Encoding,
        make: impl Future<Output = Chunks>,
    ) -> Chunks {
        let (key, snapshot) = (Key::of(wanted, encoding), &wanted.snapshot);
        let mut make = Some(make);
        let first = async {
            let make = make.take().expect("an entry is made at most once");
            Kept { snapshot: Arc::downgrade(snapshot), until, chunks: make.await }
        };
        let replace = |kept: &Kept| !kept.is_right(wanted);
        let kept = self.kept.entry(key).or_insert_with_if(first, replace).await.into_value();
        match make {
            // Another request's body was being made: it is awaited, whatever its snapshot.
            Some(make) if !kept.is_right(wanted) => make.await,
            _ => kept.chunks,
        }
    }
}

impl Default for Bodies {
    /// Creates it; must be called within a tokio runtime.
    fn default() -> Self {
        let kept = moka::future::Cache::builder()
            .max_capacity(BYTES_MAX)
            .weigher(|key: &Key, kept: &Kept| {
                (ENTRY_BYTES + key.bytes() + kept.bytes()).try_into().unwrap_or(u32::MAX)
            })
            .time_to_idle(IDLE_MAX)
            .build_with_hasher(RandomState::default());
        let tidying = tokio::spawn(tidy_regularly(kept.clone()));
        Self { kept, _tidying: AbortOnDropHandle::new(tidying) }
    }
}

async fn tidy_regularly(kept: Cache) {
    let mut ticks = tokio::time::interval(TIDY_EVERY);
    loop {
        ticks.tick().await;
        for (key, body) in &kept {
            if body.snapshot.strong_count() == 0 {
                kept.invalidate(&*key).await;
            }
        }
        kept.run_pending_tasks().await;
    }
}

// === impl Key ===

impl Key {
    fn of(wanted: &Wanted<'_>, encoding: Encoding) -> Self {
        let Wanted { query, representation, ref snapshot, .. } = *wanted;
        let (form, portion) = (snapshot.form(), wanted.portion.clone());
        Self { query: query.clone(), form, portion, representation, encoding }
    }

    /// Returns the memory held beside the entry itself.
    fn bytes(&self) -> usize {
        self.query.labels.bytes() + self.query.fields.bytes()
    }
}

// === impl Kept ===

impl Kept {
    fn is_right(&self, wanted: &Wanted<'_>) -> bool {
        let is_in_time = self.until.is_none_or(|until| wanted.now < until);
        is_in_time && is_same(&self.snapshot, &wanted.snapshot)
    }

    fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
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
    std::ptr::eq(held.as_ptr(), Arc::as_ptr(snapshot)) || is_on(Mutant::StaleBody)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{
            GroupVersionResource, Scope,
            media::{MetadataVersion, Partial},
            selector::LabelSelector,
        },
        cache::testing::pods,
    };

    fn body(text: &'static str) -> Chunks {
        Arc::new(VecDeque::from([Bytes::from(text)]))
    }

    fn all() -> Query {
        Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All)
    }

    /// Returns a list of no pods; each has its own snapshot.
    fn wanted(query: &Query) -> Wanted<'_> {
        let (snapshot, representation) = (pods(7, &[]), Representation::Object);
        Wanted { snapshot, query, portion: Portion::default(), representation, now: Moment(0) }
    }

    /// Returns the same list, metadata only.
    fn metadata<'a>(wanted: &Wanted<'a>) -> Wanted<'a> {
        let partial = Partial { version: MetadataVersion::V1, form: Form::Json };
        let representation = Representation::Metadata(partial);
        let (snapshot, portion) = (wanted.snapshot.clone(), wanted.portion.clone());
        Wanted { snapshot, portion, representation, ..*wanted }
    }

    #[tokio::test]
    async fn a_body_is_given_only_for_the_snapshot_it_was_made_from() {
        let (bodies, all) = (Bodies::default(), all());
        // These are the same version of the same query, but different states.
        let (old, new) = (wanted(&all), wanted(&all));
        assert_eq!(bodies.get(&old, Encoding::Identity).await, None);
        let made = bodies.keep(&old, None, Encoding::Identity, async { body("old") }).await;
        assert_eq!(made, body("old"));
        assert_eq!(bodies.get(&old, Encoding::Identity).await, Some(body("old")));
        assert_eq!(bodies.get(&old, Encoding::Gzip).await, None);
        assert_eq!(bodies.get(&metadata(&old), Encoding::Identity).await, None);
        assert_eq!(bodies.get(&new, Encoding::Identity).await, None);
        let made = bodies.keep(&new, None, Encoding::Identity, async { body("new") }).await;
        assert_eq!(made, body("new"));
        assert_eq!(bodies.get(&old, Encoding::Identity).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_dropped_soon_after_its_snapshot() {
        let (bodies, all) = (Bodies::default(), all());
        let (old, new) = (wanted(&all), wanted(&all));
        for (wanted, encoding) in [(&old, Encoding::Identity), (&new, Encoding::Gzip)] {
            bodies.keep(wanted, None, encoding, async { body("made") }).await;
        }
        tokio::time::sleep(2 * TIDY_EVERY).await;
        assert_eq!(bodies.kept.iter().count(), 2);
        drop(old);
        tokio::time::sleep(2 * TIDY_EVERY).await;
        assert_eq!(bodies.kept.iter().count(), 1);
        assert_eq!(bodies.get(&new, Encoding::Gzip).await, Some(body("made")));
    }

    #[tokio::test]
    async fn small_bodies_count_with_the_memory_of_their_entries() {
        let (bodies, all) = (Bodies::default(), all());
        let labels: LabelSelector = LabelSelector::parse("app in (a,b,c)").expect("a selector");
        let selected = Query { labels: labels.clone(), ..all };
        let wanted = wanted(&selected);
        bodies.keep(&wanted, None, Encoding::Identity, async { body("none") }).await;
        bodies.kept.run_pending_tasks().await;
        let expected = ENTRY_BYTES + labels.bytes() + "none".len();
        assert_eq!(bodies.kept.weighted_size(), expected as u64);
    }

    #[tokio::test]
    async fn a_body_is_given_only_until_it_changes_with_time() {
        let (bodies, all) = (Bodies::default(), all());
        let early = wanted(&all);
        let (snapshot, portion) = (early.snapshot.clone(), early.portion.clone());
        let late = Wanted { snapshot, portion, now: Moment(5), ..early };
        let until = Some(Moment(5));
        bodies.keep(&early, until, Encoding::Identity, async { body("4s") }).await;
        assert_eq!(bodies.get(&early, Encoding::Identity).await, Some(body("4s")));
        assert_eq!(bodies.get(&late, Encoding::Identity).await, None);
        let made = bodies.keep(&late, None, Encoding::Identity, async { body("5s") }).await;
        assert_eq!(made, body("5s"));
    }

    #[test]
    fn a_remembered_body_is_given_only_for_its_snapshot_and_while_it_is_kept() {
        let (remembered, all) = (Remembered::default(), all());
        let (old, new) = (wanted(&all), wanted(&all));
        assert_eq!(remembered.of(&old), None);
        let kept = body("old");
        remembered.set(&old, Encoding::Gzip, &kept);
        assert_eq!(remembered.of(&old), Some((Encoding::Gzip, kept.clone())));
        assert_eq!(remembered.of(&new), None);
        assert_eq!(remembered.of(&metadata(&old)), None);
        drop(kept);
        assert_eq!(remembered.of(&old), None);
    }

    #[tokio::test]
    async fn an_unfinished_body_is_not_returned_for_a_newer_snapshot() {
        let (bodies, all) = (Bodies::default(), all());
        let (old, new) = (wanted(&all), wanted(&all));
        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let slow = async {
            let _ = released.await;
            body("old")
        };
        let first = bodies.keep(&old, None, Encoding::Gzip, slow);
        let second = bodies.keep(&new, None, Encoding::Gzip, async { body("new") });
        let release = async { release.send(()) };
        let (first, second, released) = tokio::join!(first, second, release);
        assert_eq!((first, second, released), (body("old"), body("new"), Ok(())));
    }
}
