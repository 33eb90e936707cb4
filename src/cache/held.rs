//! An object of a page, and a reader of many of them.

use std::{ops::Deref, sync::Arc};

use bytes::Bytes;

use super::{
    object::{Head, Object},
    page::Page,
    selection::Run,
};
use crate::body::WHOLE_BYTES_MIN;

/// An object where a page holds it. Its parsed parts are at hand; its bytes may be compressed.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    page: &'a Page,
    index: usize,
}

/// Reads objects, best in LIST order: the page of the last one stays at hand, so that each page is
/// decompressed once.
#[derive(Debug, Default)]
pub(super) struct PageReader<'a> {
    page: Option<&'a Page>,
    raw: Bytes,
    /// The decompressed pages that runs refer to and that the replica does not keep, in bytes.
    private: usize,
    /// `true` if they include the current page, or the replica keeps its bytes.
    is_counted: bool,
}

// === impl Held ===

impl<'a> Held<'a> {
    /// Points at an object of a page.
    pub(super) fn new(page: &'a Page, index: usize) -> Self {
        Self { page, index }
    }

    /// Returns the parsed parts, which identify the bytes.
    pub(super) fn head(self) -> &'a Arc<Head> {
        self.page.head(self.index)
    }

    /// Returns the length of the bytes.
    pub(super) fn len(self) -> usize {
        self.page.range(self.index).len()
    }

    /// Returns the bytes as an item of a LIST.
    pub fn raw(self) -> Bytes {
        self.page.raw().slice(self.page.range(self.index))
    }

    /// Returns the object, which keeps the page's bytes alive.
    pub fn object(self) -> Object {
        Object::new(self.head().clone(), self.raw())
    }
}

// === impl PageReader ===

impl<'a> PageReader<'a> {
    /// Returns the bytes of an object as an item of a LIST.
    pub(super) fn object(&mut self, object: Held<'a>) -> &[u8] {
        &self.page(object.page)[object.page.range(object.index)]
    }

    /// Returns the bytes of adjacent objects with separators between them; `open` keeps the one at
    /// the end.
    pub(super) fn run(&mut self, run: &Run<'a>, open: bool) -> Bytes {
        let text = self.page(run.page).slice(run.page.range_of_run(run.objects.clone(), open));
        if !self.is_counted && text.len() >= WHOLE_BYTES_MIN {
            self.is_counted = true;
            self.private += self.raw.len();
        }
        text
    }

    /// Returns the memory of the runs that the replica does not share, in bytes.
    pub(super) fn private(&self) -> usize {
        self.private
    }

    fn page(&mut self, page: &'a Page) -> &Bytes {
        if !self.page.is_some_and(|last| std::ptr::eq(last, page)) {
            self.page = Some(page);
            (self.raw, self.is_counted) = page.shared();
        }
        &self.raw
    }
}

impl Deref for Held<'_> {
    type Target = Head;

    fn deref(&self) -> &Head {
        self.page.head(self.index)
    }
}
