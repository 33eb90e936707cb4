//! Rows of the table about replicas: what they hold, and how they came by it.

use metrics::Unit;

use super::{
    super::{
        labels::{Event, ReplicaCheck, ReplicaEnd, ReplicaState, ReplicaWatchEnd, Round},
        metric::{Label, Metric, Values, counter, gauge},
    },
    GROUP, RESOURCE, VERSION,
};

pub(in crate::metrics) const REPLICAS: Metric = gauge(
    "listless_replicas",
    Unit::Count,
    &[GROUP, VERSION, RESOURCE, of!("state", ReplicaState)],
    "Replicas alive now.",
);
pub(in crate::metrics) const REPLICA_OBJECTS: Metric = gauge(
    "listless_replica_objects",
    Unit::Count,
    &[GROUP, VERSION, RESOURCE],
    "Objects held by the resource's replicas.",
);
pub(in crate::metrics) const REPLICA_BYTES: Metric = gauge(
    "listless_replica_bytes",
    Unit::Bytes,
    &[GROUP, VERSION, RESOURCE],
    "Bytes of JSON held by the resource's replicas.",
);
pub(in crate::metrics) const REPLICA_UNPROVEN: Metric = gauge(
    "listless_replica_unproven_seconds",
    Unit::Seconds,
    &[GROUP, VERSION, RESOURCE],
    "Time since the last list, event or bookmark of the resource's least recently proven replica.",
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
    "Lists that replicas asked of the apiserver.",
);
pub(in crate::metrics) const REPLICA_WATCHES: Metric = counter(
    "listless_replica_watches_total",
    Unit::Count,
    &[of!("round", Round)],
    "Watches that replicas asked of the apiserver.",
);
pub(in crate::metrics) const REPLICA_WATCHES_ENDED: Metric = counter(
    "listless_replica_watches_ended_total",
    Unit::Count,
    &[of!("reason", ReplicaWatchEnd)],
    "Watches of replicas that ended, or were not opened, while the replica went on wanting them.",
);
pub(in crate::metrics) const REPLICA_EVENTS: Metric = counter(
    "listless_replica_events_total",
    Unit::Count,
    &[of!("type", Event)],
    "Watch events that replicas took over.",
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
    "Lists and watches that failed and were tried again.",
);
pub(in crate::metrics) const REPLICA_EPOCHS: Metric = counter(
    "listless_replica_epochs_total",
    Unit::Count,
    &[],
    "Times the apiserver's versions went back for good, as after a restored etcd.",
);
pub(in crate::metrics) const REPLICA_CHECKS: Metric = counter(
    "listless_replica_checks_total",
    Unit::Count,
    &[of!("result", ReplicaCheck)],
    "Consistency checks: comparisons of a replica with a metadata-only list at the same resourceVersion.",
);
pub(in crate::metrics) const MEMORY_LIMIT: Metric = gauge(
    "listless_replica_bytes_limit",
    Unit::Bytes,
    &[],
    "Bytes all replicas together may hold (`cache.memoryLimit`).",
);
