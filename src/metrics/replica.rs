//! What the replicas hold, and how they came by it.

use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};

use metrics::{Counter, Gauge};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    Metrics,
    family::{Family, ResourceId},
    labels::{EventType, ListReason, ReplicaState, WatchEnd},
    table,
};
use crate::api::GroupVersionResource;

/// One replica as it is now.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSample<'a> {
    /// What it holds.
    pub resource: &'a GroupVersionResource,
    /// Its state.
    pub state: ReplicaState,
    /// Objects held.
    pub objects: usize,
    /// Bytes of JSON held.
    pub bytes: usize,
    /// Time since its last list, event or bookmark, if there was one.
    pub unproven: Option<Duration>,
}

pub(super) struct Handles {
    replicas: Family<(ResourceId, ReplicaState), Gauge>,
    objects: Family<ResourceId, Gauge>,
    bytes: Family<ResourceId, Gauge>,
    unproven: Family<ResourceId, Gauge>,
    lists: Family<(ResourceId, ListReason), Counter>,
    watch_ends: Family<(ResourceId, WatchEnd), Counter>,
    events: Family<(ResourceId, EventType), Counter>,
}

/// The replicas of one resource together.
#[derive(Default)]
struct Sums {
    replicas: HashMap<(ResourceId, ReplicaState), f64>,
    objects: HashMap<ResourceId, f64>,
    bytes: HashMap<ResourceId, f64>,
    unproven: HashMap<ResourceId, f64>,
}

// === impl Handles ===

impl Handles {
    pub(super) fn new(recorder: &Arc<PrometheusRecorder>) -> Self {
        Self {
            replicas: Family::new(recorder, &table::REPLICAS),
            objects: Family::new(recorder, &table::REPLICA_OBJECTS),
            bytes: Family::new(recorder, &table::REPLICA_BYTES),
            unproven: Family::new(recorder, &table::REPLICA_UNPROVEN),
            lists: Family::new(recorder, &table::REPLICA_LISTS),
            watch_ends: Family::new(recorder, &table::REPLICA_WATCH_ENDS),
            events: Family::new(recorder, &table::REPLICA_EVENTS),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// All replicas as they are now; what is no longer among them counts as none.
    pub fn replicas(&self, samples: &[ReplicaSample<'_>]) {
        let mut sums = Sums::default();
        for sample in samples {
            sums.add(self.resource_id(sample.resource, true), sample);
        }
        let handles = &self.0.replica;
        let labels = |resource| self.0.resources.labels(resource);
        publish(&handles.replicas, sums.replicas, |(resource, state)| {
            let [group, version, resource] = labels(resource);
            [group, version, resource, state.as_str().into()]
        });
        publish(&handles.objects, sums.objects, labels);
        publish(&handles.bytes, sums.bytes, labels);
        publish(&handles.unproven, sums.unproven, labels);
    }

    /// A replica began to list.
    pub fn replica_listed(&self, resource: &GroupVersionResource, reason: ListReason) {
        let id = self.resource_id(resource, true);
        let values = || self.replica_labels(id, reason.as_str());
        self.0.replica.lists.with((id, reason), values, |counter| counter.increment(1));
    }

    /// A replica's watch ended.
    pub fn replica_watch_ended(&self, resource: &GroupVersionResource, reason: WatchEnd) {
        let id = self.resource_id(resource, true);
        let values = || self.replica_labels(id, reason.as_str());
        self.0.replica.watch_ends.with((id, reason), values, |counter| counter.increment(1));
    }

    /// A replica received events.
    pub fn replica_events(&self, resource: &GroupVersionResource, event: EventType, count: u64) {
        let id = self.resource_id(resource, true);
        let values = || self.replica_labels(id, event.as_str());
        self.0.replica.events.with((id, event), values, |counter| counter.increment(count));
    }

    fn replica_labels(&self, id: ResourceId, last: &'static str) -> [String; 4] {
        let [group, version, resource] = self.0.resources.labels(id);
        [group, version, resource, last.into()]
    }
}

// === impl Sums ===

impl Sums {
    fn add(&mut self, id: ResourceId, sample: &ReplicaSample<'_>) {
        *self.replicas.entry((id, sample.state)).or_default() += 1.0;
        *self.objects.entry(id).or_default() += sample.objects as f64;
        *self.bytes.entry(id).or_default() += sample.bytes as f64;
        if let Some(unproven) = sample.unproven {
            let longest = self.unproven.entry(id).or_default();
            *longest = longest.max(unproven.as_secs_f64());
        }
    }
}

fn publish<K: Copy + Eq + Hash, const N: usize>(
    family: &Family<K, Gauge>,
    sums: HashMap<K, f64>,
    labels: impl Fn(K) -> [String; N],
) {
    for (set, gauge) in family.all().iter() {
        if !sums.contains_key(set) {
            gauge.set(0.0);
        }
    }
    for (set, sum) in sums {
        family.with(set, || labels(set), |gauge| gauge.set(sum));
    }
}
