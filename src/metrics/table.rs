//! The table of all metrics, for the export and for `docs/metrics.md`.

use metrics::Unit;

use super::{
    labels::{
        Lane, Limit, Origin, Outcome, Protocol, ServedBy, Transport, UpstreamCause, UpstreamFault,
        Wait, WatchEnd, WatchEventType,
    },
    metric::{Label, Metric, Values, counter, described, gauge, seconds},
};

/// A heading and its metrics.
pub(super) struct Section {
    /// The heading.
    pub(super) title: &'static str,
    /// The metrics.
    pub(super) metrics: &'static [&'static Metric],
}

/// Every metric.
pub(super) const TABLE: &[Section] = &[
    Section {
        title: "Requests of clients",
        metrics: &[
            &REQUESTS,
            &UNSAFE_READS,
            &SAVED,
            &SAVED_BYTES,
            &REQUEST_DURATION,
            &REQUEST_HEAD_DURATION,
            &REQUESTS_IN_FLIGHT,
            &FORWARDED,
            &REWRITTEN,
            &COALESCED,
            &WAIT_DURATION,
            &PACED,
            &REFUSED,
            &WOULD_HAVE,
            &SHADOW_CHECKS,
            &REVIEWS,
            &REVIEWS_CACHED,
            &SESSIONS,
            &DOCUMENTS_GIVEN,
            &DOCUMENTS_HELD,
            &DOCUMENT_BYTES,
            &WATCHERS,
            &WATCH_EVENTS,
            &WATCHES_ENDED,
            &CLIENT_RECEIVED,
            &CLIENT_SENT,
            &CLIENT_CONNECTIONS,
            &CLIENT_HANDSHAKES,
            &CLIENT_CONNECTS,
            &CLIENT_REFUSED,
        ],
    },
    Section {
        title: "Requests to the apiserver",
        metrics: &[
            &UPSTREAM_REQUESTS,
            &UPSTREAM_DURATION,
            &UPSTREAM_ERRORS,
            &UPSTREAM_REACHABLE,
            &UPSTREAM_OUTAGES,
            &UPSTREAM_CONNECTS,
            &UPSTREAM_CONNECTIONS,
            &UPSTREAM_RECEIVED,
            &UPSTREAM_SENT,
        ],
    },
    Section {
        title: "Replicas",
        metrics: &[
            &REPLICAS,
            &REPLICA_OBJECTS,
            &REPLICA_BYTES,
            &REPLICA_UNPROVEN,
            &REPLICAS_STARTED,
            &REPLICAS_ENDED,
            &REPLICA_LISTS,
            &REPLICA_WATCHES,
            &REPLICA_WATCHES_ENDED,
            &REPLICA_EVENTS,
            &REPLICA_CATCH_UPS,
            &REPLICA_PROBES,
            &REPLICA_FAILURES,
            &REPLICA_EPOCHS,
            &REPLICA_CHECKS,
            &UNPROVEN_CELLS,
            &MEMORY_LIMIT,
            &UNCOMPRESSED_BYTES,
            &KEPT_RESPONSE_BYTES,
        ],
    },
    Section {
        title: "Listless itself",
        metrics: &[
            &BUILD_INFO,
            &READY,
            &LIMITS_REACHED,
            &ACCOUNTS,
            &CONFIG_RELOADS,
            &CONFIG_LAST_SUCCESS,
            &CONFIG_RELOAD_SUCCESSFUL,
            &CERTIFICATE_EXPIRY,
            &CERTIFICATE_LIFETIME,
            &CERTIFICATE_RELOADS,
            &CERTIFICATE_RELOAD_SUCCESSFUL,
            &MIRRORINGS,
            &TOKEN_EXPIRY,
            &TOKEN_RELOADS,
            &AUDIT_LINES,
            &SAFE_MODE,
            &WORKER_RESTARTS,
        ],
    },
    Section {
        title: "The injector",
        metrics: &[&INJECTOR_REQUESTS, &INJECTOR_DURATION, &INJECTOR_AUTHORITY_EXPIRY],
    },
    Section {
        title: "The process",
        metrics: &[
            &PROCESS_CPU,
            &PROCESS_RESIDENT,
            &PROCESS_VIRTUAL,
            &PROCESS_OPEN_FDS,
            &PROCESS_MAX_FDS,
            &PROCESS_THREADS,
            &PROCESS_START,
        ],
    },
];

/// Declares a label whose values are those of an enum.
macro_rules! of {
    ($name:literal, $values:ident) => {
        Label {
            name: $name,
            values: Values::Of(|| $values::ALL.iter().map(|value| value.as_str()).collect()),
        }
    };
}

const VERB: Label = described(
    "verb",
    "the request's verb: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, \
     `deletecollection`, or `other` for a path that is no resource",
);
const GROUP: Label = described(
    "group",
    "the API group, empty for the core group and for a path that is no resource; `other` for a \
     resource that never answered with success, and beyond 256 resources",
);
const VERSION: Label = described("version", "the API version, or `other` as for `group`");
const RESOURCE: Label =
    described("resource", "the plural resource name, or `other` as for `group`");
const SCOPE: Label = described(
    "scope",
    "`namespace`, `cluster` (all namespaces, or a cluster-scoped resource), or empty for a path \
     that is no resource",
);
const COLUMN: Label =
    described("column", "the column's name; the 256th one stands for all further ones");
const CODE: Label = described("code", "the HTTP status code");

mod callers;
mod injector;
mod own;
mod polls;
mod replicas;

pub(super) use callers::{
    CLIENT_CONNECTS, CLIENT_REFUSED, DOCUMENT_BYTES, DOCUMENTS_GIVEN, DOCUMENTS_HELD, REVIEWS,
    REVIEWS_CACHED, SAVED, SAVED_BYTES, SESSIONS, UNSAFE_READS,
};
pub(super) use injector::{INJECTOR_AUTHORITY_EXPIRY, INJECTOR_DURATION, INJECTOR_REQUESTS};
pub(super) use own::{
    ACCOUNTS, AUDIT_LINES, CERTIFICATE_EXPIRY, CERTIFICATE_LIFETIME, CERTIFICATE_RELOAD_SUCCESSFUL,
    CERTIFICATE_RELOADS, CONFIG_RELOAD_SUCCESSFUL, MIRRORINGS, PROCESS_CPU, PROCESS_MAX_FDS,
    PROCESS_OPEN_FDS, PROCESS_RESIDENT, PROCESS_START, PROCESS_THREADS, PROCESS_VIRTUAL, SAFE_MODE,
    TOKEN_EXPIRY, TOKEN_RELOADS, WORKER_RESTARTS,
};
pub(super) use polls::{PACED, REFUSED, SHADOW_CHECKS, WOULD_HAVE};
pub(super) use replicas::{
    KEPT_RESPONSE_BYTES, MEMORY_LIMIT, REPLICA_BYTES, REPLICA_CATCH_UPS, REPLICA_CHECKS,
    REPLICA_EPOCHS, REPLICA_EVENTS, REPLICA_FAILURES, REPLICA_LISTS, REPLICA_OBJECTS,
    REPLICA_PROBES, REPLICA_UNPROVEN, REPLICA_WATCHES, REPLICA_WATCHES_ENDED, REPLICAS,
    REPLICAS_ENDED, REPLICAS_STARTED, UNCOMPRESSED_BYTES, UNPROVEN_CELLS,
};

pub(super) const REQUESTS: Metric = counter(
    "listless_requests_total",
    Unit::Count,
    &[VERB, GROUP, VERSION, RESOURCE, SCOPE, of!("served_by", ServedBy), CODE],
    "Requests answered.",
);
pub(super) const REQUEST_DURATION: Metric = seconds(
    "listless_request_duration_seconds",
    &[VERB, of!("served_by", ServedBy)],
    "Time from a request's head to the last byte of its response, as passed to the client's \
     connection.",
);
pub(super) const REQUEST_HEAD_DURATION: Metric = seconds(
    "listless_request_head_duration_seconds",
    &[VERB, of!("served_by", ServedBy)],
    "Time from a request's head to the head of its response.",
);
pub(super) const REQUESTS_IN_FLIGHT: Metric =
    gauge("listless_requests_in_flight", Unit::Count, &[of!("lane", Lane)], "Requests in flight.");
pub(super) const FORWARDED: Metric = counter(
    "listless_forwarded_total",
    Unit::Count,
    &[described("reason", "the reason, as in the detail of `Cache-Status`"), VERB],
    "Requests forwarded to the apiserver.",
);
pub(super) const REWRITTEN: Metric = counter(
    "listless_rewritten_total",
    Unit::Count,
    &[described("rewrite", "`any` or `notOlderThan`, as configured; `brief` for watches")],
    "Unsafe reads forwarded with a resourceVersion, which avoids etcd, and watches forwarded for \
     at most a minute, because memory may answer the next.",
);
pub(super) const COALESCED: Metric = counter(
    "listless_coalesced_total",
    Unit::Count,
    &[],
    "Reads that shared the upstream response to an identical one.",
);
pub(super) const WAIT_DURATION: Metric = seconds(
    "listless_replica_wait_seconds",
    &[of!("result", Wait)],
    "Time that reads waited for a replica to reach a version.",
);
pub(super) const WATCHERS: Metric = gauge(
    "listless_watchers",
    Unit::Count,
    &[of!("transport", Transport), GROUP, RESOURCE],
    "Open watches answered from memory.",
);
pub(super) const WATCH_EVENTS: Metric = counter(
    "listless_watch_events_total",
    Unit::Count,
    &[of!("type", WatchEventType)],
    "Events sent by watches answered from memory.",
);
pub(super) const WATCHES_ENDED: Metric = counter(
    "listless_watches_ended_total",
    Unit::Count,
    &[of!("reason", WatchEnd)],
    "Ended watches answered from memory.",
);
pub(super) const CLIENT_RECEIVED: Metric = counter(
    "listless_client_received_bytes_total",
    Unit::Bytes,
    &[],
    "Bytes received from clients inside TLS: heads and bodies of requests, including tunnels.",
);
pub(super) const CLIENT_SENT: Metric = counter(
    "listless_client_sent_bytes_total",
    Unit::Bytes,
    &[of!("served_by", ServedBy)],
    "Bytes of response bodies sent to clients, as sent (compressed or not).",
);
pub(super) const CLIENT_CONNECTIONS: Metric = gauge(
    "listless_client_connections",
    Unit::Count,
    &[of!("protocol", Protocol)],
    "Open client connections.",
);
pub(super) const CLIENT_HANDSHAKES: Metric = counter(
    "listless_client_handshakes_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "TLS handshakes with clients.",
);
pub(super) const UPSTREAM_REQUESTS: Metric = counter(
    "listless_upstream_requests_total",
    Unit::Count,
    &[of!("origin", Origin), VERB, GROUP, VERSION, RESOURCE, CODE],
    "Requests that the apiserver answered.",
);
pub(super) const UPSTREAM_DURATION: Metric = seconds(
    "listless_upstream_response_seconds",
    &[of!("origin", Origin), VERB],
    "Time from a request to the head of the apiserver's response.",
);
pub(super) const UPSTREAM_ERRORS: Metric = counter(
    "listless_upstream_errors_total",
    Unit::Count,
    &[of!("origin", Origin), of!("error", UpstreamFault)],
    "Requests that the apiserver did not answer.",
);
pub(super) const UPSTREAM_REACHABLE: Metric = gauge(
    "listless_upstream_reachable",
    Unit::Count,
    &[],
    "1 while the apiserver responds and accepts Listless's own credentials, or no request was sent \
     yet; 0 during an outage.",
);
pub(super) const UPSTREAM_OUTAGES: Metric = counter(
    "listless_upstream_outages_total",
    Unit::Count,
    &[of!("cause", UpstreamCause)],
    "Outages of the apiserver that began, or continued with another cause.",
);
pub(super) const UPSTREAM_CONNECTS: Metric = counter(
    "listless_upstream_connects_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "Attempts to connect to the apiserver, before TLS.",
);
pub(super) const UPSTREAM_CONNECTIONS: Metric =
    gauge("listless_upstream_connections", Unit::Count, &[], "Open connections to the apiserver.");
pub(super) const UPSTREAM_RECEIVED: Metric = counter(
    "listless_upstream_received_bytes_total",
    Unit::Bytes,
    &[],
    "Bytes received from the apiserver, on the wire.",
);
pub(super) const UPSTREAM_SENT: Metric = counter(
    "listless_upstream_sent_bytes_total",
    Unit::Bytes,
    &[],
    "Bytes sent to the apiserver, on the wire.",
);
pub(super) const BUILD_INFO: Metric = gauge(
    "listless_build_info",
    Unit::Count,
    &[
        described("version", "the version of Listless"),
        described("revision", "the revision of the build, or `unknown`"),
    ],
    "Always 1; its labels describe the running version.",
);
pub(super) const READY: Metric =
    gauge("listless_ready", Unit::Count, &[], "1 when every part is ready, else 0.");
pub(super) const LIMITS_REACHED: Metric = counter(
    "listless_limits_reached_total",
    Unit::Count,
    &[of!("limit", Limit)],
    "Times a limit was reached; docs/alerts.md describes the effect of each.",
);
pub(super) const CONFIG_RELOADS: Metric = counter(
    "listless_config_reloads_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "Changes of the configuration file that were applied or refused.",
);
pub(super) const CONFIG_LAST_SUCCESS: Metric = gauge(
    "listless_config_last_success_timestamp_seconds",
    Unit::Seconds,
    &[],
    "Time at which the configuration in use was read, in Unix time.",
);
