//! The parser of a watch's events in protobuf (S-CT-20).
//!
//! Each event is a length of four bytes and a WatchEvent as `k8s.io/apimachinery` writes it. That
//! contains the type, and a RawExtension with the object in its envelope. Only a few facts of the
//! object are kept, whatever its size. Invariant: an unexpected field makes the watch opaque.

use super::{EVENT_BYTES_MAX, Kind, Opaque, Shown, ShownObject};
use crate::api::{
    learn::{Learned, Unlearned},
    protobuf::{Scanner, Varint},
};

/// The state of the parser between two chunks.
#[derive(Debug, Default)]
pub(super) struct Delimited {
    /// The bytes of the event before its object.
    head: Vec<u8>,
    /// The current object; `None` while the head is parsed.
    object: Option<Box<Object>>,
}

/// The object of one event.
#[derive(Debug)]
struct Object {
    kind: Kind,
    /// The number of its remaining bytes.
    left: usize,
    scanner: Scanner,
}

/// The facts in a head about the object after it.
struct Head {
    kind: Kind,
    length: usize,
}

/// The rest of a head.
struct Rest<'a>(&'a [u8]);

/// The tag of WatchEvent.type and RawExtension.raw, both the first field of their messages.
const FIRST: u8 = 1 << 3 | 2;

/// The tag of WatchEvent.object.
const SECOND: u8 = 2 << 3 | 2;

/// The longest type of an event.
const TYPE_BYTES_MAX: usize = 16;

/// The longest head: the frame's length, three tags, three lengths and a type.
const HEAD_BYTES_MAX: usize = 4 + 3 + 3 * 10 + TYPE_BYTES_MAX;

// === impl Delimited ===

impl Delimited {
    /// Parses one event without the length before it, and calls `shown` for it.
    pub(super) fn message(event: &[u8], mut shown: impl FnMut(Shown)) -> Result<(), Opaque> {
        let length = u32::try_from(event.len()).map_err(|_| Opaque::TooLarge)?;
        let mut delimited = Self::default();
        delimited.push(&length.to_be_bytes(), &mut shown)?;
        delimited.push(event, shown)?;
        let is_whole = delimited.head.is_empty() && delimited.object.is_none();
        if is_whole { Ok(()) } else { Err(Opaque::Form) }
    }

    /// Parses a chunk, and calls `shown` for each event that ends in it.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut shown: impl FnMut(Shown),
    ) -> Result<(), Opaque> {
        loop {
            if let Some(object) = &mut self.object {
                let (piece, rest) = bytes.split_at(bytes.len().min(object.left));
                object.scanner.push(piece);
                object.left -= piece.len();
                bytes = rest;
                if object.left > 0 {
                    return Ok(());
                }
            }
            if let Some(object) = self.object.take()
                && let Some(what) = object.conclude()?
            {
                shown(what);
            }
            let Some((byte, rest)) = bytes.split_first() else { return Ok(()) };
            bytes = rest;
            self.head.push(*byte);
            self.object = Head::parse(&self.head)?.map(|head| Box::new(head.into()));
            if self.object.is_some() {
                self.head.clear();
            } else if self.head.len() >= HEAD_BYTES_MAX {
                return Err(Opaque::Form);
            }
        }
    }
}

// === impl Object ===

impl Object {
    /// Returns the fact that the complete event shows.
    fn conclude(mut self) -> Result<Option<Shown>, Opaque> {
        let facts = self.scanner.finish().map_err(|why| match why {
            Unlearned::TooLarge => Opaque::TooLarge,
            _ => Opaque::Form,
        })?;
        let deleted = match self.kind {
            Kind::Bookmark => {
                return Ok(Some(Shown::Bookmark(facts.version().ok_or(Opaque::Form)?)));
            }
            Kind::Error if !facts.is_status() => return Err(Opaque::Form),
            Kind::Error => return Ok(Shown::by_code(facts.code)),
            Kind::Changed => false,
            Kind::Deleted => true,
        };
        let Learned::Object(object) = facts.conclude() else { return Err(Opaque::Form) };
        Ok(Some(Shown::Object(ShownObject {
            namespace: object.namespace.unwrap_or_default(),
            name: object.name,
            uid: object.uid,
            version: object.version,
            labels: object.labels.into_iter().collect(),
            deleted,
        })))
    }
}

impl From<Head> for Object {
    fn from(head: Head) -> Self {
        Self { kind: head.kind, left: head.length, scanner: Scanner::default() }
    }
}

// === impl Head ===

impl Head {
    /// Returns the head, once it is complete: the object follows it and ends the event.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Opaque> {
        let Some((length, event)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let whole = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| Opaque::TooLarge)?;
        if whole > EVENT_BYTES_MAX {
            return Err(Opaque::TooLarge);
        }
        let mut rest = Rest(event);
        let Some(length) = rest.field(FIRST)? else { return Ok(None) };
        if length > TYPE_BYTES_MAX {
            return Err(Opaque::Form);
        }
        let Some(kind) = rest.take(length) else { return Ok(None) };
        let kind = Kind::of(str::from_utf8(kind).map_err(|_| Opaque::Form)?)?;
        let Some(extension) = rest.field(SECOND)? else { return Ok(None) };
        let before = rest.0.len();
        let Some(length) = rest.field(FIRST)? else { return Ok(None) };
        let fits = (before - rest.0.len()).checked_add(length) == Some(extension)
            && event.len().checked_add(length) == Some(whole);
        if fits { Ok(Some(Self { kind, length })) } else { Err(Opaque::Form) }
    }
}

// === impl Rest ===

impl<'a> Rest<'a> {
    /// Returns the length of the field with this tag, which must be the next; `None` while it is
    /// incomplete.
    fn field(&mut self, tag: u8) -> Result<Option<usize>, Opaque> {
        let Some((first, mut rest)) = self.0.split_first() else { return Ok(None) };
        if *first != tag {
            return Err(Opaque::Form);
        }
        let mut varint = Varint::default();
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            if let Some(length) = varint.push(*byte).map_err(|_| Opaque::Form)? {
                self.0 = rest;
                return usize::try_from(length).map(Some).map_err(|_| Opaque::TooLarge);
            }
        }
        Ok(None)
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests;
