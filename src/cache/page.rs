//! A page: adjacent objects in one buffer, laid out as in a LIST.
//!
//! Invariant: `buffer` has the objects in key order, with the form's separator after each, and every
//! object's raw bytes are a slice of it. A LIST of whole pages copies nothing and holds nothing twice. Pages never change.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;

use super::{object::Object, pair::Pair, pool::Pool};
use crate::api::{ObjectKey, form::Form};

/// A page of a snapshot.
#[derive(Debug)]
pub struct Page {
    buffer: Bytes,
    objects: Box<[Object]>,
    filter: Filter,
    separator: &'static [u8],
    bytes: usize,
}

/// A Bloom filter of pairs: no object of the page has the pair, or some object may.
#[derive(Clone, Debug)]
struct Filter([u64; FILTER_WORDS]);

/// The target size of pages while a list is read.
pub(super) const PAGE_BYTES_TARGET: usize = 64 * 1024;

/// The size above which a page is split.
const PAGE_BYTES_MAX: usize = 2 * PAGE_BYTES_TARGET;

/// The size below which a page is merged with a neighbour.
const PAGE_BYTES_MIN: usize = PAGE_BYTES_TARGET / 4;

/// The target number of objects in a page of small objects.
pub(super) const PAGE_OBJECTS_TARGET: usize = 64;

/// The number of objects above which a page is split.
const PAGE_OBJECTS_MAX: usize = 2 * PAGE_OBJECTS_TARGET;

/// The size of the filter: 1024 bits. With the pairs of a page, about one page in thirty is
/// searched without a match.
const FILTER_WORDS: usize = 16;

// === impl Page ===

impl Page {
    /// Lays out objects that are in key order.
    fn seal(objects: &[Object], pool: &Arc<Pool>) -> Self {
        let separator = separator(pool.form());
        let mut buffer = pool.take(raw_bytes(objects, separator));
        for object in objects {
            buffer.extend_from_slice(object.raw());
            buffer.extend_from_slice(separator);
        }
        let capacity = buffer.capacity();
        let buffer = pool.lend(buffer);
        let mut start = 0;
        let objects: Box<[Object]> = objects
            .iter()
            .map(|object| {
                let end = start + object.raw().len();
                let raw = buffer.slice(start..end);
                start = end + separator.len();
                object.with_raw(raw)
            })
            .collect();
        let heads: usize = objects.iter().map(Object::head_bytes).sum();
        let bytes = capacity + size_of::<Self>() + size_of_val(&*objects) + heads;
        Self { filter: Filter::of(&objects), buffer, objects, separator, bytes }
    }

    /// Returns the objects, in key order.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// Returns the lowest key.
    pub fn first_key(&self) -> &ObjectKey {
        self.objects[0].key()
    }

    /// Returns the memory held, estimated.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the position of a key, or the one it would have.
    pub fn search(&self, key: &ObjectKey) -> Result<usize, usize> {
        self.objects.binary_search_by(|object| object.key().cmp(key))
    }

    /// Reports whether some object may have all pairs, given by their hashes.
    pub fn may_have(&self, pairs: &[u64]) -> bool {
        pairs.iter().all(|pair| self.filter.may_have(*pair))
    }

    /// Returns the length of an object and the separator after it.
    pub fn length(&self, object: &Object) -> usize {
        object.raw().len() + self.separator.len()
    }

    /// Returns the bytes of adjacent objects with separators between them; `open` keeps the one at
    /// the end.
    ///
    /// `start` is the offset of the first of them in the buffer: see [`Page::offset`].
    pub fn run(&self, objects: Range<usize>, start: usize, open: bool) -> Bytes {
        let length = raw_bytes(&self.objects[objects], self.separator);
        let left_out = if open { 0 } else { self.separator.len() };
        let end = start + length.saturating_sub(left_out);
        self.buffer.slice(start..end)
    }

    /// Returns the offset of an object in the buffer.
    pub fn offset(&self, object: usize) -> usize {
        raw_bytes(&self.objects[..object], self.separator)
    }
}

/// Appends objects in key order as pages of a good size; a small last page may absorb them.
pub(super) fn append(pages: &mut Vec<Arc<Page>>, mut objects: Vec<Object>, pool: &Arc<Pool>) {
    if objects.is_empty() {
        return;
    }
    let raw_bytes = |objects: &[Object]| raw_bytes(objects, separator(pool.form()));
    if let Some(last) = pages.last()
        && (last.buffer.len() < PAGE_BYTES_MIN || raw_bytes(&objects) < PAGE_BYTES_MIN)
        && last.buffer.len() + raw_bytes(&objects) <= PAGE_BYTES_TARGET
        && last.objects.len() + objects.len() <= PAGE_OBJECTS_TARGET
    {
        objects.splice(0..0, last.objects.iter().cloned());
        pages.pop();
    }
    if raw_bytes(&objects) <= PAGE_BYTES_MAX && objects.len() <= PAGE_OBJECTS_MAX {
        pages.push(Arc::new(Page::seal(&objects, pool)));
        return;
    }
    let mut rest = &objects[..];
    while !rest.is_empty() {
        let (page, tail) = rest.split_at(page_length(rest));
        pages.push(Arc::new(Page::seal(page, pool)));
        rest = tail;
    }
}

/// Returns the number of objects that fill a page.
fn page_length(objects: &[Object]) -> usize {
    let mut bytes = 0;
    let full = objects.iter().take(PAGE_OBJECTS_TARGET).position(|object| {
        bytes += object.raw().len() + 1;
        bytes >= PAGE_BYTES_TARGET
    });
    full.map_or_else(|| objects.len().min(PAGE_OBJECTS_TARGET), |last| last + 1)
}

/// Returns the text between two items of a list.
pub(super) fn separator(form: Form) -> &'static [u8] {
    match form {
        Form::Json | Form::Table => b",",
        // Each item has its tag and length.
        Form::Protobuf => b"",
    }
}

/// Returns the length of objects with a separator after each.
fn raw_bytes(objects: &[Object], separator: &[u8]) -> usize {
    objects.iter().map(|object| object.raw().len() + separator.len()).sum()
}

// === impl Filter ===

impl Filter {
    fn of(objects: &[Object]) -> Self {
        let mut filter = Self([0; FILTER_WORDS]);
        for pair in objects.iter().flat_map(Object::pairs).map(Pair::hash) {
            for (word, bit) in Self::places(pair) {
                filter.0[word] |= bit;
            }
        }
        filter
    }

    fn may_have(&self, pair: u64) -> bool {
        Self::places(pair).into_iter().all(|(word, bit)| self.0[word] & bit != 0)
    }

    /// Returns two independent bits of the filter, as word and mask.
    fn places(pair: u64) -> [(usize, u64); 2] {
        [pair, pair >> 32].map(|hash| ((hash >> 6) as usize % FILTER_WORDS, 1 << (hash % 64)))
    }
}
