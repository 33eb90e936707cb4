//! What becomes of polls that repeat, and of whose reads it is never asked.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::GroupVersionResource,
    limit::Rate,
    mutants::{Mutant, is_on},
};

/// What becomes of polls that repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatPolls {
    /// How many are answered without further ado.
    pub rate: Rate,
    /// What becomes of the others.
    pub action: RepeatAction,
    /// How long one is held back at most.
    pub max_delay: Duration,
}

/// What becomes of too many polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RepeatAction {
    /// They are held back a while, then answered.
    #[default]
    Pace,
    /// They are refused with 429.
    Reject,
    /// They are answered.
    Off,
}

// === impl RepeatAction ===

impl RepeatAction {
    /// The configuration's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pace => "pace",
            Self::Reject => "reject",
            Self::Off => "off",
        }
    }
}

/// Whether leaders may be elected by this: whoever is held back loses the lead. Before there were
/// leases, single config maps and endpoints were used.
pub fn elects_leaders(resource: &GroupVersionResource, name: Option<&str>) -> bool {
    if is_on(Mutant::LeasePaced) {
        return false;
    }
    match (&*resource.group, &*resource.resource) {
        ("coordination.k8s.io", _) => true,
        ("", "configmaps" | "endpoints") => name.is_some(),
        _ => false,
    }
}
