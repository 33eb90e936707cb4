//! A simulated apiserver inside the process: real list, watch and write rules over raw JSON
//! objects.
//!
//! It serves `listless demo` and the hermetic tests, over TLS or without sockets. It shares no code
//! with the proxy's replicas and rendering, so that each checks the other. It supports only JSON,
//! enforces no schemas and tracks no field owners.

mod access;
mod answer;
mod call;
mod clock;
mod discovery;
mod dispatch;
mod fault;
mod journal;
mod json;
mod kind;
mod media;
mod metadata;
mod object;
mod options;
mod protobuf;
mod random;
mod read;
mod review;
mod route;
mod serve;
mod status;
mod store;
mod table;
mod token;
mod upgrade;
mod watch;
mod write;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use jiff::Timestamp;
use tokio::time::Instant;

pub use access::{Rule, User};
pub use answer::Interrupted;
pub use fault::{Effect, Fault};
pub use journal::{Asked, Counters, Record};
pub use json::Json;
pub use kind::{DeletionAnswer, Rendering, ResourceType, StatusSubresource, Style};

use crate::{
    api::{GroupResource, GroupVersionResource, ObjectKey},
    body::Body,
    notify::Publisher,
    upstream,
};
use access::Access;
use fault::Faults;
use journal::Journal;
use random::Random;
use store::Store;

/// A simulated apiserver. Clones share it.
#[derive(Clone)]
pub struct Simulator(Arc<Core>);

/// The settings of a simulated apiserver. The default is a recent release.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seed of uids and generated names.
    pub seed: u64,
    /// The features of the server.
    pub features: Features,
    /// The revision before the first write.
    pub first_revision: u64,
    /// The wall clock when the simulator starts.
    pub epoch: Timestamp,
    /// The number of changes per resource that are kept for watches and exact reads.
    pub history_changes_max: usize,
    /// The period at which etcd notifies idle caches of its revision (S-WATCH-32).
    pub notification_interval: Duration,
    /// The period of bookmarks (S-WATCH-31).
    pub bookmark_interval: Duration,
    /// The maximum number of requests in the journal.
    pub journal_records_max: usize,
}

/// The differences between releases and set-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `sendInitialEvents`, and old-style watches defaulted to it (S-WATCH-01).
    pub watch_list: bool,
    /// `true` if consistent lists come from the cache, and so update it (S-CONS-01).
    pub consistent_list_from_cache: bool,
    /// `true` if deleting a scheduled pod marks it first, as with a kubelet.
    pub graceful_pods: bool,
}

/// The shared state of a simulator.
struct Core {
    settings: Settings,
    started: Instant,
    store: Mutex<Store>,
    random: Random,
    journal: Journal,
    faults: Faults,
    access: Access,
    interruptions: Publisher<Interruption>,
    stopped: AtomicBool,
    upgrades: AtomicU64,
}

/// The numbers of times that all open watches were ended, and broken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Interruption {
    ends: u64,
    resets: u64,
}

// === impl Simulator ===

impl Simulator {
    /// Returns a simulated apiserver with the built-in resources and no objects.
    pub fn new(settings: Settings) -> Self {
        let started = Instant::now();
        let mut store = Store::new(
            settings.first_revision,
            settings.history_changes_max,
            settings.notification_interval,
            started,
        );
        kind::builtin::all().into_iter().for_each(|kind| store.register(kind));
        Self(Arc::new(Core {
            started,
            store: Mutex::new(store),
            random: Random::new(settings.seed),
            journal: Journal::new(settings.journal_records_max),
            faults: Faults::default(),
            access: Access::default(),
            interruptions: Publisher::default(),
            stopped: AtomicBool::new(false),
            upgrades: AtomicU64::new(0),
            settings,
        }))
    }

    /// Serves a further resource, such as a custom one.
    pub fn register(&self, kind: ResourceType) {
        self.0.store().register(kind);
    }

    /// Writes an object as it is, status included, as all controllers together would. Returns its
    /// version. A missing uid and creation time are added.
    ///
    /// It writes nothing if the resource is not served or the JSON has no name.
    pub fn put(&self, resource: &GroupResource, json: impl Into<Json>) -> Option<u64> {
        let mut json = json.into();
        json.str_at(&["metadata", "name"])?;
        let mut store = self.0.store();
        let old = key_of(&json).and_then(|key| {
            let collection = store.collection(resource)?;
            collection.object(&key).map(|object| object.uid.clone())
        });
        let metadata = json.entry("metadata");
        if metadata.get("uid").is_none() {
            metadata.set("uid", old.unwrap_or_else(|| self.0.random.uid()));
        }
        if metadata.get("creationTimestamp").is_none() {
            metadata.set("creationTimestamp", self.0.timestamp(Instant::now()));
        }
        store.put(resource, json, Instant::now()).map(|object| object.version)
    }

    /// Stores an object of another apiserver with its version. Returns `false` if it cannot.
    ///
    /// Call it before any read, and set [`Settings::first_revision`] to the other's revision.
    pub fn restore(&self, resource: &GroupResource, json: impl Into<Json>) -> bool {
        self.0.store().restore(resource, json.into()).is_some()
    }

    /// Serves the objects of a resource in another shape at their present versions, as after a
    /// change of their schema. Watches from earlier versions get 410; [`Simulator::end_watches`]
    /// ends open ones.
    pub fn reshape(&self, resource: &GroupResource, change: impl Fn(&mut Json)) {
        self.0.store().reshape(resource, change);
    }

    /// Returns the served resources, each at its preferred version.
    pub fn resources(&self) -> Vec<GroupVersionResource> {
        let store = self.0.store();
        let kinds = store.collections().map(|collection| &collection.kind);
        let mut resources: Vec<_> = kinds
            .map(|kind| GroupVersionResource::new(&kind.group, kind.stored_version(), &kind.plural))
            .collect();
        resources.sort();
        resources
    }

    /// Deletes an object at once, even with finalizers. Returns the revision of the deletion.
    pub fn remove(&self, resource: &GroupResource, key: &ObjectKey) -> Option<u64> {
        self.0.store().remove(resource, key, Instant::now()).map(|object| object.version)
    }

    /// Returns an object as a GET shows it.
    pub fn object(&self, resource: &GroupResource, key: &ObjectKey) -> Option<Json> {
        let store = self.0.store();
        let collection = store.collection(resource)?;
        collection.object(key).map(|object| object.to_json(&collection.kind))
    }

    /// Returns the number of objects of a resource.
    pub fn count(&self, resource: &GroupResource) -> usize {
        self.0.store().collection(resource).map_or(0, |found| found.objects().len())
    }

    /// Returns the current revision.
    pub fn revision(&self) -> u64 {
        self.0.store().revision()
    }

    /// Raises the revision, as writes to resources served elsewhere do.
    pub fn skip_revisions(&self, count: u64) -> u64 {
        self.0.store().skip_revisions(count, Instant::now())
    }

    /// Compacts everything below a revision: exact reads of it get 410.
    pub fn compact(&self, revision: u64) {
        self.0.store().compact(revision);
    }

    /// Drops the whole history: watches from any earlier version get 410.
    pub fn forget_history(&self) {
        self.0.store().forget_history();
    }

    /// Ends every open watch cleanly, as the server does when its caches restart.
    pub fn end_watches(&self) {
        self.0.interruptions.change(|so_far| so_far.ends += 1);
    }

    /// Breaks every open watch, as a lost connection does.
    pub fn break_watches(&self) {
        self.0.interruptions.change(|so_far| so_far.resets += 1);
    }

    /// Stops the watch caches at the present revision. Watches and reads at any version see no
    /// later one; writes and consistent reads continue.
    pub fn hold_caches(&self) {
        self.0.store().hold_caches();
    }

    /// Lets the watch caches catch up.
    pub fn release_caches(&self) {
        self.0.store().release_caches();
    }

    /// Stops the server: open watches break, and nothing is answered until [`Simulator::start`].
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        self.break_watches();
    }

    /// Starts the server again with all its objects.
    pub fn start(&self) {
        self.0.stopped.store(false, Ordering::SeqCst);
    }

    /// Adds a scripted fault. Faults are tried in the order of their addition.
    pub fn inject(&self, fault: Fault) {
        self.0.faults.add(fault);
    }

    /// Drops all remaining faults.
    pub fn clear_faults(&self) {
        self.0.faults.clear();
    }

    /// Accepts a token for a user. After the first one, callers need a token; before it, everybody
    /// may do everything.
    pub fn admit(&self, token: &str, user: User) {
        self.0.access.admit(token, user);
    }

    /// Refuses a token from now on.
    pub fn expel(&self, token: &str) {
        self.0.access.expel(token);
    }

    /// Answers rules reviews as incomplete from now on, as with an authorization webhook.
    pub fn hide_rules(&self) {
        self.0.access.hide_rules();
    }

    /// Returns the requests in the journal, oldest first.
    pub fn records(&self) -> Vec<Record> {
        self.0.journal.records()
    }

    /// Returns the sums over all requests so far.
    pub fn counters(&self) -> Counters {
        self.0.journal.counters()
    }

    /// Answers one request, or returns the reason why there is no response.
    pub async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, Interrupted> {
        self.0.clone().answer(request).await
    }
}

impl Default for Simulator {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl upstream::Client for Simulator {
    fn send(
        &self,
        request: Request<Body>,
        _lane: upstream::Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, upstream::Error>> {
        let simulator = self.clone();
        Box::pin(async move {
            simulator.answer(request).await.map_err(|interrupted| match interrupted {
                Interrupted::Refused => upstream::Error::Connect(interrupted.into()),
                Interrupted::Closed => upstream::Error::Broken(interrupted.into()),
            })
        })
    }

    fn upgrade(
        &self,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, upstream::Error>> {
        let simulator = self.clone();
        Box::pin(async move { simulator.dial_and_send(request).await })
    }
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            seed: 0,
            features: Features::default(),
            first_revision: 1000,
            epoch: Timestamp::from_second(EPOCH_SECOND).unwrap_or_default(),
            history_changes_max: 10_000,
            notification_interval: Duration::from_secs(5),
            bookmark_interval: Duration::from_secs(60),
            journal_records_max: 100_000,
        }
    }
}

/// 2026-01-01T00:00:00Z.
const EPOCH_SECOND: i64 = 1_767_225_600;

// === impl Features ===

impl Features {
    /// A release before 1.31: no WatchList, and every consistent list comes from etcd.
    pub const OLD: Self =
        Self { watch_list: false, consistent_list_from_cache: false, graceful_pods: false };
}

impl Default for Features {
    fn default() -> Self {
        Self { watch_list: true, consistent_list_from_cache: true, graceful_pods: false }
    }
}

// === impl Core ===

impl Core {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key_of(json: &Json) -> Option<ObjectKey> {
    let name = json.str_at(&["metadata", "name"])?;
    Some(ObjectKey::new(json.str_at(&["metadata", "namespace"]), name))
}

#[cfg(test)]
mod tests;
