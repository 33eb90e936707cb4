//! What clients asked, and how they were answered.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    Metrics, Presence,
    family::{Family, ResourceId, single},
    labels::{
        Connect, DocumentResult, Lane, Outcome, Protocol, Review, ServedBy, Told, Transport, Wait,
        WatchEnd,
    },
    table,
};
use crate::api::{GroupVersionResource, Scope, Verb};

/// One answered request.
#[derive(Clone, Copy, Debug)]
pub struct RequestSample<'a> {
    /// What it did; [`Verb::Other`] where it addressed no resource.
    pub verb: Verb,
    /// The resource and scope it addressed, if any.
    pub target: Option<(&'a GroupVersionResource, &'a Scope)>,
    /// What answered it.
    pub served_by: ServedBy,
    /// The answer's status.
    pub code: StatusCode,
    /// From its head to the last byte of its response.
    pub duration: Duration,
    /// Bytes of its answer's body.
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
    watch_events: Family<Told, Counter>,
    watches_ended: Family<WatchEnd, Counter>,
    received: Counter,
    sent: Family<ServedBy, Counter>,
    connections: Family<Protocol, Gauge>,
    handshakes: Family<Outcome, Counter>,
    connects: Family<Connect, Counter>,
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
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// A request was answered.
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

    /// The head of a response is handed on, so long after the head of its request.
    pub fn response_head(&self, verb: Verb, served_by: ServedBy, duration: Duration) {
        let values = || [verb.as_str(), served_by.as_str()].map(String::from);
        let head_duration = &self.0.client.head_duration;
        head_duration.with((verb, served_by), values, |histogram| histogram.record(duration));
    }

    /// An answer that the apiserver did not have to make; versions of a resource count together.
    fn saved(&self, resource: ResourceId, bytes: u64) {
        let values = || {
            let [group, _, resource] = self.0.resources.labels(resource);
            [group, resource]
        };
        let Handles { saved, saved_bytes, .. } = &self.0.client;
        saved.with(resource, values, |counter| counter.increment(1));
        saved_bytes.with(resource, values, |counter| counter.increment(bytes));
    }

    /// What was answered was an unsafe read.
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

    /// A request is being answered until the value is dropped.
    pub fn in_flight(&self, lane: Lane) -> Presence {
        Presence::new(self.0.client.in_flight.with(lane, || [lane.as_str().into()], Gauge::clone))
    }

    /// A document of discovery or OpenAPI was given.
    pub fn document(&self, result: DocumentResult) {
        let values = || [result.as_str().into()];
        self.0.client.documents_given.with(result, values, |counter| counter.increment(1));
    }

    /// So many such documents are held, of so many bytes in all.
    pub fn documents_held(&self, documents: u64, bytes: u64) {
        self.0.client.documents_held.set(documents as f64);
        self.0.client.document_bytes.set(bytes as f64);
    }

    /// A request was passed on, for this reason.
    pub fn forwarded(&self, reason: &'static str, verb: Verb) {
        let values = || [reason, verb.as_str()].map(String::from);
        self.0.client.forwarded.with((reason, verb), values, |counter| counter.increment(1));
    }

    /// An unsafe read was passed on as `rewrite` says.
    pub fn rewritten(&self, rewrite: &'static str) {
        self.0.client.rewritten.with(rewrite, || [rewrite.into()], |counter| counter.increment(1));
    }

    /// A read shared the answer to another.
    pub fn coalesced(&self) {
        self.0.client.coalesced.increment(1);
    }

    /// A read waited for a replica.
    pub fn waited(&self, wait: Wait, duration: Duration) {
        let values = || [wait.as_str().into()];
        self.0.client.waits.with(wait, values, |histogram| histogram.record(duration));
    }

    /// An access review was asked in a caller's name.
    pub fn reviewed(&self, review: Review) {
        let values = || [review.as_str().into()];
        self.0.client.reviews.with(review, values, |counter| counter.increment(1));
    }

    /// So many access reviews are remembered.
    pub fn reviews_cached(&self, count: u64) {
        self.0.client.reviews_cached.set(count as f64);
    }

    /// So many callers of a gateway are remembered.
    pub fn sessions(&self, count: usize) {
        self.0.client.sessions.set(count as f64);
    }

    /// A watch of a replica's resource is answered from memory until the value is dropped.
    pub fn watcher(&self, transport: Transport, resource: &GroupVersionResource) -> Presence {
        let id = self.resource_id(resource, true);
        let values = || {
            let [group, _, resource] = self.0.resources.labels(id);
            [transport.as_str().into(), group, resource]
        };
        Presence::new(self.0.client.watchers.with((transport, id), values, Gauge::clone))
    }

    /// A watch answered from memory sent an event.
    pub fn watch_told(&self, told: Told) {
        let values = || [told.as_str().into()];
        self.0.client.watch_events.with(told, values, |counter| counter.increment(1));
    }

    /// A watch answered from memory ended.
    pub fn watch_ended(&self, end: WatchEnd) {
        let values = || [end.as_str().into()];
        self.0.client.watches_ended.with(end, values, |counter| counter.increment(1));
    }

    /// Bytes arrived from a client.
    pub fn client_received(&self, bytes: u64) {
        self.0.client.received.increment(bytes);
    }

    /// Bytes of an answer's body were sent.
    pub fn client_sent(&self, served_by: ServedBy, bytes: u64) {
        let values = || [served_by.as_str().into()];
        self.0.client.sent.with(served_by, values, |counter| counter.increment(bytes));
    }

    /// A client connection is open until the value is dropped.
    pub fn client_connection(&self, protocol: Protocol) -> Presence {
        let values = || [protocol.as_str().into()];
        Presence::new(self.0.client.connections.with(protocol, values, Gauge::clone))
    }

    /// A TLS handshake with a client ended.
    pub fn client_handshake(&self, outcome: Outcome) {
        let values = || [outcome.as_str().into()];
        self.0.client.handshakes.with(outcome, values, |counter| counter.increment(1));
    }

    /// A client asked to be connected.
    pub fn connect(&self, connect: Connect) {
        let values = || [connect.as_str().into()];
        self.0.client.connects.with(connect, values, |counter| counter.increment(1));
    }
}
