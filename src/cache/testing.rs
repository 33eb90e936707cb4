//! Snapshots and views for the tests of other modules.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{
    Cache, Link, Published, Replica, Settings, SyncState, View,
    clock::Clock,
    fake::fake,
    form::Envelope,
    history::{Bounds, History},
    reader::Reader,
    rebuild::Rebuild,
    replica::Start,
    store::Snapshot,
};
use crate::{
    api::{GroupVersionResource, Scope, form::Form, query::Query},
    suspension::Suspension,
    upstream::Client,
};

/// A pod: namespace, name, uid, version and the `app` label.
pub type Pod = (&'static str, &'static str, &'static str, u64, &'static str);

/// Returns a snapshot of these pods at a version.
pub fn pods(version: u64, pods: &[Pod]) -> Arc<Snapshot> {
    let mut reader =
        Reader::new(GroupVersionResource::new("", "v1", "pods"), Scope::All, Form::Json);
    let mut list = Rebuild::of(None, Form::Json, Default::default());
    for (namespace, name, uid, version, app) in pods {
        let raw = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}","labels":{{"app":"{app}"}}}}}}"#
        );
        let (object, _) = reader.item(raw.as_bytes()).expect("a pod");
        list.push(object).expect("no duplicate");
    }
    let header = format!(
        r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":["#
    );
    let (envelope, version) = Envelope::learn(&header, "]}\n").expect("an envelope");
    Arc::new(list.finish(version, envelope).expect("no duplicate"))
}

/// Returns a client of an apiserver that never answers.
pub fn client() -> Arc<dyn Client> {
    fake().0
}

/// Returns a cache without replicas.
pub fn cache(settings: watch::Receiver<Settings>) -> Cache {
    Cache::new(client(), settings, Arc::new(|| 0.5), Clock::system(), Suspension::of_machine())
}

/// Returns a replica of the query that has nothing yet.
pub fn replica(query: Query, now: Instant) -> Arc<Replica> {
    let history = History::new(Bounds { events_max: 1, bytes_max: 1, age_max: Duration::ZERO });
    Arc::new(Replica::new(query, Form::Json, Start::OnDemand, history, now))
}

/// Returns the view of a replica of the query that holds this snapshot and has an open watch.
pub fn view(query: Query, snapshot: Option<Arc<Snapshot>>, now: Instant) -> View {
    let state = if snapshot.is_some() { SyncState::Synced } else { SyncState::Starting };
    let oldest = snapshot.as_ref().map(|held| held.version().clone());
    let (link, proven_at) = (Link::Up, Some(now));
    let (epoch, restored) = (0, false);
    let published = Published { state, snapshot, link, proven_at, epoch, restored, oldest };
    View { replica: replica(query, now), published: Arc::new(published) }
}
