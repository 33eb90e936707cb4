//! How Listless itself fares: what runs, its configuration, its bounds.

use std::{sync::Arc, time::SystemTime};

use metrics::{Counter, Gauge};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    Metrics,
    family::{Family, single},
    labels::{Certificate, Limit, Outcome},
    table,
};

pub(super) struct Handles {
    ready: Gauge,
    limits: Family<Limit, Counter>,
    config_reloads: Family<Outcome, Counter>,
    config_last_success: Gauge,
    replica_bytes_limit: Gauge,
    certificate_expiry: Family<Certificate, Gauge>,
    certificate_reloads: Family<Outcome, Counter>,
    mirrorings: Family<Outcome, Counter>,
}

/// What was built.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What it was built from, if the build said so.
const REVISION: Option<&str> = option_env!("LISTLESS_REVISION");

// === impl Handles ===

impl Handles {
    pub(super) fn new(recorder: &Arc<PrometheusRecorder>) -> Self {
        let build: Family<(), Gauge> = Family::new(recorder, &table::BUILD_INFO);
        let labels = || [VERSION, REVISION.unwrap_or("unknown")].map(String::from);
        build.with((), labels, |gauge| gauge.set(1.0));

        let handles = Self {
            ready: single(recorder, &table::READY),
            limits: Family::new(recorder, &table::LIMITS_REACHED),
            config_reloads: Family::new(recorder, &table::CONFIG_RELOADS),
            config_last_success: single(recorder, &table::CONFIG_LAST_SUCCESS),
            replica_bytes_limit: single(recorder, &table::MEMORY_LIMIT),
            certificate_expiry: Family::new(recorder, &table::CERTIFICATE_EXPIRY),
            certificate_reloads: Family::new(recorder, &table::CERTIFICATE_RELOADS),
            mirrorings: Family::new(recorder, &table::MIRRORINGS),
        };
        // Rare and alarming: a rate over them needs the zero before the first one.
        for &limit in Limit::ALL {
            handles.limit(limit, 0);
        }
        for &outcome in Outcome::ALL {
            handles.reload(outcome, 0);
        }
        handles
    }

    fn limit(&self, limit: Limit, count: u64) {
        self.limits.with(limit, || [limit.as_str().into()], |counter| counter.increment(count));
    }

    fn reload(&self, outcome: Outcome, count: u64) {
        let values = || [outcome.as_str().into()];
        self.config_reloads.with(outcome, values, |counter| counter.increment(count));
    }
}

// === impl Metrics ===

impl Metrics {
    /// Whether every part is ready.
    pub fn ready(&self, ready: bool) {
        self.0.own.ready.set(if ready { 1.0 } else { 0.0 });
    }

    /// A bound was reached.
    pub fn limit_reached(&self, limit: Limit) {
        self.0.own.limit(limit, 1);
    }

    /// The configuration was read at this time, is in use, and lets replicas hold so many bytes.
    pub fn config_in_use(&self, since: SystemTime, replica_bytes_max: usize) {
        self.0.own.config_last_success.set(unix_seconds(since));
        self.0.own.replica_bytes_limit.set(replica_bytes_max as f64);
    }

    /// A changed configuration file was taken over or refused.
    pub fn config_reloaded(&self, outcome: Outcome) {
        self.0.own.reload(outcome, 1);
    }

    /// Changed certificate files were taken over or refused.
    pub fn certificate_reloaded(&self, outcome: Outcome) {
        let values = || [outcome.as_str().into()];
        self.0.own.certificate_reloads.with(outcome, values, |counter| counter.increment(1));
    }

    /// A changed service account was copied for the workload, or could not be.
    pub fn service_account_mirrored(&self, outcome: Outcome) {
        let values = || [outcome.as_str().into()];
        self.0.own.mirrorings.with(outcome, values, |counter| counter.increment(1));
    }

    /// When an own certificate expires.
    pub fn certificate_expires(&self, certificate: Certificate, at: SystemTime) {
        let values = || [certificate.as_str().into()];
        let expiry = unix_seconds(at);
        self.0.own.certificate_expiry.with(certificate, values, |gauge| gauge.set(expiry));
    }
}

pub(super) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
