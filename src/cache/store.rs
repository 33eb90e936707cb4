//! Immutable snapshots of one query's objects. Pure.
//!
//! Invariant: a snapshot is exactly the collection at one resource version (S-LIST-67): that of its
//! list, or of the last event or bookmark. Snapshots share unchanged pages.

use std::sync::Arc;

use super::{
    envelope::Style,
    form::Envelope,
    held::Held,
    index::Index,
    page::Page,
    pages::{PagePosition, Pages},
    selection::{Selection, Wanted, selects},
    storage::Storage,
};
use crate::api::{ObjectKey, form::Form, query::Query, version::ResourceVersion};

/// The state of one query at one resource version.
#[derive(Clone, Debug)]
pub struct Snapshot {
    version: ResourceVersion,
    envelope: Arc<Envelope>,
    content: Arc<Content>,
    storage: Arc<Storage>,
}

/// The objects of a snapshot.
#[derive(Debug)]
struct Content {
    pages: Pages,
    index: Arc<Index>,
}

/// A position between two objects of a snapshot, in LIST order. The object after it is in its page,
/// unless it is the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    page: PagePosition,
    object: usize,
}

// === impl Snapshot ===

impl Snapshot {
    /// Creates a snapshot of pages whose objects are in key order, and their index.
    pub fn new(
        version: ResourceVersion,
        envelope: Arc<Envelope>,
        pages: Pages,
        index: Arc<Index>,
        storage: Arc<Storage>,
    ) -> Self {
        Self { version, envelope, content: Arc::new(Content { pages, index }), storage }
    }

    /// Returns the same objects at a later version, as a bookmark states.
    pub fn at(&self, version: ResourceVersion) -> Self {
        Self { version, ..self.clone() }
    }

    /// Reports whether both are one state of one replica, perhaps at different versions.
    pub fn is_alike(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.content, &other.content)
    }

    /// Returns the version of the whole snapshot.
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// Returns the form of lists and objects.
    pub fn envelope(&self) -> &Arc<Envelope> {
        &self.envelope
    }

    /// Returns the form of the objects.
    pub fn form(&self) -> Form {
        self.envelope.form()
    }

    /// Reports whether its objects are custom resources, as far as their printed form shows.
    pub fn is_custom(&self) -> bool {
        self.envelope.style() == Style::Custom
    }

    /// Returns the pages, in key order.
    pub fn pages(&self) -> &Pages {
        &self.content.pages
    }

    /// Returns the index of the objects.
    pub fn index(&self) -> &Arc<Index> {
        &self.content.index
    }

    /// Returns the storage of the pages.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.pages().objects()
    }

    /// Reports whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reports whether its objects have namespaces; `None` while there are none.
    pub fn is_namespaced(&self) -> Option<bool> {
        Some(self.pages().iter().next()?.first_key().namespace().is_some())
    }

    /// Returns the memory held when it was last measured, estimated; pages may be shared with other
    /// snapshots.
    pub fn bytes(&self) -> usize {
        let rest = self.index().bytes() + size_of::<Self>() + size_of::<Envelope>();
        self.pages().bytes() + self.storage.bytes() + rest
    }

    /// Returns the object at a key.
    pub fn object(&self, key: &ObjectKey) -> Option<Held<'_>> {
        let page = self.page_of(key.as_str())?;
        page.get(page.position(key)?)
    }

    /// Returns the objects that a query selects, in LIST order (S-LIST-60).
    pub fn select(&self, query: &Query) -> Selection<'_> {
        let wanted = Wanted::new(query);
        let mut selection = Selection::default();
        if let Some(key) = self.pinned_key(query, &wanted) {
            if let Some(page) = self.page_of(key.as_str())
                && let Some(object) = page.position(&key)
            {
                selection.add_matching(page, object..object + 1, &wanted);
            }
            return selection;
        }
        let keys = wanted.pairs().iter().filter_map(|pair| self.index().keys(*pair));
        if let Some(keys) = keys.min_by_key(|keys| keys.len()) {
            return self.among(keys, &wanted);
        }
        let first = self.pages().find(wanted.from());
        let is_before_end = |page: &&Arc<Page>| wanted.is_before_end(page.first_key().as_str());
        let mut pages = self.pages().from(first).take_while(is_before_end).peekable();
        let mut is_first = true;
        while let Some(page) = pages.next() {
            // Only the pages at both ends may have keys outside the range.
            let objects = match is_first || pages.peek().is_none() {
                true => wanted.range(page),
                false => 0..page.len(),
            };
            is_first = false;
            selection.add_matching(page, objects, &wanted);
        }
        selection
    }

    /// Returns the wanted objects among those with some keys, given in order.
    fn among(&self, keys: &[ObjectKey], wanted: &Wanted<'_>) -> Selection<'_> {
        let mut selection = Selection::default();
        let start = keys.partition_point(|key| key.as_str() < wanted.from());
        let pages = self.pages();
        let (mut at, mut next) = (PagePosition::default(), PagePosition::default());
        for key in keys[start..].iter().take_while(|key| wanted.is_before_end(key.as_str())) {
            if pages.first_key(next).is_some_and(|first| first <= key) {
                at = pages.find(key.as_str());
                next = pages.after(at);
            }
            let Some(page) = pages.get(at) else { break };
            if let Some(object) = page.position(key) {
                selection.add_matching(page, object..object + 1, wanted);
            }
        }
        selection
    }

    /// Returns the next object after a position that a query selects, and the position after it.
    pub fn next(&self, query: &Query, mut from: Position) -> Option<(Held<'_>, Position)> {
        while let Some(object) = self.object_after(from) {
            from = self.position_after(from);
            if selects(query, &object) {
                return Some((object, from));
            }
        }
        None
    }

    /// Returns the object after a position.
    pub fn object_after(&self, position: Position) -> Option<Held<'_>> {
        self.pages().get(position.page)?.get(position.object)
    }

    /// Returns the position after the object after a position.
    pub fn position_after(&self, Position { page, object }: Position) -> Position {
        match self.pages().get(page) {
            Some(held) if object + 1 < held.len() => Position { page, object: object + 1 },
            _ => Position { page: self.pages().after(page), object: 0 },
        }
    }

    /// Returns the only key that a query can select, if it names one.
    fn pinned_key(&self, query: &Query, wanted: &Wanted<'_>) -> Option<ObjectKey> {
        let name = query.fields.pinned("metadata.name")?;
        let namespace = wanted.namespace();
        // The name alone is a key only for cluster-scoped objects.
        let namespaced = self.is_namespaced()?;
        (namespace.is_some() || !namespaced).then(|| ObjectKey::new(namespace, name))
    }

    fn page_of(&self, key: &str) -> Option<&Page> {
        self.pages().get(self.pages().find(key)).map(|page| &**page)
    }
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;
