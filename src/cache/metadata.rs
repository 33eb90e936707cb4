//! LIST, GET and WATCH of metadata only: PartialObjectMetadata (S-CT-03, S-LIST-63). Pure.
//!
//! Built-in types print their metadata as a PartialObjectMetadata does: it is cut out of their
//! bytes. Custom resources print its keys sorted: they are reordered. If the metadata would differ
//! from the apiserver's in any byte, it is not returned.

mod encode;

use std::{borrow::Cow, collections::VecDeque, str};

use bytes::Bytes;
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    envelope::{JsonEnvelope, Style},
    held::Held,
    portion::{ListMeta, Portion},
    render::ListBody,
    store::Snapshot,
    table::Moment,
};
use crate::api::{
    form::Form,
    media::{MetadataVersion, Partial, Representation},
    query::Query,
};

pub(super) use encode::encoded;

/// The starts of annotations that conversions of daemon sets, deployments and autoscalers add.
const CONVERTED: [&[u8]; 3] = [
    b"deprecated.daemonset.template.generation",
    b"deprecated.deployment.rollback",
    b"autoscaling.alpha.kubernetes.io/",
];

/// An object of which only the metadata is parsed.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    metadata: ObjectMeta<'a>,
}

/// The members of ObjectMeta in the apiserver's order, with unchanged values.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ObjectMeta<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    name: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    generate_name: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    self_link: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    uid: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    generation: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    deletion_timestamp: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    deletion_grace_period_seconds: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    labels: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<OwnerReference<'a>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    finalizers: Option<&'a RawValue>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    managed_fields: Vec<ManagedFieldsEntry<'a>>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: &'a RawValue,
    #[serde(borrow)]
    kind: &'a RawValue,
    #[serde(borrow)]
    name: &'a RawValue,
    #[serde(borrow)]
    uid: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    controller: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    block_owner_deletion: Option<&'a RawValue>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ManagedFieldsEntry<'a> {
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    manager: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    operation: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    api_version: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    time: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    fields_type: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    fields_v1: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    subresource: Option<&'a RawValue>,
}

/// The text before the metadata in an item of a built-in type's list.
const TYPED_START: &str = r#"{"metadata":"#;

// === impl Snapshot ===

impl Snapshot {
    /// Returns the apiserver's PartialObjectMetadataList for a query that this snapshot covers;
    /// `None` if an object's metadata has an unknown form.
    pub fn metadata_list_body(&self, query: &Query, partial: Partial) -> Option<ListBody> {
        let (whole, representation) = (Portion::default(), Representation::Metadata(partial));
        self.listing(query, &whole, representation, Moment(0)).body()
    }

    /// Returns the apiserver's PartialObjectMetadata of one of this snapshot's objects; `None` if
    /// its metadata has an unknown form.
    pub fn metadata_body(&self, object: Held<'_>, partial: Partial) -> Option<VecDeque<Bytes>> {
        self.envelope().metadata(&object.raw(), partial)
    }
}

/// Returns the text before and after the items of a PartialObjectMetadataList in JSON.
pub(super) fn json_ends(
    meta: &ListMeta<'_>,
    version: MetadataVersion,
    is_empty: bool,
) -> (Vec<u8>, Vec<u8>) {
    let head = head("PartialObjectMetadataList", version);
    let (at, more) = (meta.version, meta.members());
    let (items, tail) = if is_empty { ("null", "}\n") } else { ("[", "]}\n") };
    let head = format!(r#"{head}"metadata":{{"resourceVersion":"{at}"{more}}},"items":{items}"#);
    (head.into(), tail.into())
}

/// Returns the PartialObjectMetadata of an object in JSON.
pub(super) fn json_object(
    envelope: &JsonEnvelope,
    raw: &[u8],
    version: MetadataVersion,
) -> Option<VecDeque<Bytes>> {
    let object = partial(raw, envelope.style(), version)?;
    Some([Bytes::from(object), Bytes::from_static(b"\n")].into())
}

/// Returns the PartialObjectMetadata of an object printed in a style; `None` if its metadata has an
/// unknown form.
pub(super) fn partial(raw: &[u8], style: Style, version: MetadataVersion) -> Option<String> {
    let text = str::from_utf8(raw).ok()?;
    let metadata: Cow<'_, str> = match style {
        Style::Typed => {
            let text = text.strip_prefix(TYPED_START)?;
            let mut values = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
            let metadata = values.next()?.ok()?.get();
            (!is_converted(metadata.as_bytes(), Form::Json)).then_some(metadata)?.into()
        }
        Style::Custom => {
            let Item { metadata } = serde_json::from_str(text).ok()?;
            metadata.is_usual().then(|| serde_json::to_string(&metadata).ok())??.into()
        }
    };
    Some(format!(r#"{}"metadata":{metadata}}}"#, head("PartialObjectMetadata", version)))
}

/// Reports whether a conversion of the object added annotations, which the apiserver does not send with metadata
/// alone.
pub(super) fn is_converted(metadata: &[u8], form: Form) -> bool {
    let is_name = |at: usize| {
        // In JSON, a name follows a quote; the text may also be a part of a value.
        form == Form::Protobuf || at.checked_sub(1).and_then(|at| metadata.get(at)) == Some(&b'"')
    };
    CONVERTED.iter().any(|name| memmem::find_iter(metadata, name).any(is_name))
}

// === impl ObjectMeta ===

impl ObjectMeta<'_> {
    /// Reports whether no member has a value that a Go struct omits when printed.
    fn is_usual(&self) -> bool {
        let of_managed = self.managed_fields.iter().flat_map(|entry| {
            [
                entry.manager,
                entry.operation,
                entry.api_version,
                entry.fields_type,
                entry.subresource,
            ]
        });
        let values = [
            self.name,
            self.generate_name,
            self.namespace,
            self.self_link,
            self.uid,
            self.resource_version,
            self.generation,
            self.labels,
            self.annotations,
            self.finalizers,
        ];
        let left_out = |value: &RawValue| matches!(value.get(), "\"\"" | "0" | "{}" | "[]");
        !values.into_iter().chain(of_managed).flatten().any(left_out)
    }
}

/// Returns the start of such an object or list.
pub(super) fn head(kind: &str, version: MetadataVersion) -> String {
    format!(r#"{{"kind":"{kind}","apiVersion":"{}","#, version.api_version())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{GroupVersionResource, Scope},
        cache::{form::Envelope, reader::Reader, rebuild::Rebuild, testing::pods},
    };

    const THING: &str = concat!(
        r#"{"apiVersion":"a.io/v1","kind":"Thing","metadata":{"annotations":{"a":"\u003c"},"#,
        r#""creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["x"],"generateName":"t-","#,
        r#""generation":1,"managedFields":[{"apiVersion":"a.io/v1","fieldsType":"FieldsV1","#,
        r#""fieldsV1":{"f:spec":{}},"manager":"m","operation":"Update","#,
        r#""time":"2026-01-01T00:00:00Z"}],"name":"t-1","namespace":"n","ownerReferences":"#,
        r#"[{"apiVersion":"v1","controller":true,"kind":"K","name":"o","uid":"u"}],"#,
        r#""resourceVersion":"5","uid":"0f4f2d9e-7a54-4a86-9c3b-6f2f5a0f7b11"},"spec":{"a":1}}"#,
    );

    const V1: Partial = Partial { version: MetadataVersion::V1, form: Form::Json };

    fn text(chunks: VecDeque<Bytes>) -> String {
        chunks.iter().map(|chunk| str::from_utf8(chunk).expect("UTF-8")).collect()
    }

    fn all_pods() -> Query {
        Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All)
    }

    /// Returns the metadata of one custom object.
    fn metadata_of(raw: &str) -> Option<String> {
        let mut reader =
            Reader::new(GroupVersionResource::new("a.io", "v1", "things"), Scope::All, Form::Json);
        let (object, _) = reader.item(raw.as_bytes()).expect("an object");
        let mut list = Rebuild::of(None, Form::Json, Default::default());
        let key = object.key().clone();
        list.push(object).expect("no duplicate");
        let trailer = r#"],"kind":"ThingList","metadata":{"continue":"","resourceVersion":"9"}}"#;
        let learned =
            Envelope::learn(r#"{"apiVersion":"a.io/v1","items":["#, &format!("{trailer}\n"));
        let (envelope, version) = learned.expect("an envelope");
        let snapshot = list.finish(version, envelope).expect("no duplicate");
        let partial = Partial { version: MetadataVersion::V1Beta1, form: Form::Json };
        snapshot.metadata_body(snapshot.object(&key).expect("it"), partial).map(text)
    }

    #[test]
    fn metadata_of_a_built_in_type_is_a_part_of_its_bytes() {
        let snapshot = pods(7, &[("d", "p", "u-1", 5, "web"), ("d", "q", "u-2", 6, "db")]);
        let list = snapshot.metadata_list_body(&all_pods(), V1).expect("a list");
        assert_eq!(list.count, 2);
        let bytes = list.bytes;
        let text = text(list.chunks);
        assert_eq!(bytes, text.len());
        let pod = |name: &str, uid: &str, version: u64, app: &str| {
            format!(
                r#"{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"name":"{name}","namespace":"d","uid":"{uid}","resourceVersion":"{version}","labels":{{"app":"{app}"}}}}}}"#
            )
        };
        let header = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":["#;
        let items = [pod("p", "u-1", 5, "web"), pod("q", "u-2", 6, "db")].join(",");
        assert_eq!(text, format!("{header}{items}]}}\n"));
    }

    #[test]
    fn metadata_of_a_custom_resource_is_reordered() {
        let ordered = concat!(
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1beta1","metadata":"#,
            r#"{"name":"t-1","generateName":"t-","namespace":"n","#,
            r#""uid":"0f4f2d9e-7a54-4a86-9c3b-6f2f5a0f7b11","resourceVersion":"5","generation":1,"#,
            r#""creationTimestamp":"2026-01-01T00:00:00Z","annotations":{"a":"\u003c"},"#,
            r#""ownerReferences":[{"apiVersion":"v1","kind":"K","name":"o","uid":"u","controller":true}],"#,
            r#""finalizers":["x"],"managedFields":[{"manager":"m","operation":"Update","#,
            r#""apiVersion":"a.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","#,
            r#""fieldsV1":{"f:spec":{}}}]}}"#,
            "\n",
        );
        assert_eq!(metadata_of(THING).as_deref(), Some(ordered));
    }

    #[test]
    fn metadata_in_an_unknown_form_is_not_returned() {
        for (usual, odd) in [
            (r#""generation":1"#, r#""generation":0"#),
            (r#"["x"]"#, "[]"),
            (r#""finalizers""#, r#""unheardOf""#),
            (r#""manager":"m""#, r#""manager":"""#),
        ] {
            assert_eq!(metadata_of(&THING.replace(usual, odd)), None, "{odd}");
        }
    }

    #[test]
    fn metadata_that_a_conversion_changed_is_not_returned() {
        let of = |annotation: &str| {
            let raw =
                format!(r#"{TYPED_START}{{"name":"d","annotations":{{"{annotation}":"1"}}}}}}"#);
            partial(raw.as_bytes(), Style::Typed, MetadataVersion::V1)
        };
        assert!(of("example.com/a").is_some());
        assert_eq!(of("deprecated.daemonset.template.generation"), None);
        assert_eq!(of("autoscaling.alpha.kubernetes.io/conditions"), None);
    }

    #[test]
    fn a_list_of_no_metadata_is_null() {
        let list = pods(7, &[]).metadata_list_body(&all_pods(), V1);
        let empty = concat!(
            r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","#,
            r#""metadata":{"resourceVersion":"7"},"items":null}"#,
            "\n",
        );
        assert_eq!(text(list.expect("a list").chunks), empty);
    }
}
