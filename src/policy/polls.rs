//! Limits on polls that repeat, and the reads that they never apply to.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{api::GroupVersionResource, limit::Rate};

/// The limits on polls that repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatPolls {
    /// The rate of polls that reach the apiserver.
    pub rate: Rate,
    /// The treatment of polls above the limit.
    pub action: RepeatAction,
    /// The longest hold of a poll that reaches the apiserver.
    pub max_delay: Duration,
    /// The rate of identical, unchanged responses from the cache.
    pub from_memory: Rate,
}

/// The treatment of polls above the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RepeatAction {
    /// They are held, then answered.
    #[default]
    Pace,
    /// They are refused with 429.
    Reject,
    /// They are answered.
    Off,
}

// === impl RepeatAction ===

impl RepeatAction {
    /// Returns the configuration's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pace => "pace",
            Self::Reject => "reject",
            Self::Off => "off",
        }
    }
}

/// Reports whether this object may serve leader election: a client that is held would lose the
/// lead. Before leases existed, single config maps and endpoints were used.
pub fn elects_leaders(resource: &GroupVersionResource, name: Option<&str>) -> bool {
    match (&*resource.group, &*resource.resource) {
        ("coordination.k8s.io", _) => true,
        ("", "configmaps" | "endpoints") => name.is_some(),
        _ => false,
    }
}
