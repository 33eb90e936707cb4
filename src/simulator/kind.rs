//! The served resources: one description per group-resource.
//!
//! All differences between resources are data in this module; the rest of the simulator has no `if
//! pods`. Built-in types are in [`builtin`].

pub(super) mod builtin;

use super::json::Json;
use crate::api::GroupResource;

/// One group-resource: its names, versions, shape and rules.
#[derive(Clone, Debug)]
pub struct ResourceType {
    /// The API group. Empty for core.
    pub group: String,
    /// The served versions, the preferred and stored one first.
    pub versions: Vec<String>,
    /// The plural name, as in URLs.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// The kind.
    pub kind: String,
    /// The kind of lists.
    pub list_kind: String,
    /// `true` if objects are namespaced.
    pub namespaced: bool,
    /// The wire layout of objects and lists.
    pub style: Style,
    /// The fields that selectors may name besides `metadata.name` and `metadata.namespace`.
    pub fields: Vec<Field>,
    /// `true` if `metadata.namespace` is an accepted field.
    pub namespace_field: bool,
    /// The message form for an unknown field.
    pub unknown_field: UnknownField,
    /// The response to a DELETE.
    pub deletion: DeletionAnswer,
    /// The presence of `/status`; if present, the main resource ignores status.
    pub status: StatusSubresource,
    /// The use of the watch cache (S-LIST-28).
    pub watch_cache: WatchCache,
    /// `true` if `metadata.generation` counts changes of the specification.
    pub generation: bool,
    /// The zero values of a typed object after its metadata, as in a bookmark (S-WATCH-30).
    pub zero: Json,
    /// The short names for discovery.
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

/// The response to a DELETE of an object without finalizers (S-WRITE-05, S-WRITE-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionAnswer {
    /// A Status of success.
    Status,
    /// The deleted object, with the version of the deletion.
    Object,
}

/// The presence of a status subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSubresource {
    /// Writes to the object ignore status; writes to `/status` change nothing else.
    Present,
    /// Status is a field like any other.
    Absent,
}

/// The use of the apiserver's watch cache for reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchCache {
    /// The usual case.
    Cached,
    /// Every read goes to etcd: events.
    Uncached,
}

/// The message forms for a field that selectors may not name (S-SEL-12).
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

/// The server's text form of a field for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendering {
    /// A string. Empty if absent.
    Text,
    /// `true` or `false`. `false` if absent.
    Flag,
    /// A decimal. `0` if absent.
    Decimal,
    /// The first element of a list of `{ip}`.
    FirstIp,
    /// Accepted, but never filled in.
    Never,
    /// The event's component, or its reporting component.
    EventSource,
    /// Any scalar. Empty if absent.
    Scalar,
}

// === impl ResourceType ===

impl ResourceType {
    /// Returns a namespaced custom resource with a status subresource.
    pub fn custom(group: &str, versions: &[&str], plural: &str, kind: &str) -> Self {
        Self {
            style: Style::Custom,
            unknown_field: UnknownField::NotSupported,
            generation: true,
            status: StatusSubresource::Present,
            ..Self::typed(group, versions, plural, kind)
        }
    }

    /// Returns a namespaced built-in resource of the commonest shape.
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

    /// Makes the resource cluster-scoped.
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self.namespace_field = self.style == Style::Typed;
        self
    }

    /// Removes the status subresource.
    pub fn without_status(mut self) -> Self {
        self.status = StatusSubresource::Absent;
        self
    }

    /// Adds a field that selectors may name. `label` is also its path.
    pub fn selectable(mut self, label: &str, rendering: Rendering) -> Self {
        self.fields.push(Field::new(label, label, rendering));
        self
    }

    /// Adds a field whose path differs from its name.
    pub fn selectable_at(mut self, label: &str, path: &str, rendering: Rendering) -> Self {
        self.fields.push(Field::new(label, path, rendering));
        self
    }

    /// Returns the group and resource.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(&self.group, &self.plural)
    }

    /// Returns the `apiVersion` of objects served at `version`.
    pub fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// Returns the stored version.
    pub fn stored_version(&self) -> &str {
        self.versions.first().map_or("v1", String::as_str)
    }

    /// Returns the reason why a selector may not name `label`, if any.
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

    /// Returns the value for comparison with selectors, in the server's text form.
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
