//! Rows of the table about files that change, certificates, and the process.

use metrics::Unit;

use super::super::{
    labels::{AuditResult, Certificate, Outcome, WorkerEnd},
    metric::{Label, Metric, Values, counter, gauge},
};

pub(in crate::metrics) const ACCOUNTS: Metric = gauge(
    "listless_insight_accounts",
    Unit::Count,
    &[],
    "Kinds of requests told apart in the report: user agent, verb, resource, scope, query shape.",
);
pub(in crate::metrics) const CERTIFICATE_RELOADS: Metric = counter(
    "listless_certificate_reloads_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "Changed certificate files taken over, or refused.",
);
pub(in crate::metrics) const CERTIFICATE_RELOAD_SUCCESSFUL: Metric = gauge(
    "listless_certificate_last_reload_successful",
    Unit::Count,
    &[],
    "1 while what the certificate files hold is in use, 0 since they changed to what cannot be \
     used.",
);
pub(in crate::metrics) const CONFIG_RELOAD_SUCCESSFUL: Metric = gauge(
    "listless_config_last_reload_successful",
    Unit::Count,
    &[],
    "1 while what the configuration file holds is in use, 0 since it changed to what was refused.",
);
pub(in crate::metrics) const MIRRORINGS: Metric = counter(
    "listless_service_account_mirrorings_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "Changes of the service account copied for the workload, and looks at which that failed.",
);
pub(in crate::metrics) const TOKEN_EXPIRY: Metric = gauge(
    "listless_service_account_token_expiry_timestamp_seconds",
    Unit::Seconds,
    &[],
    "When the service account's token expires that Listless itself reads with, in Unix time; absent if \
     the token does not say, and where there is none.",
);
pub(in crate::metrics) const TOKEN_RELOADS: Metric = counter(
    "listless_service_account_token_reloads_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "Changes of that token that were taken over, and reads of it that failed.",
);
pub(in crate::metrics) const AUDIT_LINES: Metric = counter(
    "listless_audit_lines_total",
    Unit::Count,
    &[of!("result", AuditResult)],
    "Lines for the file that tells of answers from memory.",
);
pub(in crate::metrics) const SAFE_MODE: Metric = gauge(
    "listless_safe_mode",
    Unit::Count,
    &[],
    "1 while a sidecar whose workers crashed passes everything on as it comes, else 0.",
);
pub(in crate::metrics) const WORKER_RESTARTS: Metric = counter(
    "listless_worker_restarts_total",
    Unit::Count,
    &[of!("reason", WorkerEnd)],
    "Workers of a sidecar that took the place of one that had ended.",
);
pub(in crate::metrics) const CERTIFICATE_EXPIRY: Metric = gauge(
    "listless_certificate_expiry_timestamp_seconds",
    Unit::Seconds,
    &[of!("certificate", Certificate)],
    "When an own certificate expires, in Unix time.",
);
pub(in crate::metrics) const PROCESS_CPU: Metric =
    counter("process_cpu_seconds_total", Unit::Seconds, &[], "Processor time used.");
pub(in crate::metrics) const PROCESS_RESIDENT: Metric =
    gauge("process_resident_memory_bytes", Unit::Bytes, &[], "Memory in use.");
pub(in crate::metrics) const PROCESS_VIRTUAL: Metric =
    gauge("process_virtual_memory_bytes", Unit::Bytes, &[], "Address space in use.");
pub(in crate::metrics) const PROCESS_OPEN_FDS: Metric =
    gauge("process_open_fds", Unit::Count, &[], "File descriptors open now.");
pub(in crate::metrics) const PROCESS_MAX_FDS: Metric =
    gauge("process_max_fds", Unit::Count, &[], "File descriptors that may be open at once.");
pub(in crate::metrics) const PROCESS_THREADS: Metric =
    gauge("process_threads", Unit::Count, &[], "Threads.");
pub(in crate::metrics) const PROCESS_START: Metric = gauge(
    "process_start_time_seconds",
    Unit::Seconds,
    &[],
    "When the process started, in Unix time.",
);
