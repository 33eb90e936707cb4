//! Metrics of reloaded files, certificates and the process.

use metrics::Unit;

use super::super::{
    labels::{AuditResult, Certificate, Outcome, WorkerEnd},
    metric::{Label, Metric, Values, counter, gauge},
};

pub(in crate::metrics) const ACCOUNTS: Metric = gauge(
    "listless_insight_accounts",
    Unit::Count,
    &[],
    "Accounts in the report, one per user agent, verb, resource, scope and query shape.",
);
pub(in crate::metrics) const CERTIFICATE_RELOADS: Metric = counter(
    "listless_certificate_reloads_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "Changes of certificate files that were applied or refused.",
);
pub(in crate::metrics) const CERTIFICATE_RELOAD_SUCCESSFUL: Metric = gauge(
    "listless_certificate_last_reload_successful",
    Unit::Count,
    &[],
    "1 while the content of the certificate files is in use, 0 since a change that cannot be used.",
);
pub(in crate::metrics) const CONFIG_RELOAD_SUCCESSFUL: Metric = gauge(
    "listless_config_last_reload_successful",
    Unit::Count,
    &[],
    "1 while the content of the configuration file is in use, 0 since a change that was refused.",
);
pub(in crate::metrics) const MIRRORINGS: Metric = counter(
    "listless_service_account_mirrorings_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "Copies of a changed service account for the workload, and failed checks of it.",
);
pub(in crate::metrics) const TOKEN_EXPIRY: Metric = gauge(
    "listless_service_account_token_expiry_timestamp_seconds",
    Unit::Seconds,
    &[],
    "Expiry time of the service account token that Listless itself reads with, in Unix time; \
     absent without such a token or such a time.",
);
pub(in crate::metrics) const TOKEN_RELOADS: Metric = counter(
    "listless_service_account_token_reloads_total",
    Unit::Count,
    &[of!("result", Outcome)],
    "Changes of the service account token that were applied, and failed reads of it.",
);
pub(in crate::metrics) const AUDIT_LINES: Metric = counter(
    "listless_audit_lines_total",
    Unit::Count,
    &[of!("result", AuditResult)],
    "Lines for the audit file of responses from memory.",
);
pub(in crate::metrics) const SAFE_MODE: Metric = gauge(
    "listless_safe_mode",
    Unit::Count,
    &[],
    "1 while a sidecar whose workers crashed forwards everything unchanged, else 0.",
);
pub(in crate::metrics) const WORKER_RESTARTS: Metric = counter(
    "listless_worker_restarts_total",
    Unit::Count,
    &[of!("reason", WorkerEnd)],
    "Replacements of a sidecar's ended worker.",
);
pub(in crate::metrics) const CERTIFICATE_EXPIRY: Metric = gauge(
    "listless_certificate_expiry_timestamp_seconds",
    Unit::Seconds,
    &[of!("certificate", Certificate)],
    "Expiry time of a certificate of Listless's own, in Unix time.",
);
pub(in crate::metrics) const CERTIFICATE_LIFETIME: Metric = gauge(
    "listless_certificate_lifetime_seconds",
    Unit::Seconds,
    &[of!("certificate", Certificate)],
    "Time for which a certificate of Listless's own is valid in all.",
);
pub(in crate::metrics) const PROCESS_CPU: Metric =
    counter("process_cpu_seconds_total", Unit::Seconds, &[], "CPU time used.");
pub(in crate::metrics) const PROCESS_RESIDENT: Metric =
    gauge("process_resident_memory_bytes", Unit::Bytes, &[], "Memory in use.");
pub(in crate::metrics) const PROCESS_VIRTUAL: Metric =
    gauge("process_virtual_memory_bytes", Unit::Bytes, &[], "Address space in use.");
pub(in crate::metrics) const PROCESS_OPEN_FDS: Metric =
    gauge("process_open_fds", Unit::Count, &[], "Open file descriptors.");
pub(in crate::metrics) const PROCESS_MAX_FDS: Metric =
    gauge("process_max_fds", Unit::Count, &[], "Maximum number of open file descriptors.");
pub(in crate::metrics) const PROCESS_THREADS: Metric =
    gauge("process_threads", Unit::Count, &[], "Threads.");
pub(in crate::metrics) const PROCESS_START: Metric = gauge(
    "process_start_time_seconds",
    Unit::Seconds,
    &[],
    "Start time of the process, in Unix time.",
);
