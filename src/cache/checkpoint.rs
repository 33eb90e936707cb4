//! Remembered states of a replica. The events since then tell what a later state has in common with
//! one of them.
//!
//! Invariant: a checkpoint is compared only with the published state of its own replica, under the
//! lock that publications take. A list of the whole collection, or an end, makes it useless.

use std::sync::{Arc, Weak};

use super::{history::Cursor, replica::Replica, store::Snapshot};
use crate::api::query::Query;

/// A published state of a replica; it does not keep the state alive.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    replica: Weak<Replica>,
    cursor: Cursor,
}

/// The limit of events that are looked at while the replica waits.
const EVENTS_MAX: usize = 256;

// === impl Checkpoint ===

impl Checkpoint {
    /// Remembers a state, if it is the published one.
    pub fn of(replica: &Arc<Replica>, snapshot: &Snapshot) -> Option<Self> {
        let history = replica.history();
        let cursor = replica.is_published(snapshot).then(|| history.end())?;
        Some(Self { replica: Arc::downgrade(replica), cursor })
    }

    /// Remembers the published state instead, if a query selects the same objects there, with the
    /// same bytes. `None` also if that is not known.
    pub fn moved_to(
        &self,
        replica: &Arc<Replica>,
        snapshot: &Snapshot,
        query: &Query,
    ) -> Option<Self> {
        // The weak reference prevents the reuse of an ended replica's address.
        if !std::ptr::eq(self.replica.as_ptr(), Arc::as_ptr(replica)) {
            return None;
        }
        let history = replica.history();
        let mut later = history.after(self.cursor).ok()?;
        let is_same = replica.is_published(snapshot)
            && later.by_ref().take(EVENTS_MAX).all(|event| event.seen_through(query).is_none())
            && later.next().is_none();
        is_same.then(|| Self { replica: self.replica.clone(), cursor: history.end() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::{
        api::form::Form,
        cache::{
            fixture::{Pod, query, snapshot, version},
            history::{Bounds, Change, Event, History},
            replica::Start,
        },
    };

    const BOUNDS: Bounds =
        Bounds { events_max: 1000, bytes_max: 1 << 20, age_max: Duration::from_secs(60) };

    /// A replica of all pods and its published state.
    struct Scene {
        replica: Arc<Replica>,
        pods: Vec<Pod>,
        at: u64,
    }

    impl Scene {
        fn new() -> Self {
            let history = History::new(BOUNDS);
            let (query, now) = (query(None, "", ""), Instant::now());
            let replica = Replica::new(query, Form::Json, Start::OnDemand, history, now);
            let pods = ["web", "db"].map(|app| Self::pod(app, 1)).to_vec();
            let scene = Self { replica: Arc::new(replica), pods, at: 10 };
            scene.list();
            scene
        }

        fn pod(app: &'static str, at: u64) -> Pod {
            Pod { labels: vec![("app", app)], ..Pod::new("a", app, at) }
        }

        /// Publishes the same pods as a list of the whole collection.
        fn list(&self) {
            let mut history = self.replica.history();
            history.reset(version(self.at));
            self.publish();
        }

        fn publish(&self) {
            let state = snapshot(None, self.at, &self.pods);
            self.replica.publish(|published| published.snapshot = Some(state));
        }

        /// Publishes a change of a pod.
        fn change(&mut self, index: usize, app: &'static str) {
            self.at += 1;
            let changed =
                Pod { version: self.at, labels: vec![("app", app)], ..self.pods[index].clone() };
            let before = std::mem::replace(&mut self.pods[index], changed.clone());
            let (changed, before) = (changed.object(), Some(before.object()));
            let event = Event::new(version(self.at), Change::Modified, changed, before);
            let mut history = self.replica.history();
            history.push(event, Instant::now());
            self.publish();
        }

        fn state(&self) -> Arc<Snapshot> {
            self.replica.published().snapshot.clone().expect("published")
        }

        fn checkpoint(&self) -> Checkpoint {
            Checkpoint::of(&self.replica, &self.state()).expect("the published state")
        }

        /// Returns the checkpoint of the published state, if the pods of an app are the same.
        fn moved(&self, then: &Checkpoint, app: &str) -> Option<Checkpoint> {
            then.moved_to(&self.replica, &self.state(), &query(None, &format!("app={app}"), ""))
        }
    }

    #[test]
    fn a_query_is_unchanged_until_an_event_concerns_it() {
        let mut scene = Scene::new();
        let mut then = scene.checkpoint();
        for _ in 0..3 {
            scene.change(1, "db");
            assert!(scene.moved(&then, "db").is_none());
            then = scene.moved(&then, "web").expect("only the other pod changed");
        }
        scene.change(0, "web");
        assert!(scene.moved(&then, "web").is_none());
    }

    #[test]
    fn an_object_that_joins_or_leaves_a_selection_concerns_it() {
        let mut scene = Scene::new();
        let then = scene.checkpoint();
        scene.change(1, "web");
        assert!(scene.moved(&then, "web").is_none() && scene.moved(&then, "db").is_none());
        assert!(scene.moved(&then, "other").is_some());
    }

    #[test]
    fn a_list_of_the_whole_collection_at_the_same_version_ends_checkpoints() {
        let scene = Scene::new();
        let then = scene.checkpoint();
        assert!(scene.moved(&then, "web").is_some());
        scene.list();
        assert!(scene.moved(&then, "web").is_none());
    }

    #[test]
    fn only_the_published_state_of_the_same_replica_is_compared() {
        let mut scene = Scene::new();
        let (then, old) = (scene.checkpoint(), scene.state());
        let all = query(None, "", "");
        assert!(then.moved_to(&Scene::new().replica, &old, &all).is_none());
        let later = old.at(version(99));
        assert!(then.moved_to(&scene.replica, &later, &all).is_some());
        scene.change(1, "db");
        assert!(Checkpoint::of(&scene.replica, &old).is_none());
        assert!(then.moved_to(&scene.replica, &old, &query(None, "app=web", "")).is_none());
    }

    #[test]
    fn too_many_events_are_not_looked_at() {
        let mut scene = Scene::new();
        let then = scene.checkpoint();
        (0..EVENTS_MAX).for_each(|_| scene.change(1, "db"));
        assert!(scene.moved(&then, "web").is_some());
        scene.change(1, "db");
        assert!(scene.moved(&then, "web").is_none());
    }
}
