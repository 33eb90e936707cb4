//! What a driver says of itself.

use std::time::Duration;

use serde::Deserialize;

/// What a driver has done so far.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tally {
    /// Polls, reconciles or runs that were answered.
    pub operations: u64,
    /// How often it began its round.
    pub cycles: u64,
    /// The median time between two operations on the same; 0 before there are two.
    pub period_seconds: f64,
    /// The median deviation from it, as a share of it.
    pub jitter: f64,
    /// What failed.
    pub errors: Vec<String>,
}

/// How much of a period a driver's own period and jitter may be off, or it did not do what it is for.
const OFF_MAX: f64 = 0.1;

// === impl Tally ===

impl Tally {
    /// Whether the machine let the driver do everything once each period.
    pub fn keeps(&self, period: Duration) -> bool {
        let off = (self.period_seconds / period.as_secs_f64() - 1.0).abs();
        off.max(self.jitter) <= OFF_MAX
    }
}
