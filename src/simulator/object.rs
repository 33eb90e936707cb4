//! One stored object: its wire bytes, and its values for selectors.
//!
//! Invariant: immutable once sealed; a change makes another object.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    json::{Json, write_members},
    kind::{ResourceType, Style},
};
use crate::api::{
    ObjectKey,
    selector::{Fields, Labels},
};

/// An object at one version.
#[derive(Clone, Debug)]
pub(super) struct Object {
    /// `namespace/name` or `name`: the storage key below the resource's prefix.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub version: u64,
    labels: Vec<(String, String)>,
    fields: Vec<(String, String)>,
    /// The bytes after kind and apiVersion, or after apiVersion if keys are sorted.
    tail: Bytes,
}

/// The context of an object's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectContext {
    /// Alone: a GET, or an event.
    Alone,
    /// An item of a list.
    InList,
}

// === impl Object ===

impl Object {
    /// Serializes an object as the server does, with this version.
    pub(super) fn seal(kind: &ResourceType, mut json: Json, version: u64) -> Self {
        json.entry("metadata").set("resourceVersion", version.to_string());
        Self::lay_out(kind, json, version)
    }

    /// Returns an object that was never stored and so has no version: the response of a dry run.
    pub(super) fn unsaved(kind: &ResourceType, json: Json) -> Self {
        Self::lay_out(kind, json, 0)
    }

    fn lay_out(kind: &ResourceType, mut json: Json, version: u64) -> Self {
        let metadata = json.entry("metadata");
        let part = |name: &str| metadata.str_at(&[name]).unwrap_or_default().to_owned();
        let (namespace, name, uid) = (part("namespace"), part("name"), part("uid"));
        let labels = text_pairs(metadata.get("labels"));
        let fields = selectable_fields(kind, &json, &namespace, &name);
        let key = ObjectKey::new(Some(&namespace), &name);
        Self { key, uid, version, labels, fields, tail: lay_out(kind, json).into() }
    }

    /// Returns the object with another version, as in DELETED events (S-WATCH-22).
    pub(super) fn at_version(&self, kind: &ResourceType, version: u64) -> Self {
        Self::seal(kind, self.to_json(kind), version)
    }

    /// Returns the object as a value, at the stored API version.
    pub(super) fn to_json(&self, kind: &ResourceType) -> Json {
        let mut bytes = Vec::with_capacity(self.tail.len() + HEAD_BYTES);
        self.write(kind, kind.stored_version(), ObjectContext::Alone, &mut bytes);
        Json::parse(&bytes).unwrap_or(Json::Null)
    }

    /// Appends the object as it is served at `version`.
    pub(super) fn write(
        &self,
        kind: &ResourceType,
        version: &str,
        place: ObjectContext,
        out: &mut Vec<u8>,
    ) {
        write_head(kind, version, place, out);
        out.extend_from_slice(&self.tail);
    }

    /// Returns the approximate size of the object.
    pub(super) fn bytes(&self) -> usize {
        self.tail.len() + HEAD_BYTES
    }
}

impl Labels for Object {
    fn label(&self, key: &str) -> Option<&str> {
        lookup(&self.labels, key)
    }
}

impl Fields for Object {
    fn field(&self, path: &str) -> Option<&str> {
        lookup(&self.fields, path)
    }
}

const HEAD_BYTES: usize = 48;

pub(super) const METADATA_ORDER: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

const MEMBER_ORDER: &[&str] =
    &["metadata", "immutable", "spec", "data", "stringData", "binaryData"];

/// Writes an empty object with a version only: the body of a bookmark (S-WATCH-30).
pub(super) fn write_bookmark(
    kind: &ResourceType,
    version: &str,
    resource_version: u64,
    annotation: Option<&str>,
    out: &mut Vec<u8>,
) {
    let mut metadata = Json::object([("resourceVersion", resource_version.to_string().into())]);
    if let Some(annotation) = annotation {
        metadata.set("annotations", Json::object([(annotation, "true".into())]));
    }
    let mut object = Json::object([
        ("kind", kind.kind.as_str().into()),
        ("apiVersion", kind.api_version(version).into()),
        ("metadata", metadata),
    ]);
    match kind.style {
        Style::Typed => object.members_mut().extend_from_slice(kind.zero.members()),
        Style::Custom => object.sort_keys(),
    }
    object.write(out);
}

fn write_head(kind: &ResourceType, version: &str, place: ObjectContext, out: &mut Vec<u8>) {
    let api_version = kind.api_version(version);
    let head = match (kind.style, place) {
        (Style::Typed, ObjectContext::InList) => "{".to_owned(),
        (Style::Typed, ObjectContext::Alone) => {
            format!(r#"{{"kind":"{}","apiVersion":"{api_version}","#, kind.kind)
        }
        (Style::Custom, _) => format!(r#"{{"apiVersion":"{api_version}","#),
    };
    out.extend_from_slice(head.as_bytes());
}

fn lay_out(kind: &ResourceType, mut json: Json) -> Vec<u8> {
    json.remove("apiVersion");
    match kind.style {
        Style::Custom => {
            json.set("kind", kind.kind.as_str());
            json.sort_keys();
        }
        Style::Typed => {
            json.remove("kind");
            for (key, zero) in kind.zero.members() {
                if json.get(key).is_none() {
                    json.set(key, zero.clone());
                }
            }
            json.order_members(MEMBER_ORDER);
            json.entry("metadata").order_members(METADATA_ORDER);
            // These are maps in Go, and so sorted. Other maps keep their written order: without
            // schemas they look like structs.
            for map in ["labels", "annotations"] {
                sort_map(json.entry("metadata"), map);
            }
            for map in ["data", "binaryData"] {
                sort_map(&mut json, map);
            }
        }
    }
    let mut out = Vec::new();
    write_members(json.members(), &mut out);
    out.push(b'}');
    out
}

fn sort_map(json: &mut Json, key: &str) {
    if json.get(key).is_some() {
        json.entry(key).sort_keys();
    }
}

fn selectable_fields(
    kind: &ResourceType,
    json: &Json,
    namespace: &str,
    name: &str,
) -> Vec<(String, String)> {
    let common = [("metadata.name", name), ("metadata.namespace", namespace)];
    common
        .into_iter()
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .chain(kind.fields.iter().map(|field| (field.label.clone(), field.value(json))))
        .collect()
}

fn text_pairs(map: Option<&Json>) -> Vec<(String, String)> {
    let members = map.map(Json::members).unwrap_or_default();
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    members.iter().map(|(key, value)| (key.clone(), text(value))).collect()
}

fn lookup<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// An object that the present state, the history and open responses share.
pub(super) type Shared = Arc<Object>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulator::kind::builtin;

    fn built_in(plural: &str) -> ResourceType {
        builtin::all().into_iter().find(|kind| kind.plural == plural).expect("a built-in")
    }

    fn written(kind: &ResourceType, object: &Object, place: ObjectContext) -> String {
        let mut out = Vec::new();
        object.write(kind, kind.stored_version(), place, &mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn typed_objects_are_in_struct_order_and_omit_their_kind_in_lists() {
        let pods = built_in("pods");
        let given = br#"{"status":{"phase":"Running"},"metadata":{"labels":{"b":"2","a":"1"},
            "uid":"u","namespace":"d","name":"p"},"apiVersion":"v1","kind":"Pod"}"#;
        let object = Object::seal(&pods, Json::parse(given).expect("JSON"), 7);
        let rest = concat!(
            r#""metadata":{"name":"p","namespace":"d","uid":"u","resourceVersion":"7","#,
            r#""labels":{"a":"1","b":"2"}},"spec":{"containers":null},"#,
            r#""status":{"phase":"Running"}}"#
        );
        let alone = format!(r#"{{"kind":"Pod","apiVersion":"v1",{rest}"#);
        assert_eq!(written(&pods, &object, ObjectContext::Alone), alone);
        assert_eq!(written(&pods, &object, ObjectContext::InList), format!("{{{rest}"));
        assert_eq!(object.key.as_str(), "d/p");
        assert_eq!(object.field("status.phase"), Some("Running"));
        assert_eq!(object.label("b"), Some("2"));
    }

    #[test]
    fn custom_objects_have_sorted_keys_and_keep_their_kind() {
        let kind = ResourceType::custom("x.io", &["v2", "v1"], "widgets", "Widget");
        let given = br#"{"spec":{"b":1,"a":2},"metadata":{"name":"w","annotations":{"n":""}},
            "data":1,"kind":"Widget","apiVersion":"x.io/v1"}"#;
        let object = Object::seal(&kind, Json::parse(given).expect("JSON"), 8);
        let mut out = Vec::new();
        object.write(&kind, "v1", ObjectContext::InList, &mut out);
        assert_eq!(
            String::from_utf8(out).expect("UTF-8"),
            concat!(
                r#"{"apiVersion":"x.io/v1","data":1,"kind":"Widget","#,
                r#""metadata":{"annotations":{"n":""},"name":"w","resourceVersion":"8"},"#,
                r#""spec":{"a":2,"b":1}}"#
            )
        );
    }

    #[test]
    fn bookmarks_show_zero_values_if_typed_and_none_if_custom() {
        let custom = ResourceType::custom("x.io", &["v1"], "widgets", "Widget");
        for (kind, annotation, expected) in [
            (
                built_in("pods"),
                None,
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"},"spec":{"containers":null},"status":{}}"#,
            ),
            (
                custom,
                Some("k8s.io/initial-events-end"),
                r#"{"apiVersion":"x.io/v1","kind":"Widget","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"9"}}"#,
            ),
        ] {
            let mut out = Vec::new();
            write_bookmark(&kind, "v1", 9, annotation, &mut out);
            assert_eq!(String::from_utf8(out).expect("UTF-8"), expected);
        }
    }
}
