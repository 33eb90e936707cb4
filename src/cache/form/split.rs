//! The splitter of a LIST body in protobuf into items while it arrives. Pure.
//!
//! It parses only the outer shape: the envelope up to the list, the list's metadata, and items one
//! after the other. Everything before the first item and after the last one is compared with what
//! would be encoded here. A body that ends early or continues too long is an error.

use super::{Envelope, protobuf::ProtobufEnvelope};
use crate::{
    api::{
        protobuf::{
            MAGIC,
            wire::{Fields, number},
        },
        version::ResourceVersion,
    },
    cache::{
        envelope::EnvelopeError, portion::ListMeta, reflector::ReflectorFailure, split::SplitError,
    },
};

/// A LIST body in protobuf, in progress.
#[derive(Debug)]
pub struct ProtobufSplitter {
    state: SplitState,
    /// The bytes before the first item.
    header: Vec<u8>,
    /// The bytes after the last item.
    trailer: Vec<u8>,
    /// The start of an incomplete item.
    partial: Vec<u8>,
    /// The number of bytes of the list that are still to come.
    left: usize,
    /// The length of all items so far.
    items: usize,
    item_bytes_max: usize,
}

/// The expected next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitState {
    Header,
    /// An item; its length with tag and length, once it is known.
    Item(Option<usize>),
    Trailer,
}

/// The parts of a header.
struct Header<'a> {
    api_version: &'a str,
    kind: &'a str,
    version: &'a str,
    /// The length of the header itself.
    length: usize,
    /// The length of all items.
    items: usize,
}

/// The tag of an item.
const ITEM: u8 = 2 << 3 | 2;

/// The limit of the header and trailer; real ones have about a hundred bytes.
const ENDS_BYTES_MAX: usize = 4096;

/// The limit of an item's tag and length.
const ITEM_HEAD_BYTES_MAX: usize = 11;

// === impl ProtobufSplitter ===

impl ProtobufSplitter {
    /// Creates a splitter that rejects larger items.
    pub(in crate::cache) fn new(item_bytes_max: usize) -> Self {
        Self {
            state: SplitState::Header,
            header: Vec::new(),
            trailer: Vec::new(),
            partial: Vec::new(),
            left: 0,
            items: 0,
            item_bytes_max,
        }
    }

    /// Accepts the next bytes; passes on each item that they complete, with its tag and length.
    pub(in crate::cache) fn feed<E: From<SplitError>>(
        &mut self,
        mut bytes: &[u8],
        mut on_item: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            let taken = match self.state {
                SplitState::Header => self.header(bytes)?,
                SplitState::Item(None) => self.item_head(bytes)?,
                SplitState::Item(Some(length)) => self.item(bytes, length, &mut on_item)?,
                SplitState::Trailer => self.trailer(bytes)?,
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Ends the body; returns the form of the list and its version.
    pub(in crate::cache) fn finish(self) -> Result<(Envelope, ResourceVersion), ReflectorFailure> {
        if self.state != SplitState::Trailer {
            return Err(SplitError::Truncated.into());
        }
        let header = Header::parse(&self.header).map_err(ReflectorFailure::Split)?;
        let header = header.ok_or(SplitError::Truncated)?;
        let version = ResourceVersion::parse(header.version).map_err(|_| EnvelopeError::Version)?;
        let envelope = ProtobufEnvelope::new(header.api_version, header.kind);
        let envelope = envelope.ok_or(EnvelopeError::NotUnderstood)?;
        let is_known = envelope.head(&ListMeta::whole(&version), self.items) == self.header
            && ProtobufEnvelope::tail() == self.trailer;
        if is_known {
            Ok((envelope.into(), version))
        } else {
            Err(EnvelopeError::NotUnderstood.into())
        }
    }

    fn header(&mut self, bytes: &[u8]) -> Result<usize, SplitError> {
        let before = self.header.len();
        let taken = bytes.len().min(ENDS_BYTES_MAX - before);
        self.header.extend_from_slice(&bytes[..taken]);
        let Some(Header { length, items, .. }) = Header::parse(&self.header)? else {
            let is_full = self.header.len() == ENDS_BYTES_MAX;
            return if is_full { Err(SplitError::HeaderTooLong) } else { Ok(taken) };
        };
        self.header.truncate(length);
        self.left = items;
        self.next_item();
        // The header ends in these bytes: it was incomplete before them.
        Ok(length.saturating_sub(before))
    }

    fn next_item(&mut self) {
        self.state = if self.left == 0 { SplitState::Trailer } else { SplitState::Item(None) };
    }

    /// Reads the tag and length of an item, byte by byte.
    fn item_head(&mut self, bytes: &[u8]) -> Result<usize, SplitError> {
        for (index, byte) in bytes.iter().enumerate() {
            self.partial.push(*byte);
            if self.partial[0] != ITEM {
                return Err(SplitError::NotAnItem);
            }
            let length = number(&self.partial[1..]).map_err(|_| SplitError::NotAnItem)?;
            let Some((length, head)) = length else {
                if self.partial.len() > ITEM_HEAD_BYTES_MAX {
                    return Err(SplitError::NotAnItem);
                }
                continue;
            };
            let length = usize::try_from(length).map_err(|_| SplitError::ItemTooLong)?;
            if length > self.item_bytes_max {
                return Err(SplitError::ItemTooLong);
            }
            if length == 0 {
                return Err(SplitError::NotAnItem);
            }
            let length = 1 + head + length;
            self.left = self.left.checked_sub(length).ok_or(SplitError::NotAnItem)?;
            self.items += length;
            self.state = SplitState::Item(Some(length));
            return Ok(index + 1);
        }
        Ok(bytes.len())
    }

    fn item<E: From<SplitError>>(
        &mut self,
        bytes: &[u8],
        length: usize,
        on_item: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let taken = bytes.len().min(length - self.partial.len());
        self.partial.extend_from_slice(&bytes[..taken]);
        if self.partial.len() == length {
            on_item(&self.partial)?;
            self.partial.clear();
            self.next_item();
        }
        Ok(taken)
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<usize, SplitError> {
        if self.trailer.len() + bytes.len() > ENDS_BYTES_MAX {
            return Err(SplitError::TrailerTooLong);
        }
        self.trailer.extend_from_slice(bytes);
        Ok(bytes.len())
    }
}

// === impl Header ===

impl<'a> Header<'a> {
    /// Parses the start of a list; returns `None` while it is incomplete.
    fn parse(bytes: &'a [u8]) -> Result<Option<Self>, SplitError> {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Err(SplitError::NotAnItem);
        }
        let Some(rest) = bytes.get(MAGIC.len()..) else { return Ok(None) };
        let Some((types, rest)) = part(rest, 1)? else { return Ok(None) };
        let Some((list, rest)) = opening(rest, 2)? else { return Ok(None) };
        let before = rest.len();
        let Some((metadata, rest)) = part(rest, 1)? else { return Ok(None) };
        let metadata_length = before - rest.len();
        let items = list.checked_sub(metadata_length).ok_or(SplitError::NotAnItem)?;
        Ok(Some(Self {
            api_version: text_of(types, 1)?,
            kind: text_of(types, 2)?,
            version: text_of(metadata, 2)?,
            length: bytes.len() - rest.len(),
            items,
        }))
    }
}

/// Parses the tag and length of the next field, which must have this number; returns the length and
/// the bytes after it.
fn opening(bytes: &[u8], field: u8) -> Result<Option<(usize, &[u8])>, SplitError> {
    let Some((tag, rest)) = bytes.split_first() else { return Ok(None) };
    if *tag != field << 3 | 2 {
        return Err(SplitError::NotAnItem);
    }
    let Some((length, taken)) = number(rest).map_err(|_| SplitError::NotAnItem)? else {
        return Ok(None);
    };
    let length = usize::try_from(length).map_err(|_| SplitError::ItemTooLong)?;
    Ok(Some((length, &rest[taken..])))
}

/// The value of a field, and the bytes after it.
type Part<'a> = (&'a [u8], &'a [u8]);

/// Parses the next field.
fn part(bytes: &[u8], field: u8) -> Result<Option<Part<'_>>, SplitError> {
    let opened = opening(bytes, field)?;
    Ok(opened.and_then(|(length, rest)| rest.split_at_checked(length)))
}

/// Returns the text of a field; empty if there is none.
fn text_of(message: &[u8], number: u64) -> Result<&str, SplitError> {
    for field in Fields::of(message) {
        let field = field.map_err(|_| SplitError::NotAnItem)?;
        if field.number == number {
            return field.text().map_err(|_| SplitError::NotUtf8);
        }
    }
    Ok("")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        api::protobuf::wire::{UNKNOWN_END, field, unknown_start},
        cache::fixture::version,
    };

    /// Returns a list as the apiserver encodes it, of items with these contents.
    fn list(kind: &str, at: &str, items: &[&[u8]]) -> Vec<u8> {
        let meta = [field(1, b""), field(2, at.as_bytes()), field(3, b"")].concat();
        let items = items.iter().flat_map(|item| field(2, item));
        let content: Vec<u8> = field(1, &meta).into_iter().chain(items).collect();
        [unknown_start("v1", kind, content.len()), content, UNKNOWN_END.to_vec()].concat()
    }

    type Parts = (Vec<Vec<u8>>, Envelope, ResourceVersion);

    fn split(body: &[u8], chunk: usize) -> Result<Parts, ReflectorFailure> {
        let (mut splitter, mut items) = (ProtobufSplitter::new(200), Vec::new());
        for chunk in body.chunks(chunk) {
            splitter.feed::<ReflectorFailure>(chunk, |item| {
                items.push(item.to_vec());
                Ok(())
            })?;
        }
        let (envelope, version) = splitter.finish()?;
        Ok((items, envelope, version))
    }

    #[test]
    fn items_are_split_at_any_chunk_boundary() {
        let long = vec![b'x'; 150];
        for items in [vec![], vec![&b"a"[..]], vec![&long[..], b"b", &long]] {
            let body = list("PodList", "7", &items);
            for chunk in 1..=body.len() {
                let (found, envelope, at) = split(&body, chunk).expect("a list");
                let expected: Vec<_> = items.iter().map(|item| field(2, item)).collect();
                assert_eq!((found, at), (expected, version(7)), "{chunk}");
                assert_eq!((envelope.kind(), envelope.api_version()), (Some("Pod"), "v1"));
            }
        }
    }

    #[test]
    fn broken_and_unknown_lists_are_errors() {
        let body = list("PodList", "7", &[b"a", b"b"]);
        let whole = body.len();
        for end in 0..whole {
            assert!(split(&body[..end], 5).is_err(), "{end}");
        }
        let odd = [
            [&body[..], b"x"].concat(),
            list("Pod", "7", &[b"a"]),
            list("List", "7", &[b"a"]),
            list("PodList", "", &[b"a"]),
            list("PodList", "0", &[b"a"]),
            list("PodList", "7", &[b""]),
            list("PodList", "7", &[&[b'x'; 201]]),
            br#"{"kind":"PodList"}"#.to_vec(),
            [b"k8s\0".to_vec(), field(2, b"x"), UNKNOWN_END.to_vec()].concat(),
        ];
        for body in odd {
            assert!(split(&body, 7).is_err(), "{}", body.escape_ascii());
        }
        // A list that goes on elsewhere has a token in its metadata.
        let meta = [field(1, b""), field(2, b"7"), field(3, b"more")].concat();
        let content = [field(1, &meta), field(2, b"a")].concat();
        let start = unknown_start("v1", "PodList", content.len());
        let paged = [start, content, UNKNOWN_END.to_vec()].concat();
        let error = split(&paged, 9).expect_err("a page");
        assert!(matches!(error, ReflectorFailure::Envelope(EnvelopeError::NotUnderstood)));
    }

    proptest! {
        #[test]
        fn damaged_lists_are_split_or_rejected(at: usize, byte: u8, chunk in 1_usize..40) {
            let mut body = list("PodList", "7", &[b"abc", b"defg"]);
            let at = at % body.len();
            body[at] = byte;
            if let Ok((items, envelope, version)) = split(&body, chunk) {
                let length = items.iter().map(Vec::len).sum();
                let meta = ListMeta::whole(&version);
                let again = [envelope.head(&meta, length), items.concat(), envelope.tail(&meta)];
                prop_assert_eq!(again.concat(), body);
            }
        }
    }
}
