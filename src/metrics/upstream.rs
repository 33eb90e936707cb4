//! Metrics of requests and connections to the apiserver.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    Metrics, Presence,
    family::{Family, ResourceId, single},
    labels::{Origin, Outcome, UpstreamCause, UpstreamFault},
    table,
};
use crate::api::{GroupVersionResource, Verb};

/// One request that the apiserver answered.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamSample<'a> {
    /// The originator.
    pub origin: Origin,
    /// The verb.
    pub verb: Verb,
    /// The resource, if any.
    pub resource: Option<&'a GroupVersionResource>,
    /// The status of the response.
    pub code: StatusCode,
    /// The time from the request to the head of the response.
    pub duration: Duration,
}

pub(super) struct Handles {
    requests: Family<(Origin, Verb, ResourceId, u16), Counter>,
    duration: Family<(Origin, Verb), Histogram>,
    errors: Family<(Origin, UpstreamFault), Counter>,
    reachable: Gauge,
    outages: Family<UpstreamCause, Counter>,
    connects: Family<Outcome, Counter>,
    connections: Gauge,
    received: Counter,
    sent: Counter,
}

// === impl Handles ===

impl Handles {
    pub(super) fn new(recorder: &Arc<PrometheusRecorder>) -> Self {
        let handles = Self {
            requests: Family::new(recorder, &table::UPSTREAM_REQUESTS),
            duration: Family::new(recorder, &table::UPSTREAM_DURATION),
            errors: Family::new(recorder, &table::UPSTREAM_ERRORS),
            reachable: single(recorder, &table::UPSTREAM_REACHABLE),
            outages: Family::new(recorder, &table::UPSTREAM_OUTAGES),
            connects: Family::new(recorder, &table::UPSTREAM_CONNECTS),
            connections: single(recorder, &table::UPSTREAM_CONNECTIONS),
            received: single(recorder, &table::UPSTREAM_RECEIVED),
            sent: single(recorder, &table::UPSTREAM_SENT),
        };
        // A ratio of failures needs the zero before the first one.
        for &origin in Origin::ALL {
            for &fault in UpstreamFault::ALL {
                handles.failed(origin, fault, 0);
            }
        }
        handles.reachable.set(1.0);
        for &cause in UpstreamCause::ALL {
            handles.outages(cause, 0);
        }
        handles
    }

    fn outages(&self, cause: UpstreamCause, count: u64) {
        self.outages.with(cause, || [cause.as_str().into()], |counter| counter.absolute(count));
    }

    fn failed(&self, origin: Origin, fault: UpstreamFault, count: u64) {
        let values = || [origin.as_str(), fault.as_str()].map(String::from);
        self.errors.with((origin, fault), values, |counter| counter.increment(count));
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts a request that the apiserver answered.
    pub fn upstream_request(&self, sample: &UpstreamSample<'_>) {
        let UpstreamSample { origin, verb, code, .. } = *sample;
        self.0.sums.upstream.increment(origin as usize);
        let proven = code.as_u16() < 400;
        let resource =
            sample.resource.map_or(ResourceId::NONE, |resource| self.resource_id(resource, proven));
        let values = || {
            let [group, version, resource] = self.0.resources.labels(resource);
            let (origin, verb) = (origin.as_str().into(), verb.as_str().into());
            [origin, verb, group, version, resource, code.as_str().into()]
        };
        let set = (origin, verb, resource, code.as_u16());
        self.0.upstream.requests.with(set, values, |counter| counter.increment(1));

        let values = || [origin.as_str(), verb.as_str()].map(String::from);
        self.0.upstream.duration.with((origin, verb), values, |histogram| {
            histogram.record(sample.duration);
        });
    }

    /// Counts a request without a response.
    pub fn upstream_failed(&self, origin: Origin, fault: UpstreamFault) {
        self.0.upstream.failed(origin, fault, 1);
    }

    /// Sets whether the apiserver is reachable, and how many outages there were of each cause.
    pub fn upstream_outages(&self, reachable: bool, outages: &[u64; UpstreamCause::ALL.len()]) {
        self.0.upstream.reachable.set(if reachable { 1.0 } else { 0.0 });
        for &cause in UpstreamCause::ALL {
            self.0.upstream.outages(cause, outages[cause as usize]);
        }
    }

    /// Counts an attempt to connect.
    pub fn upstream_connect(&self, outcome: Outcome) {
        let values = || [outcome.as_str().into()];
        self.0.upstream.connects.with(outcome, values, |counter| counter.increment(1));
    }

    /// Counts a connection until the value is dropped.
    pub fn upstream_connection(&self) -> Presence {
        Presence::new(Some(self.0.upstream.connections.clone()))
    }

    /// Counts bytes received on a connection.
    pub fn upstream_received(&self, bytes: u64) {
        self.0.upstream.received.increment(bytes);
    }

    /// Counts bytes sent on a connection.
    pub fn upstream_sent(&self, bytes: u64) {
        self.0.upstream.sent.increment(bytes);
    }
}
