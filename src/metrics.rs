//! All metrics in one table with name, help, unit and labels, and one typed function to record
//! each.
//!
//! A [`Metrics`] is passed to each recorder. There is no global one, so two proxies in one process
//! do not mix. Recording never blocks, and its failures are not visible to the caller.

mod client;
mod document;
mod family;
mod injector;
mod labels;
mod metric;
mod own;
mod polls;
mod process;
mod replica;
mod table;
mod totals;
mod upstream;

use std::sync::Arc;

use metrics::Gauge;
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

use self::{
    family::{Admission, ResourceId, Resources},
    metric::Kind,
    table::TABLE,
};
use crate::api::GroupVersionResource;

pub use client::RequestSample;
pub use document::document;
pub use labels::{
    AuditResult, Certificate, Connect, DocumentResult, EdgeRefusal, Event, Held, Injection, Lane,
    Limit, Origin, Outcome, PollLimit, Protocol, ReplicaCheck, ReplicaEnd, ReplicaState,
    ReplicaWatchEnd, Review, Round, ServedBy, Shadow, Transport, UpstreamCause, UpstreamFault,
    Wait, WatchEnd, WatchEventType, WorkerEnd, Would,
};
pub use replica::{ReplicaSample, ReplicaTotals};
pub use totals::Totals;
pub use upstream::UpstreamSample;

/// A recorder of metrics. It is cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

/// A guard that counts an item as present until it is dropped.
pub struct Presence(Option<Gauge>);

struct Inner {
    handle: PrometheusHandle,
    resources: Resources,
    client: client::Handles,
    upstream: upstream::Handles,
    replica: replica::Handles,
    own: own::Handles,
    polls: polls::Handles,
    sums: totals::Sums,
    injector: injector::Handles,
}

// === impl Metrics ===

impl Metrics {
    /// Returns a new recorder without values.
    pub fn new() -> Self {
        let recorder = Arc::new(recorder());
        Self(Arc::new(Inner {
            handle: recorder.handle(),
            resources: Resources::new(),
            client: client::Handles::new(&recorder),
            upstream: upstream::Handles::new(&recorder),
            replica: replica::Handles::new(&recorder),
            own: own::Handles::new(&recorder),
            polls: polls::Handles::new(&recorder),
            sums: totals::Sums::default(),
            injector: injector::Handles::new(&recorder),
        }))
    }

    /// Returns all values in the Prometheus text format.
    pub fn render(&self) -> String {
        let mut out = self.0.handle.render();
        process::render(&mut out);
        out
    }

    /// Folds histogram samples into their buckets. It must run about every second, because samples
    /// take memory until then.
    pub fn run_upkeep(&self) {
        self.0.handle.run_upkeep();
    }

    /// Returns the label id of a resource. A resource gets labels of its own once it is proven to
    /// exist.
    fn resource_id(&self, resource: &GroupVersionResource, proven: bool) -> ResourceId {
        match self.0.resources.admit(resource, proven) {
            Admission::Own(id) => id,
            Admission::Other => ResourceId::OTHER,
            Admission::Full => {
                self.limit_reached(Limit::MetricResources);
                ResourceId::OTHER
            }
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn recorder() -> PrometheusRecorder {
    let mut builder = PrometheusBuilder::new();
    for metric in TABLE.iter().flat_map(|section| section.metrics) {
        if let Kind::Histogram(bounds) = metric.kind {
            builder = builder
                .set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), bounds)
                .expect("every histogram of the table has bounds");
        }
    }
    builder.build_recorder()
}

// === impl Presence ===

impl Presence {
    fn new(gauge: Option<Gauge>) -> Self {
        if let Some(gauge) = &gauge {
            gauge.increment(1.0);
        }
        Self(gauge)
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.decrement(1.0);
        }
    }
}

#[cfg(test)]
mod tests;
