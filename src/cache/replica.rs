//! The local copy of one query in one form as readers see it: its published state, and waits for it.
//!
//! Invariant: only the query's reflector publishes. A reader takes one [`View`] per request, which
//! is a complete state. A publication never waits for readers.

mod notices;
mod status;
mod tables;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::time::{Instant, timeout_at};

use self::notices::Notices;
pub use self::status::ReplicaStatus;
pub use super::view::{Published, Reach, View};
use super::{
    bookmark::BookmarkForm, clock::Clock, history::History, replay::replay, store::Snapshot,
};
use crate::{
    api::{form::Form, query::Query, version::ResourceVersion},
    notify::{Follower, Publisher},
};

/// The local copy of one query in one form.
pub struct Replica {
    query: Query,
    form: Form,
    start: Start,
    started_at: Instant,
    published: ArcSwap<Published>,
    /// The published snapshot at later versions whose content is known to be equal.
    aliases: Mutex<Vec<Arc<Snapshot>>>,
    tick: Publisher<()>,
    notices: Notices,
    history: Mutex<History>,
    usage: Mutex<Usage>,
    /// The apiserver's clock.
    clock: Clock,
    bookmark: ArcSwapOption<BookmarkForm>,
    /// `true` if some object's metadata cannot be printed as the apiserver prints it.
    odd_metadata: AtomicBool,
    watchers: AtomicUsize,
    /// The replica that continues where this one has ended.
    successor: OnceLock<Arc<Self>>,
}

/// A guard that keeps a replica in use until it is dropped.
#[derive(Debug)]
pub struct Attached(Arc<Replica>);

/// The reason why a replica was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The configuration requires it; it is never stopped as idle.
    Eager,
    /// Repeated reads of exactly its query.
    OnDemand,
    /// It replaces several narrower ones.
    Widening,
}

/// The state of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncState {
    /// The first list is in progress.
    Starting,
    /// There is a snapshot.
    Synced,
    /// There is no snapshot, and the last attempt failed or the replica has ended.
    Failing,
}

/// State of the watch connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The watch is open.
    Up,
    /// The watch is not open.
    Lost {
        /// The time since when.
        since: Instant,
    },
}

/// The state that changes without a wake-up of readers.
#[derive(Debug)]
pub(super) struct Usage {
    pub used_at: Instant,
    pub relists: u64,
    pub watch_restarts: u64,
    /// `true` if a watch was opened before.
    pub watched: bool,
    pub last_error: Option<String>,
    /// Memory of a list being read, of shared pairs and of the history.
    pub extra_bytes: usize,
}

/// The limit of other versions of a snapshot, each of which takes a few bytes.
const ALIASES_MAX: usize = 8;

// === impl Replica ===

impl Replica {
    pub(super) fn new(
        query: Query,
        form: Form,
        start: Start,
        history: History,
        now: Instant,
    ) -> Self {
        let published = Published::nothing(Link::Lost { since: now }, 0);
        let usage = Usage {
            used_at: now,
            relists: 0,
            watch_restarts: 0,
            watched: false,
            last_error: None,
            extra_bytes: 0,
        };
        Self {
            query,
            form,
            start,
            started_at: now,
            published: ArcSwap::from_pointee(published),
            aliases: Mutex::default(),
            tick: Publisher::new(()),
            notices: Notices::default(),
            history: Mutex::new(history),
            usage: Mutex::new(usage),
            clock: Clock::system(),
            bookmark: ArcSwapOption::empty(),
            odd_metadata: AtomicBool::new(false),
            watchers: AtomicUsize::new(0),
            successor: OnceLock::new(),
        }
    }

    /// Returns the query that it follows.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Returns the form of its objects.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Returns the query and the form, which tell replicas apart.
    pub fn shape(&self) -> (&Query, Form) {
        (&self.query, self.form)
    }

    /// Returns the current view.
    pub fn view(self: &Arc<Self>) -> View {
        View { replica: self.clone(), published: self.published() }
    }

    /// Waits for the wanted state, a failure or the deadline; returns the current view.
    pub async fn reach(self: &Arc<Self>, wanted: &Reach, deadline: Instant) -> View {
        let mut tick = self.tick.follow();
        loop {
            let view = self.view();
            if view.reaches(wanted) || view.state == SyncState::Failing {
                return view;
            }
            if timeout_at(deadline, tick.changed()).await.is_err() {
                return self.view();
            }
        }
    }

    /// Notifies a reflector that waits after a failure: the apiserver answers.
    pub fn retry_now(&self) {
        self.notices.retry_now.notify_waiters();
    }

    /// Waits for such a notification.
    pub(super) async fn retry_requested(&self) {
        self.notices.retry_now.notified().await;
    }

    /// Wakes at every publication from now on.
    pub(super) fn subscribe(&self) -> Follower<()> {
        self.tick.follow()
    }

    /// Counts as a read that lasts until the result is dropped.
    pub fn attach(self: &Arc<Self>) -> Attached {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Attached(self.clone())
    }

    /// Returns the time of the last read; now, while a watch follows it.
    pub(super) fn used_at(&self, now: Instant) -> Instant {
        if self.is_watched() { now } else { self.usage().used_at }
    }

    /// Reports whether a watch follows it.
    pub(super) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Returns the published version.
    pub(super) fn version(&self) -> Option<ResourceVersion> {
        self.published().snapshot.as_ref().map(|held| held.version().clone())
    }

    /// Returns the time since its start.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started_at)
    }

    /// Reports whether its window holds every event after a version.
    pub(super) fn goes_on_from(&self, version: &ResourceVersion) -> bool {
        let published = self.published();
        // After a restore, its next states may have the versions of lost ones.
        let has_reached = published.snapshot.as_ref().is_some_and(|held| held.version() >= version);
        (has_reached || !published.restored) && self.history().start_at(version).is_ok()
    }

    /// Returns the replica that continues where this one has ended.
    pub(super) fn successor(&self) -> Option<&Arc<Self>> {
        self.successor.get()
    }

    /// Notifies the reflector that readers need a newer proof without an event.
    pub fn lags(&self) {
        self.notices.lag.notify_waiters();
    }

    /// Waits for such a notification.
    pub(super) async fn lagging(&self) {
        self.notices.lag.notified().await;
    }

    /// Notifies the reflector that the apiserver may return the objects with other bytes.
    pub(super) fn redefine(&self) {
        // One notification is stored until the reflector takes it.
        self.notices.redefinition.notify_one();
    }

    /// Waits for such a notification.
    pub(super) async fn redefined(&self) {
        self.notices.redefinition.notified().await;
    }

    /// Returns the window of recent events; it must not be held across an await. The published
    /// state agrees with it while it is held.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the snapshot at exactly this version, which the replica has reached; `None` if the
    /// events since `from` are no longer held.
    pub fn replayed(&self, from: Arc<Snapshot>, to: &ResourceVersion) -> Option<Snapshot> {
        replay(&self.history(), from, to)
    }

    /// Returns the reason of its start.
    pub fn start(&self) -> Start {
        self.start
    }

    /// Returns the form of the apiserver's bookmarks, once one came.
    pub(super) fn bookmark(&self) -> Option<Arc<BookmarkForm>> {
        self.bookmark.load_full()
    }

    /// Stores the form of the last one; `None` if the next may have another form.
    pub(super) fn learn_bookmark(&self, form: Option<BookmarkForm>) {
        if self.bookmark.load().as_deref() != form.as_ref() {
            self.bookmark.store(form.map(Arc::new));
        }
    }

    /// Reports whether events may be printed as metadata only: no object prevents it.
    pub(super) fn prints_metadata(&self) -> bool {
        !self.odd_metadata.load(Ordering::Relaxed)
    }

    /// Notes that an object prevents it.
    pub(super) fn cannot_print_metadata(&self) {
        self.odd_metadata.store(true, Ordering::Relaxed);
    }

    pub(super) fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state that its reflector last published.
    pub fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    /// Reports whether a snapshot has the published content; its version may be a later one.
    pub(super) fn is_published(&self, snapshot: &Snapshot) -> bool {
        self.published.load().snapshot.as_ref().is_some_and(|held| held.is_alike(snapshot))
    }

    /// Returns the same content at a later version; repeated calls return the same snapshot.
    pub fn also_at(&self, snapshot: &Arc<Snapshot>, version: ResourceVersion) -> Arc<Snapshot> {
        let alias = || Arc::new(snapshot.at(version.clone()));
        let mut aliases = self.aliases.lock().unwrap_or_else(PoisonError::into_inner);
        let published = self.published.load();
        if !published.snapshot.as_ref().is_some_and(|held| Arc::ptr_eq(held, snapshot)) {
            return alias();
        }
        if let Some(held) = aliases.iter().find(|held| *held.version() == version) {
            return held.clone();
        }
        if aliases.len() == ALIASES_MAX {
            aliases.remove(0);
        }
        aliases.push(alias());
        aliases.last().expect("pushed above").clone()
    }

    /// Replaces the published state and wakes waiting readers.
    pub(super) fn publish(&self, change: impl FnOnce(&mut Published)) {
        // Readers withdraw proofs beside the reflector: no change may undo another one.
        let mut aliases = self.aliases.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = Published::clone(&self.published.load());
        change(&mut next);
        self.published.store(Arc::new(next));
        aliases.clear();
        drop(aliases);
        self.tick.change(|()| {});
    }

    /// Ends the replica after its reflector: it has no snapshot, now and later. Followers continue
    /// at a successor, whose window begins no later than this one ends.
    pub(super) fn end(&self, now: Instant, successor: Option<Arc<Self>>) {
        let mut history = self.history();
        match successor {
            // Its window stays until all followers have read to its end.
            Some(successor) => drop(self.successor.set(successor)),
            None => history.close(),
        }
        self.publish(|published| {
            published.state = SyncState::Failing;
            published.snapshot = None;
            published.link = Link::Lost { since: now };
            published.oldest = None;
        });
    }

    /// Returns the memory held, estimated.
    pub(super) fn bytes(&self) -> usize {
        let objects = self.published.load().snapshot.as_ref().map_or(0, |held| held.bytes());
        objects + self.usage().extra_bytes
    }
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("query", &self.query).finish_non_exhaustive()
    }
}

// === impl Attached ===

impl Attached {
    pub(super) fn get(&self) -> &Arc<Replica> {
        &self.0
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.usage().used_at = Instant::now();
        self.0.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{fixture, testing};

    #[test]
    fn concurrent_publications_do_not_undo_each_other() {
        const EACH: u32 = 20_000;
        let replica = testing::replica(fixture::query(None, "", ""), Instant::now());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..EACH).for_each(|_| replica.publish(|next| next.epoch += 1)));
            }
        });
        assert_eq!(replica.published().epoch, 2 * EACH);
    }
}
