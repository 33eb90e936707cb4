//! The status document: a few key figures.

use serde::Serialize;

use super::{ProcessStatus, Sources, page};
use crate::{
    cache::{ReplicaStatus, SyncState},
    insight::report::Apiserver,
    metrics::{ServedBy, Totals},
};

/// The whole document. Fields may be added, but not removed.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    mode: &'static str,
    version: &'static str,
    upstream: String,
    apiserver: Apiserver,
    ready: bool,
    not_ready: Vec<&'static str>,
    up_seconds: f64,
    requests: Requests,
    saved: Saved,
    replicas: Replicas,
}

/// Client requests by what answered them, and the apiserver's responses.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Requests {
    answered: u64,
    from_memory: u64,
    coalesced: u64,
    forwarded: u64,
    failed: u64,
    client_closed: u64,
    upstream: u64,
    upstream_for_itself: u64,
}

/// The load saved for the apiserver, net of Listless's own requests.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Saved {
    requests: u64,
    share: f64,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Replicas {
    count: usize,
    synced: usize,
    objects: usize,
    bytes: usize,
    bytes_max: usize,
}

// === impl Status ===

impl Status {
    /// Returns the current status.
    pub(super) fn of(sources: &Sources) -> Self {
        let ProcessStatus { mode, upstream, apiserver, up, memory_limit_bytes } =
            (sources.process_status)();
        let parts = page::ready_parts(sources);
        let not_ready: Vec<_> =
            parts.iter().filter(|part| !part.ready).map(|part| part.name).collect();
        let totals = sources.metrics.totals();
        Self {
            mode,
            version: env!("CARGO_PKG_VERSION"),
            upstream,
            apiserver,
            ready: not_ready.is_empty(),
            not_ready,
            up_seconds: up.as_millis() as f64 / 1e3,
            requests: Requests::of(&totals),
            saved: Saved::of(&totals),
            replicas: Replicas::of(&(sources.replicas)(), memory_limit_bytes),
        }
    }

    /// Returns the status as one line of JSON.
    pub(super) fn document(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }
}

// === impl Requests ===

impl Requests {
    fn of(totals: &Totals) -> Self {
        Self {
            answered: totals.requests(),
            from_memory: totals.answered_by(ServedBy::Cache),
            coalesced: totals.answered_by(ServedBy::Coalesced),
            forwarded: totals.answered_by(ServedBy::Upstream),
            failed: totals.answered_by(ServedBy::Proxy),
            client_closed: totals.answered_by(ServedBy::ClientClosed),
            upstream: totals.upstream_requests(),
            upstream_for_itself: totals.upstream_for_itself(),
        }
    }
}

// === impl Saved ===

impl Saved {
    fn of(totals: &Totals) -> Self {
        let Requests { answered, from_memory, coalesced, upstream_for_itself, .. } =
            Requests::of(totals);
        let requests = (from_memory + coalesced).saturating_sub(upstream_for_itself);
        let share = if answered == 0 { 0.0 } else { requests as f64 / answered as f64 };
        Self { requests, share }
    }
}

// === impl Replicas ===

impl Replicas {
    fn of(replicas: &[ReplicaStatus], bytes_max: usize) -> Self {
        Self {
            count: replicas.len(),
            synced: replicas.iter().filter(|replica| replica.state == SyncState::Synced).count(),
            objects: replicas.iter().map(|replica| replica.objects).sum(),
            bytes: replicas.iter().map(|replica| replica.bytes).sum(),
            bytes_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Origin;

    #[test]
    fn listless_own_requests_are_not_saved() {
        let mut totals = Totals::default();
        assert_eq!(Saved::of(&totals), Saved { requests: 0, share: 0.0 });
        totals.answered[ServedBy::Cache as usize] = 70;
        totals.answered[ServedBy::Coalesced as usize] = 10;
        totals.answered[ServedBy::Upstream as usize] = 20;
        totals.upstream[Origin::Client as usize] = 20;
        for (origin, count) in [(Origin::Replica, 2), (Origin::Review, 2), (Origin::Discovery, 1)] {
            totals.upstream[origin as usize] = count;
        }
        assert_eq!(Saved::of(&totals), Saved { requests: 75, share: 0.75 });
        totals.upstream[Origin::Replica as usize] = 500;
        assert_eq!(Saved::of(&totals), Saved { requests: 0, share: 0.0 });
    }
}
