//! Watch events: split at newlines or by their lengths, parsed one by one. Pure.

mod protobuf;

use memchr::memchr;
use serde::Deserialize;
use serde_json::value::RawValue;

use self::protobuf::Delimited;
use super::failure::Status;
use crate::{
    api::{form::Form, version::ResourceVersion},
    cache::{
        bookmark::{BookmarkForm, JsonBookmark},
        form::Envelope,
        object::Object,
        reader::{ObjectError, Reader},
        table::TableEnvelope,
    },
};

/// One event of a watch (S-WATCH-40).
#[derive(Debug)]
pub(super) enum WatchEvent {
    /// ADDED or MODIFIED; the previous state shows which of the two.
    Stored(Object),
    /// DELETED, with the last state at the deletion's version.
    Deleted(Object),
    /// BOOKMARK: the collection is complete up to this version; with the bookmark's form.
    Bookmark(ResourceVersion, Option<BookmarkForm>),
    /// ERROR: the stream will end.
    Error(Status),
}

/// The reason why a line is not an event.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The line is not UTF-8.
    #[error("the event is not UTF-8")]
    NotUtf8(#[source] std::str::Utf8Error),
    /// The line is not an event in JSON.
    #[error("the event is malformed")]
    Malformed(#[source] serde_json::Error),
    /// It is not an event in protobuf.
    #[error("the event has an unknown form")]
    Form,
    /// Its type is unknown.
    #[error("the event's type is unknown: {0:?}")]
    UnknownType(String),
    /// Its object does not belong to the query.
    #[error("the event's object is invalid")]
    Object(#[source] ObjectError),
    /// A bookmark without a valid version.
    #[error("the bookmark has no usable resourceVersion")]
    Bookmark,
    /// The line is longer than the limit.
    #[error("the event is too long")]
    TooLong,
    /// The Table of the event has other columns than the list.
    #[error("the columns have changed")]
    Columns,
}

/// The splitter of a stream into events.
#[derive(Debug)]
pub(super) enum Frames {
    /// At newlines.
    Lines(Lines),
    /// By the length before each.
    Delimited(Delimited),
}

/// The splitter of a stream into lines.
#[derive(Debug)]
pub(super) struct Lines {
    partial: Vec<u8>,
    line_bytes_max: usize,
}

// The two members may come in any order: other servers may print `object` first.
#[derive(Deserialize)]
struct Frame<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct BookmarkObject<'a> {
    #[serde(borrow)]
    metadata: BookmarkMetadata<'a>,
}

#[derive(Deserialize)]
struct BookmarkMetadata<'a> {
    #[serde(rename = "resourceVersion")]
    resource_version: &'a str,
}

// === impl WatchEvent ===

impl WatchEvent {
    /// Parses one event.
    pub(super) fn read(
        frame: &[u8],
        reader: &mut Reader,
        envelope: &Envelope,
    ) -> Result<Self, EventError> {
        match envelope {
            Envelope::Json(_) | Envelope::Table(_) => Self::in_json(frame, reader, envelope),
            Envelope::Protobuf(envelope) => protobuf::read(frame, reader, envelope),
        }
    }

    fn in_json(line: &[u8], reader: &mut Reader, envelope: &Envelope) -> Result<Self, EventError> {
        let line = std::str::from_utf8(line).map_err(EventError::NotUtf8)?;
        let frame: Frame<'_> = serde_json::from_str(line).map_err(EventError::Malformed)?;
        let raw = frame.object.get();
        let mut object = || match envelope {
            Envelope::Json(envelope) => reader.event(raw, envelope).map_err(EventError::Object),
            Envelope::Table(table) => {
                let row = row_of(raw, table)?;
                reader.row(row, table).map_err(EventError::Object)
            }
            Envelope::Protobuf(_) => Err(EventError::Object(ObjectError::NotUnderstood)),
        };
        match frame.r#type {
            "ADDED" | "MODIFIED" => Ok(Self::Stored(object()?)),
            "DELETED" => Ok(Self::Deleted(object()?)),
            "BOOKMARK" => {
                let version = bookmark_version(raw)?;
                let form = match envelope {
                    Envelope::Json(json) => JsonBookmark::learn(raw, &version, json.style()),
                    Envelope::Table(table) if table.has_other_columns(raw) => {
                        return Err(EventError::Columns);
                    }
                    Envelope::Table(table) => table
                        .row_of(raw)
                        .and_then(|row| reader.pack(row, table).ok())
                        .and_then(|row| JsonBookmark::learn_row(&row, &version, table)),
                    Envelope::Protobuf(_) => None,
                };
                let form = form.map(BookmarkForm::Json);
                Ok(Self::Bookmark(version, form))
            }
            "ERROR" => serde_json::from_str(raw).map(Self::Error).map_err(EventError::Malformed),
            unknown => Err(EventError::UnknownType(unknown.to_owned())),
        }
    }
}

fn row_of<'a>(raw: &'a str, table: &TableEnvelope) -> Result<&'a str, EventError> {
    match table.row_of(raw) {
        Some(row) => Ok(row),
        None if table.has_other_columns(raw) => Err(EventError::Columns),
        None => Err(EventError::Object(ObjectError::NotUnderstood)),
    }
}

fn bookmark_version(raw: &str) -> Result<ResourceVersion, EventError> {
    let object: BookmarkObject<'_> = serde_json::from_str(raw).map_err(EventError::Malformed)?;
    ResourceVersion::parse(object.metadata.resource_version).map_err(|_| EventError::Bookmark)
}

// === impl Frames ===

impl Frames {
    /// Creates a splitter for a form that rejects longer events.
    pub(super) fn new(form: Form, bytes_max: usize) -> Self {
        match form {
            Form::Json | Form::Table => Self::Lines(Lines::new(bytes_max)),
            Form::Protobuf => Self::Delimited(Delimited::new(bytes_max)),
        }
    }

    /// Accepts the next bytes; passes on each event that they complete.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        on_event: impl FnMut(&[u8]) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        match self {
            Self::Lines(lines) => lines.feed(bytes, on_event),
            Self::Delimited(delimited) => delimited.feed(bytes, on_event),
        }
    }
}

// === impl Lines ===

impl Lines {
    /// Creates a splitter that rejects longer lines.
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Self { partial: Vec::new(), line_bytes_max }
    }

    /// Accepts the next bytes; passes on each line that they complete, without its newline.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut on_line: impl FnMut(&[u8]) -> Result<(), EventError>,
    ) -> Result<(), EventError> {
        while !bytes.is_empty() {
            let end = memchr(b'\n', bytes);
            let length = end.unwrap_or(bytes.len());
            if self.partial.len() + length > self.line_bytes_max {
                return Err(EventError::TooLong);
            }
            let Some(end) = end else {
                self.partial.extend_from_slice(bytes);
                return Ok(());
            };
            if self.partial.is_empty() {
                on_line(&bytes[..end])?;
            } else {
                self.partial.extend_from_slice(&bytes[..end]);
                on_line(&self.partial)?;
                self.partial.clear();
            }
            bytes = &bytes[end + 1..];
        }
        Ok(())
    }
}
