//! What representation a request asks for: Accept, Accept-Encoding, `pretty` (S-CT-01..10, S-HDR-01).
//!
//! Follows the apiserver's negotiation to the letter for what it decides as plain JSON; anything
//! else, and anything a newer server might read differently, is `Unmodelled` and forwarded.

use http::{HeaderMap, HeaderValue, header};

use super::protobuf;

/// What the apiserver would answer with, as far as we can produce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiated {
    /// Plain compact JSON of the object itself: we can produce it exactly.
    Json,
    /// Only the metadata of the object, or of a list's objects, as compact JSON.
    Metadata(Metadata),
    /// The client prefers protobuf but lists JSON too: JSON is a legal answer (S-CT-10).
    JsonInsteadOfProtobuf,
    /// Anything else.
    Unmodelled(UnmodelledMedia),
}

/// What a client gets of each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Representation {
    /// All of it.
    #[default]
    Object,
    /// A PartialObjectMetadata of this version of `meta.k8s.io` (S-CT-03, S-LIST-63).
    Metadata(MetadataVersion),
}

/// The conversion to metadata that an Accept header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// In this version.
    pub version: MetadataVersion,
    /// Of this.
    pub kind: MetadataKind,
}

/// Versions of `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetadataVersion {
    /// v1.
    V1,
    /// v1beta1.
    V1Beta1,
}

/// What is converted to metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetadataKind {
    /// One object.
    Object,
    /// A list's objects.
    List,
}

/// Why an answer in this representation must come from the apiserver.
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
    /// Indented JSON, asked for by parameter or by a human's client (S-CT-07).
    Pretty,
    /// Unknown parameters, no acceptable type, or too odd to tell.
    Other,
}

/// One clause of an Accept header.
#[derive(Clone, Copy, Debug)]
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: &'a str,
}

/// A quality is written in a way only Go's float parser knows.
struct OddQuality;

/// Up to this many the server's sort is a plain insertion sort; beyond, its order is not stable.
const CLAUSES_MAX: usize = 12;

// === impl Negotiated ===

impl Negotiated {
    /// Negotiates for a request; of several Accept lines the first counts, as in Go.
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
            Some(Ok(accept)) => Self::negotiate(Some(accept), None, None),
        }
    }

    /// `accept`: the Accept header, `None` when absent. `pretty`: the raw query value.
    pub fn negotiate(
        accept: Option<&str>,
        pretty: Option<&str>,
        user_agent: Option<&[u8]>,
    ) -> Self {
        let indents = wants_indented(pretty, user_agent);
        let header = accept.unwrap_or_default();
        if matches!(header, "" | "application/json" | "*/*") {
            return json(indents);
        }
        let Some(clauses) = parse(header).filter(|_| reaches_negotiation(header)) else {
            return Self::Unmodelled(UnmodelledMedia::Other);
        };
        for clause in &clauses {
            return match (clause.kind, clause.subtype) {
                ("application", "json" | "*") | ("*", "*") => match clause.transformation() {
                    Ok(()) => json(indents),
                    Err(reason) => match clause.metadata() {
                        Some(metadata) if !indents => Self::Metadata(metadata),
                        _ => Self::Unmodelled(reason),
                    },
                },
                ("application", "vnd.kubernetes.protobuf") => match clause.transformation() {
                    Ok(()) if clauses.iter().any(Clause::allows_json) => {
                        Self::JsonInsteadOfProtobuf
                    }
                    Err(UnmodelledMedia::PartialObjectMetadata)
                        if let Some(metadata) = clause.metadata()
                            && clauses.iter().any(|other| other.allows_json_of(metadata)) =>
                    {
                        Self::Metadata(metadata)
                    }
                    Ok(()) => Self::Unmodelled(UnmodelledMedia::Protobuf),
                    Err(reason) => Self::Unmodelled(reason),
                },
                ("application", "yaml") => Self::Unmodelled(UnmodelledMedia::Yaml),
                ("application", "cbor") => Self::Unmodelled(UnmodelledMedia::Cbor),
                _ => continue,
            };
        }
        Self::Unmodelled(UnmodelledMedia::Other)
    }

    /// The reason's word for logs and metrics, `json` when the answer can be produced.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json | Self::JsonInsteadOfProtobuf => "json",
            Self::Metadata(_) => UnmodelledMedia::PartialObjectMetadata.as_str(),
            Self::Unmodelled(reason) => reason.as_str(),
        }
    }
}

// === impl UnmodelledMedia ===

impl UnmodelledMedia {
    /// The word in logs and metrics.
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

/// Whether a client is taken for a person's, who gets indented JSON unasked (S-CT-07).
pub fn is_for_people(headers: &HeaderMap) -> bool {
    wants_indented(None, headers.get(header::USER_AGENT).map(HeaderValue::as_bytes))
}

/// Whether the apiserver would compress: only a bare token `gzip` counts (S-HDR-01).
pub fn accepts_gzip(accept_encoding: Option<&str>) -> bool {
    accept_encoding.unwrap_or_default().split(',').any(|token| token.trim() == "gzip")
}

// === impl MetadataVersion ===

impl MetadataVersion {
    /// The `apiVersion` of what is made of it.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}

// === impl Clause ===

impl<'a> Clause<'a> {
    /// Reads one clause; `None` when the server passes over it.
    fn parse(text: &'a str) -> Result<Option<Self>, OddQuality> {
        let (media_type, parameters) = text.split_once(';').unwrap_or((text, ""));
        let (kind, subtype) = match media_type.split_once('/') {
            Some((kind, subtype)) if !subtype.is_empty() => (trim(kind), subtype),
            _ if trim(media_type.trim_end_matches('/')) == "*" => ("*", "*"),
            _ => return Ok(None),
        };
        // A second slash is passed over, unless nothing comes after it.
        let subtype = match subtype.split_once('/') {
            Some((subtype, "")) => subtype,
            Some(_) => return Ok(None),
            None => subtype,
        };
        let mut clause = Self { kind, subtype: trim(subtype), quality: 1.0, parameters };
        for (name, value) in clause.parameters() {
            if name == "q" {
                clause.quality = quality(value).ok_or(OddQuality)?;
            }
        }
        Ok(Some(clause))
    }

    /// The parameters that count: those with one `=` and something after it.
    fn parameters(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.parameters.split(';').filter_map(|parameter| {
            let (name, value) = parameter.split_once('=').filter(|(_, value)| !value.is_empty())?;
            let value = value.strip_suffix('=').unwrap_or(value);
            (!value.contains('=')).then_some((trim(name), value))
        })
    }

    /// What the parameters make of the object, if it is not left as it is.
    fn transformation(&self) -> Result<(), UnmodelledMedia> {
        let mut result = Ok(());
        for (name, value) in self.parameters() {
            let reason = match (name, trim(value)) {
                ("q" | "charset", _) => continue,
                ("as", "Table") => UnmodelledMedia::Table,
                ("as", "PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    UnmodelledMedia::PartialObjectMetadata
                }
                ("pretty", "1") => UnmodelledMedia::Pretty,
                _ => UnmodelledMedia::Other,
            };
            // The conversion says more than the group and version that come with it.
            if result.is_ok() || name == "as" {
                result = Err(reason);
            }
        }
        result
    }

    /// The conversion to metadata, when the parameters ask for exactly that.
    fn metadata(&self) -> Option<Metadata> {
        let (mut kind, mut version, mut group) = (None, None, None);
        for (name, value) in self.parameters() {
            match (name, trim(value)) {
                ("as", "PartialObjectMetadata") if kind.is_none() => {
                    kind = Some(MetadataKind::Object);
                }
                ("as", "PartialObjectMetadataList") if kind.is_none() => {
                    kind = Some(MetadataKind::List);
                }
                ("v", "v1") if version.is_none() => version = Some(MetadataVersion::V1),
                ("v", "v1beta1") if version.is_none() => version = Some(MetadataVersion::V1Beta1),
                ("g", "meta.k8s.io") if group.is_none() => group = Some(()),
                ("q" | "charset", _) => {}
                _ => return None,
            }
        }
        group.and(Some(Metadata { kind: kind?, version: version? }))
    }

    /// Whether JSON of the same conversion satisfies the clause.
    fn allows_json_of(&self, metadata: Metadata) -> bool {
        (self.kind, self.subtype) == ("application", "json")
            && self.quality > 0.0
            && self.metadata() == Some(metadata)
    }

    /// Whether plain JSON satisfies the clause.
    fn allows_json(&self) -> bool {
        let json = matches!((self.kind, self.subtype), ("application", "json" | "*") | ("*", "*"));
        json && self.quality > 0.0 && self.transformation().is_ok()
    }

    /// Whether the server puts this clause before another that comes earlier in the header. Not
    /// an order: its outcome depends on the sort, which is therefore the server's too.
    fn goes_before(&self, other: &Self) -> bool {
        self.quality > other.quality
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// The clauses in the order the server considers them; `None` when that cannot be told.
fn parse(header: &str) -> Option<Vec<Clause<'_>>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    for part in header.split(',') {
        let Some(clause) = Clause::parse(trim(part)).ok()? else { continue };
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

/// Whether the router in front of the negotiation lets a request for a built-in resource through:
/// it knows no wildcard but `*/*`, so that `application/*` alone is 406.
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

/// Whether JSON would be indented: by parameter, else for clients that humans read (S-CT-07).
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

/// A quality in plain decimals; any other text that Go might read as a number is not one here.
fn quality(text: &str) -> Option<f32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if plain { text.parse().ok() } else { None }
}

/// The server trims spaces only.
fn trim(text: &str) -> &str {
    text.trim_matches(' ')
}

#[cfg(test)]
mod tests;
