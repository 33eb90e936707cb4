//! A page: adjacent objects in one buffer, laid out as in a LIST.
//!
//! Invariant: `text` has the objects in key order, with the form's separator after each. A LIST of
//! whole pages copies nothing and holds nothing twice. Pages never change.

use std::{hash::BuildHasher, ops::Range, sync::Arc};

use bytes::Bytes;
use foldhash::quality::FixedState;

use super::{
    held::Held,
    object::{Head, Object},
    storage::Storage,
    text::Text,
};
use crate::api::{ObjectKey, form::Form};

/// A page of a snapshot.
#[derive(Debug)]
pub struct Page {
    text: Text,
    entries: Box<[Entry]>,
    separator: &'static [u8],
    /// The memory of everything but the text.
    index_bytes: usize,
}

/// The parsed parts of an object, and the end of its bytes without the separator.
#[derive(Debug)]
struct Entry {
    head: Arc<Head>,
    end: u32,
    /// A hash of the key: a search reads no other object's parts.
    key_hash: u32,
}

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

// === impl Page ===

impl Page {
    /// Lays out objects that are in key order.
    fn seal(objects: &[Object], separator: &'static [u8], storage: &Arc<Storage>) -> Self {
        let mut buffer = storage.pool().take(raw_bytes(objects, separator));
        let entries: Box<[Entry]> = objects
            .iter()
            .map(|object| {
                buffer.extend_from_slice(object.raw());
                let end = u32::try_from(buffer.len()).expect("pages are far below 4 GiB");
                buffer.extend_from_slice(separator);
                Entry { head: object.head().clone(), end, key_hash: key_hash(object.key()) }
            })
            .collect();
        let heads: usize = objects.iter().map(|object| object.bytes()).sum();
        let index_bytes = size_of::<Self>() + size_of_val(&*entries) + heads;
        Self { text: Text::new(buffer, storage), entries, separator, index_bytes }
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns an object.
    pub fn get(&self, index: usize) -> Option<Held<'_>> {
        (index < self.len()).then(|| Held::new(self, index))
    }

    /// Returns some objects, in key order.
    pub fn objects(&self, range: Range<usize>) -> impl Iterator<Item = Held<'_>> {
        range.map(|index| Held::new(self, index))
    }

    /// Returns all objects, in key order.
    pub fn iter(&self) -> impl Iterator<Item = Held<'_>> {
        self.objects(0..self.len())
    }

    /// Returns all objects with their bytes, in key order.
    pub fn read(&self) -> impl Iterator<Item = Object> {
        let raw = self.raw();
        self.iter().enumerate().map(move |(index, held)| {
            Object::new(held.head().clone(), raw.slice(self.range(index)))
        })
    }

    /// Returns the lowest key.
    pub fn first_key(&self) -> &ObjectKey {
        &self.entries[0].head.key
    }

    /// Returns the memory held, estimated.
    pub fn bytes(&self) -> usize {
        self.index_bytes + self.text.bytes()
    }

    /// Returns the size of the objects before compression.
    pub(super) fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the position of a key.
    pub fn position(&self, key: &ObjectKey) -> Option<usize> {
        let hash = key_hash(key);
        self.entries.iter().position(|entry| entry.key_hash == hash && entry.head.key == *key)
    }

    /// Returns the number of objects at the start whose keys satisfy a condition that no later one
    /// does.
    pub fn partition_point(&self, is_before: impl Fn(&str) -> bool) -> usize {
        self.entries.partition_point(|entry| is_before(entry.head.key.as_str()))
    }

    /// Returns the range of adjacent objects' bytes with separators between them; `open` keeps the
    /// one at the end.
    pub(super) fn range_of_run(&self, objects: Range<usize>, open: bool) -> Range<usize> {
        let (start, end) = (self.start(objects.start), self.start(objects.end));
        let left_out = if open { 0 } else { self.separator.len() };
        start..end.saturating_sub(left_out).max(start)
    }

    /// Begins a round of rest for the bytes; see [`Text::rest`].
    pub(super) fn rest(&self, in_any_case: bool) -> bool {
        self.text.rest(in_any_case)
    }

    pub(super) fn head(&self, index: usize) -> &Arc<Head> {
        &self.entries[index].head
    }

    /// Returns the range of an object's bytes.
    pub(super) fn range(&self, index: usize) -> Range<usize> {
        self.start(index)..self.entries[index].end as usize
    }

    pub(super) fn raw(&self) -> Bytes {
        self.text.raw()
    }

    /// Returns the bytes, and `true` if the page keeps the same ones.
    pub(super) fn shared(&self) -> (Bytes, bool) {
        self.text.shared()
    }

    /// Returns the start of an object's bytes, or the end of all.
    fn start(&self, index: usize) -> usize {
        let before = index.checked_sub(1).map(|before| &self.entries[before]);
        before.map_or(0, |before| before.end as usize + self.separator.len())
    }
}

/// Appends objects in key order as pages of a good size; a small last page may absorb them.
pub(super) fn append(
    pages: &mut Vec<Arc<Page>>,
    mut objects: Vec<Object>,
    form: Form,
    storage: &Arc<Storage>,
) {
    if objects.is_empty() {
        return;
    }
    let separator = separator(form);
    let raw_bytes = |objects: &[Object]| raw_bytes(objects, separator);
    if let Some(last) = pages.last()
        && (last.text.len() < PAGE_BYTES_MIN || raw_bytes(&objects) < PAGE_BYTES_MIN)
        && last.text.len() + raw_bytes(&objects) <= PAGE_BYTES_TARGET
        && last.len() + objects.len() <= PAGE_OBJECTS_TARGET
    {
        objects.splice(0..0, last.read());
        pages.pop();
    }
    if raw_bytes(&objects) <= PAGE_BYTES_MAX && objects.len() <= PAGE_OBJECTS_MAX {
        pages.push(Arc::new(Page::seal(&objects, separator, storage)));
        return;
    }
    let mut rest = &objects[..];
    while !rest.is_empty() {
        let (page, tail) = rest.split_at(page_length(rest));
        pages.push(Arc::new(Page::seal(page, separator, storage)));
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

fn key_hash(key: &ObjectKey) -> u32 {
    // The upper half is as good, and equal keys have equal hashes in every page.
    (FixedState::default().hash_one(key.as_str()) >> 32) as u32
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
