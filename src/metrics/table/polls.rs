//! Metrics of repeated polls, and of mode `observe`.

use metrics::Unit;

use super::{
    super::{
        labels::{Held, PollLimit, Shadow, Would},
        metric::{Label, Metric, Values, counter, seconds},
    },
    VERB,
};

pub(in crate::metrics) const PACED: Metric = seconds(
    "listless_paced_seconds",
    &[of!("place", Held), of!("limit", PollLimit)],
    "Time that repeated polls were delayed before their response, by the limit: `upstream` for \
     polls that reach the apiserver, `memory` for loops on responses from memory.",
);
pub(in crate::metrics) const REFUSED: Metric = counter(
    "listless_refused_total",
    Unit::Count,
    &[VERB],
    "Repeated polls that were refused with 429.",
);
pub(in crate::metrics) const WOULD_HAVE: Metric = counter(
    "listless_would_have_total",
    Unit::Count,
    &[of!("would", Would)],
    "Requests in mode `observe`, by the effect of mode enforce; a request that would have been \
     delayed counts under `pace` and again under its final effect.",
);
pub(in crate::metrics) const SHADOW_CHECKS: Metric = counter(
    "listless_shadow_checks_total",
    Unit::Count,
    &[of!("result", Shadow)],
    "Responses of the apiserver compared in mode `observe` with those of memory at the same \
     version.",
);
