//! Representations: the requested form of JSON, and the refusal of all others (S-CT-01..07).
//!
//! JSON is supported, compact or indented, and protobuf, both compressed or not, as whole objects,
//! metadata only or, in JSON, Tables. YAML is refused with 406, although the real server has it.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use jiff::Timestamp;

use super::{
    Asked, kind::Style, metadata, protobuf, route::Parameters, status::StatusFailure, table,
    upgrade::Messages,
};
use crate::{
    api::{
        Verb,
        field::is_built_in_group,
        media::{Include, Metadata, MetadataKind, Negotiated, Table},
        protobuf::MEDIA_TYPE,
    },
    body::Body,
};

/// The representation that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Media {
    built_in: Acceptance,
    custom: Acceptance,
    /// The layout of errors for this client.
    errors: Layout,
    layout: Layout,
    gzip: bool,
    metadata: Option<Metadata>,
    /// `true` if the client prefers protobuf.
    protobuf: bool,
    /// `true` if errors are in protobuf; a conversion of objects does not apply to them.
    errors_in_protobuf: bool,
    table: Option<Table>,
}

/// The client's acceptance of JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Acceptance {
    NoType,
    /// The client accepts JSON only in a conversion that is not supported.
    NoConversion,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Compact,
    Indented,
}

/// The size above which responses are compressed on request (S-HDR-01).
const COMPRESSED_ABOVE_BYTES: u64 = 128 << 10;

/// The clients that get indented JSON by default (S-CT-07).
const PEOPLE: [&str; 3] = ["curl", "Wget", "Mozilla/5.0"];

const REPRESENTATIONS: &str = "406: Not Acceptable\n\nAvailable representations: \
    application/json, application/yaml, application/vnd.kubernetes.protobuf";
const STREAMED: &str =
    ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
const MEDIA_TYPES: &str = "only the following media types are accepted: application/json, \
    application/yaml, application/vnd.kubernetes.protobuf";

// === impl Media ===

impl Media {
    /// Parses the representation of a request.
    pub(super) fn of(headers: &HeaderMap, parameters: &Parameters) -> Self {
        let accept = joined(headers, header::ACCEPT);
        let acceptance = |wildcards: &[&str]| {
            if accept.trim().is_empty() {
                return Acceptance::Json;
            }
            let clauses = accept.split(',').map(|clause| acceptance(clause, wildcards));
            clauses.max().unwrap_or(Acceptance::NoType)
        };
        let custom = acceptance(&["*/*", "application/*"]);
        let negotiated = Negotiated::of(headers, parameters.value("pretty"));
        let pretty = is_pretty(headers, parameters) || accept.contains("pretty=1");
        Self {
            built_in: acceptance(&["*/*"]),
            custom,
            errors: if custom == Acceptance::Json && !pretty {
                Layout::Compact
            } else {
                Layout::Indented
            },
            layout: if pretty { Layout::Indented } else { Layout::Compact },
            gzip: joined(headers, header::ACCEPT_ENCODING)
                .split(',')
                .any(|token| token.trim() == "gzip"),
            metadata: match negotiated {
                Negotiated::Metadata(metadata) | Negotiated::ProtobufMetadata(metadata) => {
                    Some(metadata)
                }
                _ => None,
            },
            protobuf: matches!(
                negotiated,
                Negotiated::Protobuf { .. } | Negotiated::ProtobufMetadata(_)
            ),
            errors_in_protobuf: accept
                .split(',')
                .find(|clause| !clause.contains("as="))
                .is_some_and(|clause| clause.trim().starts_with(MEDIA_TYPE)),
            table: match negotiated {
                Negotiated::Table(version) => {
                    Some(Table { version, include: included(parameters.value("includeObject")) })
                }
                _ => None,
            },
        }
    }

    /// Returns the refusal, if no acceptable representation is supported.
    pub(super) fn refusal(&self, style: Style, verb: Verb) -> Option<Response<Body>> {
        let is_read = matches!(verb, Verb::Get | Verb::List | Verb::Watch);
        if self.metadata.is_some_and(|metadata| is_of(metadata, verb))
            || (is_read && self.table.is_some())
        {
            return None;
        }
        if self.protobuf && self.metadata.is_none() && style == Style::Typed {
            return None;
        }
        let streamed = if verb == Verb::Get { "" } else { STREAMED };
        let (message, details) = match (style, self.built_in, self.custom) {
            (Style::Typed, Acceptance::Json, _) | (Style::Custom, _, Acceptance::Json) => {
                return None;
            }
            (Style::Typed, Acceptance::NoType, _) => (format!("{REPRESENTATIONS}{streamed}"), true),
            _ => (MEDIA_TYPES.to_owned(), false),
        };
        let mut failure = StatusFailure::new(406, "NotAcceptable", message);
        if details {
            failure = failure.with_empty_details();
        }
        Some(failure.into_response())
    }

    /// Converts the events of a watch to the client's representation.
    pub(super) fn stream(
        &self,
        asked: &Asked,
        answered: Response<Body>,
        clock: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Response<Body> {
        let answered = match (self.metadata, self.table) {
            (Some(wanted), _) if is_of(wanted, Verb::Watch) => {
                metadata::streamed(answered, wanted.version)
            }
            (_, Some(wanted)) => table::streamed(answered, wanted, clock),
            _ => answered,
        };
        if !self.is_protobuf(asked, &answered) {
            return answered;
        }
        let mut answered = protobuf::events(answered);
        match answered.extensions_mut().get_mut::<Messages>() {
            Some(messages) => messages.binary = true,
            None => protobuf::name_stream(answered.headers_mut()),
        }
        answered
    }

    /// Reports whether a response in JSON is to be in protobuf. Whole custom resources never are
    /// (S-CT-04).
    fn is_protobuf(&self, asked: &Asked, answered: &Response<Body>) -> bool {
        let json = answered.headers().get(header::CONTENT_TYPE);
        let in_protobuf = if answered.status().as_u16() < 400 {
            self.protobuf && (self.metadata.is_some() || is_built_in_group(&asked.group))
        } else {
            self.errors_in_protobuf
        };
        let is_json = json.is_some_and(|value| value == "application/json");
        let is_messages = answered.extensions().get::<Messages>().is_some();
        in_protobuf && !asked.resource.is_empty() && (is_json || is_messages)
    }

    /// Converts a whole response to the client's representation.
    pub(super) async fn apply(
        &self,
        asked: &Asked,
        answered: Response<Body>,
        now: Timestamp,
    ) -> Response<Body> {
        let verb = asked.verb;
        let is_read = matches!(verb, Verb::Get | Verb::List);
        let answered = match (self.metadata, self.table) {
            _ if answered.status() != StatusCode::OK => answered,
            (Some(wanted), _) if is_of(wanted, verb) => metadata::converted(answered, wanted).await,
            (_, Some(wanted)) if is_read => table::converted(answered, wanted, now).await,
            _ => answered,
        };
        let layout = if answered.status().is_success() { self.layout } else { self.errors };
        let answered = match layout {
            _ if self.is_protobuf(asked, &answered) => protobuf::converted(answered).await,
            Layout::Compact => answered,
            Layout::Indented => indented(answered).await,
        };
        if self.gzip { compressed(answered).await } else { answered }
    }
}

/// Returns the part of an object that a Table contains.
fn included(value: Option<&str>) -> Include {
    match value {
        Some("None") => Include::None,
        Some("Object") => Include::Object,
        _ => Include::Metadata,
    }
}

/// Returns the media type of a request's body, without parameters.
pub(super) fn content_type(headers: &HeaderMap) -> String {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let bare = value.unwrap_or_default().split(';').next().unwrap_or_default();
    bare.trim().to_ascii_lowercase()
}

/// Reports whether this verb's response can be converted to metadata.
fn is_of(metadata: Metadata, verb: Verb) -> bool {
    match metadata.kind {
        MetadataKind::Object => matches!(verb, Verb::Get | Verb::Watch),
        MetadataKind::List => verb == Verb::List,
    }
}

fn joined(headers: &HeaderMap, name: HeaderName) -> String {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn acceptance(clause: &str, wildcards: &[&str]) -> Acceptance {
    let mut parts = clause.split(';').map(str::trim);
    let media_type = parts.next().unwrap_or_default();
    if media_type != "application/json" && !wildcards.contains(&media_type) {
        return Acceptance::NoType;
    }
    let refused = |parameter: &str| {
        parameter.starts_with("as=")
            || (parameter.starts_with("stream=") && parameter != "stream=watch")
    };
    if parts.any(refused) { Acceptance::NoConversion } else { Acceptance::Json }
}

fn is_pretty(headers: &HeaderMap, parameters: &Parameters) -> bool {
    match parameters.value("pretty") {
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
        None | Some("") => {
            let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
            agent.is_some_and(|agent| PEOPLE.iter().any(|person| agent.starts_with(person)))
        }
        Some(_) => false,
    }
}

/// Returns a whole JSON body with line breaks, except the last.
async fn indented(answered: Response<Body>) -> Response<Body> {
    let json = answered.headers().get(header::CONTENT_TYPE);
    let whole = answered.body().size_hint().exact().is_some();
    if !whole || json.is_none_or(|value| value != "application/json") {
        return answered;
    }
    let (parts, body) = answered.into_parts();
    let bytes = body.collect(usize::MAX).await.unwrap_or_default();
    Response::from_parts(parts, Body::full(indent(&bytes)))
}

/// Indents compact JSON by two spaces, as Go does.
fn indent(compact: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(compact.len() * 2);
    let mut depth = 0_usize;
    let (mut in_string, mut escaped, mut opened) = (false, false, false);
    let new_line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    for byte in compact.trim_ascii_end() {
        let closes = matches!(byte, b'}' | b']') && !in_string;
        if closes {
            depth = depth.saturating_sub(1);
        }
        if opened != closes && (opened || closes) {
            new_line(&mut out, depth);
        }
        opened = matches!(byte, b'{' | b'[') && !in_string;
        out.push(*byte);
        match byte {
            _ if in_string => {
                in_string = escaped || *byte != b'"';
                escaped = !escaped && *byte == b'\\';
            }
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b',' => new_line(&mut out, depth),
            b':' => out.push(b' '),
            _ => {}
        }
    }
    out
}

/// Compresses a whole body above the limit.
async fn compressed(answered: Response<Body>) -> Response<Body> {
    if answered.body().size_hint().exact().is_none_or(|bytes| bytes <= COMPRESSED_ABOVE_BYTES) {
        return answered;
    }
    let (mut parts, mut body) = answered.into_parts();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(1));
    while let Some(Ok(frame)) = body.frame().await {
        // Writing to a Vec never fails.
        let _ = encoder.write_all(frame.data_ref().map_or(&[], |data| data));
    }
    let compressed = encoder.finish().unwrap_or_default();
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::full(compressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_json_matches_go() {
        for (compact, expected) in [
            ("{}\n", "{}"),
            (r#"{"a":[],"b":{}}"#, "{\n  \"a\": [],\n  \"b\": {}\n}"),
            (
                r#"{"a":[1,{"b":"{,:\"]"}],"c":null}"#,
                "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"{,:\\\"]\"\n    }\n  ],\n  \"c\": null\n}",
            ),
        ] {
            let indented = String::from_utf8(indent(compact.as_bytes())).expect("UTF-8");
            assert_eq!(indented, expected);
        }
    }
}
