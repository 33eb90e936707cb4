//! Metrics of Listless itself: version, configuration, limits.

use std::{sync::Arc, time::SystemTime};

use metrics::{Counter, Gauge};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    Metrics,
    family::{Family, single},
    labels::{AuditResult, Certificate, Limit, Outcome, WorkerEnd},
    table,
};

pub(super) struct Handles {
    ready: Gauge,
    limits: Family<Limit, Counter>,
    config_reloads: Family<Outcome, Counter>,
    config_last_success: Gauge,
    config_reload_successful: Gauge,
    replica_bytes_limit: Gauge,
    certificate_expiry: Family<Certificate, Gauge>,
    certificate_lifetime: Family<Certificate, Gauge>,
    certificate_reloads: Family<Outcome, Counter>,
    certificate_reload_successful: Gauge,
    mirrorings: Family<Outcome, Counter>,
    token_expiry: Family<(), Gauge>,
    token_reloads: Family<Outcome, Counter>,
    audit_lines: Family<AuditResult, Counter>,
    accounts: Gauge,
    safe_mode: Gauge,
    worker_restarts: Family<WorkerEnd, Counter>,
}

/// The version of the build.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The revision of the build, if it was given.
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
            config_reload_successful: single(recorder, &table::CONFIG_RELOAD_SUCCESSFUL),
            replica_bytes_limit: single(recorder, &table::MEMORY_LIMIT),
            certificate_expiry: Family::new(recorder, &table::CERTIFICATE_EXPIRY),
            certificate_lifetime: Family::new(recorder, &table::CERTIFICATE_LIFETIME),
            certificate_reloads: Family::new(recorder, &table::CERTIFICATE_RELOADS),
            certificate_reload_successful: single(recorder, &table::CERTIFICATE_RELOAD_SUCCESSFUL),
            mirrorings: Family::new(recorder, &table::MIRRORINGS),
            token_expiry: Family::new(recorder, &table::TOKEN_EXPIRY),
            token_reloads: Family::new(recorder, &table::TOKEN_RELOADS),
            audit_lines: Family::new(recorder, &table::AUDIT_LINES),
            accounts: single(recorder, &table::ACCOUNTS),
            safe_mode: single(recorder, &table::SAFE_MODE),
            worker_restarts: Family::new(recorder, &table::WORKER_RESTARTS),
        };
        // These are rare alarms: a rate needs the zero before the first one.
        for &limit in Limit::ALL {
            handles.limit(limit, 0);
        }
        for &outcome in Outcome::ALL {
            count(&handles.config_reloads, outcome, 0);
            count(&handles.certificate_reloads, outcome, 0);
            count(&handles.mirrorings, outcome, 0);
            count(&handles.token_reloads, outcome, 0);
        }
        for &end in WorkerEnd::ALL {
            handles.restarts(end, 0);
        }
        // The first configuration must be valid; only a change can be refused.
        handles.config_reload_successful.set(1.0);
        handles.certificate_reload_successful.set(1.0);
        handles
    }

    fn restarts(&self, end: WorkerEnd, count: u64) {
        let values = || [end.as_str().into()];
        self.worker_restarts.with(end, values, |counter| counter.absolute(count));
    }

    fn limit(&self, limit: Limit, count: u64) {
        self.limits.with(limit, || [limit.as_str().into()], |counter| counter.increment(count));
    }
}

fn count(outcomes: &Family<Outcome, Counter>, outcome: Outcome, count: u64) {
    outcomes.with(outcome, || [outcome.as_str().into()], |counter| counter.increment(count));
}

fn succeeded(outcome: Outcome) -> f64 {
    match outcome {
        Outcome::Success => 1.0,
        Outcome::Failure => 0.0,
    }
}

// === impl Metrics ===

impl Metrics {
    /// Sets the readiness of all parts.
    pub fn ready(&self, ready: bool) {
        self.0.own.ready.set(if ready { 1.0 } else { 0.0 });
    }

    /// Sets the number of accounts in the report.
    pub fn accounts(&self, count: usize) {
        self.0.own.accounts.set(count as f64);
    }

    /// Counts that a limit was reached.
    pub fn limit_reached(&self, limit: Limit) {
        self.0.own.limit(limit, 1);
        self.0.sums.limits.increment(limit as usize);
    }

    /// Sets how often a limit was reached that the cache counts itself.
    pub fn limit_total(&self, limit: Limit, total: u64) {
        let values = || [limit.as_str().into()];
        self.0.own.limits.with(limit, values, |counter| counter.absolute(total));
    }

    /// Sets the time of the configuration in use, and its memory limit.
    pub fn config_in_use(&self, since: SystemTime, replica_bytes_max: usize) {
        self.0.own.config_last_success.set(unix_seconds(since));
        self.0.own.replica_bytes_limit.set(replica_bytes_max as f64);
    }

    /// Counts a reload of the configuration file.
    pub fn config_reloaded(&self, outcome: Outcome) {
        count(&self.0.own.config_reloads, outcome, 1);
        self.0.own.config_reload_successful.set(succeeded(outcome));
        self.0.sums.reloads.increment(outcome as usize);
    }

    /// Counts a reload of certificate files.
    pub fn certificate_reloaded(&self, outcome: Outcome) {
        count(&self.0.own.certificate_reloads, outcome, 1);
        self.0.own.certificate_reload_successful.set(succeeded(outcome));
    }

    /// Counts a copy of a changed service account for the workload.
    pub fn service_account_mirrored(&self, outcome: Outcome) {
        count(&self.0.own.mirrorings, outcome, 1);
    }

    /// Sets the expiry time of Listless's own service account token.
    pub fn token_expires(&self, at: SystemTime) {
        let expiry = unix_seconds(at);
        self.0.own.token_expiry.with((), || [], |gauge| gauge.set(expiry));
    }

    /// Counts a reload of that token.
    pub fn token_reloaded(&self, outcome: Outcome) {
        count(&self.0.own.token_reloads, outcome, 1);
    }

    /// Counts written or lost lines of the audit file.
    pub fn audited(&self, result: AuditResult, lines: u64) {
        let values = || [result.as_str().into()];
        self.0.own.audit_lines.with(result, values, |counter| counter.increment(lines));
    }

    /// Sets the restarts of earlier workers by reason, and whether this one is in safe mode.
    pub fn worker(&self, safe: bool, restarts: impl Iterator<Item = (WorkerEnd, u64)>) {
        self.0.own.safe_mode.set(if safe { 1.0 } else { 0.0 });
        restarts.for_each(|(end, count)| self.0.own.restarts(end, count));
    }

    /// Sets the first and the last moment at which a certificate of Listless's own is valid.
    pub fn certificate_valid(&self, certificate: Certificate, from: SystemTime, until: SystemTime) {
        let values = || [certificate.as_str().into()];
        let expiry = unix_seconds(until);
        let lifetime = expiry - unix_seconds(from);
        self.0.own.certificate_expiry.with(certificate, values, |gauge| gauge.set(expiry));
        self.0.own.certificate_lifetime.with(certificate, values, |gauge| gauge.set(lifetime));
    }
}

pub(super) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}
