//! An object of a page.

use std::{ops::Deref, sync::Arc};

use bytes::Bytes;

use super::{
    object::{Head, Object},
    page::Page,
};

/// An object where a page holds it. Its parsed parts are at hand; its bytes may be compressed.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    page: &'a Page,
    index: usize,
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

impl Deref for Held<'_> {
    type Target = Head;

    fn deref(&self) -> &Head {
        self.page.head(self.index)
    }
}
