//! A small part of protobuf: enough to take the version and the continue token out of a list, and to
//! split a watch into its events.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use super::body::{Reduced, TOKEN_MARK, Token, VERSION_MARK};

const MAGIC: &[u8] = b"k8s\0";
/// Documents about the API that are called lists but have no metadata.
const DISCOVERY: [&str; 3] = ["APIGroupList", "APIResourceList", "APIGroupDiscoveryList"];
/// The number of `resourceVersion` among the fields of `ObjectMeta`.
const OBJECT_VERSION: u64 = 6;
/// The number of `managedFields`, the last field of `ObjectMeta`.
const MANAGED_FIELDS: u64 = 17;
/// The bytes of the length before each event of a watch.
const FRAME_LENGTH: usize = 4;

/// A field of a message; the value of a number is its own bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'body> {
    tag: u64,
    value: &'body [u8],
}

// === impl Field ===

impl<'body> Field<'body> {
    fn number(self) -> u64 {
        self.tag >> 3
    }

    /// The field with another value.
    fn with(self, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(self.tag, &mut bytes);
        if self.tag & 7 == 2 {
            put_varint(value.len() as u64, &mut bytes);
        }
        bytes.extend_from_slice(value);
        bytes
    }

    fn bytes(self) -> Vec<u8> {
        self.with(self.value)
    }

    /// The fields of a message, with nothing but the shortest form of each number.
    fn all(message: &'body [u8]) -> Result<Vec<Self>> {
        let fields = fields(message)?;
        let again: Vec<u8> = fields.iter().flat_map(|field| field.bytes()).collect();
        ensure!(again == message, "a message that no apiserver would write so");
        Ok(fields)
    }
}

/// Reduces an enveloped object; see [`Reduced`].
pub(super) fn reduce(body: &[u8]) -> Result<Reduced> {
    let Some(envelope) = body.strip_prefix(MAGIC) else { bail!("no protobuf envelope") };
    let fields = Field::all(envelope)?;
    let kind_fields = Field::all(value(&fields, 1).context("no type in the envelope")?)?;
    let text = |number| value(&kind_fields, number).map(String::from_utf8_lossy);
    let (version, kind) = (text(1).unwrap_or_default(), text(2).unwrap_or_default());
    let is_list = kind.ends_with("List") && !DISCOVERY.contains(&kind.as_ref());
    if !is_list {
        return Ok(Reduced { rest: body.to_vec(), ..Reduced::default() });
    }
    let message = Field::all(value(&fields, 2).context("no object in the envelope")?)?;
    // The one list whose metadata is not its first field.
    let at =
        if kind == "PartialObjectMetadataList" && version.ends_with("v1beta1") { 2 } else { 1 };
    let mut reduced = reduce_list(body, &message, at)?;
    // The envelope in front of the list: type, encoding and media type.
    let outside = fields.iter().filter(|field| field.number() != 2);
    let outside: Vec<u8> = outside.flat_map(|field| field.bytes()).collect();
    reduced.rest = [MAGIC, &outside, &reduced.rest].concat();
    Ok(reduced)
}

/// The type and the metadata of an enveloped list or object: all that the simulator, which has no
/// schemas, encodes as the apiserver does. `None` for other bodies.
pub fn metadata(body: &[u8], with_version: bool) -> Option<Vec<u8>> {
    let envelope = fields(body.strip_prefix(MAGIC)?).ok()?;
    let kind_bytes = value(&envelope, 1)?;
    let kind_fields = fields(kind_bytes).ok()?;
    let text = |number| value(&kind_fields, number).unwrap_or_default();
    let (version, kind) = (text(1), text(2));
    if kind == b"Status" {
        return None;
    }
    let message = fields(value(&envelope, 2)?).ok()?;
    let mut all = kind_bytes.to_vec();
    if !kind.ends_with(b"List") {
        all.extend(of_object(value(&message, 1)?)?);
        return Some(all);
    }
    let at =
        if kind == b"PartialObjectMetadataList" && version.ends_with(b"v1beta1") { 2 } else { 1 };
    for field in &message {
        if field.number() != at {
            let item = fields(field.value).ok()?;
            all.extend(of_object(value(&item, 1)?)?);
            continue;
        }
        let metadata = fields(field.value).ok()?;
        let shown = metadata.iter().filter(|field| with_version || field.number() != 2);
        all.extend(shown.flat_map(|field| field.bytes()));
    }
    Some(all)
}

/// A list's version, and the version of each item by `namespace/name`.
pub fn items(body: &[u8]) -> Result<(u64, BTreeMap<String, u64>)> {
    let envelope = fields(body.strip_prefix(MAGIC).context("no protobuf envelope")?)?;
    let message = fields(value(&envelope, 2).context("no list in the envelope")?)?;
    let text = |of: &[Field<'_>], number| -> Result<String> {
        Ok(String::from_utf8(value(of, number).unwrap_or_default().to_vec())?)
    };
    let metadata = fields(value(&message, 1).context("no metadata")?)?;
    let mut items = BTreeMap::new();
    for item in message.iter().filter(|field| field.number() == 2) {
        let metadata = fields(value(&fields(item.value)?, 1).context("no metadata")?)?;
        let (name, namespace) = (text(&metadata, 1)?, text(&metadata, 3)?);
        items.insert(format!("{namespace}/{name}"), text(&metadata, OBJECT_VERSION)?.parse()?);
    }
    Ok((text(&metadata, 2)?.parse()?, items))
}

/// The metadata of an object without the fields for which the simulator has no number.
fn of_object(metadata: &[u8]) -> Option<Vec<u8>> {
    let fields = fields(metadata).ok()?;
    let known = fields.iter().filter(|field| field.number() < MANAGED_FIELDS);
    Some(known.flat_map(|field| field.bytes()).collect())
}

/// Lengths of enclosing messages change with the version's length: fields are kept, not frames.
fn reduce_list(body: &[u8], message: &[Field<'_>], at: u64) -> Result<Reduced> {
    let Some(metadata) = value(message, at) else {
        return Ok(Reduced { rest: body.to_vec(), ..Reduced::default() });
    };
    let metadata = Field::all(metadata)?;
    let text = |number| value(&metadata, number).map(|text| String::from_utf8_lossy(text).into());
    let token = text(3).filter(|text: &String| !text.is_empty());
    let mut inside = Vec::new();
    for field in &metadata {
        inside.extend(match field.number() {
            2 => field.with(VERSION_MARK),
            3 if token.is_some() => field.with(TOKEN_MARK),
            _ => field.bytes(),
        });
    }
    let mut rest = Vec::new();
    for field in message {
        rest.extend(if field.number() == at { field.with(&inside) } else { field.bytes() });
    }
    let items = message.iter().filter(|field| field.number() == 3 - at);
    let newest_item = items.filter_map(|item| version_of(item.value)).max().unwrap_or(0);
    Ok(Reduced { rest, version: text(2), token: token.map(Token::open), newest_item })
}

/// The version of an object, whose metadata is its first field.
fn version_of(object: &[u8]) -> Option<u64> {
    let metadata = fields(value(&fields(object).ok()?, 1)?).ok()?;
    std::str::from_utf8(value(&metadata, OBJECT_VERSION)?).ok()?.parse().ok()
}

/// The complete events of a watch, each with its length in front.
pub fn events(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut events = Vec::new();
    while let Some((length, rest)) = stream.split_first_chunk::<FRAME_LENGTH>() {
        let length = u32::from_be_bytes(*length) as usize;
        if rest.len() < length {
            break;
        }
        let (event, after) = stream.split_at(FRAME_LENGTH + length);
        events.push(event);
        stream = after;
    }
    events
}

/// The word that tells what an event is.
pub fn event_type(event: &[u8]) -> Option<&[u8]> {
    value(&fields(event.get(FRAME_LENGTH..)?).ok()?, 1)
}

/// A list without its last item; `None` if it has none.
pub(super) fn without_last_item(body: &[u8]) -> Option<Vec<u8>> {
    edit_list(body, |fields| {
        let at = fields.iter().rposition(|field| field.number() == 2)?;
        fields.remove(at);
        Some(())
    })
}

/// A list whose first two items changed places.
pub(super) fn with_items_swapped(body: &[u8]) -> Option<Vec<u8>> {
    edit_list(body, |fields| {
        let at = fields.iter().position(|field| field.number() == 2)?;
        let next = fields
            .get(at + 1)
            .filter(|next| next.number() == 2 && next.value != fields[at].value)?;
        let next = *next;
        fields[at + 1] = fields[at];
        fields[at] = next;
        Some(())
    })
}

fn edit_list(body: &[u8], edit: impl FnOnce(&mut Vec<Field<'_>>) -> Option<()>) -> Option<Vec<u8>> {
    let envelope = fields(body.strip_prefix(MAGIC)?).ok()?;
    let kind_fields = fields(value(&envelope, 1)?).ok()?;
    let kind = value(&kind_fields, 2).filter(|kind| kind.ends_with(b"List"))?;
    if kind == b"PartialObjectMetadataList" {
        return None;
    }
    let mut message = fields(value(&envelope, 2)?).ok()?;
    edit(&mut message)?;
    let message: Vec<u8> = message.iter().flat_map(|field| field.bytes()).collect();
    let rewritten = envelope
        .iter()
        .flat_map(|field| if field.number() == 2 { field.with(&message) } else { field.bytes() });
    Some(MAGIC.iter().copied().chain(rewritten).collect())
}

/// A body whose envelope names another version of the API.
pub(super) fn of_another_version(body: &[u8]) -> Option<Vec<u8>> {
    let envelope = fields(body.strip_prefix(MAGIC)?).ok()?;
    let kind_fields = fields(value(&envelope, 1)?).ok()?;
    let mut renamed = value(&kind_fields, 1)?.to_vec();
    *renamed.last_mut()? ^= 1;
    let names: Vec<u8> = kind_fields
        .iter()
        .flat_map(|field| if field.number() == 1 { field.with(&renamed) } else { field.bytes() })
        .collect();
    let rewritten = envelope
        .iter()
        .flat_map(|field| if field.number() == 1 { field.with(&names) } else { field.bytes() });
    Some(MAGIC.iter().copied().chain(rewritten).collect())
}

fn value<'body>(fields: &[Field<'body>], number: u64) -> Option<&'body [u8]> {
    fields.iter().find(|field| field.number() == number).map(|field| field.value)
}

fn fields(mut message: &[u8]) -> Result<Vec<Field<'_>>> {
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
        fields.push(Field { tag, value });
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

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
