//! A recent event: its change, the selectors that see it, and its printed form. Pure.
//!
//! Invariant: every watcher that gets an event in the same form gets the same bytes, made at most
//! once (S-WATCH-40).

use std::sync::OnceLock;

use bytes::Bytes;

use super::{
    envelope::JsonEnvelope,
    form::{Envelope, partial_event},
    metadata,
    object::Object,
    selection::selects,
    table::{Moment, table_line},
};
use crate::api::{
    ObjectKey,
    form::Form,
    media::{MetadataVersion, Partial, Representation, Table},
    query::Query,
    version::ResourceVersion,
};

/// A change of one object at one version.
#[derive(Debug)]
pub struct Event {
    /// The version of the collection after the event: the deletion's own for a deletion.
    pub version: ResourceVersion,
    /// The change.
    pub change: Change,
    /// The object after the event; for a deletion its last state at the deletion's version.
    pub object: Object,
    before: Before,
    lines: Lines,
    /// The lines for each version and form of metadata-only watches, which are rare.
    metadata_lines: [OnceLock<Box<Lines>>; 4],
}

/// The lines for each [`Change`], made on first use.
type Lines = [OnceLock<Option<Bytes>>; 3];

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was not there before.
    Added,
    /// The object was there before.
    Modified,
    /// The object is no longer there.
    Deleted,
}

/// The state before the event, as far as selectors can distinguish it (S-WATCH-23).
#[derive(Debug)]
enum Before {
    /// There was no such object.
    Nothing,
    /// The same selectors match as after the event.
    Alike,
    /// This object.
    Object(Object),
}

/// The text between an event's type and its object.
const OBJECT: &str = r#"","object":"#;

const TYPE: &str = r#"{"type":""#;

const END: &[u8] = b"}\n";

/// The estimated reference counts and allocator overhead of one event.
const OVERHEAD: usize = size_of::<Event>() + 64;

// === impl Event ===

impl Event {
    /// Creates the event of an object whose state `before` is given, or that was absent.
    pub fn new(
        version: ResourceVersion,
        change: Change,
        object: Object,
        before: Option<Object>,
    ) -> Self {
        let before = match before {
            None => Before::Nothing,
            Some(before) if before.is_selected_like(&object) => Before::Alike,
            Some(before) => Before::Object(before),
        };
        let (lines, metadata_lines) = Default::default();
        Self { version, change, object, before, lines, metadata_lines }
    }

    /// Returns the object's key.
    pub fn key(&self) -> &ObjectKey {
        self.object.key()
    }

    /// Returns the change as followers of a query see it; `None` if they do not see it
    /// (S-WATCH-22).
    pub fn seen_through(&self, query: &Query) -> Option<Change> {
        let now = selects(query, &self.object);
        let before = match &self.before {
            Before::Nothing => false,
            Before::Alike => now,
            Before::Object(before) => selects(query, before),
        };
        match (before, now && self.change != Change::Deleted) {
            (false, true) => Some(Change::Added),
            (true, true) => Some(Change::Modified),
            (true, false) => Some(Change::Deleted),
            (false, false) => None,
        }
    }

    /// Returns the line of a watch for the change; `None` if it cannot be printed.
    pub fn line(
        &self,
        seen: Change,
        representation: Representation,
        envelope: &Envelope,
    ) -> Option<Bytes> {
        let line = self.lines(representation)[seen as usize]
            .get_or_init(|| envelope.event(seen, &self.raw(seen, envelope)?, representation));
        line.clone()
    }

    /// Returns the line of a watch of Tables at a moment, with or without the columns; `None` if it
    /// cannot be printed. It is made again each time.
    pub fn table_line(
        &self,
        seen: Change,
        (table, with_columns): (Table, bool),
        envelope: &Envelope,
        now: Moment,
    ) -> Option<Bytes> {
        let raw = self.raw(seen, envelope)?;
        let row = (&*raw, &self.version);
        table_line(envelope.table()?, seen, row, table, with_columns, now)
    }

    /// Returns the bytes of the object that the line of a change shows.
    fn raw(&self, seen: Change, envelope: &Envelope) -> Option<Bytes> {
        let leaves = seen == Change::Deleted && self.change != Change::Deleted;
        match &self.before {
            _ if !leaves => Some(self.object.raw().clone()),
            // The object left the selection: the line shows its state before, at the version of the
            // event (S-WATCH-22).
            Before::Object(before) => envelope.raw_at(before.raw(), &self.version).map(Bytes::from),
            Before::Nothing | Before::Alike => None,
        }
    }

    fn lines(&self, representation: Representation) -> &Lines {
        let index = match representation {
            // A Table's line depends on the time and is not kept.
            Representation::Object | Representation::Table(_) => return &self.lines,
            Representation::Metadata(Partial { version, form }) => {
                2 * usize::from(form == Form::Protobuf)
                    + usize::from(version == MetadataVersion::V1Beta1)
            }
        };
        self.metadata_lines[index].get_or_init(Box::default)
    }

    /// Returns the memory held, estimated, as if it were printed once.
    pub fn bytes(&self) -> usize {
        let before = match &self.before {
            Before::Object(before) => before.raw().len() + before.bytes(),
            Before::Nothing | Before::Alike => 0,
        };
        OVERHEAD + 2 * self.object.raw().len() + self.object.bytes() + before
    }
}

// === impl Change ===

impl Change {
    /// Returns the `type` of a watch event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// Returns the line of a watch for an object in JSON; `None` if it cannot be printed.
pub(super) fn json_line(
    seen: Change,
    raw: &[u8],
    representation: Representation,
    envelope: &JsonEnvelope,
) -> Option<Bytes> {
    let Representation::Metadata(partial) = representation else {
        // The start of a typed object replaces its `{`.
        let rest = raw.get(1..).unwrap_or_default();
        return Some(joined(seen, envelope.object_prefix().as_bytes(), rest));
    };
    if partial.form == Form::Protobuf {
        let encoded = metadata::encoded(raw, envelope.style())?;
        return Some(partial_event(seen, &encoded, partial));
    }
    let object = metadata::partial(raw, envelope.style(), partial.version)?;
    Some(joined(seen, object.as_bytes(), b""))
}

fn joined(seen: Change, start: &[u8], rest: &[u8]) -> Bytes {
    let parts = [TYPE.as_bytes(), seen.as_str().as_bytes(), OBJECT.as_bytes(), start, rest, END];
    let mut line = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| line.extend_from_slice(part));
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::fixture::{Pod, envelope, query, version};

    fn pod(app: &'static str, at: u64) -> Pod {
        Pod { labels: vec![("app", app)], ..Pod::new("a", "p", at) }
    }

    fn seen(event: &Event, labels: &str) -> Option<(Change, String)> {
        let seen = event.seen_through(&query(Some("a"), labels, ""))?;
        let line = event.line(seen, Representation::Object, &envelope()).expect("printable");
        Some((seen, String::from_utf8(line.to_vec()).expect("UTF-8")))
    }

    fn metadata(version: MetadataVersion) -> Representation {
        Representation::Metadata(Partial { version, form: Form::Json })
    }

    #[test]
    fn an_object_enters_and_leaves_selections_as_its_labels_change() {
        let (old, new) = (pod("web", 5), pod("db", 7));
        let event = Event::new(version(7), Change::Modified, new.object(), Some(old.object()));
        assert_eq!(seen(&event, ""), Some((Change::Modified, new.event("MODIFIED"))));
        assert_eq!(seen(&event, "app=db"), Some((Change::Added, new.event("ADDED"))));
        // The expected state is the one before, at the version of the event.
        let left = Pod { version: 7, ..old.clone() };
        assert_eq!(seen(&event, "app=web"), Some((Change::Deleted, left.event("DELETED"))));
        assert_eq!(seen(&event, "app=cache"), None);
        assert_eq!(event.seen_through(&query(Some("b"), "", "")), None);
    }

    #[test]
    fn a_deletion_is_shown_to_followers_that_saw_the_object() {
        let (old, last) = (pod("web", 5), pod("web", 9));
        let event = Event::new(version(9), Change::Deleted, last.object(), Some(old.object()));
        assert_eq!(seen(&event, "app=web"), Some((Change::Deleted, last.event("DELETED"))));
        assert_eq!(seen(&event, "app=db"), None);
    }

    #[test]
    fn states_that_no_selector_distinguishes_are_held_once() {
        let new = pod("web", 7);
        let alike =
            Event::new(version(7), Change::Modified, new.object(), Some(pod("web", 5).object()));
        let other =
            Event::new(version(7), Change::Modified, new.object(), Some(pod("db", 5).object()));
        assert!(alike.bytes() < other.bytes());
        assert_eq!(seen(&alike, "app=web"), Some((Change::Modified, new.event("MODIFIED"))));
        assert_eq!(seen(&alike, "app=db"), None);
    }

    #[test]
    fn all_watchers_get_the_same_bytes() {
        let event = Event::new(version(7), Change::Added, pod("web", 7).object(), None);
        for representation in [
            Representation::Object,
            metadata(MetadataVersion::V1),
            metadata(MetadataVersion::V1Beta1),
        ] {
            let line = || event.line(Change::Added, representation, &envelope());
            assert_eq!(line().expect("printable").as_ptr(), line().expect("printable").as_ptr());
        }
    }

    #[test]
    fn metadata_is_printed_in_the_requested_version() {
        let (old, new) = (pod("web", 5), pod("db", 7));
        let event = Event::new(version(7), Change::Modified, new.object(), Some(old.object()));
        let shown = |labels: &str, version| {
            let seen = event.seen_through(&query(Some("a"), labels, "")).expect("a part in it");
            let line = event.line(seen, metadata(version), &envelope());
            String::from_utf8(line.expect("printable").to_vec()).expect("UTF-8")
        };
        let expected = |seen: &str, api_version: &str, pod: &Pod| {
            let whole: serde_json::Value =
                serde_json::from_slice(pod.object().raw()).expect("an object");
            let told = serde_json::json!({"type": seen, "object": {
                "kind": "PartialObjectMetadata", "apiVersion": api_version,
                "metadata": whole["metadata"],
            }});
            told.to_string()
        };
        let left = Pod { version: 7, ..old.clone() };
        for (labels, version, seen, api_version, pod) in [
            ("", MetadataVersion::V1, "MODIFIED", "meta.k8s.io/v1", &new),
            ("", MetadataVersion::V1Beta1, "MODIFIED", "meta.k8s.io/v1beta1", &new),
            ("app=db", MetadataVersion::V1, "ADDED", "meta.k8s.io/v1", &new),
            // The expected state is the one before, at the version of the event.
            ("app=web", MetadataVersion::V1, "DELETED", "meta.k8s.io/v1", &left),
        ] {
            let line = shown(labels, version);
            let start = format!(r#"{{"type":"{seen}","object":{{"kind":"PartialObjectMetadata","#);
            assert!(line.starts_with(&start) && line.ends_with("}}}\n"), "{line}");
            let told: serde_json::Value = serde_json::from_str(&line).expect("an event");
            assert_eq!(told.to_string(), expected(seen, api_version, pod), "{labels}");
        }
    }
}
