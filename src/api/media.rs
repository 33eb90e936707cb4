//! The representation that a request asks for: Accept, Accept-Encoding, `pretty` (S-CT-01..10,
//! S-HDR-01).
//!
//! It follows the apiserver's negotiation exactly where that selects plain JSON or protobuf. Anything
//! else, and anything that a newer server might parse differently, is `Unmodelled` and forwarded.

mod representation;
mod table;

use http::{HeaderMap, HeaderValue, header};

pub use self::{
    representation::{Partial, Representation},
    table::{Include, MetadataVersion, Table},
};
use super::protobuf;

/// The apiserver's representation, as far as Listless can produce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiated {
    /// Plain compact JSON of the object itself, which Listless can produce exactly.
    Json,
    /// Only the metadata of the object, or of a list's objects, as compact JSON.
    Metadata(Metadata),
    /// A Table of this version of `meta.k8s.io`, as compact JSON.
    Table(MetadataVersion),
    /// Protobuf of the object itself, which only built-in types have (S-CT-04).
    Protobuf {
        /// `true` if the client gets plain compact JSON of a type without protobuf.
        json: bool,
    },
    /// Only the metadata of the object, or of a list's objects, in protobuf.
    ProtobufMetadata(Metadata),
    /// Anything else.
    Unmodelled(UnmodelledMedia),
}

/// A conversion to metadata, as an Accept header asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// The version.
    pub version: MetadataVersion,
    /// The kind.
    pub kind: MetadataKind,
}

/// The kind of a conversion to metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetadataKind {
    /// One object.
    Object,
    /// A list's objects.
    List,
}

/// The reason why only the apiserver can produce this representation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnmodelledMedia {
    /// Protobuf and nothing else.
    Protobuf,
    /// A Table.
    Table,
    /// A PartialObjectMetadata or a list of them.
    PartialObjectMetadata,
    /// YAML.
    Yaml,
    /// CBOR.
    Cbor,
    /// Indented JSON, requested by a parameter or by a browser or curl (S-CT-07).
    Pretty,
    /// Unknown parameters, no acceptable type, or an ambiguous header.
    Other,
}

/// One clause of an Accept header.
#[derive(Clone, Copy, Debug)]
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: &'a str,
    /// `true` if the response is a watch.
    streams: bool,
}

/// A quality in a form that only Go's float parser knows.
struct OddQuality;

/// The number of clauses up to which the server's sort is a plain insertion sort; above it, its
/// order is not stable.
const CLAUSES_MAX: usize = 12;

// === impl Negotiated ===

impl Negotiated {
    /// Negotiates for a request; the first of several Accept lines counts, as in Go.
    pub fn of(headers: &HeaderMap, pretty: Option<&str>) -> Self {
        let user_agent = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes);
        match headers.get(header::ACCEPT).map(|value| value.to_str()) {
            Some(Err(_)) => Self::Unmodelled(UnmodelledMedia::Other),
            None => Self::negotiate(None, pretty, user_agent),
            Some(Ok(accept)) => Self::negotiate(Some(accept), pretty, user_agent),
        }
    }

    /// Negotiates for a watch, which is never indented (S-CT-07).
    pub fn of_watch(headers: &HeaderMap) -> Self {
        match headers.get(header::ACCEPT).map(|value| value.to_str()) {
            Some(Err(_)) => Self::Unmodelled(UnmodelledMedia::Other),
            None => Self::Json,
            Some(Ok(accept)) => Self::parse(accept, false, true),
        }
    }

    /// Negotiates. `accept` is the Accept header, `None` if absent; `pretty` is the raw query
    /// value.
    pub fn negotiate(
        accept: Option<&str>,
        pretty: Option<&str>,
        user_agent: Option<&[u8]>,
    ) -> Self {
        Self::parse(accept.unwrap_or_default(), wants_indented(pretty, user_agent), false)
    }

    /// Negotiates; `streams` if the response is a watch, which may be named so.
    fn parse(header: &str, indents: bool, streams: bool) -> Self {
        if matches!(header, "" | "application/json" | "*/*") {
            return json(indents);
        }
        let Some(clauses) = parse(header, streams).filter(|_| reaches_negotiation(header)) else {
            return Self::Unmodelled(UnmodelledMedia::Other);
        };
        Self::first(&clauses, indents)
    }

    /// Returns the representation of the first clause that any type has.
    fn first(clauses: &[Clause<'_>], indents: bool) -> Self {
        for (index, clause) in clauses.iter().enumerate() {
            return match (clause.kind, clause.subtype) {
                ("application", "json" | "*") | ("*", "*") => match clause.transformation() {
                    Ok(()) => json(indents),
                    Err(reason) if indents => Self::Unmodelled(reason),
                    Err(reason) => match (clause.metadata(), clause.table()) {
                        (Some(metadata), _) => Self::Metadata(metadata),
                        (None, Some(version)) => Self::Table(version),
                        (None, None) => Self::Unmodelled(reason),
                    },
                },
                ("application", "vnd.kubernetes.protobuf") => match clause.transformation() {
                    Ok(()) => {
                        let rest = clauses[index + 1..].iter().copied();
                        let rest: Vec<_> = rest.filter(|other| !other.is_protobuf()).collect();
                        Self::Protobuf { json: Self::first(&rest, indents) == Self::Json }
                    }
                    Err(reason) => match clause.metadata() {
                        Some(metadata) => Self::ProtobufMetadata(metadata),
                        None => Self::Unmodelled(reason),
                    },
                },
                ("application", "yaml") => Self::Unmodelled(UnmodelledMedia::Yaml),
                ("application", "cbor") => Self::Unmodelled(UnmodelledMedia::Cbor),
                _ => continue,
            };
        }
        Self::Unmodelled(UnmodelledMedia::Other)
    }

    /// Returns the reason for logs and metrics; `json` if Listless can produce the response.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf { .. } => UnmodelledMedia::Protobuf.as_str(),
            Self::Metadata(_) | Self::ProtobufMetadata(_) => {
                UnmodelledMedia::PartialObjectMetadata.as_str()
            }
            Self::Table(_) => UnmodelledMedia::Table.as_str(),
            Self::Unmodelled(reason) => reason.as_str(),
        }
    }
}

// === impl UnmodelledMedia ===

impl UnmodelledMedia {
    /// Returns the reason why an object cannot be printed in a representation.
    pub fn unprintable(representation: Representation) -> Self {
        match representation {
            Representation::Table(_) => Self::Table,
            Representation::Object | Representation::Metadata(_) => Self::PartialObjectMetadata,
        }
    }

    /// Returns the word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Protobuf => "protobuf",
            Self::Table => "table",
            Self::PartialObjectMetadata => "partial-object-metadata",
            Self::Yaml => "yaml",
            Self::Cbor => "cbor",
            Self::Pretty => "pretty",
            Self::Other => "other",
        }
    }
}

/// Reports whether a client counts as a person's, and gets indented JSON by default (S-CT-07).
pub fn is_for_people(headers: &HeaderMap) -> bool {
    wants_indented(None, headers.get(header::USER_AGENT).map(HeaderValue::as_bytes))
}

/// Reports whether the apiserver would compress: only a bare token `gzip` in the first line counts
/// (S-HDR-01).
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let line = headers.get(header::ACCEPT_ENCODING).map_or(&b""[..], HeaderValue::as_bytes);
    line.split(|byte| *byte == b',').any(|token| token.trim_ascii() == b"gzip")
}

// === impl Clause ===

impl<'a> Clause<'a> {
    /// Parses one clause; `None` if the server ignores it.
    fn parse(text: &'a str, streams: bool) -> Result<Option<Self>, OddQuality> {
        let (media_type, parameters) = text.split_once(';').unwrap_or((text, ""));
        let (kind, subtype) = match media_type.split_once('/') {
            Some((kind, subtype)) if !subtype.is_empty() => (trim(kind), subtype),
            _ if trim(media_type.trim_end_matches('/')) == "*" => ("*", "*"),
            _ => return Ok(None),
        };
        // A second slash is ignored, unless nothing follows it.
        let subtype = match subtype.split_once('/') {
            Some((subtype, "")) => subtype,
            Some(_) => return Ok(None),
            None => subtype,
        };
        let mut clause = Self { kind, subtype: trim(subtype), quality: 1.0, parameters, streams };
        for (name, value) in clause.parameters() {
            if name == "q" {
                clause.quality = quality(value).ok_or(OddQuality)?;
            }
        }
        Ok(Some(clause))
    }

    /// Returns the parameters that count: those with one `=` and a value.
    fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.parameters.split(';').filter_map(|parameter| {
            let (name, value) = parameter.split_once('=').filter(|(_, value)| !value.is_empty())?;
            let value = value.strip_suffix('=').unwrap_or(value);
            (!value.contains('=')).then_some((trim(name), value))
        })
    }

    /// Checks the parameters for a conversion of the object.
    fn transformation(&self) -> Result<(), UnmodelledMedia> {
        let mut result = Ok(());
        for (name, value) in self.parameters() {
            let reason = match (name, trim(value)) {
                ("q" | "charset", _) => continue,
                ("stream", "watch") if self.streams => continue,
                ("as", "Table") => UnmodelledMedia::Table,
                ("as", "PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    UnmodelledMedia::PartialObjectMetadata
                }
                ("pretty", "1") => UnmodelledMedia::Pretty,
                _ => UnmodelledMedia::Other,
            };
            // The conversion is a better reason than the group and version that come with it.
            if result.is_ok() || name == "as" {
                result = Err(reason);
            }
        }
        result
    }

    /// Returns the conversion to metadata, if the parameters ask for exactly that.
    fn metadata(&self) -> Option<Metadata> {
        let (kind, version) = self.conversion()?;
        let kind = match kind {
            "PartialObjectMetadata" => MetadataKind::Object,
            "PartialObjectMetadataList" => MetadataKind::List,
            _ => return None,
        };
        Some(Metadata { kind, version })
    }

    /// Returns the version of a conversion to a Table, if the parameters ask for exactly that.
    fn table(&self) -> Option<MetadataVersion> {
        self.conversion().filter(|(kind, _)| *kind == "Table").map(|(_, version)| version)
    }

    /// Returns the kind and version of a conversion to `meta.k8s.io`, if there are no other
    /// parameters.
    fn conversion(&self) -> Option<(&'a str, MetadataVersion)> {
        let (mut kind, mut version, mut group) = (None, None, None);
        for (name, value) in self.parameters() {
            match (name, trim(value)) {
                ("as", value) if kind.is_none() => kind = Some(value),
                ("v", "v1") if version.is_none() => version = Some(MetadataVersion::V1),
                ("v", "v1beta1") if version.is_none() => version = Some(MetadataVersion::V1Beta1),
                ("g", "meta.k8s.io") if group.is_none() => group = Some(()),
                ("q" | "charset", _) => {}
                ("stream", "watch") if self.streams => {}
                _ => return None,
            }
        }
        group.and(Some((kind?, version?)))
    }

    fn is_protobuf(&self) -> bool {
        (self.kind, self.subtype) == ("application", "vnd.kubernetes.protobuf")
    }

    /// Reports whether the server puts this clause before an earlier one. This is not an order: the
    /// result depends on the sort, which is therefore the server's, too.
    fn goes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// Returns the clauses in the server's order; `None` if the order is unknown.
fn parse(header: &str, streams: bool) -> Option<Vec<Clause<'_>>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    for part in header.split(',') {
        let Some(clause) = Clause::parse(trim(part), streams).ok()? else { continue };
        if clauses.len() == CLAUSES_MAX {
            return None;
        }
        let mut position = clauses.len();
        while position > 0 && clause.goes_before(&clauses[position - 1]) {
            position -= 1;
        }
        clauses.insert(position, clause);
    }
    Some(clauses)
}

/// Reports whether the router before the negotiation accepts a request for a built-in resource. It
/// knows no wildcard except `*/*`: `application/*` alone gets 406.
fn reaches_negotiation(header: &str) -> bool {
    header.split(',').any(|part| {
        let media_type = part.split(';').next().unwrap_or_default();
        matches!(
            trim(media_type),
            "*/*" | "application/json" | "application/yaml" | protobuf::MEDIA_TYPE
        )
    })
}

fn json(indents: bool) -> Negotiated {
    if indents { Negotiated::Unmodelled(UnmodelledMedia::Pretty) } else { Negotiated::Json }
}

/// Reports whether JSON would be indented: by parameter, else for browsers and the like (S-CT-07).
fn wants_indented(pretty: Option<&str>, user_agent: Option<&[u8]>) -> bool {
    match pretty {
        Some(value) if !value.is_empty() => {
            matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
        }
        _ => {
            let agent = user_agent.unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"]
                .iter()
                .any(|prefix| agent.starts_with(prefix.as_bytes()))
        }
    }
}

/// Returns a quality in plain decimals; any other text that Go might accept as a number is an
/// error.
fn quality(text: &str) -> Option<f32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

/// Trims spaces only, as the server does.
fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

#[cfg(test)]
mod tests;
