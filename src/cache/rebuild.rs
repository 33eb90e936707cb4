//! A whole list becoming a snapshot, object by object. Pure.
//!
//! Objects whose bytes equal those in the previous snapshot are taken from there, and pages without a
//! difference are shared, so that two generations never stand side by side in memory. Equal versions
//! do not mean equal bytes: a schema, a conversion or another release of the apiserver changes how an
//! object is shown without a write. Nothing is visible until the list is complete.

use std::sync::Arc;

use super::{
    batch::Batch,
    envelope::Envelope,
    object::Object,
    page::{self, PAGE_BYTES_TARGET, PAGE_OBJECTS_TARGET, Page},
    pool::Pool,
    store::Snapshot,
};
use crate::{
    api::{ObjectKey, version::ResourceVersion},
    mutants::{Mutant, is_on},
};

/// A list under construction.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    base: Option<Arc<Snapshot>>,
    pool: Arc<Pool>,
    /// The old page whose range of keys the pending objects are in.
    old: usize,
    pages: Vec<Arc<Page>>,
    /// What belongs to the next page, in key order.
    pending: Vec<Object>,
    pending_bytes: usize,
    /// How many of the pending objects differ from the old page's.
    differences: usize,
    last: Option<ObjectKey>,
    /// Objects that came out of key order.
    stragglers: Vec<Object>,
    bytes: usize,
}

/// The list has two objects at one key.
#[derive(Debug, thiserror::Error)]
#[error("the list holds {0:?} twice")]
pub struct Duplicate(pub ObjectKey);

// === impl Rebuild ===

impl Rebuild {
    /// An empty list, to follow a previous one if there is one.
    pub(super) fn of(base: Option<Arc<Snapshot>>) -> Self {
        let pool = base.as_ref().map(|base| base.pool().clone()).unwrap_or_default();
        Self { base, pool, ..Self::default() }
    }

    /// New memory held so far, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the next object.
    pub(super) fn push(&mut self, object: Object) -> Result<(), Duplicate> {
        match &self.last {
            Some(last) if object.key() == last => return Err(Duplicate(last.clone())),
            // The apiserver lists in key order; others may not.
            Some(last) if object.key() < last => {
                self.bytes += object.raw().len() + object.head_bytes();
                self.stragglers.push(object);
                return Ok(());
            }
            _ => self.last = Some(object.key().clone()),
        }
        if self.old_range_ends_before(object.key()) {
            self.seal();
            while self.old_range_ends_before(object.key()) {
                self.old += 1;
            }
        }
        let object = match self.held(&object) {
            Some(held) => held,
            None => {
                self.differences += 1;
                self.bytes += object.raw().len() + object.head_bytes() + size_of::<Object>();
                object
            }
        };
        self.pending_bytes += object.raw().len() + 1;
        self.pending.push(object);
        let full =
            self.pending_bytes >= PAGE_BYTES_TARGET || self.pending.len() >= PAGE_OBJECTS_TARGET;
        if full && self.differences > 0 {
            self.seal();
        }
        Ok(())
    }

    /// The list is complete, at this version.
    pub(super) fn finish(
        mut self,
        version: ResourceVersion,
        envelope: Envelope,
    ) -> Result<Snapshot, Duplicate> {
        self.seal();
        let ordered = Snapshot::new(version.clone(), Arc::new(envelope), self.pages, self.pool);
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

    fn seal(&mut self) {
        let objects = std::mem::take(&mut self.pending);
        let same = std::mem::take(&mut self.differences) == 0;
        self.pending_bytes = 0;
        match self.old_page() {
            Some(page) if same && page.objects().len() == objects.len() => {
                self.pages.push(page.clone());
            }
            _ => page::append(&mut self.pages, objects, &self.pool),
        }
    }

    fn old_page(&self) -> Option<&Arc<Page>> {
        self.base.as_ref()?.pages().get(self.old)
    }

    fn old_range_ends_before(&self, key: &ObjectKey) -> bool {
        let next = self.base.as_ref().and_then(|base| base.pages().get(self.old + 1));
        next.is_some_and(|next| next.first_key() <= key)
    }

    /// The same object, byte for byte, in the previous snapshot.
    fn held(&self, object: &Object) -> Option<Object> {
        let page = self.old_page()?;
        let held = &page.objects()[page.search(object.key()).ok()?];
        let reused = held.raw() == object.raw()
            || (is_on(Mutant::EqualVersionsReused) && held.version() == object.version());
        reused.then(|| held.clone())
    }
}
