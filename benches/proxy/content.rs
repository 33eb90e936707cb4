//! The content of responses: its media type, and the part that does not change with time.

use anyhow::{Context as _, Result};
use listless::api::protobuf::{MAGIC, wire::Fields};
use serde_json::{Value, json};

/// The content of a cell's responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// An object, a list or a page in JSON.
    Json,
    /// A list in protobuf.
    Protobuf,
    /// A Table, as kubectl requests it.
    Table,
}

/// The Accept header of kubectl.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
    application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

// === impl Content ===

impl Content {
    /// Returns the Accept header that requests it.
    pub(crate) fn accept(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf,application/json",
            Self::Table => TABLE,
        }
    }

    /// Returns the configuration's word for the form that holds it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
            Self::Table => "table",
        }
    }

    /// Returns the length by which bodies of equal objects differ at most: versions have more
    /// digits, and ages more letters.
    pub(crate) fn slack(self) -> usize {
        match self {
            Self::Json | Self::Protobuf => 32,
            Self::Table => 4096,
        }
    }

    /// Returns the part of a body that stays the same while its objects do.
    pub(crate) fn lasting(self, body: &[u8]) -> Result<Vec<u8>> {
        match self {
            Self::Json => Ok(without_version(body)),
            Self::Protobuf => items(body).context("a malformed list in protobuf"),
            Self::Table => without_ages(body),
        }
    }
}

/// Returns a body without the version of the list and without its token, which names the version.
fn without_version(body: &[u8]) -> Vec<u8> {
    const FIELD: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";
    const TOKEN: &[u8] = b"\",\"continue\":\"";
    let Some(at) = memchr::memmem::find(body, FIELD).filter(|at| *at < 100) else {
        return body.to_vec();
    };
    let from = at + FIELD.len();
    let digits = body[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = &body[from + digits..];
    let token = rest.strip_prefix(TOKEN).and_then(|token| {
        let length = token.iter().position(|byte| *byte == b'"')?;
        Some(TOKEN.len() + length)
    });
    [&body[..from], &rest[token.unwrap_or_default()..]].concat()
}

/// Returns the items of a list in protobuf.
fn items(body: &[u8]) -> Option<Vec<u8>> {
    let content = Fields::of(body.strip_prefix(&MAGIC)?).nth(1)?.ok()?.bytes().ok()?;
    let metadata = Fields::of(content).next()?.ok()?;
    Some(content[metadata.end..].to_vec())
}

/// Returns the rows of a Table without the cells that look like ages.
fn without_ages(body: &[u8]) -> Result<Vec<u8>> {
    let mut table: Value = serde_json::from_slice(body)?;
    let rows = table["rows"].as_array_mut().context("no rows")?;
    for cell in rows.iter_mut().filter_map(|row| row["cells"].as_array_mut()).flatten() {
        let is_age = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        if cell.as_str().is_some_and(is_age) {
            *cell = json!("age");
        }
    }
    Ok(serde_json::to_vec(&table["rows"])?)
}
