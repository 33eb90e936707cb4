//! Lists and objects in each form: one variant per form, and the dispatch to it. Pure.
//!
//! Tables are not printed here: their text depends on the time.

mod protobuf;
mod split;

use std::{borrow::Cow, collections::VecDeque};

use bytes::Bytes;

pub(super) use protobuf::{
    ProtobufEnvelope, event, event_parts, partial_event, payload_range, unknown_parts,
};
use split::ProtobufSplitter;

use super::{
    envelope::{EnvelopeError, JsonEnvelope, Style},
    history::Change,
    metadata,
    portion::ListMeta,
    reflector::ReflectorFailure,
    split::{SplitError, Splitter},
    table::{self, TableEnvelope, TableSplitter, Window},
};
use crate::api::{
    GroupVersionResource,
    form::Form,
    media::{Partial, Representation},
    version::ResourceVersion,
};

/// The printed form of lists and objects of one resource, learned from the apiserver's own list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// In JSON.
    Json(JsonEnvelope),
    /// In protobuf.
    Protobuf(ProtobufEnvelope),
    /// As a Table.
    Table(TableEnvelope),
}

/// The splitter of a LIST body in some form.
#[derive(Debug)]
pub enum ListSplitter {
    /// In JSON.
    Json(Splitter),
    /// In protobuf.
    Protobuf(ProtobufSplitter),
    /// As a Table.
    Table(TableSplitter),
}

/// The parts of a printed object.
pub(super) struct Whole<'a> {
    /// The bytes before the object's own.
    pub head: Cow<'a, [u8]>,
    /// The object's own bytes.
    pub object: Bytes,
    /// The bytes after them.
    pub tail: &'static [u8],
}

// === impl Envelope ===

impl Envelope {
    /// Returns the form of its objects.
    pub fn form(&self) -> Form {
        match self {
            Self::Json(_) => Form::Json,
            Self::Protobuf(_) => Form::Protobuf,
            Self::Table(_) => Form::Table,
        }
    }

    /// Returns the kind of a list's items, if it is known.
    pub fn kind(&self) -> Option<&str> {
        match self {
            Self::Json(json) => json.kind(),
            Self::Protobuf(protobuf) => Some(protobuf.kind()),
            Self::Table(_) => None,
        }
    }

    /// Returns the family of printers.
    pub fn style(&self) -> Style {
        match self {
            Self::Json(json) => json.style(),
            Self::Protobuf(_) => Style::Typed,
            Self::Table(table) => table.style(),
        }
    }

    /// Returns the apiVersion of the list and its items.
    pub fn api_version(&self) -> &str {
        match self {
            Self::Json(json) => json.api_version(),
            Self::Protobuf(protobuf) => protobuf.api_version(),
            Self::Table(table) => table.api_version(),
        }
    }

    /// Returns the bytes before the first item of a list whose items have this length together.
    pub(super) fn head(&self, meta: &ListMeta<'_>, items: usize) -> Vec<u8> {
        match self {
            Self::Json(json) => meta.json_ends(json).0.into(),
            Self::Protobuf(protobuf) => protobuf.head(meta, items),
            Self::Table(_) => Vec::new(),
        }
    }

    /// Returns the bytes after the last item.
    pub(super) fn tail(&self, meta: &ListMeta<'_>) -> Vec<u8> {
        match self {
            Self::Json(json) => meta.json_ends(json).1.into(),
            Self::Protobuf(_) => ProtobufEnvelope::tail(),
            Self::Table(_) => Vec::new(),
        }
    }

    /// Returns the body of a GET.
    pub(super) fn whole(&self, raw: &Bytes) -> Whole<'_> {
        let none = Cow::Borrowed(&[][..]);
        match self {
            Self::Json(json) => match json.style() {
                Style::Typed => {
                    let head = json.object_prefix().as_bytes().into();
                    Whole { head, object: raw.slice(1..), tail: b"\n" }
                }
                Style::Custom => Whole { head: none, object: raw.clone(), tail: b"\n" },
            },
            Self::Protobuf(protobuf) => protobuf.whole(raw),
            Self::Table(_) => Whole { head: none, object: Bytes::new(), tail: b"" },
        }
    }

    /// Returns the bytes of an item with another version in them.
    pub(super) fn raw_at(&self, raw: &Bytes, version: &ResourceVersion) -> Option<Vec<u8>> {
        match self {
            Self::Json(_) => super::object::json_at(raw, version),
            Self::Protobuf(_) => protobuf::raw_at(raw, version),
            Self::Table(_) => table::raw_at(raw, version),
        }
    }

    /// Returns the event of a watch for an object; `None` if it cannot be printed.
    pub(super) fn event(
        &self,
        seen: Change,
        raw: &[u8],
        representation: Representation,
    ) -> Option<Bytes> {
        match self {
            Self::Json(json) => super::event::json_line(seen, raw, representation, json),
            Self::Protobuf(protobuf) => protobuf.event(seen, raw, representation),
            Self::Table(_) => None,
        }
    }

    /// Appends an object as an item of a PartialObjectMetadataList; `None` if its metadata has an
    /// unknown form.
    pub(super) fn write_metadata(
        &self,
        raw: &[u8],
        Partial { version, form }: Partial,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match self {
            Self::Json(json) if form == Form::Protobuf => {
                protobuf::write_partial(&metadata::encoded(raw, json.style())?, version, out);
            }
            Self::Json(json) => {
                let partial = metadata::partial(raw, json.style(), version)?;
                out.extend_from_slice(partial.as_bytes());
            }
            Self::Protobuf(_) => protobuf::write_metadata(raw, version, out)?,
            Self::Table(_) => return None,
        }
        Some(())
    }

    /// Returns the bytes before and after the items of a PartialObjectMetadataList, which have this
    /// length together.
    pub(super) fn metadata_ends(
        &self,
        meta: &ListMeta<'_>,
        Partial { version, form }: Partial,
        items: usize,
        is_empty: bool,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        match self {
            Self::Json(_) if form != Form::Protobuf => {
                Some(metadata::json_ends(meta, version, is_empty))
            }
            Self::Json(_) | Self::Protobuf(_) => {
                Some(protobuf::metadata_ends(meta, version, items))
            }
            Self::Table(_) => None,
        }
    }

    /// Returns the PartialObjectMetadata of one object, as the body of a GET; `None` if its
    /// metadata has an unknown form.
    pub(super) fn metadata(
        &self,
        raw: &[u8],
        Partial { version, form }: Partial,
    ) -> Option<VecDeque<Bytes>> {
        match self {
            Self::Json(json) if form == Form::Protobuf => {
                let encoded = metadata::encoded(raw, json.style())?;
                Some(protobuf::partial_object(&encoded, version))
            }
            Self::Json(json) => metadata::json_object(json, raw, version),
            Self::Protobuf(_) => protobuf::metadata_object(raw, version),
            Self::Table(_) => None,
        }
    }
}

impl Envelope {
    /// Returns the form of Tables, if it is one.
    pub(super) fn table(&self) -> Option<&TableEnvelope> {
        match self {
            Self::Table(table) => Some(table),
            Self::Json(_) | Self::Protobuf(_) => None,
        }
    }
}

impl From<ProtobufEnvelope> for Envelope {
    fn from(protobuf: ProtobufEnvelope) -> Self {
        Self::Protobuf(protobuf)
    }
}

impl From<JsonEnvelope> for Envelope {
    fn from(json: JsonEnvelope) -> Self {
        Self::Json(json)
    }
}

// === impl ListSplitter ===

impl ListSplitter {
    /// Creates a splitter that rejects larger items.
    pub fn new(form: Form, resource: &GroupVersionResource, item_bytes_max: usize) -> Self {
        match form {
            Form::Json => Self::Json(Splitter::new(item_bytes_max)),
            Form::Protobuf => Self::Protobuf(ProtobufSplitter::new(item_bytes_max)),
            Form::Table => Self::Table(TableSplitter::new(resource.clone(), item_bytes_max)),
        }
    }

    /// Notes that the next bytes arrive within a window of time.
    pub fn arrives(&mut self, window: Window) {
        if let Self::Table(splitter) = self {
            splitter.arrives(window);
        }
    }

    /// Accepts the next bytes; passes on each item that they complete.
    pub fn feed<E: From<SplitError>>(
        &mut self,
        bytes: &[u8],
        on_item: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Json(splitter) => splitter.feed(bytes, on_item),
            Self::Protobuf(splitter) => splitter.feed(bytes, on_item),
            Self::Table(splitter) => splitter.feed(bytes, on_item),
        }
    }

    /// Ends the body; returns the form of the list and its version.
    pub fn finish(self) -> Result<(Envelope, ResourceVersion), ReflectorFailure> {
        match self {
            Self::Json(splitter) => {
                let (header, trailer) = splitter.finish()?;
                Ok(Envelope::learn(&header, &trailer)?)
            }
            Self::Protobuf(splitter) => splitter.finish(),
            Self::Table(splitter) => {
                let (table, version) = splitter.finish()?;
                Ok((Envelope::Table(table), version))
            }
        }
    }
}

// === impl Envelope (JSON) ===

impl Envelope {
    /// Learns from the text of a list in JSON before its first item and after its last one.
    pub fn learn(header: &str, trailer: &str) -> Result<(Self, ResourceVersion), EnvelopeError> {
        let (json, version) = JsonEnvelope::learn(header, trailer)?;
        Ok((json.into(), version))
    }
}
