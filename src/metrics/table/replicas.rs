//! Metrics of the replicas: their content and their requests.

use metrics::Unit;

use super::{
    super::{
        labels::{Event, ReplicaCheck, ReplicaEnd, ReplicaState, ReplicaWatchEnd, Round},
        metric::{Label, Metric, Values, counter, gauge},
    },
    COLUMN, GROUP, RESOURCE, VERSION,
};

pub(in crate::metrics) const REPLICAS: Metric = gauge(
    "listless_replicas",
    Unit::Count,
    &[GROUP, VERSION, RESOURCE, of!("state", ReplicaState)],
    "Active replicas.",
);
pub(in crate::metrics) const REPLICA_OBJECTS: Metric = gauge(
    "listless_replica_objects",
    Unit::Count,
    &[GROUP, VERSION, RESOURCE],
    "Objects in the resource's replicas.",
);
pub(in crate::metrics) const REPLICA_BYTES: Metric = gauge(
    "listless_replica_bytes",
    Unit::Bytes,
    &[GROUP, VERSION, RESOURCE],
    "Bytes of JSON in the resource's replicas.",
);
pub(in crate::metrics) const REPLICA_UNPROVEN: Metric = gauge(
    "listless_replica_unproven_seconds",
    Unit::Seconds,
    &[GROUP, VERSION, RESOURCE],
    "Time since the last list, event or bookmark of the resource's stalest replica.",
);
pub(in crate::metrics) const REPLICAS_STARTED: Metric =
    counter("listless_replicas_started_total", Unit::Count, &[], "Replicas started.");
pub(in crate::metrics) const REPLICAS_ENDED: Metric = counter(
    "listless_replicas_ended_total",
    Unit::Count,
    &[of!("reason", ReplicaEnd)],
    "Replicas that ended before Listless did.",
);
pub(in crate::metrics) const REPLICA_LISTS: Metric = counter(
    "listless_replica_lists_total",
    Unit::Count,
    &[of!("round", Round)],
    "Lists that replicas requested from the apiserver.",
);
pub(in crate::metrics) const REPLICA_WATCHES: Metric = counter(
    "listless_replica_watches_total",
    Unit::Count,
    &[of!("round", Round)],
    "Watches that replicas requested from the apiserver.",
);
pub(in crate::metrics) const REPLICA_WATCHES_ENDED: Metric = counter(
    "listless_replica_watches_ended_total",
    Unit::Count,
    &[of!("reason", ReplicaWatchEnd)],
    "Watches of replicas that ended or could not be opened, while the replica still needed them.",
);
pub(in crate::metrics) const REPLICA_EVENTS: Metric = counter(
    "listless_replica_events_total",
    Unit::Count,
    &[of!("type", Event)],
    "Watch events that replicas applied.",
);
pub(in crate::metrics) const REPLICA_CATCH_UPS: Metric = counter(
    "listless_replica_catch_ups_total",
    Unit::Count,
    &[],
    "Watches opened for three seconds because reads needed the bookmark at their end.",
);
pub(in crate::metrics) const REPLICA_PROBES: Metric = counter(
    "listless_replica_probes_total",
    Unit::Count,
    &[],
    "Small consistent lists that prove a silent watch complete.",
);
pub(in crate::metrics) const REPLICA_FAILURES: Metric = counter(
    "listless_replica_failures_total",
    Unit::Count,
    &[],
    "Failed lists and watches that were retried.",
);
pub(in crate::metrics) const REPLICA_EPOCHS: Metric = counter(
    "listless_replica_epochs_total",
    Unit::Count,
    &[],
    "Permanent steps back of the apiserver's versions, as after a restored etcd.",
);
pub(in crate::metrics) const REPLICA_CHECKS: Metric = counter(
    "listless_replica_checks_total",
    Unit::Count,
    &[of!("result", ReplicaCheck)],
    "Consistency checks: comparisons of a replica with a metadata-only list at the same resourceVersion.",
);
pub(in crate::metrics) const UNPROVEN_CELLS: Metric = counter(
    "listless_table_cells_unproven_total",
    Unit::Count,
    &[GROUP, RESOURCE, COLUMN],
    "Rows of Tables with a cell that looks like a time and is not proven to follow from the object. Such \
     rows are not answered from memory.",
);
pub(in crate::metrics) const MEMORY_LIMIT: Metric = gauge(
    "listless_replica_bytes_limit",
    Unit::Bytes,
    &[],
    "Memory limit of all replicas together, in bytes (`cache.memoryLimit`).",
);
pub(in crate::metrics) const UNCOMPRESSED_BYTES: Metric = gauge(
    "listless_uncompressed_bytes",
    Unit::Bytes,
    &[],
    "Bytes of objects that are held uncompressed because they are read often (`cache.uncompressedLimit`).",
);
pub(in crate::metrics) const KEPT_RESPONSE_BYTES: Metric = gauge(
    "listless_kept_response_bytes",
    Unit::Bytes,
    &[],
    "Bytes of responses kept for repetition: bodies, and the compressed parts of large lists \
     (`cache.responseLimit`).",
);
