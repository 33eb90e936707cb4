//! The reads that memory answered in one part, by Listless' own metrics.

use std::fmt;

use super::{MEASURED, Part, Session};
use crate::rig::control_plane::RequestCounts;

/// The covered reads that memory must answer.
const SHARE_MIN: f64 = 0.995;
/// Own requests beside the watches of replicas, in a minute.
const OWN_MAX: f64 = 6.0;
/// The same in the minute after a stall: replicas ask for the version before they watch again.
const OWN_AFTER_STALL_MAX: f64 = 15.0;
/// The same at a gateway, which reviews each read of a caller every ten seconds: quiet, and while a
/// writer reads objects by ever other names.
const OWN_GATEWAY_MAX: [f64; 2] = [90.0, 300.0];
/// Watches of replicas that are opened in a minute. One lasts for five to ten minutes.
const WATCHES_MAX: f64 = 12.0;
/// The raw pollers alone read more often in a minute.
const HITS_MIN: f64 = 150.0;
/// Reasons to forward a read that a replica covers, or would after the warm-up. No reader here sends
/// a read that memory does not answer by its form.
const MISSES: &[&str] = &[
    "table",
    "protobuf",
    "partial-object-metadata",
    "other",
    "limit",
    "after-expiry",
    "refused",
    "not-replicable",
    "may-be-aggregated",
    "before-window",
    "behind",
    "barred",
    "not-demanded",
    "not-synced",
    "link-lost",
    "no-progress",
    "path-unknown",
    "too-many-replicas",
    "out-of-memory",
    "too-many-bytes",
    "not-authorized",
];

/// The result of one part.
#[derive(Debug)]
pub(super) struct Measured {
    hits: f64,
    misses: f64,
    reasons: Vec<(&'static str, f64)>,
    /// Requests that Listless sent for itself, without the watches of replicas.
    own: f64,
    /// The same by origin, and the watches.
    origins: [(&'static str, f64); 3],
    /// Watches of replicas that it opened.
    watches: f64,
}

// === impl Measured ===

impl Measured {
    pub(super) fn between(before: &RequestCounts, after: &RequestCounts) -> Self {
        let more = |name: &str, labels: &[(&str, &str)]| {
            after.sum(name, labels) - before.sum(name, labels)
        };
        let read =
            |verb| more("listless_requests_total", &[("served_by", "cache"), ("verb", verb)]);
        let hits = read("list") + read("get");
        let reason = |reason| {
            let of = |verb| more("listless_forwarded_total", &[("reason", reason), ("verb", verb)]);
            (reason, of("list") + of("get"))
        };
        let reasons: Vec<_> =
            MISSES.iter().copied().map(reason).filter(|(_, count)| *count > 0.0).collect();
        let sent = |labels: &[(&str, &str)]| more("listless_upstream_requests_total", labels);
        let origins = ["replica", "review", "discovery"];
        let origins = origins.map(|origin| (origin, sent(&[("origin", origin)])));
        let all: f64 = origins.iter().map(|(_, count)| count).sum();
        let watches = sent(&[("origin", "replica"), ("verb", "watch")]);
        let misses = reasons.iter().fold(0.0, |sum, (_, count)| sum + count);
        Self { hits, misses, reasons, own: all - watches, origins, watches }
    }

    fn share(&self) -> f64 {
        self.hits / (self.hits + self.misses).max(1.0)
    }

    pub(super) fn wrong(&self, session: Session, part: Part) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.share() < SHARE_MIN || self.hits < HITS_MIN {
            wrong.push(format!("only {self}"));
        }
        let own_max = match session {
            Session::Gateway => OWN_GATEWAY_MAX[usize::from(part == Part::Changes)],
            _ if part == Part::AfterStall => OWN_AFTER_STALL_MAX,
            Session::Local | Session::TwoNamespaces => OWN_MAX,
        };
        let minutes = MEASURED.as_secs_f64() / 60.0;
        if self.own > own_max * minutes || self.watches > WATCHES_MAX * minutes {
            wrong.push(format!("{self}"));
        }
        wrong
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (share, hits, misses) = (self.share() * 100.0, self.hits, self.misses);
        write!(f, "{share:.2} % of covered reads from memory ({hits} hits, {misses} misses")?;
        for (reason, count) in &self.reasons {
            write!(f, ", {reason} {count}")?;
        }
        let (own, watches, origins) = (self.own, self.watches, &self.origins);
        write!(f, "), {own} own requests and {watches} watches: {origins:?}")
    }
}
