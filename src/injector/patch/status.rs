//! The record of an injection in the pod: enough to complete it and to undo it exactly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{environment::Before, pod::Pod};

/// The annotation's content.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) rev: String,
    pub(super) mode: String,
    pub(super) port: u16,
    /// The containers that are redirected to the sidecar.
    pub(super) containers: Vec<String>,
    /// The volumes that replace service accounts, with the replaced ones.
    pub(super) mirrors: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Undo::is_empty")]
    pub(super) undo: Undo,
}

/// The original values that the pod no longer shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Undo {
    /// Lists and maps that were present but empty: `volumes`, `manager/env`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) empty: BTreeMap<String, Value>,
    /// Variables that were changed or added, by container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) env: BTreeMap<String, Before>,
    /// Image pull secrets that were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) image_pull_secrets: Vec<String>,
    /// `true` if the pod had its own configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) own_config: bool,
}

/// The annotation.
pub(super) const STATUS: &str = "listless.dev/status";

// === impl Status ===

impl Status {
    /// Returns the pod's record. `None` if it is absent or invalid.
    pub(super) fn read(pod: &Pod<'_>) -> Option<Self> {
        serde_json::from_str(pod.annotation(STATUS)?).ok()
    }

    pub(super) fn to_text(&self) -> String {
        // Maps with string keys always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }
}

// === impl Undo ===

impl Undo {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Records that a list was present but empty.
    pub(super) fn note_empty(&mut self, what: impl Into<String>, was: Option<Value>) {
        if let Some(was) = was {
            self.empty.entry(what.into()).or_insert(was);
        }
    }
}
