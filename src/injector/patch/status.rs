//! What an injected pod says of its injection: enough to complete it and to undo it exactly.

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
    /// The containers that are led to the sidecar.
    pub(super) containers: Vec<String>,
    /// The volumes that take the place of service accounts, and whose.
    pub(super) mirrors: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Undo::is_empty")]
    pub(super) undo: Undo,
}

/// What cannot be seen any more.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Undo {
    /// Lists and maps that were there, with nothing in them: `volumes`, `manager/env`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) empty: BTreeMap<String, Value>,
    /// Variables that were changed or added, by container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) env: BTreeMap<String, Before>,
    /// Secrets that were added for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) image_pull_secrets: Vec<String>,
    /// The configuration was the pod's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) own_config: bool,
}

/// The annotation.
pub(super) const STATUS: &str = "listless.dev/status";

// === impl Status ===

impl Status {
    /// What the pod says; none if it says nothing, or nothing that can be understood.
    pub(super) fn read(pod: &Pod<'_>) -> Option<Self> {
        serde_json::from_str(pod.annotation(STATUS)?).ok()
    }

    pub(super) fn to_text(&self) -> String {
        // Maps with names for keys can always be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

// === impl Undo ===

impl Undo {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Notes that a list was there, if it was.
    pub(super) fn note_empty(&mut self, what: impl Into<String>, was: Option<Value>) {
        if let Some(was) = was {
            self.empty.entry(what.into()).or_insert(was);
        }
    }
}
