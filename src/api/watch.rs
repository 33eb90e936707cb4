//! The events that a watch shows its client, parsed while they stream.
//!
//! The parser accepts events in JSON and protobuf, from a chunked body and from the messages of a
//! WebSocket. A chunked body has one JSON event per line. Invariant: an unreadable watch is reported
//! as opaque, and nothing is guessed. Events are neither changed nor delayed.

mod delimited;
mod websocket;

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;

use super::{protobuf, version::ResourceVersion};
use delimited::Delimited;
use websocket::{Frames, Message};

/// The parser of one watch.
#[derive(Debug)]
pub struct WatchReader {
    framing: Framing,
    /// The incomplete JSON event, or message.
    pending: Vec<u8>,
}

/// The fact of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    /// An object at a version.
    Object(ShownObject),
    /// A bookmark: everything up to this version was shown.
    Bookmark(ResourceVersion),
    /// An ERROR event of code 410 or 504: the client's version is no longer usable.
    Expired,
}

/// The object of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownObject {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// The version; for a deletion, the deletion's.
    pub version: ResourceVersion,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// `true` if it was deleted, or left the watch's selection.
    pub deleted: bool,
}

/// The reason why a watch cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Opaque {
    /// Its form is unknown.
    #[error("the watch has a form that cannot be parsed")]
    Form,
    /// It exceeds the size limit.
    #[error("an event of the watch is too large to be parsed")]
    TooLarge,
}

#[derive(Debug)]
enum Framing {
    Lines,
    WebSocket(Frames),
    Delimited(Delimited),
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Changed,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    object: EventObject,
}

#[derive(Deserialize)]
struct EventObject {
    #[serde(default)]
    metadata: EventMetadata,
    #[serde(default)]
    code: Option<u64>,
}

/// An event whose object is a Table.
#[derive(Deserialize)]
struct TableEvent {
    object: Table,
}

#[derive(Deserialize)]
struct Table {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    /// Absent with `includeObject=None`.
    object: Option<RowObject>,
}

#[derive(Deserialize)]
struct RowObject {
    metadata: EventMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EventMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    labels: Option<BTreeMap<String, String>>,
}

/// The largest event that is parsed; etcd limits objects to far less.
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

// === impl WatchReader ===

impl WatchReader {
    /// Creates the parser of a response over HTTP, if its form is known.
    pub fn http(
        content_type: Option<&str>,
        content_encoding: Option<&str>,
    ) -> Result<Self, Opaque> {
        let media_type = content_type.and_then(|value| value.split(';').next()).map(str::trim);
        let framing = match (media_type, content_encoding) {
            (Some("application/json"), None) => Framing::Lines,
            (Some(protobuf::MEDIA_TYPE), None) => Framing::Delimited(Delimited::default()),
            _ => return Err(Opaque::Form),
        };
        Ok(Self { framing, pending: Vec::new() })
    }

    /// Creates the parser of the apiserver's bytes on an upgraded connection.
    pub fn websocket() -> Self {
        Self { framing: Framing::WebSocket(Frames::default()), pending: Vec::new() }
    }

    /// Reports whether each event is a line.
    pub fn is_lines(&self) -> bool {
        matches!(self.framing, Framing::Lines)
    }

    /// Parses a chunk, and calls `shown` for each event that ends in it.
    pub fn push(&mut self, bytes: &[u8], mut shown: impl FnMut(Shown)) -> Result<(), Opaque> {
        let pending = &mut self.pending;
        match &mut self.framing {
            Framing::Lines => {
                for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
                    extend(pending, piece)?;
                    if piece.ends_with(b"\n") {
                        read(pending, &mut shown)?;
                        pending.clear();
                    }
                }
                Ok(())
            }
            Framing::WebSocket(frames) => frames.push(bytes, |piece, ended| {
                extend(pending, piece)?;
                match ended {
                    Some(Message::Text) => read(pending, &mut shown)?,
                    Some(Message::Binary) => Delimited::message(pending, &mut shown)?,
                    None => return Ok(()),
                }
                pending.clear();
                Ok(())
            }),
            Framing::Delimited(delimited) => delimited.push(bytes, shown),
        }
    }
}

// === impl Kind ===

impl Kind {
    fn of(text: &str) -> Result<Self, Opaque> {
        match text {
            "ADDED" | "MODIFIED" => Ok(Self::Changed),
            "DELETED" => Ok(Self::Deleted),
            "BOOKMARK" => Ok(Self::Bookmark),
            "ERROR" => Ok(Self::Error),
            _ => Err(Opaque::Form),
        }
    }
}

// === impl Shown ===

impl Shown {
    /// Returns the fact of an ERROR event with this code.
    fn by_code(code: u64) -> Option<Self> {
        matches!(code, 410 | 504).then_some(Self::Expired)
    }
}

fn extend(pending: &mut Vec<u8>, piece: &[u8]) -> Result<(), Opaque> {
    if pending.len() + piece.len() > EVENT_BYTES_MAX {
        return Err(Opaque::TooLarge);
    }
    pending.extend_from_slice(piece);
    Ok(())
}

fn read(event: &[u8], shown: &mut impl FnMut(Shown)) -> Result<(), Opaque> {
    if event.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    let bytes = event;
    let event: Event<'_> = serde_json::from_slice(bytes).map_err(|_| Opaque::Form)?;
    let deleted = match Kind::of(&event.kind)? {
        Kind::Changed => false,
        Kind::Deleted => true,
        Kind::Bookmark => {
            let version = ResourceVersion::parse(&event.object.metadata.resource_version);
            shown(Shown::Bookmark(version.map_err(|_| Opaque::Form)?));
            return Ok(());
        }
        Kind::Error => {
            event.object.code.and_then(Shown::by_code).into_iter().for_each(shown);
            return Ok(());
        }
    };
    if !event.object.metadata.name.is_empty() {
        shown(event.object.metadata.shown(deleted)?);
        return Ok(());
    }
    let event: TableEvent = serde_json::from_slice(bytes).map_err(|_| Opaque::Form)?;
    for row in event.object.rows {
        shown(row.object.ok_or(Opaque::Form)?.metadata.shown(deleted)?);
    }
    Ok(())
}

// === impl EventMetadata ===

impl EventMetadata {
    fn shown(self, deleted: bool) -> Result<Shown, Opaque> {
        let Self { name, namespace, uid, resource_version, labels } = self;
        let version = ResourceVersion::parse(&resource_version).map_err(|_| Opaque::Form)?;
        if name.is_empty() {
            return Err(Opaque::Form);
        }
        let labels = labels.unwrap_or_default();
        Ok(Shown::Object(ShownObject { namespace, name, uid, version, labels, deleted }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDED: &str = r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"app":"web"}}}}"#;
    const BOOKMARK: &str =
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"9"}}}"#;
    const GONE: &str = r#"{"type":"ERROR","object":{"kind":"Status","code":410}}"#;

    fn a_at_7(deleted: bool) -> Shown {
        Shown::Object(ShownObject {
            namespace: "n".into(),
            name: "a".into(),
            uid: "u".into(),
            version: ResourceVersion::parse("7").expect("a version"),
            labels: BTreeMap::from([("app".into(), "web".into())]),
            deleted,
        })
    }

    /// Parses the stream in chunks of every size from one byte on; the results must be equal.
    fn shown(make: impl Fn() -> WatchReader, stream: &[u8]) -> Result<Vec<Shown>, Opaque> {
        let outcomes = (1..=stream.len()).map(|size| {
            let (mut reader, mut all) = (make(), Vec::new());
            for piece in stream.chunks(size) {
                reader.push(piece, |shown| all.push(shown))?;
            }
            Ok(all)
        });
        let mut outcomes: Vec<_> = outcomes.collect();
        outcomes.dedup();
        assert_eq!(outcomes.len(), 1, "the size of pieces matters");
        outcomes.remove(0)
    }

    fn lines() -> WatchReader {
        WatchReader::http(Some("application/json"), None).expect("readable")
    }

    #[test]
    fn events_of_a_chunked_watch_are_reported_in_any_chunks() {
        let deleted = ADDED.replace("ADDED", "DELETED");
        let stream = format!("{ADDED}\n{BOOKMARK}\n{deleted}\n{GONE}\n");
        let nine = Shown::Bookmark(ResourceVersion::parse("9").expect("a version"));
        let expected = vec![a_at_7(false), nine, a_at_7(true), Shown::Expired];
        assert_eq!(shown(lines, stream.as_bytes()), Ok(expected));
    }

    #[test]
    fn events_of_a_websocket_watch_are_reported_in_any_frames() {
        let frame = |first: u8, payload: &[u8]| {
            let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
            let mut frame = vec![first];
            match payload.len() {
                0..126 => frame.push(length[1]),
                _ => frame.extend([126, length[0], length[1]]),
            }
            frame.extend(payload);
            frame
        };
        let (head, tail) = ADDED.as_bytes().split_at(40);
        let stream = [
            frame(0x81, ADDED.as_bytes()),
            // The message is fragmented, with a ping between.
            frame(0x01, head),
            frame(0x89, b"ping"),
            frame(0x80, tail),
            frame(0x81, GONE.as_bytes()),
            frame(0x88, b""),
        ]
        .concat();
        let expected = vec![a_at_7(false), a_at_7(false), Shown::Expired];
        assert_eq!(shown(WatchReader::websocket, &stream), Ok(expected));
    }

    #[test]
    fn the_rows_of_tables_are_reported() {
        let table = |rows: &str| {
            format!(
                r#"{{"type":"ADDED","object":{{"kind":"Table","metadata":{{"resourceVersion":"7"}},"rows":[{rows}]}}}}"#
            ) + "\n"
        };
        let row = r#"{"cells":["a"],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","labels":{"app":"web"}}}}"#;
        assert_eq!(shown(lines, table(row).as_bytes()), Ok(vec![a_at_7(false)]));
        let deleted = table(row).replace("ADDED", "DELETED");
        assert_eq!(shown(lines, deleted.as_bytes()), Ok(vec![a_at_7(true)]));
        // `includeObject=None`.
        for row in [r#"{"cells":["a"]}"#, r#"{"cells":["a"],"object":null}"#] {
            assert_eq!(shown(lines, table(row).as_bytes()), Err(Opaque::Form), "{row}");
        }
    }

    #[test]
    fn an_unreadable_watch_is_opaque() {
        assert!(WatchReader::http(Some(protobuf::MEDIA_TYPE), Some("gzip")).is_err());
        assert!(WatchReader::http(Some("application/json"), Some("gzip")).is_err());
        assert!(WatchReader::http(None, None).is_err());
        for stream in ["nonsense\n", "{\"type\":\"NEW\",\"object\":{}}\n", "{\"type\":\"ADDED\"}\n"]
        {
            assert_eq!(shown(lines, stream.as_bytes()), Err(Opaque::Form), "{stream}");
        }
        // A server does not send masked frames.
        assert_eq!(shown(WatchReader::websocket, &[0x81, 0x85, 0, 0, 0, 0]), Err(Opaque::Form));
        // Compressed frames set a reserved bit.
        assert_eq!(shown(WatchReader::websocket, &[0xC1, 0x01, 0x00]), Err(Opaque::Form));
    }
}
