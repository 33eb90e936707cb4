//! The simulated etcd: one revision counter, a collection per resource, a window of its history.
//!
//! Invariants: every change takes the next revision; a state at revision R is rebuilt only while
//! every change above R is still in the window. Pure and synchronous: time comes in.

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
    news::{Follower, Publisher},
};

/// A state of one resource's objects, in LIST order (S-LIST-60).
pub(super) type Objects = Arc<BTreeMap<ObjectKey, Shared>>;

/// All collections and the revision counter they share.
#[derive(Debug)]
pub(super) struct Store {
    revision: u64,
    /// Revisions below this are gone for exact reads (S-LIST-41).
    compacted: u64,
    /// What the last progress notification told every cache (S-WATCH-32).
    notified: u64,
    next_notification: Instant,
    notification_interval: Duration,
    /// Where the watch caches are held back, when they are.
    held: Option<u64>,
    history_changes_max: usize,
    collections: HashMap<GroupResource, Collection>,
    revisions: Publisher<()>,
}

/// One resource's objects and recent changes.
#[derive(Debug)]
pub(super) struct Collection {
    /// What it holds.
    pub kind: Arc<ResourceType>,
    objects: Objects,
    history: VecDeque<Arc<Change>>,
    /// Changes at or below this revision are no longer in the window.
    floor: u64,
    /// The last revision the cache of this resource has heard of.
    known: u64,
    changed: Publisher<()>,
}

/// One change of one object.
#[derive(Debug)]
pub(super) struct Change {
    /// The revision it took.
    pub revision: u64,
    /// The object before, when there was one.
    pub before: Option<Shared>,
    /// The object after, unless it was deleted.
    pub after: Option<Shared>,
    last_state: OnceLock<Shared>,
}

/// The revision asked for is older than what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the revision is older than what is kept, which begins after {kept_after}")]
pub(super) struct TooOld {
    /// Only changes above this are kept.
    pub kept_after: u64,
}

// === impl Store ===

impl Store {
    /// An empty store that stands at `revision`.
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

    /// Begins to serve a resource; one that is served already is replaced with its objects kept.
    pub(super) fn register(&mut self, kind: ResourceType) {
        let (revision, name) = (self.revision, kind.group_resource());
        let kind = Arc::new(kind);
        self.collections
            .entry(name)
            .and_modify(|collection| collection.kind = kind.clone())
            .or_insert_with(|| Collection::new(kind, revision));
    }

    /// The current revision.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Revisions below this are compacted.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Tells of each new revision.
    pub(super) fn follow(&self) -> Follower<()> {
        self.revisions.follow()
    }

    /// The collection of a resource.
    pub(super) fn collection(&self, resource: &GroupResource) -> Option<&Collection> {
        self.collections.get(resource)
    }

    /// Every collection.
    pub(super) fn collections(&self) -> impl Iterator<Item = &Collection> {
        self.collections.values()
    }

    /// Writes an object; the answer is the object at its new revision.
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

    /// Takes over an object of another server with the version it had there, as from a backup:
    /// nothing is noted in the history.
    pub(super) fn restore(&mut self, resource: &GroupResource, json: Json) -> Option<Shared> {
        let version = json.str_at(&["metadata", "resourceVersion"])?.parse().ok()?;
        let collection = self.collections.get_mut(resource)?;
        let object = Arc::new(Object::seal(&collection.kind, json, version));
        Arc::make_mut(&mut collection.objects).insert(object.key.clone(), object.clone());
        Some(object)
    }

    /// Changes the objects of a resource at the versions they have. Its history begins here.
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

    /// Deletes an object; the answer is its last state at the revision of the deletion.
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

    /// Forgets what exact reads below `revision` would need, as etcd's compaction does.
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

    /// Moves to a much higher revision without a change of the resources served here, as writes to
    /// other resources would.
    pub(super) fn skip_revisions(&mut self, count: u64, now: Instant) -> u64 {
        self.tick(now);
        self.revision += count;
        self.revisions.change(|()| {});
        self.revision
    }

    /// What the cache of a resource knows by now, without asking etcd.
    pub(super) fn cached_revision(&mut self, resource: &GroupResource, now: Instant) -> u64 {
        self.tick(now);
        let known =
            self.collections.get(resource).map_or(0, |found| found.known.max(self.notified));
        known.min(self.cache_limit())
    }

    /// Brings the cache of a resource up to date, as a consistent read does (S-CONS-01).
    pub(super) fn refresh_cache(&mut self, resource: &GroupResource) -> u64 {
        if let Some(collection) = self.collections.get_mut(resource) {
            collection.known = self.revision;
        }
        self.revision.min(self.cache_limit())
    }

    /// Holds the watch caches at the current revision: they hear of nothing later.
    pub(super) fn hold_caches(&mut self) {
        self.held.get_or_insert(self.revision);
    }

    /// Lets the watch caches hear of everything again.
    pub(super) fn release_caches(&mut self) {
        self.held = None;
        for collection in self.collections.values() {
            collection.changed.change(|()| {});
        }
        self.revisions.change(|()| {});
    }

    /// The last revision the watch caches may hear of.
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

    /// The objects now.
    pub(super) fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The object under a key.
    pub(super) fn object(&self, key: &ObjectKey) -> Option<&Shared> {
        self.objects.get(key)
    }

    /// Tells of each change.
    pub(super) fn follow(&self) -> Follower<()> {
        self.changed.follow()
    }

    /// The objects as they were at a revision.
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

    /// The changes above a revision, oldest first.
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

    /// The object before, with the change's revision: what a DELETED event carries (S-WATCH-22).
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
    fn states_are_rebuilt_while_the_window_holds_their_changes() {
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
    fn an_idle_cache_hears_of_other_revisions_only_by_notification_or_when_asked() {
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
