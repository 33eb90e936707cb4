//! One object: the apiserver's own bytes, and the few parts of them that reads need.
//!
//! Invariant: `raw` is valid JSON; of built-in types it lacks `kind` and `apiVersion`, as the
//! items of a LIST do (S-LIST-61). Cloning copies two references.

use std::sync::Arc;

use bytes::Bytes;

use super::pair::Pair;
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

/// What was read out of an object's bytes.
#[derive(Debug)]
pub struct Head {
    /// Where the object is stored.
    pub key: ObjectKey,
    /// The `metadata.uid`.
    pub uid: Box<str>,
    /// The `metadata.resourceVersion`.
    pub version: ResourceVersion,
    /// The labels.
    pub labels: Box<[Arc<Pair>]>,
    /// The non-empty values of fields that selectors may name, beyond name and namespace.
    pub fields: Box<[Arc<Pair>]>,
}

/// Reference counts and allocator overhead of one object's head, roughly.
const HEAD_OVERHEAD: usize = size_of::<Head>() + 96;

// === impl Object ===

impl Object {
    /// Joins what was read with the bytes it was read from.
    pub fn new(head: Arc<Head>, raw: Bytes) -> Self {
        Self { head, raw }
    }

    /// The storage key.
    pub fn key(&self) -> &ObjectKey {
        &self.head.key
    }

    /// The uid.
    pub fn uid(&self) -> &str {
        &self.head.uid
    }

    /// The object's own resource version.
    pub fn version(&self) -> &ResourceVersion {
        &self.head.version
    }

    /// The bytes as an item of a LIST.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Every pair a page filter must know.
    pub fn pairs(&self) -> impl Iterator<Item = &Pair> {
        self.head.labels.iter().chain(&self.head.fields).map(|pair| &**pair)
    }

    /// The same object on other bytes of equal content.
    pub fn with_raw(&self, raw: Bytes) -> Self {
        debug_assert_eq!(raw, self.raw);
        Self { head: self.head.clone(), raw }
    }

    /// The same object in an allocation of its own, so that it does not pin a page.
    pub fn detached(&self) -> Self {
        self.with_raw(Bytes::copy_from_slice(&self.raw))
    }

    /// Whether both are the same version of the same object.
    pub fn is_same_version(&self, other: &Self) -> bool {
        self.version() == other.version() && self.uid() == other.uid() && self.key() == other.key()
    }

    /// Memory of the head, estimated; the raw bytes and shared pairs are counted elsewhere.
    pub fn head_bytes(&self) -> usize {
        let head = &*self.head;
        HEAD_OVERHEAD
            + head.key.as_str().len()
            + head.uid.len()
            + head.version.as_str().len()
            + (head.labels.len() + head.fields.len()) * size_of::<Arc<Pair>>()
    }
}

impl Labels for Object {
    fn label(&self, key: &str) -> Option<&str> {
        self.head.labels.iter().find(|pair| pair.key() == key).map(|pair| pair.value())
    }
}

impl Fields for Object {
    fn field(&self, path: &str) -> Option<&str> {
        match path {
            "metadata.name" => Some(self.key().name()),
            "metadata.namespace" => self.key().namespace(),
            _ => self.head.fields.iter().find(|pair| pair.key() == path).map(|pair| pair.value()),
        }
    }
}
