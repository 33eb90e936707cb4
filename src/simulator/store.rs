//! The simulated etcd: one revision counter, a collection per resource, and a window of its
//! history.
//!
//! Invariants: every change takes the next revision. A state at revision R is rebuilt only while
//! every change above R is in the window. Pure and synchronous: time is passed in.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    json::Json,
    kind::ResourceType,
    object::{Object, Shared},
};
use crate::{
    api::{GroupResource, ObjectKey},
    notify::{Follower, Publisher},
};

/// A state of one resource's objects, in LIST order (S-LIST-60).
pub(super) type Objects = Arc<BTreeMap<ObjectKey, Shared>>;

/// All collections and their common revision counter.
#[derive(Debug)]
pub(super) struct Store {
    revision: u64,
    /// The revision below which exact reads fail (S-LIST-41).
    compacted: u64,
    /// The revision of the last progress notification to every cache (S-WATCH-32).
    notified: u64,
    next_notification: Instant,
    notification_interval: Duration,
    /// The revision at which the watch caches are held, if they are.
    held: Option<u64>,
    history_changes_max: usize,
    collections: HashMap<GroupResource, Collection>,
    revisions: Publisher<()>,
}

/// One resource's objects and recent changes.
#[derive(Debug)]
pub(super) struct Collection {
    /// The resource.
    pub kind: Arc<ResourceType>,
    objects: Objects,
    history: VecDeque<Arc<Change>>,
    /// The revision at or below which changes are no longer in the window.
    floor: u64,
    /// The last revision that the cache of this resource has received.
    known: u64,
    changed: Publisher<()>,
}

/// One change of one object.
#[derive(Debug)]
pub(super) struct Change {
    /// Its revision.
    pub revision: u64,
    /// The earlier object, if any.
    pub before: Option<Shared>,
    /// The new object, unless it was deleted.
    pub after: Option<Shared>,
    last_state: OnceLock<Shared>,
}

/// The error for a revision that is no longer kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the revision is older than what is kept, which begins after {kept_after}")]
pub(super) struct TooOld {
    /// The revision above which changes are kept.
    pub kept_after: u64,
}

// === impl Store ===

impl Store {
    /// Returns an empty store at `revision`.
    pub(super) fn new(
        revision: u64,
        history_changes_max: usize,
        notification_interval: Duration,
        now: Instant,
    ) -> Self {
        Self {
            revision,
            compacted: revision,
            notified: revision,
            next_notification: now + notification_interval,
            notification_interval,
            held: None,
            history_changes_max,
            collections: HashMap::new(),
            revisions: Publisher::new(()),
        }
    }

    /// Serves a further resource. If it is served already, its objects are kept.
    pub(super) fn register(&mut self, kind: ResourceType) {
        let (revision, name) = (self.revision, kind.group_resource());
        let kind = Arc::new(kind);
        self.collections
            .entry(name)
            .and_modify(|collection| collection.kind = kind.clone())
            .or_insert_with(|| Collection::new(kind, revision));
    }

    /// Returns the current revision.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the revision below which all is compacted.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Returns a follower of new revisions.
    pub(super) fn follow(&self) -> Follower<()> {
        self.revisions.follow()
    }

    /// Returns the collection of a resource.
    pub(super) fn collection(&self, resource: &GroupResource) -> Option<&Collection> {
        self.collections.get(resource)
    }

    /// Returns every collection.
    pub(super) fn collections(&self) -> impl Iterator<Item = &Collection> {
        self.collections.values()
    }

    /// Writes an object. Returns it at its new revision.
    pub(super) fn put(
        &mut self,
        resource: &GroupResource,
        json: Json,
        now: Instant,
    ) -> Option<Shared> {
        self.tick(now);
        let collection = self.collections.get_mut(resource)?;
        self.revision += 1;
        let object = Arc::new(Object::seal(&collection.kind, json, self.revision));
        let before =
            Arc::make_mut(&mut collection.objects).insert(object.key.clone(), object.clone());
        let change = Change::new(self.revision, before, Some(object.clone()));
        collection.record(change, self.history_changes_max);
        self.revisions.change(|()| {});
        Some(object)
    }

    /// Stores an object of another server with its version, as from a backup. The history has no
    /// entry of it.
    pub(super) fn restore(&mut self, resource: &GroupResource, json: Json) -> Option<Shared> {
        let version = json.str_at(&["metadata", "resourceVersion"])?.parse().ok()?;
        let collection = self.collections.get_mut(resource)?;
        let object = Arc::new(Object::seal(&collection.kind, json, version));
        Arc::make_mut(&mut collection.objects).insert(object.key.clone(), object.clone());
        Some(object)
    }

    /// Changes the objects of a resource at their present versions. Its history starts here.
    pub(super) fn reshape(&mut self, resource: &GroupResource, change: impl Fn(&mut Json)) {
        let revision = self.revision;
        let Some(collection) = self.collections.get_mut(resource) else { return };
        for object in Arc::make_mut(&mut collection.objects).values_mut() {
            let mut json = object.to_json(&collection.kind);
            change(&mut json);
            *object = Arc::new(Object::seal(&collection.kind, json, object.version));
        }
        collection.history.clear();
        collection.floor = revision;
    }

    /// Deletes an object. Returns its last state at the revision of the deletion.
    pub(super) fn remove(
        &mut self,
        resource: &GroupResource,
        key: &ObjectKey,
        now: Instant,
    ) -> Option<Shared> {
        self.tick(now);
        let collection = self.collections.get_mut(resource)?;
        let before = Arc::make_mut(&mut collection.objects).remove(key)?;
        self.revision += 1;
        let change = Change::new(self.revision, Some(before), None);
        let last_state = change.last_state(&collection.kind);
        collection.record(change, self.history_changes_max);
        self.revisions.change(|()| {});
        last_state
    }

    /// Drops the history that exact reads below `revision` need, as etcd's compaction does.
    pub(super) fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
    }

    /// Empties every window, so that only watches from now on can start.
    pub(super) fn forget_history(&mut self) {
        for collection in self.collections.values_mut() {
            collection.history.clear();
            collection.floor = self.revision;
        }
    }

    /// Raises the revision without a change of the resources served here, as writes to other
    /// resources do.
    pub(super) fn skip_revisions(&mut self, count: u64, now: Instant) -> u64 {
        self.tick(now);
        self.revision += count;
        self.revisions.change(|()| {});
        self.revision
    }

    /// Returns the revision of a resource's cache, without a request to etcd.
    pub(super) fn cached_revision(&mut self, resource: &GroupResource, now: Instant) -> u64 {
        self.tick(now);
        let known =
            self.collections.get(resource).map_or(0, |found| found.known.max(self.notified));
        known.min(self.cache_limit())
    }

    /// Updates the cache of a resource, as a consistent read does (S-CONS-01).
    pub(super) fn refresh_cache(&mut self, resource: &GroupResource) -> u64 {
        if let Some(collection) = self.collections.get_mut(resource) {
            collection.known = self.revision;
        }
        self.revision.min(self.cache_limit())
    }

    /// Holds the watch caches at the current revision. They receive nothing later.
    pub(super) fn hold_caches(&mut self) {
        self.held.get_or_insert(self.revision);
    }

    /// Lets the watch caches receive everything again.
    pub(super) fn release_caches(&mut self) {
        self.held = None;
        for collection in self.collections.values() {
            collection.changed.change(|()| {});
        }
        self.revisions.change(|()| {});
    }

    /// Returns the last revision that the watch caches may receive.
    pub(super) fn cache_limit(&self) -> u64 {
        self.held.unwrap_or(u64::MAX)
    }

    fn tick(&mut self, now: Instant) {
        if now >= self.next_notification {
            self.notified = self.revision;
            self.next_notification = now + self.notification_interval;
        }
    }
}

// === impl Collection ===

impl Collection {
    fn new(kind: Arc<ResourceType>, revision: u64) -> Self {
        Self {
            kind,
            objects: Objects::default(),
            history: VecDeque::new(),
            floor: revision,
            known: revision,
            changed: Publisher::new(()),
        }
    }

    /// Returns the present objects.
    pub(super) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// Returns the object of a key.
    pub(super) fn object(&self, key: &ObjectKey) -> Option<&Shared> {
        self.objects.get(key)
    }

    /// Returns a follower of changes.
    pub(super) fn follow(&self) -> Follower<()> {
        self.changed.follow()
    }

    /// Returns the objects at a revision.
    pub(super) fn objects_at(&self, revision: u64) -> Result<Objects, TooOld> {
        let mut objects = self.objects.clone();
        for change in self.changes_after(revision)?.rev() {
            let undone = Arc::make_mut(&mut objects);
            match (&change.before, &change.after) {
                (Some(before), _) => drop(undone.insert(before.key.clone(), before.clone())),
                (None, Some(after)) => drop(undone.remove(&after.key)),
                (None, None) => {}
            }
        }
        Ok(objects)
    }

    /// Returns the changes above a revision, oldest first.
    pub(super) fn changes_after(
        &self,
        revision: u64,
    ) -> Result<impl DoubleEndedIterator<Item = &Arc<Change>>, TooOld> {
        if revision < self.floor {
            return Err(TooOld { kept_after: self.floor });
        }
        let first = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.history.range(first..))
    }

    fn record(&mut self, change: Change, changes_max: usize) {
        self.known = change.revision;
        self.history.push_back(Arc::new(change));
        while self.history.len() > changes_max {
            if let Some(oldest) = self.history.pop_front() {
                self.floor = oldest.revision;
            }
        }
        self.changed.change(|()| {});
    }
}

// === impl Change ===

impl Change {
    fn new(revision: u64, before: Option<Shared>, after: Option<Shared>) -> Self {
        Self { revision, before, after, last_state: OnceLock::new() }
    }

    /// Returns the earlier object with the change's revision, as in a DELETED event (S-WATCH-22).
    pub(super) fn last_state(&self, kind: &ResourceType) -> Option<Shared> {
        let before = self.before.as_ref()?;
        let last = self.last_state.get_or_init(|| Arc::new(before.at_version(kind, self.revision)));
        Some(last.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widgets() -> GroupResource {
        GroupResource::new("x.io", "widgets")
    }

    fn store() -> Store {
        let mut store = Store::new(100, 3, Duration::from_secs(5), Instant::now());
        store.register(ResourceType::custom("x.io", &["v1"], "widgets", "Widget"));
        store
    }

    fn put(store: &mut Store, name: &str) -> u64 {
        let json = Json::object([("metadata", Json::object([("name", name.into())]))]);
        store.put(&widgets(), json, Instant::now()).expect("registered").version
    }

    fn names_at(store: &Store, revision: u64) -> Result<Vec<String>, TooOld> {
        let objects = store.collection(&widgets()).expect("registered").objects_at(revision)?;
        Ok(objects.keys().map(|key| key.name().to_owned()).collect())
    }

    #[test]
    fn states_are_rebuilt_while_the_window_has_their_changes() {
        let mut store = store();
        for name in ["a", "b"] {
            put(&mut store, name);
        }
        let gone = store.remove(&widgets(), &ObjectKey::new(None, "a"), Instant::now());
        assert_eq!(gone.expect("was there").version, 103);
        assert_eq!(names_at(&store, 100), Ok(vec![]));
        assert_eq!(names_at(&store, 102), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(names_at(&store, 103), Ok(vec!["b".into()]));
        put(&mut store, "c");
        assert_eq!(names_at(&store, 100), Err(TooOld { kept_after: 101 }));
        assert_eq!(names_at(&store, 101), Ok(vec!["a".into()]));
    }

    #[test]
    fn an_idle_cache_learns_other_revisions_only_by_notification_or_request() {
        let mut store = store();
        let start = Instant::now();
        put(&mut store, "a");
        store.skip_revisions(10, start);
        assert_eq!(store.cached_revision(&widgets(), start), 101);
        let later = start + Duration::from_secs(6);
        assert_eq!(store.cached_revision(&widgets(), later), 111);
        store.skip_revisions(10, later);
        assert_eq!(store.cached_revision(&widgets(), later), 111);
        assert_eq!(store.refresh_cache(&widgets()), 121);
        assert_eq!(store.cached_revision(&widgets(), later), 121);
    }
}
