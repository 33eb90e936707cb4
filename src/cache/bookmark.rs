//! The form of a resource's bookmarks, learned from the apiserver's own. Pure.
//!
//! Typed bookmarks contain the zero values of their kind, which only the apiserver knows. Until one
//! was seen, bookmarks are printed without them (S-WATCH-30: clients need kind, apiVersion and
//! metadata).

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    envelope::{Envelope, Style},
    metadata,
};
use crate::api::{media::MetadataVersion, version::ResourceVersion};

/// The form of a bookmark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BookmarkForm {
    style: Style,
    before_metadata: Box<str>,
    after_metadata: Box<str>,
    /// `true` if it contains an empty creationTimestamp, as of servers up to 1.33.
    prints_timestamp: bool,
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
            })
            .find(|form| form.metadata(version, Mark::None) == metadata)
    }

    /// Returns the shortest form that clients accept; `None` if the kind is unknown.
    pub(super) fn plain(envelope: &Envelope) -> Option<Self> {
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
        }
    }

    /// Returns the line of a watch.
    pub(super) fn line(&self, version: &ResourceVersion, mark: Mark) -> Bytes {
        let Self { before_metadata, after_metadata, .. } = self;
        let metadata = self.metadata(version, mark);
        let object = format!("{before_metadata}{metadata}{after_metadata}");
        Bytes::from(format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"))
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
    use crate::cache::fixture::{envelope, version};

    fn line(form: &BookmarkForm, mark: Mark) -> String {
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
            let form = BookmarkForm::learn(&plain, &version(9), style).expect("understood");
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
            assert_eq!(BookmarkForm::learn(raw, &version(9), Style::Typed), None, "{raw}");
        }
    }

    #[test]
    fn a_metadata_bookmark_has_the_form_of_the_conversion() {
        let head = r#"{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion""#;
        let form = BookmarkForm::of_metadata(None, MetadataVersion::V1);
        let metadata = format!(r#"{{"resourceVersion":"9",{ANNOTATION}}}"#);
        let expected = format!("{head}:\"meta.k8s.io/v1\",\"metadata\":{metadata}}}}}\n");
        assert_eq!(line(&form, Mark::InitialEventsEnd), expected);
        let raw = r#"{"metadata":{"resourceVersion":"9","creationTimestamp":null}}"#;
        let old = BookmarkForm::learn(raw, &version(9), Style::Typed).expect("understood");
        let form = BookmarkForm::of_metadata(Some(&old), MetadataVersion::V1Beta1);
        let metadata = r#"{"resourceVersion":"9","creationTimestamp":null}"#;
        let expected = format!("{head}:\"meta.k8s.io/v1beta1\",\"metadata\":{metadata}}}}}\n");
        assert_eq!(line(&form, Mark::None), expected);
    }

    #[test]
    fn an_unlearned_bookmark_has_the_shortest_accepted_form() {
        let form = BookmarkForm::plain(&envelope()).expect("a kind");
        let expected = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}"#;
        assert_eq!(line(&form, Mark::None), format!("{expected}\n"));
    }
}
