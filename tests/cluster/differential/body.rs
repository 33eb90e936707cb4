//! A body reduced to the bytes that must be equal.
//!
//! Two responses about the same state may differ in three places: the version a list is read at,
//! the version inside its continue token, and the "current" version of one error message. These are
//! taken out and returned apart; every other byte stays.

use std::io::Read;
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::bufread::GzDecoder;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::protobuf;
use crate::rig::client::Answer;

/// The placeholder for a list's version and token.
pub(super) const VERSION_MARK: &[u8] = b"<version>";
pub(super) const TOKEN_MARK: &[u8] = b"<continue>";

/// A body without the parts that may differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reduced {
    /// All other bytes.
    pub rest: Vec<u8>,
    /// The list's version, if the body is a list.
    pub version: Option<String>,
    /// The list's continue token, if there is one.
    pub token: Option<Token>,
    /// The highest version of the items, where the encoding contains it.
    pub newest_item: u64,
}

/// A decoded continue token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token as the server wrote it.
    pub text: String,
    /// The version it continues at.
    pub version: i64,
    /// The key after which it continues.
    pub start: String,
}

#[derive(Deserialize)]
struct Top<'body> {
    #[serde(borrow)]
    metadata: Option<&'body RawValue>,
}

#[derive(Deserialize)]
struct TokenFields {
    rv: i64,
    start: String,
}

// === impl Reduced ===

impl Reduced {
    /// Decompresses and reduces an answer's body.
    pub fn of(answer: &Answer) -> Result<Self> {
        let body = decompressed(answer)?;
        let media = answer.header("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        let mut reduced = match media {
            "application/json" => Self::of_json(&body),
            "application/yaml" => Self::of_yaml(&body),
            "application/vnd.kubernetes.protobuf" => protobuf::reduce(&body)?,
            _ => Self { rest: body, ..Self::default() },
        };
        if !answer.status.is_success() {
            hide_current_version(&mut reduced.rest);
        }
        Ok(reduced)
    }

    fn of_json(body: &[u8]) -> Self {
        let whole = || Self { rest: body.to_vec(), ..Self::default() };
        let Ok(value) = serde_json::from_slice::<Value>(body) else { return whole() };
        let Ok(top) = serde_json::from_slice::<Top<'_>>(body) else { return whole() };
        let is_list = value.get("items").is_some() || value.get("rows").is_some();
        let Some(metadata) = top.metadata.filter(|_| is_list) else { return whole() };
        let start = offset(body, metadata.get());
        let range = start..start + metadata.get().len();
        let mut reduced = Self::cut(body, range, "\"resourceVersion\"", "\"continue\"");
        reduced.newest_item = newest_item(&value);
        reduced
    }

    /// In YAML only the document's own keys stand at the beginning of a line.
    fn of_yaml(body: &[u8]) -> Self {
        let has = |key: &[u8]| memchr::memmem::find(body, key).is_some();
        let found = memchr::memmem::find(body, b"\nmetadata:\n");
        match found.filter(|_| has(b"\nitems:") || has(b"\nrows:")) {
            Some(at) => Self::cut(body, at..body.len(), "  resourceVersion", "  continue"),
            None => Self { rest: body.to_vec(), ..Self::default() },
        }
    }

    /// Takes the values of two keys out of a part of the body.
    fn cut(body: &[u8], part: Range<usize>, version_key: &str, token_key: &str) -> Self {
        let version = value_of(body, &part, version_key);
        let token = value_of(body, &part, token_key).filter(|range| !range.is_empty());
        let text =
            |range: &Range<usize>| String::from_utf8_lossy(&body[range.clone()]).into_owned();
        let mut reduced = Self {
            version: version.as_ref().map(text),
            token: token.as_ref().map(text).map(Token::open),
            ..Self::default()
        };
        let mut marks = Vec::new();
        marks.extend(version.map(|range| (range, VERSION_MARK)));
        marks.extend(token.map(|range| (range, TOKEN_MARK)));
        marks.sort_by_key(|(range, _)| range.start);
        let mut at = 0;
        for (range, mark) in marks {
            reduced.rest.extend_from_slice(&body[at..range.start]);
            reduced.rest.extend_from_slice(mark);
            at = range.end;
        }
        reduced.rest.extend_from_slice(&body[at..]);
        reduced
    }
}

// === impl Token ===

impl Token {
    /// Decodes a token; one that cannot be decoded keeps its text as its start.
    pub fn open(text: String) -> Self {
        let fields = URL_SAFE_NO_PAD
            .decode(&text)
            .ok()
            .and_then(|json| serde_json::from_slice::<TokenFields>(&json).ok());
        match fields {
            // Pages cut by the watch cache and by etcd differ in a leading slash.
            Some(TokenFields { rv, start }) => {
                let start = start.trim_start_matches('/').to_owned();
                Self { text, version: rv, start }
            }
            None => Self { start: text.clone(), text, version: 0 },
        }
    }
}

/// The body without its content coding; compressed bodies must be exactly one gzip member.
pub fn decompressed(answer: &Answer) -> Result<Vec<u8>> {
    match answer.header("content-encoding") {
        None => Ok(answer.body.to_vec()),
        Some("gzip") => {
            let mut decoder = GzDecoder::new(&answer.body[..]);
            let mut body = Vec::new();
            decoder.read_to_end(&mut body).context("broken gzip")?;
            ensure!(decoder.into_inner().is_empty(), "bytes behind the first gzip member");
            Ok(body)
        }
        Some(other) => bail!("unexpected content coding {other}"),
    }
}

fn offset(body: &[u8], part: &str) -> usize {
    part.as_ptr().addr() - body.as_ptr().addr()
}

fn newest_item(list: &Value) -> u64 {
    let of = |key: &str| list[key].as_array().into_iter().flatten();
    let objects = of("items").chain(of("rows").map(|row| &row["object"]));
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str()?.parse().ok();
    objects.filter_map(version).max().unwrap_or(0)
}

/// The position of the quoted or bare value behind a key.
fn value_of(body: &[u8], part: &Range<usize>, key: &str) -> Option<Range<usize>> {
    let within = &body[part.clone()];
    let behind = memchr::memmem::find(within, key.as_bytes())? + key.len();
    let colon = behind + within[behind..].iter().position(|byte| *byte == b':')?;
    let start = colon + 1 + within[colon + 1..].iter().position(|byte| *byte != b' ')?;
    let (start, ends): (usize, &[u8]) =
        if within[start] == b'"' { (start + 1, b"\"") } else { (start, b"\n,}") };
    let length = within[start..].iter().position(|byte| ends.contains(byte))?;
    Some(part.start + start..part.start + start + length)
}

/// "Too large resource version: 9, current: 7" names a version that changes.
fn hide_current_version(body: &mut Vec<u8>) {
    let mark = b"current: ";
    let Some(at) = memchr::memmem::find(body, mark) else { return };
    let digits = at + mark.len();
    let end = body[digits..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    body.splice(digits..digits + end, *b"<version>");
}
