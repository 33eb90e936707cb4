//! Lists and watches of definitions, parsed only for names, versions and remote servers.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::{Deserialize, de::IgnoredAny};

use crate::body::{Body, BoxError};

/// One line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// An object was created or changed.
    Changed(Definition),
    /// An object was deleted.
    Deleted(Definition),
    /// Nothing changed up to this version.
    Bookmark(Definition),
    /// The watch cannot continue.
    Error,
}

/// A CustomResourceDefinition or an APIService.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) name: Box<str>,
    pub(super) version: Box<str>,
    /// The identity of the object and the count of its specification changes; `None` if the server
    /// does not count them.
    pub(super) generation: Option<Generation>,
    /// `true` if another server than the apiserver serves it.
    pub(super) is_remote: bool,
}

/// A state of an object's specification. A recreated object counts from the beginning again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    uid: Box<str>,
    number: i64,
}

/// The lines of a watch.
pub(super) struct Lines {
    body: Body,
    read: BytesMut,
}

/// A body that cannot be parsed as events.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// The body broke off.
    #[error("the response broke off")]
    Broken(#[source] BoxError),
    /// A line is longer than any definition.
    #[error("a line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// The line is not a definition.
    #[error("cannot parse the response")]
    Malformed(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct RawList<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    /// The items; `null` if there are none (S-LIST-63).
    #[serde(borrow)]
    items: Option<Vec<RawObject<'a>>>,
}

#[derive(Deserialize)]
struct RawEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: RawObject<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawObject<'a> {
    #[serde(borrow)]
    metadata: RawMetadata<'a>,
    spec: RawSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMetadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    resource_version: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    generation: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawSpec {
    /// The service; absent or null if the apiserver serves it itself.
    service: Option<IgnoredAny>,
}

/// The longest line that is read; its objects are at most as large as etcd's values.
const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The largest list that is read.
const LIST_BYTES_MAX: usize = 32 * 1024 * 1024;

// === impl Lines ===

impl Lines {
    /// Reads lines from a body.
    pub(super) fn of(body: Body) -> Self {
        Self { body, read: BytesMut::new() }
    }

    /// Returns the next event; `None` at a clean end. Cancel-safe: no event is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Unreadable> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.read) {
                let line = self.read.split_to(at + 1);
                return Event::read(&line).map(Some);
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(Unreadable::TooLong);
            }
            match self.body.frame().await.transpose().map_err(Unreadable::Broken)? {
                Some(frame) => {
                    self.read
                        .extend_from_slice(&frame.into_data().unwrap_or_else(|_| Bytes::new()));
                }
                None => return Ok(None),
            }
        }
    }
}

// === impl Event ===

impl Event {
    fn read(line: &[u8]) -> Result<Self, Unreadable> {
        let event: RawEvent<'_> = serde_json::from_slice(line)?;
        let definition = event.object.definition();
        Ok(match &*event.kind {
            "ADDED" | "MODIFIED" => Self::Changed(definition),
            "DELETED" => Self::Deleted(definition),
            "BOOKMARK" => Self::Bookmark(definition),
            _ => Self::Error,
        })
    }
}

// === impl RawObject ===

impl RawObject<'_> {
    fn definition(&self) -> Definition {
        Definition {
            name: self.metadata.name.as_ref().into(),
            version: self.metadata.resource_version.as_ref().into(),
            generation: self
                .metadata
                .generation
                .map(|number| Generation { uid: self.metadata.uid.as_ref().into(), number }),
            is_remote: self.spec.service.is_some(),
        }
    }
}

/// Reads a list; returns its version and its items.
pub(super) async fn read_list(body: Body) -> Result<(Box<str>, Vec<Definition>), Unreadable> {
    let bytes = body.collect(LIST_BYTES_MAX).await.map_err(Unreadable::Broken)?;
    let list: RawList<'_> = serde_json::from_slice(&bytes)?;
    let items = list.items.iter().flatten().map(RawObject::definition).collect();
    Ok((list.metadata.resource_version.as_ref().into(), items))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn definition(name: &str, version: &str, is_remote: bool) -> Definition {
        let generation = (name == "b").then(|| Generation { uid: "u".into(), number: 3 });
        Definition { name: name.into(), version: version.into(), generation, is_remote }
    }

    #[tokio::test]
    async fn events_are_parsed_at_any_chunk_boundary() {
        let text = concat!(
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5"},"spec":{"service":{"name":"s"}}}}"#,
            "\n",
            r#"{"type":"MODIFIED","object":{"kind":"PartialObjectMetadata","metadata":{"name":"b","resourceVersion":"6","uid":"u","generation":3}}}"#,
            "\n",
            r#"{"type":"DELETED","object":{"metadata":{"name":"a","resourceVersion":"7"},"spec":{"service":null}}}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#,
            "\n",
            r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#,
            "\n",
        );
        for size in [1, 7, 1000] {
            let chunks = text.as_bytes().chunks(size).map(Bytes::copy_from_slice);
            let mut lines = Lines::of(Body::chunks(chunks.collect::<VecDeque<_>>()));
            let mut events = Vec::new();
            while let Some(event) = lines.next().await.expect("readable") {
                events.push(event);
            }
            let expected = [
                Event::Changed(definition("a", "5", true)),
                Event::Changed(definition("b", "6", false)),
                Event::Deleted(definition("a", "7", false)),
                Event::Bookmark(definition("", "9", false)),
                Event::Error,
            ];
            assert_eq!(events, expected, "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn a_list_without_items_is_a_list() {
        for items in ["null", "[]"] {
            let text = format!(r#"{{"metadata":{{"resourceVersion":"3"}},"items":{items}}}"#);
            let (version, items) = read_list(Body::full(text)).await.expect("readable");
            assert_eq!((&*version, items), ("3", vec![]));
        }
    }

    #[tokio::test]
    async fn a_body_without_events_is_an_error() {
        for text in ["null\n", "{}\n", "\u{0}\n", "{\"type\":1,\"object\":{}}\n"] {
            let mut lines = Lines::of(Body::full(text));
            assert!(lines.next().await.is_err(), "{text:?}");
        }
    }
}
