//! A small part of protobuf: enough to take the version and the continue token out of a list.

use anyhow::{Context, Result, bail};

use super::body::{Reduced, Token};

const MAGIC: &[u8] = b"k8s\0";
/// Documents about the API that are called lists but have no metadata.
const DISCOVERY: [&str; 3] = ["APIGroupList", "APIResourceList", "APIGroupDiscoveryList"];

/// Reduces an enveloped object; see [`Reduced`].
pub(super) fn reduce(body: &[u8]) -> Result<Reduced> {
    let Some(envelope) = body.strip_prefix(MAGIC) else { bail!("no protobuf envelope") };
    let fields = fields(envelope)?;
    let kind_fields = self::fields(field(&fields, 1).context("no type in the envelope")?)?;
    let text = |number| field(&kind_fields, number).map(String::from_utf8_lossy);
    let (version, kind) = (text(1).unwrap_or_default(), text(2).unwrap_or_default());
    let is_list = kind.ends_with("List") && !DISCOVERY.contains(&kind.as_ref());
    if !is_list {
        return Ok(Reduced { rest: body.to_vec(), ..Reduced::default() });
    }
    let message = field(&fields, 2).context("no object in the envelope")?;
    // The one list whose metadata is not its first field.
    let at =
        if kind == "PartialObjectMetadataList" && version.ends_with("v1beta1") { 2 } else { 1 };
    reduce_list(body, &self::fields(message)?, at)
}

fn reduce_list(body: &[u8], message: &[(u64, &[u8])], at: u64) -> Result<Reduced> {
    let Some(metadata) = field(message, at) else {
        return Ok(Reduced { rest: body.to_vec(), ..Reduced::default() });
    };
    let metadata = fields(metadata)?;
    let text = |number| field(&metadata, number).map(|text| String::from_utf8_lossy(text).into());
    let token = text(3).filter(|text: &String| !text.is_empty());
    // Lengths of enclosing messages change with the version's length. Keep fields, not frames.
    let mut rest = Vec::new();
    for (number, value) in metadata.iter().filter(|(number, _)| *number != 2 && *number != 3) {
        rest.push(*number as u8);
        rest.extend_from_slice(value);
    }
    for (number, value) in message.iter().filter(|(number, _)| *number != at) {
        rest.push(*number as u8);
        rest.extend_from_slice(&(value.len() as u64).to_be_bytes());
        rest.extend_from_slice(value);
    }
    Ok(Reduced { rest, version: text(2), token: token.map(Token::open), newest_item: 0 })
}

fn field<'body>(fields: &[(u64, &'body [u8])], number: u64) -> Option<&'body [u8]> {
    fields.iter().find(|(held, _)| *held == number).map(|(_, value)| *value)
}

/// The fields of a message in order; a varint's value is its own bytes.
fn fields(mut message: &[u8]) -> Result<Vec<(u64, &[u8])>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let (tag, rest) = varint(message)?;
        let (value, rest) = match tag & 7 {
            0 => {
                let (_, after) = varint(rest)?;
                rest.split_at(rest.len() - after.len())
            }
            2 => {
                let (length, rest) = varint(rest)?;
                rest.split_at_checked(length as usize).context("a field longer than its message")?
            }
            other => bail!("unexpected wire type {other}"),
        };
        fields.push((tag >> 3, value));
        message = rest;
    }
    Ok(fields)
}

fn varint(bytes: &[u8]) -> Result<(u64, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok((value, &bytes[index + 1..]));
        }
    }
    bail!("a varint without end")
}
