//! The parser of an object in protobuf: ObjectMeta by field number, and selectable fields by a table
//! (S-CT-22, S-CT-23). Pure.
//!
//! Every field of the object and of its ObjectMeta is checked to lie within it. Nothing else is
//! decoded.

use std::sync::Arc;

use bytes::Bytes;

use super::{ObjectError, Reader};
use crate::{
    api::{
        field::{field_paths, protobuf_field_values},
        protobuf::wire::{Fields, Malformed},
        version::ResourceVersion,
    },
    cache::{
        form::payload_range,
        object::{Head, Object, Uid},
        pair::PairKind,
    },
};

/// The parts of ObjectMeta that the cache needs.
#[derive(Default)]
struct ObjectMeta<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    resource_version: &'a str,
    labels: Vec<(&'a str, &'a str)>,
}

// === impl Reader ===

impl Reader {
    /// Parses an item of a LIST, with its tag and length.
    pub(super) fn protobuf(&mut self, raw: Bytes) -> Result<Object, ObjectError> {
        let payload = &raw[payload_range(&raw)];
        let metadata = ObjectMeta::of(payload).map_err(ObjectError::Encoding)?;
        let metadata = metadata.ok_or(ObjectError::NotUnderstood)?;
        let namespace = (!metadata.namespace.is_empty()).then_some(metadata.namespace);
        let key = self.key(metadata.name, namespace)?;
        if metadata.uid.is_empty() {
            return Err(ObjectError::Unusable("uid"));
        }
        let version = ResourceVersion::parse(metadata.resource_version)
            .map_err(|_| ObjectError::Unusable("resourceVersion"))?;
        let mut pairs = Vec::new();
        for (label, value) in &metadata.labels {
            pairs.push(self.interner.pair(PairKind::Label, label, value));
        }
        if !field_paths(&self.resource).is_empty() {
            let values = protobuf_field_values(&self.resource, payload);
            for (path, value) in values.map_err(ObjectError::Encoding)? {
                pairs.push(self.interner.pair(PairKind::Field, path, &value));
            }
        }
        let head = Head { key, uid: Uid::new(metadata.uid), version, pairs: pairs.into() };
        Ok(Object::new(Arc::new(head), raw))
    }
}

// === impl ObjectMeta ===

impl<'a> ObjectMeta<'a> {
    /// Parses the first field of an object; returns `None` if that is not its only ObjectMeta.
    fn of(payload: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut found = None;
        for (index, field) in Fields::of(payload).enumerate() {
            let field = field?;
            if (field.number == 1) != (index == 0) {
                return Ok(None);
            }
            if index == 0 {
                found = Some(Self::parse(field.bytes()?)?);
            }
        }
        Ok(found)
    }

    fn parse(metadata: &'a [u8]) -> Result<Self, Malformed> {
        let mut parsed = Self::default();
        for field in Fields::of(metadata) {
            let field = field?;
            match field.number {
                1 => parsed.name = field.text()?,
                3 => parsed.namespace = field.text()?,
                5 => parsed.uid = field.text()?,
                6 => parsed.resource_version = field.text()?,
                11 => parsed.labels.push(label(field.bytes()?)?),
                _ => {}
            }
        }
        Ok(parsed)
    }
}

/// Parses an entry of a map of strings.
fn label(entry: &[u8]) -> Result<(&str, &str), Malformed> {
    let (mut key, mut value) = ("", "");
    for field in Fields::of(entry) {
        let field = field?;
        match field.number {
            1 => key = field.text()?,
            2 => value = field.text()?,
            _ => {}
        }
    }
    Ok((key, value))
}
