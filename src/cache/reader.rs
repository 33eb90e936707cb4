//! The parser of the object parts that the cache needs. Pure.
//!
//! The whole text is validated. A text that is not JSON, lacks name, uid or version, or lies
//! outside the query's scope never becomes an [`Object`].

mod protobuf;

use std::{borrow::Cow, fmt, sync::Arc};

use bytes::Bytes;
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};

use super::{
    envelope::{JsonEnvelope, Style},
    form::ProtobufEnvelope,
    object::{Head, Object, Uid},
    pair::{Interner, Pair, PairKind},
    table::{self, TableEnvelope, Window},
};
use crate::api::{
    GroupVersionResource, ObjectKey, Scope,
    field::is_built_in_group,
    form::Form,
    protobuf::wire::Malformed,
    selector::{field_paths, field_values},
    version::ResourceVersion,
};

/// The parser of one query's objects.
#[derive(Debug)]
pub struct Reader {
    resource: GroupVersionResource,
    api_version: String,
    scope: Scope,
    form: Form,
    interner: Interner,
    /// The window of time in which the next rows of a Table arrive.
    window: Option<Window>,
    /// The columns of cells that are not proven, one for each row that has any.
    unproven: Vec<usize>,
}

/// The reason why some bytes are not an object of the query.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The bytes are not UTF-8.
    #[error("the object is not UTF-8")]
    NotUtf8(#[source] std::str::Utf8Error),
    /// The bytes are not JSON, or lack a part of every object.
    #[error("the object is malformed")]
    Malformed(#[source] serde_json::Error),
    /// The bytes are not protobuf.
    #[error("the object is malformed")]
    Encoding(#[source] Malformed),
    /// A part of every stored object is empty or invalid.
    #[error("the object has no usable {0}")]
    Unusable(&'static str),
    /// The object lies in another namespace than the query's.
    #[error("the object is out of scope")]
    OutOfScope,
    /// The object is printed in a form that Listless cannot reproduce.
    #[error("the object has an unknown printed form")]
    NotUnderstood,
}

#[derive(Deserialize)]
struct Partial<'a> {
    #[serde(borrow, default)]
    kind: Option<Text<'a>>,
    #[serde(borrow, default, rename = "apiVersion")]
    api_version: Option<Text<'a>>,
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Option<Text<'a>>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow, rename = "resourceVersion")]
    resource_version: Text<'a>,
    #[serde(borrow, default)]
    labels: Option<LabelTexts<'a>>,
}

/// A string, borrowed if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct LabelTexts<'a>(Vec<(Text<'a>, Text<'a>)>);

struct LabelVisitor;

// === impl Reader ===

impl Reader {
    /// Creates a parser for objects of a resource in a scope, in a form.
    pub fn new(resource: GroupVersionResource, scope: Scope, form: Form) -> Self {
        let api_version = resource.api_version();
        let (interner, unproven) = Default::default();
        Self { resource, api_version, scope, form, interner, window: None, unproven }
    }

    /// Notes that the next rows of a Table arrive within a window of time.
    pub(super) fn arrives(&mut self, window: Window) {
        self.window = Some(window);
    }

    /// Returns the columns of cells that are not proven since the last call.
    pub(super) fn take_unproven(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.unproven)
    }

    /// Returns the `apiVersion` of the resource's lists and objects.
    pub(super) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the form of the objects.
    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Returns the memory of shared pairs, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.interner.bytes()
    }

    /// Parses an item of a LIST; returns its style, too.
    pub fn item(&mut self, raw: &[u8]) -> Result<(Object, Style), ObjectError> {
        let raw = Bytes::copy_from_slice(raw);
        match self.form {
            Form::Json | Form::Table => self.read(raw),
            Form::Protobuf => Ok((self.protobuf(raw)?, Style::Typed)),
        }
    }

    /// Parses the enveloped object of a watch event in protobuf.
    pub(super) fn enveloped(
        &mut self,
        object: &[u8],
        envelope: &ProtobufEnvelope,
    ) -> Result<Object, ObjectError> {
        let item = envelope.item_of(object).ok_or(ObjectError::NotUnderstood)?;
        self.protobuf(Bytes::from(item))
    }

    /// Parses the object of a watch event in JSON and converts it into the form of a LIST's item.
    pub(super) fn event(
        &mut self,
        raw: &str,
        envelope: &JsonEnvelope,
    ) -> Result<Object, ObjectError> {
        let rest = raw.strip_prefix(envelope.object_prefix()).ok_or(ObjectError::NotUnderstood)?;
        let mut item = Vec::with_capacity(rest.len() + 1);
        item.push(b'{');
        item.extend_from_slice(rest.as_bytes());
        let (object, style) = self.read(Bytes::from(item))?;
        if style == envelope.style() { Ok(object) } else { Err(ObjectError::NotUnderstood) }
    }

    /// Packs a row that arrives now and parses its object.
    pub(super) fn row(&mut self, row: &str, table: &TableEnvelope) -> Result<Object, ObjectError> {
        let (object, style) = self.read(self.pack(row, table)?.into())?;
        if style == table.style() { Ok(object) } else { Err(ObjectError::NotUnderstood) }
    }

    /// Packs a row that arrives now.
    pub(super) fn pack(&self, row: &str, table: &TableEnvelope) -> Result<Vec<u8>, ObjectError> {
        let packed = self.window.and_then(|window| table.pack(row, window));
        packed.ok_or(ObjectError::NotUnderstood)
    }

    fn read(&mut self, raw: Bytes) -> Result<(Object, Style), ObjectError> {
        let text = match self.form {
            Form::Table => table::object_of(&raw).ok_or(ObjectError::NotUnderstood)?,
            Form::Json | Form::Protobuf => {
                std::str::from_utf8(&raw).map_err(ObjectError::NotUtf8)?
            }
        };
        let partial: Partial<'_> = serde_json::from_str(text).map_err(ObjectError::Malformed)?;
        let style = self.style(&partial, text)?;
        let metadata = &partial.metadata;
        let namespace = metadata.namespace.as_ref().map(|namespace| &*namespace.0);
        let key = self.key(&metadata.name.0, namespace)?;
        if metadata.uid.0.is_empty() {
            return Err(ObjectError::Unusable("uid"));
        }
        let version = ResourceVersion::parse(&metadata.resource_version.0)
            .map_err(|_| ObjectError::Unusable("resourceVersion"))?;
        let pairs = self.pairs(metadata, text.as_bytes());
        if self.form == Form::Table {
            self.unproven.extend(table::unproven_column(&raw));
        }
        let head = Head { key, uid: Uid::new(&metadata.uid.0), version, pairs };
        let head = Arc::new(head);
        Ok((Object::new(head, raw), style))
    }

    fn style(&self, partial: &Partial<'_>, text: &str) -> Result<Style, ObjectError> {
        match (&partial.kind, &partial.api_version) {
            // The object of a row is printed as an object alone.
            (Some(_), Some(version)) if self.form == Form::Table => {
                let is_built_in = is_built_in_group(&self.resource.group);
                let start = if is_built_in { r#"{"kind":"# } else { r#"{"apiVersion":"# };
                if version.0 != self.api_version || !text.starts_with(start) {
                    return Err(ObjectError::NotUnderstood);
                }
                Ok(if is_built_in { Style::Typed } else { Style::Custom })
            }
            _ if self.form == Form::Table => Err(ObjectError::NotUnderstood),
            (None, None) => Ok(Style::Typed),
            (Some(_), Some(version)) if version.0 == self.api_version => Ok(Style::Custom),
            _ => Err(ObjectError::NotUnderstood),
        }
    }

    fn key(&self, name: &str, namespace: Option<&str>) -> Result<ObjectKey, ObjectError> {
        if name.is_empty() || name.contains('/') {
            return Err(ObjectError::Unusable("name"));
        }
        if namespace.is_some_and(|namespace| namespace.contains('/')) {
            return Err(ObjectError::Unusable("namespace"));
        }
        match self.scope.namespace() {
            Some(scope) if namespace != Some(scope) => Err(ObjectError::OutOfScope),
            _ => Ok(ObjectKey::new(namespace, name)),
        }
    }

    fn pairs(&mut self, metadata: &Metadata<'_>, raw: &[u8]) -> Box<[Arc<Pair>]> {
        let mut pairs = Vec::new();
        for (key, value) in metadata.labels.iter().flat_map(|labels| &labels.0) {
            pairs.push(self.interner.pair(PairKind::Label, &key.0, &value.0));
        }
        if !field_paths(&self.resource).is_empty() {
            for (path, value) in field_values(&self.resource, raw) {
                if !value.is_empty() {
                    pairs.push(self.interner.pair(PairKind::Field, path, &value));
                }
            }
        }
        pairs.into()
    }
}

// === impl LabelTexts ===

impl<'de: 'a, 'a> Deserialize<'de> for LabelTexts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(LabelVisitor).map(LabelTexts)
    }
}

impl<'de> Visitor<'de> for LabelVisitor {
    type Value = Vec<(Text<'de>, Text<'de>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of labels")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut labels = Vec::new();
        while let Some(label) = map.next_entry()? {
            labels.push(label);
        }
        Ok(labels)
    }
}
