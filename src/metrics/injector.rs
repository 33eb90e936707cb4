//! Metrics of the webhook: reviews, and the expiry of its authority.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use metrics::{Counter, Gauge, Histogram};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{Metrics, family::Family, labels::Injection, own::unix_seconds, table};

/// All are registered by the injector only, because no other command has them.
pub(super) struct Handles {
    requests: Family<(Injection, &'static str), Counter>,
    duration: Family<(), Histogram>,
    authority_expiry: Family<(), Gauge>,
}

// === impl Handles ===

impl Handles {
    pub(super) fn new(recorder: &Arc<PrometheusRecorder>) -> Self {
        Self {
            requests: Family::new(recorder, &table::INJECTOR_REQUESTS),
            duration: Family::new(recorder, &table::INJECTOR_DURATION),
            authority_expiry: Family::new(recorder, &table::INJECTOR_AUTHORITY_EXPIRY),
        }
    }
}

// === impl Metrics ===

impl Metrics {
    /// Shows that no review has failed yet: a rate needs the zero before the first failure.
    pub fn injections_begin(&self) {
        let values = || [Injection::Error.as_str(), ""].map(String::from);
        self.0
            .injector
            .requests
            .with((Injection::Error, ""), values, |counter| counter.increment(0));
    }

    /// Counts a review of a pod. A skipped pod has a reason.
    pub fn injection(&self, result: Injection, reason: &'static str, duration: Duration) {
        let handles = &self.0.injector;
        let values = || [result.as_str(), reason].map(String::from);
        handles.requests.with((result, reason), values, |counter| counter.increment(1));
        let seconds = duration.as_secs_f64();
        handles.duration.with((), || [], |histogram| histogram.record(seconds));
    }

    /// Sets the expiry time of the webhook's authority.
    pub fn injector_authority_expires(&self, at: SystemTime) {
        let expiry = unix_seconds(at);
        self.0.injector.authority_expiry.with((), || [], |gauge| gauge.set(expiry));
    }
}
