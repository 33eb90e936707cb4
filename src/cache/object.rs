//! An object: the apiserver's own bytes, and the parsed parts that reads need.
//!
//! Invariant: `raw` is a valid item of a LIST in its replica's form. In JSON, those of built-in types
//! have no `kind` and `apiVersion` (S-LIST-61). In protobuf they begin with tag and length. A clone
//! copies two references.

use std::{fmt, ops::Deref, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::pair::{Pair, PairKind};
use crate::api::{
    ObjectKey,
    selector::{Fields, Labels},
    version::ResourceVersion,
};

/// One version of one object.
#[derive(Clone, Debug)]
pub struct Object {
    head: Arc<Head>,
    raw: Bytes,
}

/// The parts that were parsed from an object's bytes.
#[derive(Debug)]
pub struct Head {
    /// The storage key.
    pub key: ObjectKey,
    /// The `metadata.uid`.
    pub uid: Uid,
    /// The `metadata.resourceVersion`.
    pub version: ResourceVersion,
    /// The labels, and the non-empty values of selectable fields, without name and namespace.
    pub pairs: Box<[Arc<Pair>]>,
}

/// An object's uid, in its most compact form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Uid {
    /// A UUID in its usual form.
    Uuid(Uuid),
    /// Any other text.
    Other(Box<str>),
}

/// The position of an object's version in its bytes.
#[derive(Deserialize)]
struct Located<'a> {
    #[serde(borrow)]
    metadata: LocatedMetadata<'a>,
}

#[derive(Deserialize)]
struct LocatedMetadata<'a> {
    #[serde(borrow, rename = "resourceVersion")]
    resource_version: &'a RawValue,
}

/// The estimated reference counts and allocator overhead of one object's head.
const HEAD_OVERHEAD: usize = size_of::<Head>() + 96;

// === impl Uid ===

impl Uid {
    /// Stores a uid; different texts stay different.
    pub fn new(text: &str) -> Self {
        let uuid = Uuid::try_parse(text).ok();
        let usual =
            |uuid: &Uuid| *uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == *text;
        uuid.filter(usual).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Uuid(_) => 0,
            Self::Other(text) => text.len(),
        }
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.hyphenated().fmt(f),
            Self::Other(text) => f.write_str(text),
        }
    }
}

// === impl Head ===

impl Head {
    /// Returns the storage key.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the uid.
    pub fn uid(&self) -> &Uid {
        &self.uid
    }

    /// Returns the object's own resource version.
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// Reports whether every selector treats both alike: they have the same key, labels and fields.
    pub fn is_selected_like(&self, other: &Self) -> bool {
        self.key == other.key && self.pairs == other.pairs
    }

    /// Returns every pair, for an index.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().map(|pair| &**pair)
    }

    /// Returns the labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.pairs().filter(|pair| pair.kind() == PairKind::Label);
        labels.map(|pair| (pair.key(), pair.value()))
    }

    fn value(&self, kind: PairKind, key: &str) -> Option<&str> {
        self.pairs().find(|pair| pair.kind() == kind && pair.key() == key).map(Pair::value)
    }

    /// Returns the memory held, estimated; shared pairs are counted elsewhere.
    pub fn bytes(&self) -> usize {
        HEAD_OVERHEAD + self.key.as_str().len() + self.uid.bytes() + size_of_val(&*self.pairs)
    }
}

impl Labels for Head {
    fn label(&self, key: &str) -> Option<&str> {
        self.value(PairKind::Label, key)
    }
}

impl Fields for Head {
    fn field(&self, path: &str) -> Option<&str> {
        match path {
            "metadata.name" => Some(self.key.name()),
            "metadata.namespace" => self.key.namespace(),
            _ => self.value(PairKind::Field, path),
        }
    }
}

// === impl Object ===

impl Object {
    /// Joins the parsed parts with their bytes.
    pub fn new(head: Arc<Head>, raw: Bytes) -> Self {
        Self { head, raw }
    }

    /// Returns the parsed parts, which identify the bytes: all clones of an object share them, and
    /// no other object does.
    pub(super) fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// Returns the bytes as an item of a LIST.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Returns the same object in an allocation of its own, which does not pin a page.
    pub fn detached(&self) -> Self {
        Self { head: self.head.clone(), raw: Bytes::copy_from_slice(&self.raw) }
    }
}

impl Deref for Object {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.head
    }
}

/// Returns an object in JSON with another version in it.
pub(super) fn json_at(raw: &[u8], version: &ResourceVersion) -> Option<Vec<u8>> {
    let located: Located<'_> = serde_json::from_slice(raw).ok()?;
    let held = located.metadata.resource_version.get();
    let start = (held.as_ptr() as usize).checked_sub(raw.as_ptr() as usize)?;
    let (before, after) = (raw.get(..start)?, raw.get(start + held.len()..)?);
    Some([before, b"\"", version.as_str().as_bytes(), b"\"", after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_objects_own_version_is_replaced() {
        let pod = |version: &str, annotation: &str| {
            format!(
                r#"{{"spec":{{"metadata":{{"resourceVersion":"5"}}}},"metadata":{{"name":"p","annotations":{{"a":"{annotation}"}},"uid":"u","resourceVersion":"{version}","generation":5}}}}"#
            )
        };
        let raw = Bytes::from(pod("5", r#"\"resourceVersion\":\"5\""#));
        let version = ResourceVersion::parse("1234").expect("a version");
        let expected = pod("1234", r#"\"resourceVersion\":\"5\""#);
        assert_eq!(json_at(&raw, &version), Some(expected.into_bytes()));
    }

    #[test]
    fn uids_are_equal_when_their_texts_are() {
        let texts = [
            "0f4f2d9e-7a54-4a86-9c3b-6f2f5a0f7b11",
            "0F4F2D9E-7A54-4A86-9C3B-6F2F5A0F7B11",
            "0f4f2d9e7a544a869c3b6f2f5a0f7b11",
            "urn:uuid:0f4f2d9e-7a54-4a86-9c3b-6f2f5a0f7b11",
            "u-1",
        ];
        for (index, left) in texts.iter().enumerate() {
            for (other, right) in texts.iter().enumerate() {
                assert_eq!(Uid::new(left) == Uid::new(right), index == other, "{left} {right}");
            }
        }
        assert!(matches!(Uid::new(texts[0]), Uid::Uuid(_)));
        assert_eq!(texts.map(|text| Uid::new(text).to_string()), texts);
    }
}
