//! Metrics of repeated polls, and of mode `observe`.

use std::{sync::Arc, time::Duration};

use metrics::{Counter, Histogram};
use metrics_exporter_prometheus::PrometheusRecorder;

use super::{
    Metrics,
    family::Family,
    labels::{Held, PollLimit, Shadow, Would},
    table,
};
use crate::api::Verb;

pub(super) struct Handles {
    paced: Family<(Held, PollLimit), Histogram>,
    refused: Family<Verb, Counter>,
    would_have: Family<Would, Counter>,
    shadow_checks: Family<Shadow, Counter>,
}

// === impl Handles ===

impl Handles {
    pub(super) fn new(recorder: &Arc<PrometheusRecorder>) -> Self {
        let handles = Self {
            paced: Family::new(recorder, &table::PACED),
            refused: Family::new(recorder, &table::REFUSED),
            would_have: Family::new(recorder, &table::WOULD_HAVE),
            shadow_checks: Family::new(recorder, &table::SHADOW_CHECKS),
        };
        // These are rare alarms: a rate needs the zero before the first one.
        for &shadow in Shadow::ALL {
            handles.shadow_check(shadow, 0);
        }
        handles
    }

    fn shadow_check(&self, shadow: Shadow, count: u64) {
        let values = || [shadow.as_str().into()];
        self.shadow_checks.with(shadow, values, |counter| counter.increment(count));
    }
}

// === impl Metrics ===

impl Metrics {
    /// Counts a delayed poll by its limit.
    pub fn paced(&self, held: Held, limit: PollLimit, duration: Duration) {
        let values = || [held.as_str().into(), limit.as_str().into()];
        self.0.polls.paced.with((held, limit), values, |histogram| histogram.record(duration));
    }

    /// Counts a refused poll.
    pub fn refused(&self, verb: Verb) {
        let values = || [verb.as_str().into()];
        self.0.polls.refused.with(verb, values, |counter| counter.increment(1));
    }

    /// Counts a forwarded request by the effect that mode enforce would have had.
    pub fn would_have(&self, would: Would) {
        let values = || [would.as_str().into()];
        self.0.polls.would_have.with(would, values, |counter| counter.increment(1));
    }

    /// Counts a comparison of a response with memory.
    pub fn shadow_check(&self, shadow: Shadow) {
        self.0.polls.shadow_check(shadow, 1);
    }
}
