//! Watch events in protobuf: split by their lengths, parsed one by one. Pure.

use super::{EventError, WatchEvent};
use crate::{
    api::protobuf::wire::{Fields, Malformed, Value},
    cache::{
        bookmark::{BookmarkForm, ProtobufBookmark, version_of},
        form::{ProtobufEnvelope, event_parts, unknown_parts},
        reader::Reader,
        reflector::failure::{Status, StatusDetails},
    },
};

/// The splitter of a stream into events (S-WATCH-41).
#[derive(Debug)]
pub(in crate::cache::reflector) struct Delimited {
    /// The start of an incomplete event, with its length.
    partial: Vec<u8>,
    event_bytes_max: usize,
}

/// The bytes of an event's length.
const LENGTH_BYTES: usize = 4;

// === impl Delimited ===

impl Delimited {
    /// Creates a splitter that rejects longer events.
    pub(in crate::cache::reflector) fn new(event_bytes_max: usize) -> Self {
        Self { partial: Vec::new(), event_bytes_max }
    }

    /// Accepts the next bytes; passes on each event that they complete, without its length.
    pub(in crate::cache::reflector) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut on_event: impl FnMut(&[u8]) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        while !bytes.is_empty() {
            let wanted = match self.partial.first_chunk::<LENGTH_BYTES>() {
                None => LENGTH_BYTES,
                Some(length) => LENGTH_BYTES + self.checked(*length)?,
            };
            let (taken, rest) = bytes.split_at(bytes.len().min(wanted - self.partial.len()));
            self.partial.extend_from_slice(taken);
            bytes = rest;
            if wanted > LENGTH_BYTES && self.partial.len() == wanted {
                on_event(&self.partial[LENGTH_BYTES..])?;
                self.partial.clear();
            }
        }
        Ok(())
    }

    fn checked(&self, length: [u8; LENGTH_BYTES]) -> Result<usize, EventError> {
        let length = u32::from_be_bytes(length) as usize;
        match length {
            // An event always has a type.
            0 => Err(EventError::Form),
            _ if length > self.event_bytes_max => Err(EventError::TooLong),
            _ => Ok(length),
        }
    }
}

/// Parses one event without its length.
pub(super) fn read(
    frame: &[u8],
    reader: &mut Reader,
    envelope: &ProtobufEnvelope,
) -> Result<WatchEvent, EventError> {
    let (kind, object) = event_parts(frame).ok_or(EventError::Form)?;
    let mut stored = || reader.enveloped(object, envelope).map_err(EventError::Object);
    match kind {
        "ADDED" | "MODIFIED" => Ok(WatchEvent::Stored(stored()?)),
        "DELETED" => Ok(WatchEvent::Deleted(stored()?)),
        "BOOKMARK" => {
            let (_, _, payload) = unknown_parts(object).ok_or(EventError::Form)?;
            let version = version_of(payload).ok_or(EventError::Bookmark)?;
            let form = ProtobufBookmark::learn(payload, &version).map(BookmarkForm::Protobuf);
            Ok(WatchEvent::Bookmark(version, form))
        }
        "ERROR" => Status::in_protobuf(object).map(WatchEvent::Error).ok_or(EventError::Form),
        unknown => Err(EventError::UnknownType(unknown.to_owned())),
    }
}

// === impl Status ===

impl Status {
    /// Parses a Status in its envelope; returns `None` if it is something else.
    pub(in crate::cache::reflector) fn in_protobuf(object: &[u8]) -> Option<Self> {
        let (_, kind, payload) = unknown_parts(object)?;
        if kind != "Status" { None } else { parsed(payload).ok() }
    }
}

fn parsed(payload: &[u8]) -> Result<Status, Malformed> {
    let mut status = Status::default();
    for field in Fields::of(payload) {
        let field = field?;
        match (field.number, field.value) {
            (3, _) => field.text()?.clone_into(&mut status.message),
            (5, _) => status.details = Some(details(field.bytes()?)?),
            (6, Value::Number(code)) => status.code = u16::try_from(code).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(status)
}

fn details(message: &[u8]) -> Result<StatusDetails, Malformed> {
    let mut details = StatusDetails::default();
    for field in Fields::of(message) {
        let field = field?;
        if let (5, Value::Number(seconds)) = (field.number, field.value) {
            details.retry_after_seconds = u32::try_from(seconds).unwrap_or_default();
        }
    }
    Ok(details)
}
