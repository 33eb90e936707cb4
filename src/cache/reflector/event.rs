//! Watch events: split at newlines, parsed one by one. Pure.

use memchr::memchr;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Status;
use crate::{
    api::version::ResourceVersion,
    cache::{
        bookmark::BookmarkForm,
        envelope::Envelope,
        object::Object,
        reader::{ObjectError, Reader},
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
    /// Parses one line.
    pub(super) fn read(
        line: &[u8],
        reader: &mut Reader,
        envelope: &Envelope,
    ) -> Result<Self, EventError> {
        let line = std::str::from_utf8(line).map_err(EventError::NotUtf8)?;
        let frame: Frame<'_> = serde_json::from_str(line).map_err(EventError::Malformed)?;
        let raw = frame.object.get();
        let mut object = || reader.event(raw, envelope).map_err(EventError::Object);
        match frame.r#type {
            "ADDED" | "MODIFIED" => Ok(Self::Stored(object()?)),
            "DELETED" => Ok(Self::Deleted(object()?)),
            "BOOKMARK" => {
                let version = bookmark_version(raw)?;
                let form = BookmarkForm::learn(raw, &version, envelope.style());
                Ok(Self::Bookmark(version, form))
            }
            "ERROR" => serde_json::from_str(raw).map(Self::Error).map_err(EventError::Malformed),
            unknown => Err(EventError::UnknownType(unknown.to_owned())),
        }
    }
}

fn bookmark_version(raw: &str) -> Result<ResourceVersion, EventError> {
    let object: BookmarkObject<'_> = serde_json::from_str(raw).map_err(EventError::Malformed)?;
    ResourceVersion::parse(object.metadata.resource_version).map_err(|_| EventError::Bookmark)
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
