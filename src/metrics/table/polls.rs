//! Rows of the table about polls that repeat, and about what was only observed.

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
    "Time polls that repeat too often were held before they were answered, by the limit: `upstream` \
     counts polls that reach the apiserver, `memory` guards against loops on responses from memory.",
);
pub(in crate::metrics) const REFUSED: Metric = counter(
    "listless_refused_total",
    Unit::Count,
    &[VERB],
    "Polls that repeat too often and were refused with 429.",
);
pub(in crate::metrics) const WOULD_HAVE: Metric = counter(
    "listless_would_have_total",
    Unit::Count,
    &[of!("would", Would)],
    "Requests in mode `observe`, by what enforce would have done; one that would have been held back \
     counts under `pace` and once more under what would have come after.",
);
pub(in crate::metrics) const SHADOW_CHECKS: Metric = counter(
    "listless_shadow_checks_total",
    Unit::Count,
    &[of!("result", Shadow)],
    "Answers of the apiserver compared in mode `observe` with what memory would have said at the same \
     version.",
);
