//! The facts that both encodings are parsed for, and their result.

use super::{Learned, LearnedObject, Lifecycle, ListedObject, Unlearned};
use crate::api::{ObjectKey, version::ResourceVersion};

/// The facts parsed so far.
#[derive(Debug, Default)]
pub(in crate::api) struct Facts {
    pub(in crate::api) api_version: String,
    pub(in crate::api) kind: String,
    name: String,
    namespace: String,
    uid: String,
    version: String,
    status: String,
    /// The code of a Status, if it was parsed.
    pub(in crate::api) code: u64,
    details_name: String,
    details_uid: String,
    labels: Vec<(String, String)>,
    /// metadata.continue of a list.
    next: String,
    /// The items of a list, if they are needed.
    pub(in crate::api) items: Option<Items>,
    /// metadata.deletionTimestamp is set.
    pub(in crate::api) deletion: bool,
    /// metadata.deletionGracePeriodSeconds is above zero.
    pub(in crate::api) grace: bool,
    /// metadata.finalizers, or a Namespace's spec.finalizers, is not empty.
    pub(in crate::api) finalizers: bool,
}

/// The items of a list that were parsed and not yet taken.
#[derive(Debug, Default)]
pub(in crate::api) struct Items {
    /// The current item.
    current: Option<Item>,
    found: Vec<ListedObject>,
    bytes: usize,
    /// The number of started items, rows of a Table included.
    begun: usize,
    /// The number of parsed items.
    read: usize,
}

#[derive(Debug, Default)]
struct Item {
    name: String,
    namespace: String,
    version: String,
    labels: Vec<(String, String)>,
}

/// A string that is kept.
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
    /// The key of a label; it starts a new one.
    LabelKey,
    /// The value of the last started label.
    LabelValue,
    /// The continue token of a list's next page.
    Continue,
}

/// The longest string kept; every name, label and uid of the API is shorter.
pub(in crate::api) const TEXT_BYTES_MAX: usize = 1024;

/// The group of Table.
const META: &str = "meta.k8s.io/";

const LABEL_BYTES_MAX: usize = 256 * 1024;

/// The size limit of items that are not taken yet: those of one chunk of a body, decompressed.
const ITEMS_BYTES_MAX: usize = 8 * 1024 * 1024;

// === impl Facts ===

impl Facts {
    /// Stores a string.
    pub(in crate::api) fn set(&mut self, slot: Slot, text: String) -> Result<(), Unlearned> {
        if let Some(item) = self.items.as_mut().and_then(|items| items.current.as_mut()) {
            return item.set(slot, text);
        }
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
            Slot::Continue => self.next = text,
            Slot::LabelKey | Slot::LabelValue => set_label(&mut self.labels, slot, text)?,
        }
        Ok(())
    }

    /// Reports whether the kind is `Status` of the core group.
    pub(in crate::api) fn is_status(&self) -> bool {
        self.kind == "Status" && self.api_version == "v1"
    }

    /// Reports whether the spec has finalizers, too (S-WRITE-04).
    pub(in crate::api) fn is_namespace(&self) -> bool {
        self.kind == "Namespace" && self.api_version == "v1"
    }

    /// Reports whether it is a list, or a Table, which has the version of its content.
    fn is_collection(&self) -> bool {
        self.kind.ends_with("List") || (self.kind == "Table" && self.api_version.starts_with(META))
    }

    /// Returns the version of a collection once it was parsed, which is mostly long before the last
    /// item.
    pub(in crate::api) fn collection_version(&self) -> Option<ResourceVersion> {
        let known = self.name.is_empty() && self.is_collection();
        known.then(|| ResourceVersion::parse(&self.version).ok()).flatten()
    }

    /// Returns the result of all facts.
    pub(in crate::api) fn conclude(self) -> Learned {
        if self.is_status() {
            return self.conclude_status();
        }
        if self.kind.is_empty() || (self.name.is_empty() && !self.is_collection()) {
            return Learned::Nothing(Unlearned::NotAnObject);
        }
        let Some(version) = self.version() else {
            return Learned::Nothing(Unlearned::NoVersion);
        };
        if self.name.is_empty() {
            let whole = self.items.is_some_and(|items| items.are_whole());
            return Learned::List { version, next: present(self.next), whole };
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

    /// Returns metadata.resourceVersion.
    pub(in crate::api) fn version(&self) -> Option<ResourceVersion> {
        ResourceVersion::parse(&self.version).ok()
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

// === impl Items ===

impl Items {
    /// Starts a row of a Table, which contains its object.
    pub(in crate::api) fn begin_row(&mut self) {
        self.begun += 1;
    }

    /// Starts an item: the following metadata is its own.
    pub(in crate::api) fn begin(&mut self, in_row: bool) {
        self.begun += usize::from(!in_row);
        self.current = Some(Item::default());
    }

    /// Ends the item.
    pub(in crate::api) fn end(&mut self) {
        let Some(item) = self.current.take() else { return };
        self.bytes += size_of::<ListedObject>() + item.bytes();
        if self.bytes > ITEMS_BYTES_MAX {
            self.found = Vec::new();
            return;
        }
        if let Some(object) = item.conclude() {
            self.found.push(object);
            self.read += 1;
        }
    }

    /// Returns the items that were parsed since the last call.
    pub(in crate::api) fn take(&mut self) -> Vec<ListedObject> {
        if self.bytes <= ITEMS_BYTES_MAX {
            self.bytes = 0;
        }
        std::mem::take(&mut self.found)
    }

    /// Reports whether all items were parsed.
    fn are_whole(&self) -> bool {
        self.begun == self.read
    }
}

// === impl Item ===

impl Item {
    fn set(&mut self, slot: Slot, text: String) -> Result<(), Unlearned> {
        match slot {
            Slot::Name => self.name = text,
            Slot::Namespace => self.namespace = text,
            Slot::Version => self.version = text,
            Slot::LabelKey | Slot::LabelValue => set_label(&mut self.labels, slot, text)?,
            _ => {}
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        let labels =
            self.labels.iter().map(|(key, value)| key.len() + value.len() + LABEL_OVERHEAD);
        self.name.len() + self.namespace.len() + labels.sum::<usize>()
    }

    fn conclude(self) -> Option<ListedObject> {
        let version = ResourceVersion::parse(&self.version).ok()?;
        let key = ObjectKey::new(Some(&self.namespace), &self.name);
        let labels = self.labels;
        (!self.name.is_empty()).then_some(ListedObject { key, version, labels })
    }
}

/// The size of a label without its text.
const LABEL_OVERHEAD: usize = 48;

fn set_label(
    labels: &mut Vec<(String, String)>,
    slot: Slot,
    text: String,
) -> Result<(), Unlearned> {
    let bytes: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes + text.len() > LABEL_BYTES_MAX {
        return Err(Unlearned::TooLarge);
    }
    match labels.last_mut() {
        Some((_, value)) if slot == Slot::LabelValue => *value = text,
        _ => labels.push((text, String::new())),
    }
    Ok(())
}

fn present(text: String) -> Option<String> {
    if text.is_empty() { None } else { Some(text) }
}
