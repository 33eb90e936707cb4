//! Metrics of client requests and their responses.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    Metrics, Presence,
    family::{Family, ResourceId, single},
    labels::{
        Connect, DocumentResult, EdgeRefusal, Lane, Outcome, Protocol, Review, ServedBy, Transport,
        Wait, WatchEnd, WatchEventType,
    },
    table,
};
use crate::api::{GroupVersionResource, Scope, Verb};

/// One answered request.
#[derive(Clone, Copy, Debug)]
pub struct RequestSample<'a> {
    /// The verb; [`Verb::Other`] for a path that is no resource.
    pub verb: Verb,
    /// The resource and scope, if any.
    pub target: Option<(&'a GroupVersionResource, &'a Scope)>,
    /// The source of the response.
    pub served_by: ServedBy,
    /// The status of the response.
    pub code: StatusCode,
    /// The time from the request's head to the last byte of the response.
    pub duration: Duration,
    /// The size of the response's body.
    pub bytes: u64,
}

pub(super) struct Handles {
    requests: Family<RequestSet, Counter>,
    unsafe_reads: Family<UnsafeReadSet, Counter>,
    saved: Family<ResourceId, Counter>,
    saved_bytes: Family<ResourceId, Counter>,
    duration: Family<(Verb, ServedBy), Histogram>,
    head_duration: Family<(Verb, ServedBy), Histogram>,
    in_flight: Family<Lane, Gauge>,
    forwarded: Family<(&'static str, Verb), Counter>,
    rewritten: Family<&'static str, Counter>,
    coalesced: Counter,
    waits: Family<Wait, Histogram>,
    reviews: Family<Review, Counter>,
    reviews_cached: Gauge,
    sessions: Gauge,
    documents_given: Family<DocumentResult, Counter>,
    documents_held: Gauge,
    document_bytes: Gauge,
    watchers: Family<(Transport, ResourceId), Gauge>,
    watch_events: Family<WatchEventType, Counter>,
    watches_ended: Family<WatchEnd, Counter>,
    received: Counter,
    sent: Family<ServedBy, Counter>,
    connections: Family<Protocol, Gauge>,
    handshakes: Family<Outcome, Counter>,
    connects: Family<Connect, Counter>,
    refused: Family<EdgeRefusal, Counter>,
}

/// The label set of [`table::REQUESTS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RequestSet {
    verb: Verb,
    resource: ResourceId,
    scope: &'static str,
    served_by: ServedBy,
    code: u16,
}

/// The label set of [`table::UNSAFE_READS`].
type UnsafeReadSet = (Verb, ResourceId, &'static str, ServedBy);

// === impl Handles ===

impl Handles {
    pub(super) fn new(recorder: &Arc<PrometheusRecorder>) -> Self {
        Self {
            requests: Family::new(recorder, &table::REQUESTS),
            unsafe_reads: Family::new(recorder, &table::UNSAFE_READS),
            saved: Family::new(recorder, &table::SAVED),
            saved_bytes: Family::new(recorder, &table::SAVED_BYTES),
            duration: Family::new(recorder, &table::REQUEST_DURATION),
            head_duration: Family::new(recorder, &table::REQUEST_HEAD_DURATION),
            in_flight: Family::new(recorder, &table::REQUESTS_IN_FLIGHT),
            forwarded: Family::new(recorder, &table::FORWARDED),
            rewritten: Family::new(recorder, &table::REWRITTEN),
            coalesced: single(recorder, &table::COALESCED),
            waits: Family::new(recorder, &table::WAIT_DURATION),
            reviews: Family::new(recorder, &table::REVIEWS),
            reviews_cached: single(recorder, &table::REVIEWS_CACHED),
            sessions: single(recorder, &table::SESSIONS),
            documents_given: Family::new(recorder, &table::DOCUMENTS_GIVEN),
            documents_held: single(recorder, &table::DOCUMENTS_HELD),
            document_bytes: single(recorder, &table::DOCUMENT_BYTES),
            watchers: Family::new(recorder, &table::WATCHERS),
            watch_events: Family::new(recorder, &table::WATCH_EVENTS),
            watches_ended: Family::new(recorder, &table::WATCHES_ENDED),
            received: single(recorder, &table::CLIENT_RECEIVED),
            sent: Family::new(recorder, &table::CLIENT_SENT),
            connections: Family::new(recorder, &table::CLIENT_CONNECTIONS),
            handshakes: Family::new(recorder, &table::CLIENT_HANDSHAKES),
            connects: Family::new(recorder, &table::CLIENT_CONNECTS),
            refused: Family::new(recorder, &table::CLIENT_REFUSED),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts an answered request.
    pub fn request(&self, sample: &RequestSample<'_>) {
        let RequestSample { verb, served_by, code, .. } = *sample;
        self.0.sums.answered.increment(served_by as usize);
        let proven = code.as_u16() < 400;
        let resource = sample
            .target
            .map_or(ResourceId::NONE, |(resource, _)| self.resource_id(resource, proven));
        let scope = sample.target.map_or("", |(_, scope)| scope.as_str());
        let set = RequestSet { verb, resource, scope, served_by, code: code.as_u16() };
        let values = || {
            let [group, version, resource] = self.0.resources.labels(resource);
            let (verb, scope) = (verb.as_str().into(), scope.into());
            [verb, group, version, resource, scope, served_by.as_str().into(), code.as_str().into()]
        };
        self.0.client.requests.with(set, values, |counter| counter.increment(1));
        if matches!(served_by, ServedBy::Cache | ServedBy::Coalesced) {
            self.saved(set.resource, sample.bytes);
        }

        let values = || [verb.as_str(), served_by.as_str()].map(String::from);
        self.0.client.duration.with((verb, served_by), values, |histogram| {
            histogram.record(sample.duration);
        });
    }

    /// Records the time from the head of a request to the head of its response.
    pub fn response_head(&self, verb: Verb, served_by: ServedBy, duration: Duration) {
        let values = || [verb.as_str(), served_by.as_str()].map(String::from);
        let head_duration = &self.0.client.head_duration;
        head_duration.with((verb, served_by), values, |histogram| histogram.record(duration));
    }

    /// Counts a response that the apiserver did not have to send. All versions of a resource count
    /// together.
    fn saved(&self, resource: ResourceId, bytes: u64) {
        let values = || {
            let [group, _, resource] = self.0.resources.labels(resource);
            [group, resource]
        };
        let Handles { saved, saved_bytes, .. } = &self.0.client;
        saved.with(resource, values, |counter| counter.increment(1));
        saved_bytes.with(resource, values, |counter| counter.increment(bytes));
    }

    /// Counts an answered unsafe read.
    pub fn unsafe_read(&self, sample: &RequestSample<'_>) {
        let RequestSample { verb, served_by, code, .. } = *sample;
        let Some((resource, scope)) = sample.target else { return };
        let (id, scope) = (self.resource_id(resource, code.as_u16() < 400), scope.as_str());
        let values = || {
            let [group, version, resource] = self.0.resources.labels(id);
            [
                verb.as_str().into(),
                group,
                version,
                resource,
                scope.into(),
                served_by.as_str().into(),
            ]
        };
        let set = (verb, id, scope, served_by);
        self.0.client.unsafe_reads.with(set, values, |counter| counter.increment(1));
    }

    /// Counts a request as in flight until the value is dropped.
    pub fn in_flight(&self, lane: Lane) -> Presence {
        Presence::new(self.0.client.in_flight.with(lane, || [lane.as_str().into()], Gauge::clone))
    }

    /// Counts a discovery or OpenAPI document that was served.
    pub fn document(&self, result: DocumentResult) {
        let values = || [result.as_str().into()];
        self.0.client.documents_given.with(result, values, |counter| counter.increment(1));
    }

    /// Sets the number and total size of cached documents.
    pub fn documents_held(&self, documents: u64, bytes: u64) {
        self.0.client.documents_held.set(documents as f64);
        self.0.client.document_bytes.set(bytes as f64);
    }

    /// Counts a forwarded request by its reason.
    pub fn forwarded(&self, reason: &'static str, verb: Verb) {
        let values = || [reason, verb.as_str()].map(String::from);
        self.0.client.forwarded.with((reason, verb), values, |counter| counter.increment(1));
    }

    /// Counts an unsafe read that was forwarded with this rewrite.
    pub fn rewritten(&self, rewrite: &'static str) {
        self.0.client.rewritten.with(rewrite, || [rewrite.into()], |counter| counter.increment(1));
    }

    /// Counts a read that shared another's response.
    pub fn coalesced(&self) {
        self.0.client.coalesced.increment(1);
    }

    /// Records the time a read waited for a replica.
    pub fn waited(&self, wait: Wait, duration: Duration) {
        let values = || [wait.as_str().into()];
        self.0.client.waits.with(wait, values, |histogram| histogram.record(duration));
    }

    /// Counts an access review for a caller.
    pub fn reviewed(&self, review: Review) {
        let values = || [review.as_str().into()];
        self.0.client.reviews.with(review, values, |counter| counter.increment(1));
    }

    /// Sets the number of cached access reviews.
    pub fn reviews_cached(&self, count: u64) {
        self.0.client.reviews_cached.set(count as f64);
    }

    /// Sets the number of sessions of a gateway.
    pub fn sessions(&self, count: usize) {
        self.0.client.sessions.set(count as f64);
    }

    /// Counts a watch from memory until the value is dropped.
    pub fn watcher(&self, transport: Transport, resource: &GroupVersionResource) -> Presence {
        let id = self.resource_id(resource, true);
        let values = || {
            let [group, _, resource] = self.0.resources.labels(id);
            [transport.as_str().into(), group, resource]
        };
        Presence::new(self.0.client.watchers.with((transport, id), values, Gauge::clone))
    }

    /// Counts an event of a watch from memory.
    pub fn watch_event_sent(&self, event_type: WatchEventType) {
        let values = || [event_type.as_str().into()];
        self.0.client.watch_events.with(event_type, values, |counter| counter.increment(1));
    }

    /// Counts the end of a watch from memory.
    pub fn watch_ended(&self, end: WatchEnd) {
        let values = || [end.as_str().into()];
        self.0.client.watches_ended.with(end, values, |counter| counter.increment(1));
    }

    /// Counts bytes received from a client.
    pub fn client_received(&self, bytes: u64) {
        self.0.client.received.increment(bytes);
    }

    /// Counts bytes of a response's body.
    pub fn client_sent(&self, served_by: ServedBy, bytes: u64) {
        let values = || [served_by.as_str().into()];
        self.0.client.sent.with(served_by, values, |counter| counter.increment(bytes));
    }

    /// Counts a client connection until the value is dropped.
    pub fn client_connection(&self, protocol: Protocol) -> Presence {
        let values = || [protocol.as_str().into()];
        Presence::new(self.0.client.connections.with(protocol, values, Gauge::clone))
    }

    /// Counts a TLS handshake with a client.
    pub fn client_handshake(&self, outcome: Outcome) {
        let values = || [outcome.as_str().into()];
        self.0.client.handshakes.with(outcome, values, |counter| counter.increment(1));
    }

    /// Counts a CONNECT request of a client.
    pub fn connect(&self, connect: Connect) {
        let values = || [connect.as_str().into()];
        self.0.client.connects.with(connect, values, |counter| counter.increment(1));
    }

    /// Counts a request that a listener refused itself.
    pub fn edge_refused(&self, refusal: EdgeRefusal) {
        let values = || [refusal.as_str().into()];
        self.0.client.refused.with(refusal, values, |counter| counter.increment(1));
    }
}
