//! Rows of the table about the webhook.

use metrics::Unit;

use super::super::{
    labels::Injection,
    metric::{Label, Metric, Values, counter, described, gauge, seconds},
};

pub(in crate::metrics) const INJECTOR_REQUESTS: Metric = counter(
    "listless_injector_requests_total",
    Unit::Count,
    &[
        of!("result", Injection),
        described("reason", "why a pod was left as it is, see install.md; empty otherwise"),
    ],
    "Pods the webhook was asked about.",
);
pub(in crate::metrics) const INJECTOR_DURATION: Metric = seconds(
    "listless_injector_duration_seconds",
    &[],
    "Time from a question of the apiserver to the answer.",
);
pub(in crate::metrics) const INJECTOR_AUTHORITY_EXPIRY: Metric = gauge(
    "listless_injector_ca_expiry_timestamp_seconds",
    Unit::Seconds,
    &[],
    "When the authority expires that signs the webhook's certificates, in Unix time.",
);
