//! The local copy of one query as readers see it: what is published, and waiting for it.
//!
//! Invariant: only the query's reflector publishes; a reader takes one [`View`] per request and
//! sees nothing half done. Publishing never waits for readers.

mod notices;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time::{Instant, timeout_at};

use self::notices::Notices;
pub use super::view::{Published, Reach, View};
use super::{bookmark::BookmarkForm, history::History, roll::roll, store::Snapshot};
use crate::{
    api::{query::Query, version::ResourceVersion},
    news::{Follower, Publisher},
};

/// The local copy of one query.
pub struct Replica {
    query: Query,
    start: Start,
    started_at: Instant,
    published: ArcSwap<Published>,
    /// The published snapshot at other versions that its content is known to be that of.
    aliases: Mutex<Vec<Arc<Snapshot>>>,
    tick: Publisher<()>,
    notices: Notices,
    history: Mutex<History>,
    usage: Mutex<Usage>,
    bookmark: OnceLock<BookmarkForm>,
    /// Whether some object's metadata would not come out as the apiserver's.
    odd_metadata: AtomicBool,
    watchers: AtomicUsize,
    /// The replica that goes on where this one has ended.
    successor: OnceLock<Arc<Self>>,
}

/// Keeps a replica in use until dropped.
#[derive(Debug)]
pub struct Attached(Arc<Replica>);

/// Why a replica was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The configuration asks for it; it is never stopped for idleness.
    Eager,
    /// Reads of exactly its query were repeated.
    OnDemand,
    /// It is to take the place of several narrower ones.
    Widening,
}

/// Whether a replica has something to answer from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first list is under way.
    Starting,
    /// There is a snapshot.
    Synced,
    /// There is none, and the last attempt failed or the replica has ended.
    Failing,
}

/// Whether news would arrive now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The watch is open.
    Up,
    /// The watch is not open.
    Lost {
        /// Since when.
        since: Instant,
    },
}

/// One replica in figures, for pages, readiness and metrics.
#[derive(Clone, Debug)]
pub struct ReplicaStatus {
    /// What it follows.
    pub query: Query,
    /// Why it was started.
    pub start: Start,
    /// Whether it has something to answer from.
    pub state: State,
    /// Whether news would arrive now.
    pub link: Link,
    /// The snapshot's version.
    pub version: Option<ResourceVersion>,
    /// How many objects it holds.
    pub objects: usize,
    /// Memory held, estimated.
    pub bytes: usize,
    /// How often it listed again after the first time.
    pub relists: u64,
    /// How often it opened the watch again.
    pub watch_restarts: u64,
    /// What went wrong last, in words.
    pub last_error: Option<String>,
    /// Time since it was started.
    pub age: Duration,
    /// Time since a read last used it.
    pub idle: Duration,
    /// Time since news last came.
    pub unproven: Option<Duration>,
}

/// What changes without news for readers.
#[derive(Debug)]
pub(super) struct Usage {
    pub used_at: Instant,
    pub relists: u64,
    pub watch_restarts: u64,
    /// Whether a watch was opened before.
    pub watched: bool,
    pub last_error: Option<String>,
    /// Memory of a list being read, of shared pairs and of the history.
    pub extra_bytes: usize,
}

/// So many other versions of a snapshot are kept, each in a few bytes.
const ALIASES_MAX: usize = 8;

// === impl Replica ===

impl Replica {
    pub(super) fn new(query: Query, start: Start, history: History, now: Instant) -> Self {
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
            start,
            started_at: now,
            published: ArcSwap::from_pointee(published),
            aliases: Mutex::default(),
            tick: Publisher::new(()),
            notices: Notices::default(),
            history: Mutex::new(history),
            usage: Mutex::new(usage),
            bookmark: OnceLock::new(),
            odd_metadata: AtomicBool::new(false),
            watchers: AtomicUsize::new(0),
            successor: OnceLock::new(),
        }
    }

    /// What it follows.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// The newest picture.
    pub fn view(self: &Arc<Self>) -> View {
        View { replica: self.clone(), published: self.published() }
    }

    /// Waits until the wanted is there, the replica fails, or the deadline; returns the newest view.
    pub async fn reach(self: &Arc<Self>, wanted: &Reach, deadline: Instant) -> View {
        let mut tick = self.tick.follow();
        loop {
            let view = self.view();
            if view.reaches(wanted) || view.state == State::Failing {
                return view;
            }
            if timeout_at(deadline, tick.changed()).await.is_err() {
                return self.view();
            }
        }
    }

    /// Tells the reflector that the apiserver answers, should it be resting after a failure.
    pub fn nudge(&self) {
        self.notices.nudge.notify_waiters();
    }

    /// Waits for such word.
    pub(super) async fn nudged(&self) {
        self.notices.nudge.notified().await;
    }

    /// Wakes at everything published from now on.
    pub(super) fn subscribe(&self) -> Follower<()> {
        self.tick.follow()
    }

    /// Counts as a read that lasts until the result is dropped.
    pub fn attach(self: &Arc<Self>) -> Attached {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        Attached(self.clone())
    }

    /// When a read last used it: now, while somebody watches.
    pub(super) fn used_at(&self, now: Instant) -> Instant {
        if self.is_watched() { now } else { self.usage().used_at }
    }

    /// Reports whether somebody follows it.
    pub(super) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// The version of what it shows.
    pub(super) fn version(&self) -> Option<ResourceVersion> {
        self.published().snapshot.as_ref().map(|held| held.version().clone())
    }

    /// How long ago it was started.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started_at)
    }

    /// Reports whether its window holds every event after a version.
    pub(super) fn goes_on_from(&self, version: &ResourceVersion) -> bool {
        self.history().start_at(version).is_ok()
    }

    /// The replica that goes on where this one has ended: nothing is added to this one's window.
    pub(super) fn successor(&self) -> Option<&Arc<Self>> {
        self.successor.get()
    }

    /// Tells the reflector that readers need more than is proven, though no event is to be expected.
    pub fn lags(&self) {
        self.notices.lag.notify_waiters();
    }

    /// Waits for such word.
    pub(super) async fn lagging(&self) {
        self.notices.lag.notified().await;
    }

    /// Tells the reflector that the apiserver may show the objects in other bytes from now on.
    pub(super) fn redefine(&self) {
        // One notification is kept until the reflector takes it.
        self.notices.redefinition.notify_one();
    }

    /// Waits for such a notification.
    pub(super) async fn redefined(&self) {
        self.notices.redefinition.notified().await;
    }

    /// The window of recent events; not to be held across an await. What is published agrees with
    /// it for as long as it is held.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it showed, or would have shown, at exactly this version, which it has reached; nothing, if
    /// what happened since `from` is no longer known.
    pub fn rolled(&self, from: Arc<Snapshot>, to: &ResourceVersion) -> Option<Snapshot> {
        roll(&self.history(), from, to)
    }

    /// Why it was started.
    pub fn start(&self) -> Start {
        self.start
    }

    /// How the apiserver prints bookmarks, once one came.
    pub(super) fn bookmark(&self) -> Option<&BookmarkForm> {
        self.bookmark.get()
    }

    /// Keeps the first form that came.
    pub(super) fn learn_bookmark(&self, form: BookmarkForm) {
        self.bookmark.get_or_init(|| form);
    }

    /// Whether events may be shown with nothing but metadata: no object was found that may not.
    pub(super) fn prints_metadata(&self) -> bool {
        !self.odd_metadata.load(Ordering::Relaxed)
    }

    /// Such an object was found.
    pub(super) fn cannot_print_metadata(&self) {
        self.odd_metadata.store(true, Ordering::Relaxed);
    }

    pub(super) fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What its reflector last published.
    pub fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    /// The same content at a later version; the same snapshot each time, so that its bodies are kept.
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

    /// Replaces what readers see and wakes those who wait.
    pub(super) fn publish(&self, change: impl FnOnce(&mut Published)) {
        let mut next = Published::clone(&self.published.load());
        change(&mut next);
        self.published.store(Arc::new(next));
        self.aliases.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.tick.change(|()| {});
    }

    /// Its reflector has ended: there is nothing to answer from, now and later. Those who follow go on
    /// at a successor, whose window begins no later than this one ends.
    pub(super) fn end(&self, now: Instant, successor: Option<Arc<Self>>) {
        let mut history = self.history();
        match successor {
            // Its window stays until everybody has read to its end.
            Some(successor) => drop(self.successor.set(successor)),
            None => history.close(),
        }
        self.publish(|published| {
            published.state = State::Failing;
            published.snapshot = None;
            published.link = Link::Lost { since: now };
            published.oldest = None;
        });
    }

    /// Memory held, estimated.
    pub(super) fn bytes(&self) -> usize {
        let objects = self.published.load().snapshot.as_ref().map_or(0, |held| held.bytes());
        objects + self.usage().extra_bytes
    }

    pub(super) fn status(&self, now: Instant) -> ReplicaStatus {
        let (bytes, used_at) = (self.bytes(), self.used_at(now));
        let (published, usage) = (self.published.load_full(), self.usage());
        let snapshot = published.snapshot.as_ref();
        ReplicaStatus {
            query: self.query.clone(),
            start: self.start,
            state: published.state,
            link: published.link,
            version: snapshot.map(|held| held.version().clone()),
            objects: snapshot.map_or(0, |held| held.len()),
            bytes,
            relists: usage.relists,
            watch_restarts: usage.watch_restarts,
            last_error: usage.last_error.clone(),
            age: self.age(now),
            idle: now.saturating_duration_since(used_at),
            unproven: published.proven_at.map(|at| now.saturating_duration_since(at)),
        }
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
