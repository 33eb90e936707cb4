//! A driver's own counts.

use std::time::Duration;

use serde::Deserialize;

/// The work of a driver so far.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Polls, reconciles or runs that were answered.
    pub operations: u64,
    /// The number of rounds begun.
    pub cycles: u64,
    /// The median time between two operations on the same object; 0 before there are two.
    pub period_seconds: f64,
    /// The median deviation from it, as a share of it.
    pub jitter: f64,
    /// The durations of all operations; empty for drivers that do not measure them.
    #[serde(default)]
    pub millis: Vec<f64>,
    /// The failures.
    pub errors: Vec<String>,
}

/// The tolerated share by which a driver's own period and jitter may be off, half of what a report's
/// period may differ by. Beyond that it did not do its work.
const OFF_MAX: f64 = 0.05;

// === impl Tally ===

impl Tally {
    /// Returns the median duration of the operations since an earlier tally, in milliseconds.
    pub fn p50_millis(&self, before: &Self) -> Option<f64> {
        median(self.millis.get(before.millis.len()..)?.to_vec())
    }

    /// Reports whether the machine let the driver do everything once each period.
    pub fn keeps(&self, period: Duration) -> bool {
        let off = (self.period_seconds / period.as_secs_f64() - 1.0).abs();
        off.max(self.jitter) <= OFF_MAX
    }
}

/// Returns the median of some values, if there are any.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
