//! Metrics of the webhook.

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
        described(
            "reason",
            "the reason why a pod was skipped, see docs/install.md#pods-left-unchanged; empty otherwise",
        ),
    ],
    "Admission reviews of pods.",
);
pub(in crate::metrics) const INJECTOR_DURATION: Metric = seconds(
    "listless_injector_duration_seconds",
    &[],
    "Time from an admission review to the response.",
);
pub(in crate::metrics) const INJECTOR_AUTHORITY_EXPIRY: Metric = gauge(
    "listless_injector_ca_expiry_timestamp_seconds",
    Unit::Seconds,
    &[],
    "Expiry time of the authority that signs the webhook's certificates, in Unix time.",
);
