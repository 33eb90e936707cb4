//! Metrics of the replicas: their content and their requests.

use std::{collections::HashMap, hash::Hash, sync::Arc, time::Duration};

use metrics::{Counter, Gauge};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    Metrics,
    family::{Family, ResourceId, single},
    labels::{Event, ReplicaCheck, ReplicaEnd, ReplicaState, ReplicaWatchEnd, Round},
    table,
};
use crate::api::{GroupResource, GroupVersionResource};

/// The present state of one replica.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaSample<'a> {
    /// The resource.
    pub resource: &'a GroupVersionResource,
    /// Its state.
    pub state: ReplicaState,
    /// The number of objects.
    pub objects: usize,
    /// The bytes of JSON.
    pub bytes: usize,
    /// The time since its last list, event or bookmark, if any.
    pub unproven: Option<Duration>,
}

/// The sums over all replicas since the start.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaTotals {
    /// Replicas started.
    pub started: u64,
    /// Replicas ended, by reason.
    pub ended: [(ReplicaEnd, u64); 4],
    /// Lists requested.
    pub lists: u64,
    /// Lists that were not a replica's first.
    pub lists_again: u64,
    /// Watches requested.
    pub watches: u64,
    /// Watches that were not a replica's first.
    pub watches_again: u64,
    /// Watches ended, by reason.
    pub watches_ended: [(ReplicaWatchEnd, u64); ReplicaWatchEnd::ALL.len()],
    /// Changes applied.
    pub events: u64,
    /// Bookmarks applied.
    pub bookmarks: u64,
    /// Short watches opened for the bookmark at their end.
    pub catch_ups: u64,
    /// Small consistent lists that prove a silent watch complete.
    pub probes: u64,
    /// Failed lists and watches that were retried.
    pub failures: u64,
    /// Permanent steps back of the apiserver's versions.
    pub epochs: u64,
    /// Consistency checks, by result.
    pub checks: [(ReplicaCheck, u64); ReplicaCheck::ALL.len()],
}

pub(super) struct Handles {
    replicas: Family<(ResourceId, ReplicaState), Gauge>,
    objects: Family<ResourceId, Gauge>,
    bytes: Family<ResourceId, Gauge>,
    unproven: Family<ResourceId, Gauge>,
    started: Counter,
    ended: Family<ReplicaEnd, Counter>,
    lists: Family<Round, Counter>,
    watches: Family<Round, Counter>,
    watches_ended: Family<ReplicaWatchEnd, Counter>,
    events: Family<Event, Counter>,
    catch_ups: Counter,
    probes: Counter,
    failures: Counter,
    epochs: Counter,
    checks: Family<ReplicaCheck, Counter>,
    unproven_cells: Family<usize, Counter>,
    uncompressed_bytes: Gauge,
    kept_response_bytes: Gauge,
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
            started: single(recorder, &table::REPLICAS_STARTED),
            ended: Family::new(recorder, &table::REPLICAS_ENDED),
            lists: Family::new(recorder, &table::REPLICA_LISTS),
            watches: Family::new(recorder, &table::REPLICA_WATCHES),
            watches_ended: Family::new(recorder, &table::REPLICA_WATCHES_ENDED),
            events: Family::new(recorder, &table::REPLICA_EVENTS),
            catch_ups: single(recorder, &table::REPLICA_CATCH_UPS),
            probes: single(recorder, &table::REPLICA_PROBES),
            failures: single(recorder, &table::REPLICA_FAILURES),
            epochs: single(recorder, &table::REPLICA_EPOCHS),
            checks: Family::new(recorder, &table::REPLICA_CHECKS),
            unproven_cells: Family::new(recorder, &table::UNPROVEN_CELLS),
            uncompressed_bytes: single(recorder, &table::UNCOMPRESSED_BYTES),
            kept_response_bytes: single(recorder, &table::KEPT_RESPONSE_BYTES),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Sets the present state of all replicas. Absent ones count as none.
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

    /// Sets the sums since the start, which only grow.
    pub fn replica_totals(&self, totals: &ReplicaTotals) {
        let handles = &self.0.replica;
        handles.started.absolute(totals.started);
        handles.catch_ups.absolute(totals.catch_ups);
        handles.probes.absolute(totals.probes);
        handles.failures.absolute(totals.failures);
        handles.epochs.absolute(totals.epochs);
        let set = |family: &Family<Round, Counter>, round: Round, total: u64| {
            family.with(round, || [round.as_str().into()], |counter| counter.absolute(total));
        };
        for (family, all, again) in [
            (&handles.lists, totals.lists, totals.lists_again),
            (&handles.watches, totals.watches, totals.watches_again),
        ] {
            set(family, Round::First, all.saturating_sub(again));
            set(family, Round::Again, again);
        }
        for (event, total) in [(Event::Change, totals.events), (Event::Bookmark, totals.bookmarks)]
        {
            let values = || [event.as_str().into()];
            handles.events.with(event, values, |counter| counter.absolute(total));
        }
        for (end, total) in totals.watches_ended {
            let values = || [end.as_str().into()];
            handles.watches_ended.with(end, values, |counter| counter.absolute(total));
        }
        for (result, total) in totals.checks {
            let values = || [result.as_str().into()];
            handles.checks.with(result, values, |counter| counter.absolute(total));
        }
        for (end, total) in totals.ended {
            handles.ended.with(end, || [end.as_str().into()], |counter| counter.absolute(total));
        }
    }
}

impl Metrics {
    /// Sets the bytes of objects that could be compressed but are not.
    pub fn uncompressed_objects(&self, bytes: usize) {
        self.0.replica.uncompressed_bytes.set(bytes as f64);
    }

    /// Sets the bytes of responses kept for repetition.
    pub fn kept_responses(&self, bytes: u64) {
        self.0.replica.kept_response_bytes.set(bytes as f64);
    }

    /// Sets the numbers of rows with a cell that is not proven, by resource and column. The order
    /// of the columns never changes.
    pub fn unproven_cells(&self, columns: &[(GroupResource, Box<str>, u64)]) {
        for (index, (resource, column, total)) in columns.iter().enumerate() {
            let labels = || {
                let group_and_resource = [&resource.group, &resource.resource];
                let [group, resource] = group_and_resource.map(ToString::to_string);
                [group, resource, column.to_string()]
            };
            let cells = &self.0.replica.unproven_cells;
            cells.with(index, labels, |counter| counter.absolute(*total));
        }
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
