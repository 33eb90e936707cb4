//! Changes to a snapshot that become one new snapshot. Pure.
//!
//! Invariant: unchanged pages are shared, changed pages are laid out again, once.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    object::Object,
    page::{self, Page},
    pages::Pages,
    store::Snapshot,
};
use crate::api::{ObjectKey, version::ResourceVersion};

/// Changes that are collected and published together.
#[derive(Debug)]
pub(super) struct Batch {
    base: Arc<Snapshot>,
    /// The new object of a key; `None` if it was deleted.
    changes: BTreeMap<ObjectKey, Option<Object>>,
}

// === impl Batch ===

impl Batch {
    /// Creates an empty batch.
    pub(super) fn of(base: Arc<Snapshot>) -> Self {
        Self { base, changes: BTreeMap::new() }
    }

    /// Inserts an object; returns the previous one, if any.
    pub(super) fn apply(&mut self, object: Object) -> Option<Object> {
        self.change(object.key().clone(), Some(object))
    }

    /// Removes an object; returns it if it was there.
    pub(super) fn delete(&mut self, key: &ObjectKey) -> Option<Object> {
        self.change(key.clone(), None)
    }

    /// Returns the snapshot with all changes, at a version.
    pub(super) fn finish(self, version: ResourceVersion) -> Snapshot {
        if self.changes.is_empty() {
            return self.base.at(version);
        }
        let (old, form, storage) = (self.base.pages(), self.base.form(), self.base.storage());
        let mut index = self.base.index().clone();
        for (key, after) in &self.changes {
            let before = self.base.object(key);
            match (before.as_deref(), after.as_deref()) {
                (Some(before), Some(after)) if before.is_selected_like(after) => {}
                (before, after) => Arc::make_mut(&mut index).replace(before, after),
            }
        }
        let mut pages = Pages::default();
        let mut changes = self.changes.into_iter().peekable();
        // Keys before the first page belong to the first page, keys after the last page to the
        // last.
        for (index, chapter) in old.chapters().iter().enumerate() {
            let end = old.chapters().get(index + 1).map(|chapter| chapter.first_key());
            if changes.peek().is_none_or(|(key, _)| end.is_some_and(|end| key >= end)) {
                pages.push(chapter.clone());
                continue;
            }
            let mut laid_out = Vec::with_capacity(chapter.pages().len() + 1);
            for (index, page) in chapter.pages().iter().enumerate() {
                let next = chapter.pages().get(index + 1).map(|page| page.first_key()).or(end);
                let mut here = Vec::new();
                while let Some(change) =
                    changes.next_if(|(key, _)| next.is_none_or(|next| key < next))
                {
                    here.push(change);
                }
                if here.is_empty() {
                    laid_out.push(page.clone());
                } else {
                    page::append(&mut laid_out, merged(page, here), form, storage);
                }
            }
            pages.extend(laid_out);
        }
        let rest = changes.filter_map(|(_, object)| object).collect();
        let mut laid_out = Vec::new();
        page::append(&mut laid_out, rest, form, storage);
        pages.extend(laid_out);
        Snapshot::new(version, self.base.envelope().clone(), pages, index, storage.clone())
    }

    fn change(&mut self, key: ObjectKey, now: Option<Object>) -> Option<Object> {
        if let Some(changed) = self.changes.get_mut(&key) {
            return std::mem::replace(changed, now);
        }
        // It is detached: the previous object does not pin its page.
        let before = self.base.object(&key).map(|held| held.object().detached());
        // A deletion of an absent object changes nothing.
        if before.is_some() || now.is_some() {
            self.changes.insert(key, now);
        }
        before
    }
}

/// Returns a page's objects with some changes, both in key order.
fn merged(page: &Page, changes: Vec<(ObjectKey, Option<Object>)>) -> Vec<Object> {
    let mut objects = Vec::with_capacity(page.len() + changes.len());
    let mut kept = page.read().peekable();
    for (key, change) in changes {
        while let Some(object) = kept.next_if(|object| *object.key() < key) {
            objects.push(object);
        }
        kept.next_if(|object| *object.key() == key);
        objects.extend(change);
    }
    objects.extend(kept);
    objects
}
