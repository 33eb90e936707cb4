//! The conversion of a whole list into a snapshot, object by object. Pure.
//!
//! An object whose bytes equal those in the previous snapshot is taken from there. Pages without a
//! difference are shared: two generations never coexist in memory. Equal versions do not imply
//! equal bytes: a schema, a conversion or another release of the apiserver changes an object's form
//! without a write. Nothing is visible until the list is complete.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    batch::Batch,
    form::Envelope,
    index::Index,
    object::Object,
    page::{self, PAGE_BYTES_TARGET, PAGE_OBJECTS_TARGET, Page},
    pages::{PagePosition, Pages},
    pool::Pool,
    storage::Storage,
    store::Snapshot,
};
use crate::api::{ObjectKey, form::Form, version::ResourceVersion};

/// A list in progress.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    base: Option<Arc<Snapshot>>,
    form: Form,
    storage: Arc<Storage>,
    index: Index,
    /// The old page whose key range contains the pending objects.
    old: PagePosition,
    /// The bytes of that page, once they are needed.
    old_raw: Option<Bytes>,
    pages: Vec<Arc<Page>>,
    /// The objects of the next page, in key order.
    pending: Vec<Object>,
    pending_bytes: usize,
    /// The number of pending objects that differ from the old page's.
    differences: usize,
    last: Option<ObjectKey>,
    /// Objects that arrived out of key order.
    stragglers: Vec<Object>,
    /// The new memory of complete pages and of stragglers.
    sealed_bytes: usize,
    /// The new memory of pending objects.
    loose_bytes: usize,
}

/// A list with two objects at one key.
#[derive(Debug, thiserror::Error)]
#[error("the list holds {0:?} twice")]
pub struct Duplicate(pub ObjectKey);

// === impl Rebuild ===

impl Rebuild {
    /// Creates an empty list, based on a previous snapshot if there is one.
    pub(super) fn of(base: Option<Arc<Snapshot>>, form: Form, pool: Arc<Pool>) -> Self {
        let held = base.as_ref().map(|base| base.storage().clone());
        let storage = held.unwrap_or_else(|| Arc::new(Storage::of(pool)));
        Self { base, form, storage, ..Self::default() }
    }

    /// Returns the new memory held so far, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.sealed_bytes + self.loose_bytes + self.index.bytes()
    }

    /// Adds the next object.
    pub(super) fn push(&mut self, object: Object) -> Result<(), Duplicate> {
        match &self.last {
            Some(last) if object.key() == last => return Err(Duplicate(last.clone())),
            // The apiserver lists in key order; other servers may not.
            Some(last) if object.key() < last => {
                self.sealed_bytes += object.raw().len() + object.bytes();
                self.stragglers.push(object);
                return Ok(());
            }
            _ => self.last = Some(object.key().clone()),
        }
        if self.old_range_ends_before(object.key()) {
            self.seal();
            while self.old_range_ends_before(object.key()) {
                self.old_raw = None;
                self.old = self.old_pages().map_or(self.old, |pages| pages.after(self.old));
            }
        }
        let object = match self.held(&object) {
            Some(held) => held,
            None => {
                self.differences += 1;
                self.loose_bytes += object.raw().len() + object.bytes() + size_of::<Object>();
                object
            }
        };
        self.index.replace(None, Some(&object));
        self.pending_bytes += object.raw().len() + 1;
        self.pending.push(object);
        let full =
            self.pending_bytes >= PAGE_BYTES_TARGET || self.pending.len() >= PAGE_OBJECTS_TARGET;
        if full && self.differences > 0 {
            self.seal();
        }
        Ok(())
    }

    /// Completes the list at this version.
    pub(super) fn finish(
        mut self,
        version: ResourceVersion,
        envelope: Envelope,
    ) -> Result<Snapshot, Duplicate> {
        self.seal();
        let (envelope, index) = (Arc::new(envelope), Arc::new(self.index));
        let mut pages = Pages::default();
        pages.extend(self.pages);
        let ordered = Snapshot::new(version.clone(), envelope, pages, index, self.storage);
        if self.stragglers.is_empty() {
            return Ok(ordered);
        }
        let mut batch = Batch::of(Arc::new(ordered));
        for object in self.stragglers {
            let key = object.key().clone();
            if batch.apply(object).is_some() {
                return Err(Duplicate(key));
            }
        }
        Ok(batch.finish(version))
    }

    /// Lays out the pending objects. The pages of a first list are compressed at once: its text as a
    /// whole is never in memory.
    fn seal(&mut self) {
        let objects = std::mem::take(&mut self.pending);
        let same = std::mem::take(&mut self.differences) == 0;
        (self.pending_bytes, self.loose_bytes) = (0, 0);
        if let Some(page) = self.old_page().filter(|page| same && page.len() == objects.len()) {
            let page = page.clone();
            return self.pages.push(page);
        }
        // The last page may be laid out again, together with these objects.
        let last = self.pages.len().saturating_sub(1);
        let bytes = |pages: &[Arc<Page>]| pages[last..].iter().map(|page| page.bytes()).sum();
        let before: usize = bytes(&self.pages);
        page::append(&mut self.pages, objects, self.form, &self.storage);
        if self.base.is_none() {
            self.pages[last..].iter().for_each(|page| _ = page.rest(true));
        }
        let after: usize = bytes(&self.pages);
        self.sealed_bytes = (self.sealed_bytes + after).saturating_sub(before);
    }

    fn old_pages(&self) -> Option<&Pages> {
        self.base.as_ref().map(|base| base.pages())
    }

    fn old_page(&self) -> Option<&Arc<Page>> {
        self.old_pages()?.get(self.old)
    }

    fn old_range_ends_before(&self, key: &ObjectKey) -> bool {
        let next = self.old_pages().and_then(|pages| pages.first_key(pages.after(self.old)));
        next.is_some_and(|next| next <= key)
    }

    /// Returns the same object, byte for byte, from the previous snapshot.
    fn held(&mut self, object: &Object) -> Option<Object> {
        let Self { base, old, old_raw, .. } = self;
        let page = base.as_ref()?.pages().get(*old)?;
        let index = page.position(object.key())?;
        let raw = old_raw.get_or_insert_with(|| page.raw()).slice(page.range(index));
        (raw == *object.raw()).then(|| Object::new(page.head(index).clone(), raw))
    }
}
