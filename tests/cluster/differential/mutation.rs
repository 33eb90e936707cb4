//! Faults that a cache could have, put into correct responses to prove that the comparison detects
//! them.

use std::io::Write;
use std::ops::Range;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::body::{Reduced, decompressed};
use super::protobuf;
use crate::rig::client::Answer;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The last item of a list is missing.
    DropItem,
    /// The first two items changed places.
    SwapItems,
    /// The first item is there twice.
    RepeatItem,
    /// One byte in the middle of the body differs.
    ChangeByte,
    /// A key of the body has a space behind its colon.
    Reformat,
    /// The byte at the end is missing.
    DropLastByte,
    /// The media type has a parameter too many.
    ContentType,
    /// A failure without its reason.
    DropReason,
    /// A failure without its details.
    DropDetails,
    /// Another status code.
    StatusCode,
    /// The list claims to be from the distant past.
    OldVersion,
    /// The list claims a version the store has not reached.
    FutureVersion,
    /// The list has no continue token although it goes on.
    DropContinue,
    /// The body is compressed as two members; some clients read only the first.
    TwoMembers,
    /// The body is not compressed although the other side's is.
    Decompressed,
    /// The last item of a list in protobuf is missing.
    DropElement,
    /// The first two items of a list in protobuf changed places.
    SwapElements,
    /// The envelope names another version of the API.
    OtherEnvelope,
    /// One age of a table is wrong by one unit.
    WrongAge,
    /// A header is missing.
    DropHeader(&'static str),
    /// A header the apiserver does not send.
    AddHeader(&'static str),
}

#[derive(Deserialize)]
struct Items<'body> {
    #[serde(borrow)]
    items: Vec<&'body RawValue>,
}

// === impl Mutation ===

impl Mutation {
    /// Every fault.
    pub const ALL: [Self; 27] = [
        Self::DropItem,
        Self::SwapItems,
        Self::RepeatItem,
        Self::ChangeByte,
        Self::Reformat,
        Self::DropLastByte,
        Self::ContentType,
        Self::DropReason,
        Self::DropDetails,
        Self::StatusCode,
        Self::OldVersion,
        Self::FutureVersion,
        Self::DropContinue,
        Self::TwoMembers,
        Self::Decompressed,
        Self::DropElement,
        Self::SwapElements,
        Self::OtherEnvelope,
        Self::WrongAge,
        Self::DropHeader("cache-control"),
        Self::DropHeader("audit-id"),
        Self::DropHeader("warning"),
        Self::DropHeader("retry-after"),
        Self::DropHeader("vary"),
        Self::DropHeader("cache-status"),
        Self::DropHeader("x-content-type-options"),
        Self::AddHeader("etag"),
    ];

    /// The response with this fault, or `None` if it cannot have it.
    pub fn apply(self, answer: &Answer) -> Option<Answer> {
        let mut answer = answer.clone();
        match self {
            Self::StatusCode => {
                let code = answer.status.as_u16();
                answer.status = StatusCode::from_u16(code + 3).ok()?;
                Some(answer)
            }
            Self::ContentType => {
                let value = format!("{}; charset=utf-8", answer.header("content-type")?);
                answer.headers.insert("content-type", HeaderValue::from_str(&value).ok()?);
                Some(answer)
            }
            Self::DropHeader(name) => answer.headers.remove(name).map(|_| answer),
            Self::AddHeader(name) => {
                let added = answer.headers.insert(name, HeaderValue::from_static("\"1\""));
                added.is_none().then_some(answer)
            }
            Self::TwoMembers => {
                let body = decompressed(&answer).ok()?;
                answer.header("content-encoding")?;
                let (first, second) = body.split_at(body.len() / 2);
                answer.body = [gzip(first), gzip(second)].concat().into();
                Some(answer)
            }
            Self::Decompressed => {
                answer.body = decompressed(&answer).ok()?.into();
                answer.headers.remove("content-encoding").map(|_| answer)
            }
            _ => self.apply_to_body(answer),
        }
    }

    fn apply_to_body(self, mut answer: Answer) -> Option<Answer> {
        let body = decompressed(&answer).ok()?;
        let body = match self {
            Self::DropItem => edit_items(&body, |items| drop(items.pop()))?,
            Self::SwapItems => edit_items(&body, |items| items.swap(0, 1))?,
            Self::RepeatItem => edit_items(&body, |items| items.insert(1, items[0].clone()))?,
            Self::ChangeByte => changed(&body)?,
            Self::Reformat => replaced(&body, b"\":", b"\": ")?,
            Self::DropLastByte => body.split_last()?.1.to_vec(),
            Self::DropReason => without(&body, b"\"reason\":")?,
            Self::DropDetails => without(&body, b"\"details\":")?,
            Self::OldVersion => with_version(&answer, &body, "1")?,
            Self::FutureVersion => with_version(&answer, &body, "9999999")?,
            Self::DropContinue => {
                let token = Reduced::of(&answer).ok()?.token?;
                replaced(&body, token.text.as_bytes(), b"")?
            }
            Self::DropElement => protobuf::without_last_item(&body)?,
            Self::SwapElements => protobuf::with_items_swapped(&body)?,
            Self::OtherEnvelope => protobuf::of_another_version(&body)?,
            Self::WrongAge => with_wrong_age(&body)?,
            _ => return None,
        };
        let compressed = answer.headers.contains_key("content-encoding");
        answer.body = if compressed { gzip(&body).into() } else { Bytes::from(body) };
        Some(answer)
    }
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body).expect("memory takes every write");
    encoder.finish().expect("memory takes every write")
}

/// Rewrites the items of a compact JSON list, all other bytes kept.
fn edit_items(body: &[u8], edit: impl FnOnce(&mut Vec<String>)) -> Option<Vec<u8>> {
    let parsed: Items<'_> = serde_json::from_slice(body).ok()?;
    let range = |item: &RawValue| {
        let start = item.get().as_ptr().addr() - body.as_ptr().addr();
        start..start + item.get().len()
    };
    let first: Range<usize> = range(parsed.items.first()?);
    let last: Range<usize> = range(parsed.items.last()?);
    let mut items: Vec<String> = parsed.items.iter().map(|item| item.get().to_owned()).collect();
    if items.len() < 2 {
        return None;
    }
    edit(&mut items);
    Some([&body[..first.start], items.join(",").as_bytes(), &body[last.end..]].concat())
}

/// Replaces the letter nearest to the middle by another.
fn changed(body: &[u8]) -> Option<Vec<u8>> {
    let middle = body.len() / 2;
    let at = middle + body[middle..].iter().position(u8::is_ascii_lowercase)?;
    let mut body = body.to_vec();
    body[at] = if body[at] == b'x' { b'y' } else { b'x' };
    Some(body)
}

fn replaced(body: &[u8], old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let at = memchr::memmem::find(body, old)?;
    Some([&body[..at], new, &body[at + old.len()..]].concat())
}

/// Leaves a key of a compact JSON object and its value out.
fn without(body: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let at = memchr::memmem::find(body, key)?;
    let mut values = serde_json::Deserializer::from_slice(&body[at + key.len()..])
        .into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    let end = at + key.len() + values.byte_offset();
    let end = end + usize::from(body.get(end) == Some(&b','));
    Some([&body[..at], &body[end..]].concat())
}

/// Adds one to the last digit before the unit of the first age of a table.
fn with_wrong_age(body: &[u8]) -> Option<Vec<u8>> {
    memchr::memmem::find(body, b"\"kind\":\"Table\"")?;
    let is_unit = |byte: u8| b"smhdy".contains(&byte);
    let at = body.windows(4).position(|part| {
        part[0].is_ascii_digit() && is_unit(part[1]) && part[2] == b'"' && b",]".contains(&part[3])
    })?;
    let mut body = body.to_vec();
    body[at] = if body[at] == b'9' { b'8' } else { body[at] + 1 };
    Some(body)
}

fn with_version(answer: &Answer, body: &[u8], version: &str) -> Option<Vec<u8>> {
    let held = Reduced::of(answer).ok()?.version?;
    let in_key = format!("\"resourceVersion\":\"{held}\"");
    let with = format!("\"resourceVersion\":\"{version}\"");
    // The list's own version comes first in built-in lists and last in custom ones. In both an item
    // may carry the same version; that fault is as good.
    replaced(body, in_key.as_bytes(), with.as_bytes())
}
