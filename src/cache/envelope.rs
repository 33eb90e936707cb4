//! The part of a LIST in JSON around its items, learned from the apiserver's own response.
//!
//! Built-in types print `kind, apiVersion, metadata, items` and items without kind and apiVersion
//! (S-LIST-61). Custom resources print all keys sorted and items with both (S-LIST-62). A response
//! that Listless would not reproduce byte for byte is rejected as a whole.

use std::borrow::Cow;

use serde::Deserialize;

use crate::api::version::ResourceVersion;

/// The printed form of lists and objects of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonEnvelope {
    style: Style,
    /// The text before the list's version: the header of a typed list, the trailer of a custom one.
    before_version: String,
    /// The start of a typed object, in place of the `{` of a list's item.
    prefix: String,
    api_version: String,
    /// The kind of a list's items, if it is known.
    kind: Option<String>,
}

/// The family of printers that the apiserver uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Built-in types: keys in the order of the Go structs.
    Typed,
    /// Custom resources: keys sorted.
    Custom,
}

/// The reason why a list's envelope could not be learned.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// The text is not a list in JSON.
    #[error("the list is malformed")]
    Malformed(#[source] serde_json::Error),
    /// The list's own version is missing or invalid.
    #[error("the list has no usable resourceVersion")]
    Version,
    /// The list is printed in a form that Listless cannot reproduce.
    #[error("the list has an unknown printed form")]
    NotUnderstood,
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow, rename = "apiVersion")]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    metadata: OuterMetadata<'a>,
}

#[derive(Deserialize)]
struct OuterMetadata<'a> {
    #[serde(borrow, rename = "resourceVersion", default)]
    resource_version: Cow<'a, str>,
}

/// The kind that an item of a custom resource's list names.
#[derive(Debug, Deserialize)]
pub(super) struct Kind {
    kind: String,
}

const TYPED_TRAILER: &str = "]}\n";
const CUSTOM_END: &str = "\"}}\n";

// === impl JsonEnvelope ===

impl JsonEnvelope {
    /// Learns from the text before the first item and after the last one.
    pub fn learn(header: &str, trailer: &str) -> Result<(Self, ResourceVersion), EnvelopeError> {
        let text = format!("{header}{trailer}");
        let outer: Outer<'_> = serde_json::from_str(&text).map_err(EnvelopeError::Malformed)?;
        let version = ResourceVersion::parse(&outer.metadata.resource_version)
            .map_err(|_| EnvelopeError::Version)?;
        [Style::Typed, Style::Custom]
            .into_iter()
            .filter_map(|style| Self::new(style, &outer.kind, &outer.api_version))
            .find(|known| known.header(&version) == header && known.trailer(&version) == trailer)
            .map(|envelope| (envelope, version))
            .ok_or(EnvelopeError::NotUnderstood)
    }

    /// Returns `None` if the kind of a typed list's items is unknown.
    fn new(style: Style, list_kind: &str, api_version: &str) -> Option<Self> {
        let (kind, version) = (quoted(list_kind), quoted(api_version));
        let before_version = match style {
            Style::Typed => {
                format!(
                    r#"{{"kind":{kind},"apiVersion":{version},"metadata":{{"resourceVersion":""#
                )
            }
            Style::Custom => {
                format!(r#"],"kind":{kind},"metadata":{{"continue":"","resourceVersion":""#)
            }
        };
        let kind = list_kind.strip_suffix("List").filter(|kind| !kind.is_empty());
        let prefix = match style {
            Style::Typed => format!(r#"{{"kind":{},"apiVersion":{version},"#, quoted(kind?)),
            Style::Custom => String::from("{"),
        };
        // A definition may name its lists as it likes (`listKind`).
        let kind = kind.filter(|_| style == Style::Typed).map(str::to_owned);
        Some(Self { style, before_version, prefix, api_version: api_version.to_owned(), kind })
    }

    /// Returns the kind of a list's items; `None` for a custom resource of which no item was
    /// listed.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// Learns the kind of a custom resource's items from one of them.
    pub(super) fn learn_kind(&mut self, item: Kind) {
        self.kind.get_or_insert(item.kind);
    }

    /// Returns the family.
    pub fn style(&self) -> Style {
        self.style
    }

    /// Returns the apiVersion of the list and its items.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the start of a typed object, in place of its `{`; `{` for custom ones.
    pub fn object_prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the text before the first item.
    pub fn header(&self, version: &ResourceVersion) -> String {
        match self.style {
            Style::Typed => format!(r#"{}{version}"}},"items":["#, self.before_version),
            Style::Custom => {
                format!(r#"{{"apiVersion":{},"items":["#, quoted(&self.api_version))
            }
        }
    }

    /// Returns the text after the last item, newline included.
    pub fn trailer(&self, version: &ResourceVersion) -> String {
        match self.style {
            Style::Typed => TYPED_TRAILER.to_owned(),
            Style::Custom => format!("{}{version}{CUSTOM_END}", self.before_version),
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(header: &str, trailer: &str) -> Option<(JsonEnvelope, ResourceVersion)> {
        JsonEnvelope::learn(header, trailer).ok()
    }

    #[test]
    fn both_families_are_learned_and_reproduced() {
        let version = ResourceVersion::parse("123").expect("a version");
        for (header, trailer, style, prefix) in [
            (
                r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"123"},"items":["#,
                "]}\n",
                Style::Typed,
                r#"{"kind":"Pod","apiVersion":"v1","#,
            ),
            (
                r#"{"apiVersion":"a.io/v1","items":["#,
                "],\"kind\":\"ThingList\",\"metadata\":{\"continue\":\"\",\"resourceVersion\":\"123\"}}\n",
                Style::Custom,
                "{",
            ),
        ] {
            let (envelope, at) = learned(header, trailer).expect("understood");
            assert_eq!((envelope.style(), &at), (style, &version));
            assert_eq!(envelope.object_prefix(), prefix);
            assert_eq!(envelope.header(&version), header);
            assert_eq!(envelope.trailer(&version), trailer);
        }
    }

    #[test]
    fn unknown_printed_forms_are_rejected() {
        let typed = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"}"#;
        for (header, trailer) in [
            (format!(r#"{typed},"items":["#), "]}".to_owned()),
            (format!(r#"{typed},"items":["#), "],\"more\":1}\n".to_owned()),
            (format!(r#"{typed},"items":null}}"#), String::new()),
            (
                r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"abc"},"items":["#.to_owned(),
                "]}\n".to_owned(),
            ),
            (
                r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":["#.to_owned(),
                "]}\n".to_owned(),
            ),
        ] {
            assert!(
                matches!(JsonEnvelope::learn(&header, &trailer), Err(EnvelopeError::NotUnderstood)),
                "{header} {trailer}"
            );
        }
    }

    #[test]
    fn broken_or_versionless_lists_are_errors() {
        for (header, trailer) in [("", ""), ("{", ""), (r#"{"kind":"Pod"}"#, ""), ("<html>", "")] {
            let error = JsonEnvelope::learn(header, trailer).expect_err(header);
            assert!(matches!(error, EnvelopeError::Malformed(_)), "{header}: {error}");
        }
        for version in ["", "0", "abc"] {
            let header = format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":["#
            );
            let error = JsonEnvelope::learn(&header, "]}\n").expect_err(version);
            assert!(matches!(error, EnvelopeError::Version), "{version}: {error}");
        }
    }
}
