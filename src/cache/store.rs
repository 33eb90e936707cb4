//! Immutable snapshots of one query's objects. Pure.
//!
//! Invariant: a snapshot is exactly the collection at one resource version (S-LIST-67): that of
//! the list it began with, or of the last event or bookmark. Snapshots share unchanged pages.

use std::sync::Arc;

use super::{
    envelope::Envelope,
    object::Object,
    page::Page,
    pool::Pool,
    selection::{Selection, Wanted, selects},
};
use crate::api::{ObjectKey, query::Query, version::ResourceVersion};

/// The state of one query at one resource version.
#[derive(Clone, Debug)]
pub struct Snapshot {
    version: ResourceVersion,
    envelope: Arc<Envelope>,
    pages: Arc<[Arc<Page>]>,
    /// Where buffers of pages come from and return to.
    pool: Arc<Pool>,
    len: usize,
    bytes: usize,
}

/// A place between two objects of a snapshot, in LIST order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    page: usize,
    object: usize,
}

// === impl Snapshot ===

impl Snapshot {
    /// Takes pages whose objects follow each other in key order.
    pub fn new(
        version: ResourceVersion,
        envelope: Arc<Envelope>,
        pages: Vec<Arc<Page>>,
        pool: Arc<Pool>,
    ) -> Self {
        let len = pages.iter().map(|page| page.objects().len()).sum();
        let held: usize = pages.iter().map(|page| page.bytes() + size_of::<Arc<Page>>()).sum();
        let bytes = held + size_of::<Self>() + size_of::<Envelope>();
        Self { version, envelope, pages: pages.into(), pool, len, bytes }
    }

    /// The same objects at a later version, as a bookmark tells.
    pub fn at(&self, version: ResourceVersion) -> Self {
        Self { version, ..self.clone() }
    }

    /// The version the whole snapshot is at.
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// How lists and objects are printed.
    pub fn envelope(&self) -> &Arc<Envelope> {
        &self.envelope
    }

    /// The pages, in key order.
    pub fn pages(&self) -> &[Arc<Page>] {
        &self.pages
    }

    /// Where buffers of pages come from and return to.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether its objects have namespaces; unknown while there are none.
    pub fn is_namespaced(&self) -> Option<bool> {
        Some(self.pages.first()?.first_key().namespace().is_some())
    }

    /// Memory held, estimated: raw bytes and overhead; pages may be shared with other snapshots.
    pub fn bytes(&self) -> usize {
        self.bytes + self.pool.bytes()
    }

    /// The object at a key.
    pub fn object(&self, key: &ObjectKey) -> Option<&Object> {
        let page = self.page_of(key.as_str())?;
        let object = page.search(key).ok()?;
        page.objects().get(object)
    }

    /// The objects a query selects, in LIST order (S-LIST-60).
    pub fn select(&self, query: &Query) -> Selection<'_> {
        let wanted = Wanted::new(query);
        let mut selection = Selection::default();
        if let Some(key) = self.pinned_key(query, &wanted) {
            if let Some(page) = self.page_of(key.as_str())
                && let Ok(object) = page.search(&key)
            {
                selection.add_matching(page, object..object + 1, &wanted);
            }
            return selection;
        }
        let first = self.page_index(wanted.from());
        for page in &self.pages[first..] {
            if !wanted.is_before_end(page.first_key().as_str()) {
                break;
            }
            selection.add_matching(page, wanted.range(page.objects()), &wanted);
        }
        selection
    }

    /// The next object after a place that a query selects, and the place after it.
    pub fn next(&self, query: &Query, mut from: Position) -> Option<(&Object, Position)> {
        while let Some(page) = self.pages.get(from.page) {
            let rest = page.objects().get(from.object..).unwrap_or_default();
            if let Some(found) = rest.iter().position(|object| selects(query, object)) {
                let next = Position { object: from.object + found + 1, ..from };
                return Some((&rest[found], next));
            }
            from = Position { page: from.page + 1, object: 0 };
        }
        None
    }

    /// The only key a query can select, when it names one.
    fn pinned_key(&self, query: &Query, wanted: &Wanted<'_>) -> Option<ObjectKey> {
        let name = query.fields.pinned("metadata.name")?;
        let namespace = wanted.namespace();
        // The name alone is a key only among cluster-scoped objects.
        let namespaced = self.is_namespaced()?;
        (namespace.is_some() || !namespaced).then(|| ObjectKey::new(namespace, name))
    }

    fn page_of(&self, key: &str) -> Option<&Page> {
        self.pages.get(self.page_index(key)).map(|page| &**page)
    }

    /// The last page that does not begin after the key.
    fn page_index(&self, key: &str) -> usize {
        self.pages.partition_point(|page| page.first_key().as_str() <= key).saturating_sub(1)
    }
}

#[cfg(test)]
#[path = "store/tests.rs"]
mod tests;
