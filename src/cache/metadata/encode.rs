//! The metadata of custom resources in protobuf, encoded from their JSON (S-CT-04, S-CT-23). Pure.
//!
//! The apiserver parses a custom resource's metadata into ObjectMeta and encodes that. Its fields
//! stand in the order of their numbers; strings and `generation` are encoded even if they are empty
//! or zero. Metadata with an unknown member, or with a value that may be encoded otherwise, is not
//! encoded.

use std::{borrow::Cow, collections::BTreeMap, str};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    api::protobuf::wire::{field, put_bytes, put_number},
    cache::{envelope::Style, table::Moment},
};

/// An object of which only the metadata is parsed.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    metadata: ObjectMeta<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ObjectMeta<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    generate_name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    self_link: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    generation: i64,
    #[serde(borrow)]
    creation_timestamp: Option<Cow<'a, str>>,
    #[serde(borrow)]
    deletion_timestamp: Option<Cow<'a, str>>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow)]
    labels: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow)]
    annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow)]
    owner_references: Vec<OwnerReference<'a>>,
    #[serde(borrow)]
    finalizers: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    managed_fields: Vec<ManagedFieldsEntry<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ManagedFieldsEntry<'a> {
    #[serde(borrow)]
    manager: Cow<'a, str>,
    #[serde(borrow)]
    operation: Cow<'a, str>,
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
    #[serde(borrow)]
    fields_type: Cow<'a, str>,
    #[serde(borrow)]
    fields_v1: Option<&'a RawValue>,
    #[serde(borrow)]
    subresource: Cow<'a, str>,
}

/// The number of `managedFields` in ObjectMeta, the only one with a tag of two bytes.
const MANAGED_FIELDS: u64 = 17;

/// Returns the content of the PartialObjectMetadata of an object in JSON; `None` if its metadata
/// has an unknown form, or if its type is not a custom resource.
pub(in crate::cache) fn encoded(raw: &[u8], style: Style) -> Option<Vec<u8>> {
    let is_custom = style == Style::Custom;
    let Item { metadata } = serde_json::from_slice(raw).ok().filter(|_| is_custom)?;
    Some(field(1, &metadata.encode()?))
}

// === impl ObjectMeta ===

impl ObjectMeta<'_> {
    fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let texts = [
            (1, &self.name),
            (2, &self.generate_name),
            (3, &self.namespace),
            (4, &self.self_link),
            (5, &self.uid),
            (6, &self.resource_version),
        ];
        put_texts(&mut out, &texts);
        put_integer(&mut out, 7, self.generation);
        let created = self.creation_timestamp.as_deref().map_or(Some(Vec::new()), time)?;
        put_bytes(&mut out, 8, &created);
        if let Some(deleted) = &self.deletion_timestamp {
            put_bytes(&mut out, 9, &time(deleted)?);
        }
        if let Some(seconds) = self.deletion_grace_period_seconds {
            put_integer(&mut out, 10, seconds);
        }
        for (number, entries) in [(11, &self.labels), (12, &self.annotations)] {
            for (key, value) in entries {
                let entry = [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
                put_bytes(&mut out, number, &entry);
            }
        }
        for owner in &self.owner_references {
            put_bytes(&mut out, 13, &owner.encode());
        }
        for finalizer in &self.finalizers {
            put_bytes(&mut out, 14, finalizer.as_bytes());
        }
        for entry in &self.managed_fields {
            let entry = entry.encode()?;
            put_number(&mut out, MANAGED_FIELDS << 3 | 2);
            put_number(&mut out, entry.len() as u64);
            out.extend_from_slice(&entry);
        }
        Some(out)
    }
}

// === impl OwnerReference ===

impl OwnerReference<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let texts = [(1, &self.kind), (3, &self.name), (4, &self.uid), (5, &self.api_version)];
        put_texts(&mut out, &texts);
        for (number, flag) in [(6, self.controller), (7, self.block_owner_deletion)] {
            if let Some(flag) = flag {
                put_integer(&mut out, number, i64::from(flag));
            }
        }
        out
    }
}

// === impl ManagedFieldsEntry ===

impl ManagedFieldsEntry<'_> {
    fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        put_texts(&mut out, &[(1, &self.manager), (2, &self.operation), (3, &self.api_version)]);
        if let Some(at) = &self.time {
            put_bytes(&mut out, 4, &time(at)?);
        }
        put_texts(&mut out, &[(6, &self.fields_type)]);
        if let Some(fields) = self.fields_v1 {
            // The server keeps this text. Escapes may be printed otherwise than they are kept.
            let text = Some(fields.get()).filter(|text| !text.contains("\\u"))?;
            put_bytes(&mut out, 7, &field(1, text.as_bytes()));
        }
        put_texts(&mut out, &[(8, &self.subresource)]);
        Some(out)
    }
}

fn put_texts(out: &mut Vec<u8>, texts: &[(u8, &Cow<'_, str>)]) {
    for (number, text) in texts {
        put_bytes(out, *number, text.as_bytes());
    }
}

/// Appends a field whose value is a number; its own number is below 16. Go encodes a negative
/// number as its two's complement.
fn put_integer(out: &mut Vec<u8>, number: u8, value: i64) {
    out.push(number << 3);
    put_number(out, value.cast_unsigned());
}

/// Returns a timestamp as its whole seconds and no nanoseconds; `None` for an unusual text.
fn time(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    put_integer(&mut out, 1, Moment::parse(text)?.seconds());
    put_integer(&mut out, 2, 0);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::protobuf::tests::bytes;

    const THING: &str = concat!(
        r#"{"apiVersion":"a.io/v1","kind":"Thing","metadata":{"annotations":{"a":"\u003c","b":"ü\"\n"},"#,
        r#""creationTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30,"#,
        r#""deletionTimestamp":"2026-01-02T00:00:00Z","finalizers":["x","y/z"],"#,
        r#""generateName":"t-","generation":1,"labels":{"app":"web","empty":""},"#,
        r#""managedFields":[{"apiVersion":"a.io/v1","fieldsType":"FieldsV1","#,
        r#""fieldsV1":{"f:spec":{".":{},"k:{\"port\":80}":{}}},"manager":"m","#,
        r#""operation":"Update","subresource":"status","time":"2026-01-01T00:00:00Z"},"#,
        r#"{"manager":"n"}],"name":"t-1","namespace":"n","ownerReferences":"#,
        r#"[{"apiVersion":"v1","blockOwnerDeletion":true,"controller":false,"kind":"K","#,
        r#""name":"o","uid":"u"},{"apiVersion":"v1","kind":"K","name":"p","uid":"v"}],"#,
        r#""resourceVersion":"5","uid":"0f4f2d9e-7a54-4a86-9c3b-6f2f5a0f7b11"},"spec":{"a":1}}"#,
    );
    const BARE: &str = concat!(
        r#"{"apiVersion":"a.io/v1","kind":"Thing","metadata":{"creationTimestamp":null,"#,
        r#""name":"t","resourceVersion":"5","uid":"u"}}"#,
    );

    /// The bytes of the apiserver's own conversion and serializer.
    const ENCODED_THING: &str = "\
        CpACCgN0LTESAnQtGgFuIgAqJDBmNGYyZDllLTdhNTQtNGE4Ni05YzNiLTZmMmY1YTBmN2IxMTIBNTgBQggIgPLW\
        ygYQAEoICICV3MoGEABQHloKCgNhcHASA3dlYloJCgVlbXB0eRIAYgYKAWESATxiCQoBYhIEw7wiCmoRCgFLGgFv\
        IgF1KgJ2MTAAOAFqDQoBSxoBcCIBdioCdjFyAXhyA3kveooBXAoBbRIGVXBkYXRlGgdhLmlvL3YxIggIgPLWygYQ\
        ADIIRmllbGRzVjE6KgooeyJmOnNwZWMiOnsiLiI6e30sIms6e1wicG9ydFwiOjgwfSI6e319fUIGc3RhdHVzigEL\
        CgFuEgAaADIAQgA=";
    const ENCODED_BARE: &str = "ChMKAXQSABoAIgAqAXUyATU4AEIA";

    #[test]
    fn metadata_is_encoded_as_the_apiserver_does() {
        for (text, expected) in [(THING, ENCODED_THING), (BARE, ENCODED_BARE)] {
            assert_eq!(encoded(text.as_bytes(), Style::Custom), Some(bytes(expected)), "{text}");
        }
        assert_eq!(encoded(THING.as_bytes(), Style::Typed), None);
    }

    #[test]
    fn metadata_in_an_unknown_form_is_not_encoded() {
        for (usual, odd) in [
            (r#""finalizers""#, r#""unheardOf""#),
            (r#""blockOwnerDeletion""#, r#""unheardOf""#),
            (r#""subresource""#, r#""unheardOf""#),
            (r#""generation":1"#, r#""generation":1.5"#),
            (r#""name":"t-1""#, r#""name":null"#),
            ("2026-01-02T00:00:00Z", "2026-01-02"),
            (r#"{"f:spec""#, r#"{"f:\u003c""#),
        ] {
            let text = THING.replacen(usual, odd, 1);
            assert_ne!(text, THING, "{odd}");
            assert_eq!(encoded(text.as_bytes(), Style::Custom), None, "{odd}");
        }
    }
}
