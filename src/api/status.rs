//! Status objects: the responses that Listless creates itself, byte for byte as the apiserver would
//! write them.
//!
//! Each constructor uses the message of the apiserver's own (S-GET-07, S-ERR-01).

use std::io;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

use super::{
    GroupResource,
    form::Form,
    protobuf::wire::{UNKNOWN_END, field, put_bytes, put_number, unknown_start},
};

/// A failure in the form of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Details>,
}

/// The object of the failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Details {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    group: String,
    kind: String,
}

/// The JSON object, in the order of its keys.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Json<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    message: &'a str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a Details>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

/// A formatter that writes strings as Go's encoder does: `<`, `>`, `&`, U+2028 and U+2029 are
/// escaped, too.
struct GoFormatter(CompactFormatter);

// === impl Status ===

impl Status {
    /// Returns 404: the object does not exist.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        let message = format!("{resource} {} not found", quote(name));
        let details = Some(Details::of(resource, name));
        Self { code: StatusCode::NOT_FOUND, reason: "NotFound", message, details }
    }

    /// Returns 410: the requested version is no longer known.
    pub fn expired(message: &str) -> Self {
        let message = message.to_owned();
        Self { code: StatusCode::GONE, reason: "Expired", message, details: None }
    }

    /// Returns the compact JSON, as in the object of a watch's ERROR event.
    pub fn to_json(&self) -> Vec<u8> {
        let json = Json {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            status: "Failure",
            message: &self.message,
            reason: self.reason,
            details: self.details.as_ref(),
            code: self.code.as_u16(),
        };
        let mut bytes = Vec::with_capacity(256);
        let formatter = GoFormatter(CompactFormatter);
        json.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))
            .expect("strings and numbers serialize into memory");
        bytes
    }

    /// Returns the body of a response: the JSON and a line feed.
    pub fn to_body(&self) -> Bytes {
        let mut bytes = self.to_json();
        bytes.push(b'\n');
        bytes.into()
    }

    /// Returns the body of a response in the form of a client's objects.
    pub fn to_form(&self, form: Form) -> Bytes {
        match form {
            Form::Json | Form::Table => self.to_body(),
            Form::Protobuf => self.to_protobuf().into(),
        }
    }

    /// Returns the protobuf in its envelope.
    fn to_protobuf(&self) -> Vec<u8> {
        let status = self.to_bare_protobuf();
        let mut body = unknown_start("v1", "Status", status.len());
        body.extend(status);
        body.extend(UNKNOWN_END);
        body
    }

    /// Returns the protobuf without its envelope. Empty strings are encoded, too (S-CT-23).
    pub fn to_bare_protobuf(&self) -> Vec<u8> {
        let metadata = [field(1, b""), field(2, b""), field(3, b"")].concat();
        let mut status = field(1, &metadata);
        put_bytes(&mut status, 2, b"Failure");
        put_bytes(&mut status, 3, self.message.as_bytes());
        put_bytes(&mut status, 4, self.reason.as_bytes());
        if let Some(details) = &self.details {
            put_bytes(&mut status, 5, &details.to_protobuf());
        }
        status.push(6 << 3);
        put_number(&mut status, self.code.as_u16().into());
        status
    }
}

// === impl Details ===

impl Details {
    /// Returns the details; the kind is the plural resource name, as in the apiserver.
    fn of(resource: &GroupResource, name: &str) -> Self {
        let (group, kind) = (resource.group.to_string(), resource.resource.to_string());
        Self { name: name.to_owned(), group, kind }
    }

    fn to_protobuf(&self) -> Vec<u8> {
        let mut details = Vec::new();
        put_bytes(&mut details, 1, self.name.as_bytes());
        put_bytes(&mut details, 2, self.group.as_bytes());
        put_bytes(&mut details, 3, self.kind.as_bytes());
        details.push(5 << 3);
        put_number(&mut details, 0);
        put_bytes(&mut details, 6, b"");
        details
    }
}

// === impl GoFormatter ===

impl Formatter for GoFormatter {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + io::Write,
    {
        let mut rest = fragment;
        let special = ['<', '>', '&', '\u{2028}', '\u{2029}'];
        while let Some(position) = rest.find(special) {
            let (plain, tail) = rest.split_at(position);
            self.0.write_string_fragment(writer, plain)?;
            let mut characters = tail.chars();
            if let Some(character) = characters.next() {
                write!(writer, "\\u{:04x}", u32::from(character))?;
            }
            rest = characters.as_str();
        }
        self.0.write_string_fragment(writer, rest)
    }
}

/// Returns the text in quotes as Go's `%q` prints it, for text without unusual unprintable
/// characters.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            control if control.is_ascii_control() => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
