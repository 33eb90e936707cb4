//! The forms of a response, and the parts of it that stay the same.

use anyhow::{Context, Result};
use http::{HeaderMap, header};
use memchr::memmem;

/// A form that a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    Json,
    Gzip,
    Protobuf,
    Table,
}

/// The start of a gzip member.
const GZIP: &[u8] = &[0x1f, 0x8b];
/// The start of a body in protobuf.
const MAGIC: &[u8] = b"k8s\0";
/// The start of each pod in a list.
const ITEM: &[u8] = b"{\"metadata\":{\"name\":";
/// The start of each row in a table.
const ROW: &[u8] = b"{\"cells\":[";
/// The number of cells before a pod's age.
const CELLS_BEFORE_AGE: usize = 4;
/// The metadata of a list starts within so many bytes, with its version. That of an object starts
/// with its name.
const LIST_HEAD: usize = 200;

// === impl Form ===

impl Form {
    const ALL: [Self; 4] = [Self::Json, Self::Gzip, Self::Protobuf, Self::Table];

    /// Returns the name in the configuration of Listless, where it has one.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Gzip => "gzip",
            Self::Protobuf => "protobuf",
            Self::Table => "table",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.name() == name)
    }

    /// Returns the form that a request of this program accepts.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Self> {
        let accept = headers.get(header::ACCEPT)?;
        let gzip = headers.contains_key(header::ACCEPT_ENCODING);
        Self::ALL.into_iter().find(|form| form.is_gzip() == gzip && accept == form.accept())
    }

    /// Returns the value of `Accept`. That of a table is kubectl's.
    pub(crate) fn accept(self) -> &'static str {
        match self {
            Self::Json | Self::Gzip => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Table => "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Gzip | Self::Table => "application/json",
            Self::Protobuf => self.accept(),
        }
    }

    pub(crate) fn is_gzip(self) -> bool {
        self == Self::Gzip
    }

    /// Reports whether a body, as it was sent, begins as one of this form.
    pub(crate) fn begins(self, body: &[u8]) -> bool {
        body.starts_with(match self {
            Self::Json => b"{",
            Self::Gzip => GZIP,
            Self::Protobuf => MAGIC,
            Self::Table => b"{\"kind\":\"Table\"",
        })
    }

    /// Returns the parts of an unpacked body that stay the same while the objects do. Not among
    /// them are the version of a list, its token, and the ages in a table.
    pub(crate) fn lasting(self, body: &[u8]) -> Result<Vec<&[u8]>> {
        let [head, rest] = match self {
            Self::Protobuf => protobuf_list(body).context("no list in protobuf")?,
            _ => without_version(body),
        };
        let mut parts = vec![head];
        match self {
            Self::Table => parts.extend(without_ages(rest)),
            _ => parts.push(rest),
        }
        Ok(parts)
    }

    /// Returns the number of objects in an unpacked list.
    pub(crate) fn items(self, body: &[u8]) -> usize {
        match self {
            Self::Json | Self::Gzip => memmem::find_iter(body, ITEM).count(),
            Self::Table => memmem::find_iter(body, ROW).count(),
            Self::Protobuf => {
                let items = protobuf_list(body).and_then(|[_, items]| field(items));
                std::iter::successors(items, |(_, rest)| field(rest)).count()
            }
        }
    }
}

/// Returns the token of a list in JSON, if more objects follow.
pub(crate) fn token(body: &[u8]) -> Option<&str> {
    const FIELD: &[u8] = b"\"continue\":\"";
    let from = memmem::find(&body[..body.len().min(LIST_HEAD)], FIELD)? + FIELD.len();
    let length = memchr::memchr(b'"', &body[from..])?;
    std::str::from_utf8(&body[from..from + length]).ok()
}

/// Returns the parts before and after the version of a list and its token.
fn without_version(body: &[u8]) -> [&[u8]; 2] {
    const FIELD: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";
    let Some(at) = memmem::find(&body[..body.len().min(LIST_HEAD)], FIELD) else {
        return [body, b""];
    };
    let (head, rest) = body.split_at(at + FIELD.len());
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let from =
        token(body).map_or(digits, |token| digits + "\",\"continue\":\"".len() + token.len());
    [head, &rest[from..]]
}

/// Returns the parts around the age in each row of a table of pods.
fn without_ages(table: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut from) = (Vec::new(), 0);
    for row in memmem::find_iter(table, ROW) {
        let mut commas = memchr::memchr_iter(b',', &table[row..]).skip(CELLS_BEFORE_AGE - 1);
        if let (Some(before), Some(after)) = (commas.next(), commas.next()) {
            parts.push(&table[from..row + before]);
            from = row + after;
        }
    }
    parts.push(&table[from..]);
    parts
}

/// Returns the kind of a list in protobuf, and its items. The metadata stands before them.
fn protobuf_list(body: &[u8]) -> Option<[&[u8]; 2]> {
    let (kind, rest) = field(body.strip_prefix(MAGIC)?)?;
    let (list, _) = field(rest)?;
    let (_, items) = field(list)?;
    Some([kind, items])
}

/// Splits fields of protobuf after the first one, which has a length. Returns its content first.
fn field(fields: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, mut rest) = fields.split_first()?;
    let (mut length, mut shift) = (0, 0);
    loop {
        let (byte, after) = rest.split_first()?;
        length |= usize::from(byte & 0x7f).checked_shl(shift)?;
        (rest, shift) = (after, shift + 7);
        if byte & 0x80 == 0 {
            return rest.split_at_checked(length);
        }
    }
}
