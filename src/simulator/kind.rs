//! What the simulated apiserver serves: one description per group-resource.
//!
//! Everything that differs between resources stands here as data; the rest of the simulator has
//! no `if pods`. Built-in types are in [`builtin`].

pub(super) mod builtin;

use super::json::Json;
use crate::api::GroupResource;

/// One group-resource: its names, versions, shape and rules.
#[derive(Clone, Debug)]
pub struct ResourceType {
    /// The API group; empty for core.
    pub group: String,
    /// Served versions, the preferred and stored one first.
    pub versions: Vec<String>,
    /// The plural name, as in URLs.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// The kind.
    pub kind: String,
    /// The kind of lists.
    pub list_kind: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// How objects and lists are laid out on the wire.
    pub style: Style,
    /// Fields that selectors may name beyond `metadata.name` and `metadata.namespace`.
    pub fields: Vec<Field>,
    /// Whether `metadata.namespace` is an accepted field.
    pub namespace_field: bool,
    /// How an unknown field is reported.
    pub unknown_field: UnknownField,
    /// What DELETE answers.
    pub deletion: DeletionAnswer,
    /// Whether `/status` exists and the main resource ignores status.
    pub status: StatusSubresource,
    /// Whether the watch cache serves it (S-LIST-28).
    pub watch_cache: WatchCache,
    /// Whether `metadata.generation` counts changes of the specification.
    pub generation: bool,
    /// Zero values a typed object shows after its metadata, as in a bookmark (S-WATCH-30).
    pub zero: Json,
    /// Short names for discovery.
    pub short_names: Vec<String>,
}

/// The two layouts of the apiserver's JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Struct order; list items without kind and apiVersion (S-LIST-61).
    Typed,
    /// Sorted keys; list items with kind and apiVersion (S-LIST-62).
    Custom,
}

/// What DELETE of an object without finalizers answers (S-WRITE-05, S-WRITE-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionAnswer {
    /// A Status of success.
    Status,
    /// The object as it was, with the version of the deletion.
    Object,
}

/// Whether there is a status subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSubresource {
    /// Writes to the object ignore status; writes to `/status` change nothing else.
    Present,
    /// Status is a field like any other.
    Absent,
}

/// Whether reads may come from the apiserver's watch cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchCache {
    /// The usual case.
    Cached,
    /// Every read goes to etcd: events.
    Uncached,
}

/// The message families for a field that selectors may not name (S-SEL-12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownField {
    /// `"f" is not a known field selector: only "metadata.name", "metadata.namespace"`.
    KnownAre,
    /// `field label not supported: f`.
    NotSupported,
    /// `field label "f" not supported for Job`.
    NotSupportedFor,
}

/// A field that selectors may name.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in selectors.
    pub label: String,
    path: Vec<String>,
    rendering: Rendering,
}

/// How the server prints a field's value for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// A string; absent is empty.
    Text,
    /// `true` or `false`; absent is `false`.
    Flag,
    /// A decimal; absent is `0`.
    Decimal,
    /// The first element of a list of `{ip}`.
    FirstIp,
    /// Accepted, but never filled in.
    Never,
    /// The event's component, or its reporting component.
    EventSource,
    /// Whatever scalar stands there; absent is empty.
    Scalar,
}

// === impl ResourceType ===

impl ResourceType {
    /// A namespaced custom resource with a status subresource.
    pub fn custom(group: &str, versions: &[&str], plural: &str, kind: &str) -> Self {
        Self {
            style: Style::Custom,
            unknown_field: UnknownField::NotSupported,
            generation: true,
            status: StatusSubresource::Present,
            ..Self::typed(group, versions, plural, kind)
        }
    }

    /// A namespaced built-in resource of the commonest shape.
    pub fn typed(group: &str, versions: &[&str], plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            versions: versions.iter().map(|&version| version.to_owned()).collect(),
            plural: plural.to_owned(),
            singular: kind.to_ascii_lowercase(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            namespaced: true,
            style: Style::Typed,
            fields: Vec::new(),
            namespace_field: true,
            unknown_field: UnknownField::KnownAre,
            deletion: DeletionAnswer::Status,
            status: StatusSubresource::Absent,
            watch_cache: WatchCache::Cached,
            generation: false,
            zero: Json::Object(Vec::new()),
            short_names: Vec::new(),
        }
    }

    /// The same, cluster-scoped.
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self.namespace_field = self.style == Style::Typed;
        self
    }

    /// The same without a status subresource.
    pub fn without_status(mut self) -> Self {
        self.status = StatusSubresource::Absent;
        self
    }

    /// The same with one more field that selectors may name; `label` is also its path.
    pub fn selectable(mut self, label: &str, rendering: Rendering) -> Self {
        self.fields.push(Field::new(label, label, rendering));
        self
    }

    /// The same with one more field whose path differs from its name.
    pub fn selectable_at(mut self, label: &str, path: &str, rendering: Rendering) -> Self {
        self.fields.push(Field::new(label, path, rendering));
        self
    }

    /// The group and resource.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// `apiVersion` of objects served at `version`.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// The stored version.
    pub fn stored_version(&self) -> &str {
        self.versions.first().map_or("v1", String::as_str)
    }

    /// Why a selector may not name `label`, or nothing when it may.
    pub fn field_fault(&self, label: &str) -> Option<String> {
        let known = label == "metadata.name"
            || (label == "metadata.namespace" && self.namespace_field)
            || self.fields.iter().any(|field| field.label == label);
        if known {
            return None;
        }
        Some(match self.unknown_field {
            UnknownField::KnownAre => format!(
                "{label:?} is not a known field selector: only \"metadata.name\", \
                 \"metadata.namespace\""
            ),
            UnknownField::NotSupported => format!("field label not supported: {label}"),
            UnknownField::NotSupportedFor => {
                format!("field label {label:?} not supported for {}", self.kind)
            }
        })
    }
}

// === impl Field ===

impl Field {
    fn new(label: &str, path: &str, rendering: Rendering) -> Self {
        let path = path.split('.').map(str::to_owned).collect();
        Self { label: label.to_owned(), path, rendering }
    }

    /// The value selectors compare with, as the server prints it.
    pub fn value(&self, object: &Json) -> String {
        let found = self.path.iter().try_fold(object, |value, key| value.get(key));
        match self.rendering {
            Rendering::Text => text(found),
            Rendering::Flag => (found == Some(&Json::Bool(true))).to_string(),
            Rendering::Decimal => match scalar(found) {
                empty if empty.is_empty() => "0".to_owned(),
                decimal => decimal,
            },
            Rendering::FirstIp => {
                text(found.and_then(|ips| ips.as_array().first()).and_then(|ip| ip.get("ip")))
            }
            Rendering::Never => String::new(),
            Rendering::EventSource => match text(object.at(&["source", "component"])) {
                empty if empty.is_empty() => text(object.get("reportingComponent")),
                component => component,
            },
            Rendering::Scalar => scalar(found),
        }
    }
}

fn text(value: Option<&Json>) -> String {
    value.and_then(Json::as_str).unwrap_or_default().to_owned()
}

fn scalar(value: Option<&Json>) -> String {
    match value {
        Some(Json::String(text)) => text.clone(),
        Some(Json::Bool(flag)) => flag.to_string(),
        Some(Json::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}
