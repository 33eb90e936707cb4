//! The few facts both encodings are read for, and what they amount to.

use super::{Learned, LearnedObject, Lifecycle, Unlearned};
use crate::api::version::ResourceVersion;

/// What has been read so far.
#[derive(Debug, Default)]
pub(in crate::api) struct Facts {
    pub(in crate::api) api_version: String,
    pub(in crate::api) kind: String,
    name: String,
    namespace: String,
    uid: String,
    version: String,
    status: String,
    /// The code of a Status, where it was read.
    pub(in crate::api) code: u64,
    details_name: String,
    details_uid: String,
    labels: Vec<(String, String)>,
    label_bytes: usize,
    /// metadata.deletionTimestamp is set.
    pub(in crate::api) deletion: bool,
    /// metadata.deletionGracePeriodSeconds is above zero.
    pub(in crate::api) grace: bool,
    /// metadata.finalizers, or a Namespace's spec.finalizers, is not empty.
    pub(in crate::api) finalizers: bool,
}

/// A string worth keeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum Slot {
    ApiVersion,
    Kind,
    Name,
    Namespace,
    Uid,
    Version,
    Status,
    DetailsName,
    DetailsUid,
    /// The key of a label; begins a new one.
    LabelKey,
    /// The value of the label begun last.
    LabelValue,
}

/// The longest string kept; every name, label and uid of the API is shorter.
pub(in crate::api) const TEXT_BYTES_MAX: usize = 1024;

/// The group of Table.
const META: &str = "meta.k8s.io/";

const LABEL_BYTES_MAX: usize = 256 * 1024;

// === impl Facts ===

impl Facts {
    /// Keeps a string.
    pub(in crate::api) fn set(&mut self, slot: Slot, text: String) -> Result<(), Unlearned> {
        match slot {
            Slot::ApiVersion => self.api_version = text,
            Slot::Kind => self.kind = text,
            Slot::Name => self.name = text,
            Slot::Namespace => self.namespace = text,
            Slot::Uid => self.uid = text,
            Slot::Version => self.version = text,
            Slot::Status => self.status = text,
            Slot::DetailsName => self.details_name = text,
            Slot::DetailsUid => self.details_uid = text,
            Slot::LabelKey | Slot::LabelValue => {
                self.label_bytes += text.len();
                if self.label_bytes > LABEL_BYTES_MAX {
                    return Err(Unlearned::TooLarge);
                }
                match self.labels.last_mut() {
                    Some((_, value)) if slot == Slot::LabelValue => *value = text,
                    _ => self.labels.push((text, String::new())),
                }
            }
        }
        Ok(())
    }

    /// Whether the kind is `Status` of the core group.
    pub(in crate::api) fn is_status(&self) -> bool {
        self.kind == "Status" && self.api_version == "v1"
    }

    /// Whether the spec holds finalizers too (S-WRITE-04).
    pub(in crate::api) fn is_namespace(&self) -> bool {
        self.kind == "Namespace" && self.api_version == "v1"
    }

    /// Whether it is a list, or a Table, which carries the version of what it shows.
    fn is_collection(&self) -> bool {
        self.kind.ends_with("List") || (self.kind == "Table" && self.api_version.starts_with(META))
    }

    /// The version of a collection, as soon as it was read: long before the last item, mostly.
    pub(in crate::api) fn collection_version(&self) -> Option<ResourceVersion> {
        let known = self.name.is_empty() && self.is_collection();
        known.then(|| ResourceVersion::parse(&self.version).ok()).flatten()
    }

    /// What all of it amounts to.
    pub(in crate::api) fn conclude(self) -> Learned {
        if self.is_status() {
            return self.conclude_status();
        }
        if self.kind.is_empty() || (self.name.is_empty() && !self.is_collection()) {
            return Learned::Nothing(Unlearned::NotAnObject);
        }
        let Ok(version) = ResourceVersion::parse(&self.version) else {
            return Learned::Nothing(Unlearned::NoVersion);
        };
        if self.name.is_empty() {
            return Learned::List { version };
        }
        let lifecycle = match (self.deletion, self.finalizers || self.grace) {
            (false, _) => Lifecycle::Live,
            (true, true) => Lifecycle::Terminating,
            (true, false) => Lifecycle::Removed,
        };
        Learned::Object(LearnedObject {
            kind: self.kind,
            name: self.name,
            namespace: present(self.namespace),
            uid: self.uid,
            version,
            labels: self.labels,
            lifecycle,
        })
    }

    fn conclude_status(self) -> Learned {
        let success = match &*self.status {
            "Success" => true,
            "Failure" => false,
            _ => return Learned::Nothing(Unlearned::NotAnObject),
        };
        let (details_uid, name) = (present(self.details_uid), present(self.details_name));
        Learned::Status { success, details_uid, name }
    }
}

fn present(text: String) -> Option<String> {
    if text.is_empty() { None } else { Some(text) }
}
