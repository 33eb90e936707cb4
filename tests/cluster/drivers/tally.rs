//! What a driver says of itself.

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
    /// What failed.
    pub errors: Vec<String>,
}
