//! The form of a resource's bookmarks, learned from the apiserver's own. Pure.
//!
//! Typed bookmarks contain the zero values of their kind, which only the apiserver knows. Until one
//! was seen, bookmarks are printed without them (S-WATCH-30: clients need kind, apiVersion and
//! metadata).

mod protobuf;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

pub(super) use protobuf::{ProtobufBookmark, version_of};

use super::{
    envelope::{JsonEnvelope, Style},
    form::Envelope,
    metadata,
    portion::ListMeta,
    table::{self, TableEnvelope},
};
use crate::api::{
    form::Form,
    media::{Include, MetadataVersion, Representation, Table},
    version::ResourceVersion,
};

/// The form of a bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BookmarkForm {
    /// In JSON.
    Json(JsonBookmark),
    /// In protobuf.
    Protobuf(ProtobufBookmark),
}

/// The form of a bookmark in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JsonBookmark {
    style: Style,
    before_metadata: Box<str>,
    after_metadata: Box<str>,
    /// `true` if it contains an empty creationTimestamp, as of servers up to 1.33.
    prints_timestamp: bool,
    /// The text before the object in a row of a Table.
    row: Option<Box<str>>,
}

/// The mark of a bookmark that ends the initial events (S-WATCH-33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// No mark.
    None,
    /// The end of the initial events.
    InitialEventsEnd,
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

const ANNOTATION: &str = r#""annotations":{"k8s.io/initial-events-end":"true"}"#;
const TIMESTAMP: &str = r#""creationTimestamp":null"#;

// === impl BookmarkForm ===

impl BookmarkForm {
    /// Returns the event of a bookmark in the form of the apiserver's own, if one came; `None` if
    /// the kind is unknown.
    pub(super) fn event(
        learned: Option<&Self>,
        envelope: &Envelope,
        (representation, with_columns): (Representation, bool),
        version: &ResourceVersion,
        mark: Mark,
    ) -> Option<Bytes> {
        let in_json = match learned {
            Some(Self::Json(learned)) => Some(learned),
            _ => None,
        };
        match envelope {
            Envelope::Table(envelope) => {
                let Representation::Table(table) = representation else { return None };
                in_json?.table_line(version, mark, envelope, (table, with_columns))
            }
            Envelope::Json(envelope) => {
                let learned = in_json;
                let form = match (representation, learned) {
                    (Representation::Table(_), _) => return None,
                    (Representation::Metadata(partial), _) if partial.form == Form::Protobuf => {
                        return Some(ProtobufBookmark::plain().partial(partial, version, mark));
                    }
                    (Representation::Metadata(partial), _) => {
                        JsonBookmark::of_metadata(learned, partial.version)
                    }
                    (Representation::Object, Some(learned)) => {
                        return Some(learned.line(version, mark));
                    }
                    (Representation::Object, None) => JsonBookmark::plain(envelope)?,
                };
                Some(form.line(version, mark))
            }
            Envelope::Protobuf(envelope) => {
                let form = match learned {
                    Some(Self::Protobuf(learned)) => learned.clone(),
                    _ => ProtobufBookmark::plain(),
                };
                Some(match representation {
                    Representation::Object => {
                        form.event(envelope.api_version(), envelope.kind(), version, mark)
                    }
                    Representation::Metadata(partial) => form.partial(partial, version, mark),
                    Representation::Table(_) => return None,
                })
            }
        }
    }
}

// === impl JsonBookmark ===

impl JsonBookmark {
    /// Learns from the object of a bookmark at a version; returns `None` if its form is unusual.
    pub(super) fn learn(raw: &str, version: &ResourceVersion, style: Style) -> Option<Self> {
        let parts: Parts<'_> = serde_json::from_str(raw).ok()?;
        let metadata = parts.metadata.get();
        let start = (metadata.as_ptr() as usize).checked_sub(raw.as_ptr() as usize)?;
        let (before, after) = (raw.get(..start)?, raw.get(start + metadata.len()..)?);
        [false, true]
            .into_iter()
            .map(|prints_timestamp| Self {
                style,
                before_metadata: before.into(),
                after_metadata: after.into(),
                prints_timestamp,
                row: None,
            })
            .find(|form| form.metadata(version, Mark::None) == metadata)
    }

    /// Learns from the packed row of a bookmark at a version; returns `None` if its form is unusual.
    pub(super) fn learn_row(
        packed: &[u8],
        version: &ResourceVersion,
        table: &TableEnvelope,
    ) -> Option<Self> {
        let row = table::fixed_start(packed)?.into();
        let object = table::object_of(packed)?;
        Some(Self { row: Some(row), ..Self::learn(object, version, table.style())? })
    }

    /// Returns the shortest form that clients accept; `None` if the kind is unknown.
    pub(super) fn plain(envelope: &JsonEnvelope) -> Option<Self> {
        let before = match envelope.style() {
            Style::Typed => format!(r#"{}"metadata":"#, envelope.object_prefix()),
            Style::Custom => {
                let (kind, api_version) = (envelope.kind()?, envelope.api_version());
                let quoted = |text: &str| serde_json::Value::from(text).to_string();
                format!(
                    r#"{{"apiVersion":{},"kind":{},"metadata":"#,
                    quoted(api_version),
                    quoted(kind)
                )
            }
        };
        Some(Self {
            style: envelope.style(),
            before_metadata: before.into(),
            after_metadata: "}".into(),
            prints_timestamp: false,
            row: None,
        })
    }

    /// Returns the form of the same server's bookmarks for metadata-only watches. It is the same
    /// for built-in types and custom resources. A custom resource's own bookmark does not show
    /// whether the server prints a timestamp.
    pub(super) fn of_metadata(whole: Option<&Self>, version: MetadataVersion) -> Self {
        let head = metadata::head("PartialObjectMetadata", version);
        Self {
            style: Style::Typed,
            before_metadata: format!(r#"{head}"metadata":"#).into(),
            after_metadata: "}".into(),
            prints_timestamp: whole.is_some_and(|whole| whole.prints_timestamp),
            row: None,
        }
    }

    /// Returns the line of a watch of Tables; `None` if it was not learned from one.
    pub(super) fn table_line(
        &self,
        version: &ResourceVersion,
        mark: Mark,
        envelope: &TableEnvelope,
        (table, with_columns): (Table, bool),
    ) -> Option<Bytes> {
        let row = self.row.as_deref()?;
        let object = match table.include {
            Include::None => "null".to_owned(),
            Include::Object => self.object(version, mark),
            Include::Metadata => Self::of_metadata(Some(self), table.version).object(version, mark),
        };
        let meta = ListMeta::whole(version);
        let header = envelope.header(&meta, table.version, with_columns, false);
        let table = format!("{header}{row}{object}}}]}}");
        Some(Bytes::from(format!("{{\"type\":\"BOOKMARK\",\"object\":{table}}}\n")))
    }

    /// Returns the line of a watch.
    pub(super) fn line(&self, version: &ResourceVersion, mark: Mark) -> Bytes {
        let object = self.object(version, mark);
        Bytes::from(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"))
    }

    fn object(&self, version: &ResourceVersion, mark: Mark) -> String {
        let Self { before_metadata, after_metadata, .. } = self;
        let metadata = self.metadata(version, mark);
        format!("{before_metadata}{metadata}{after_metadata}")
    }

    fn metadata(&self, version: &ResourceVersion, mark: Mark) -> String {
        let version = format!(r#""resourceVersion":"{version}""#);
        let timestamp = self.prints_timestamp.then_some(TIMESTAMP);
        let annotation = (mark == Mark::InitialEventsEnd).then_some(ANNOTATION);
        // The order of typed metadata is that of the Go struct; custom metadata is sorted.
        let members = match self.style {
            Style::Typed => [Some(&*version), timestamp, annotation],
            Style::Custom => [annotation, timestamp, Some(&*version)],
        };
        let members: Vec<_> = members.into_iter().flatten().collect();
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{
        fixture::{envelope, version},
        form::Envelope,
    };

    fn line(form: &JsonBookmark, mark: Mark) -> String {
        String::from_utf8(form.line(&version(9), mark).to_vec()).expect("UTF-8")
    }

    #[test]
    fn the_apiservers_form_is_reproduced() {
        let pod = |metadata: &str| {
            format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{metadata}}},"spec":{{"containers":null}},"status":{{}}}}"#
            )
        };
        let thing = |metadata: &str| {
            format!(r#"{{"apiVersion":"a.io/v1","kind":"Thing","metadata":{{{metadata}}}}}"#)
        };
        let rows = [
            (
                Style::Typed,
                pod(r#""resourceVersion":"9""#),
                pod(&format!(r#""resourceVersion":"9",{ANNOTATION}"#)),
            ),
            (
                Style::Typed,
                pod(r#""resourceVersion":"9","creationTimestamp":null"#),
                pod(&format!(r#""resourceVersion":"9","creationTimestamp":null,{ANNOTATION}"#)),
            ),
            (
                Style::Custom,
                thing(r#""creationTimestamp":null,"resourceVersion":"9""#),
                thing(&format!(r#"{ANNOTATION},"creationTimestamp":null,"resourceVersion":"9""#)),
            ),
        ];
        for (style, plain, marked) in rows {
            let form = JsonBookmark::learn(&plain, &version(9), style).expect("understood");
            for (mark, object) in [(Mark::None, plain), (Mark::InitialEventsEnd, marked)] {
                let expected = format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n");
                assert_eq!(line(&form, mark), expected);
            }
        }
    }

    #[test]
    fn unusual_bookmarks_are_not_learned_from() {
        for raw in [
            "",
            "{}",
            r#"{"metadata":{"resourceVersion":"8"}}"#,
            r#"{"metadata":{"resourceVersion":"9","annotations":{}}}"#,
            r#"{"metadata":{"resourceVersion": "9"}}"#,
        ] {
            assert_eq!(JsonBookmark::learn(raw, &version(9), Style::Typed), None, "{raw}");
        }
    }

    #[test]
    fn a_metadata_bookmark_has_the_form_of_the_conversion() {
        let head = r#"{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion""#;
        let form = JsonBookmark::of_metadata(None, MetadataVersion::V1);
        let metadata = format!(r#"{{"resourceVersion":"9",{ANNOTATION}}}"#);
        let expected = format!("{head}:\"meta.k8s.io/v1\",\"metadata\":{metadata}}}}}\n");
        assert_eq!(line(&form, Mark::InitialEventsEnd), expected);
        let raw = r#"{"metadata":{"resourceVersion":"9","creationTimestamp":null}}"#;
        let old = JsonBookmark::learn(raw, &version(9), Style::Typed).expect("understood");
        let form = JsonBookmark::of_metadata(Some(&old), MetadataVersion::V1Beta1);
        let metadata = r#"{"resourceVersion":"9","creationTimestamp":null}"#;
        let expected = format!("{head}:\"meta.k8s.io/v1beta1\",\"metadata\":{metadata}}}}}\n");
        assert_eq!(line(&form, Mark::None), expected);
    }

    #[test]
    fn an_unlearned_bookmark_has_the_shortest_accepted_form() {
        let Envelope::Json(envelope) = envelope() else { panic!("no JSON") };
        let form = JsonBookmark::plain(&envelope).expect("a kind");
        let expected = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}"#;
        assert_eq!(line(&form, Mark::None), format!("{expected}\n"));
    }
}
