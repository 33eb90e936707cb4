//! Lists in pages, and the place where the next page continues. Pure.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    api::{ObjectKey, query::Query, version::ResourceVersion},
    cache::digest::Digest,
    proxy::session::{Page, Paging},
};

/// The lists whose next page is still to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages(VecDeque<Unfinished>);

#[derive(Clone, Debug)]
struct Unfinished {
    query: Query,
    version: ResourceVersion,
    next: Arc<str>,
    last: Option<ObjectKey>,
    digest: Digest,
}

/// The limit of unfinished lists per group-resource; the next page of a forgotten one counts as
/// unread.
const UNFINISHED_MAX: usize = 8;

/// The limit of their bytes, tokens and selectors included.
pub(in crate::proxy::session) const UNFINISHED_BYTES_MAX: usize = 64 * 1024;

// === impl Pages ===

impl Pages {
    /// Adds a page to its list; returns `None` if the previous page is unknown.
    pub(super) fn add(
        &mut self,
        query: &Query,
        version: &ResourceVersion,
        paging: Paging,
    ) -> Option<Page> {
        let Paging { token, next, last, mut digest } = paging;
        let mut after = None;
        if let Some(token) = token {
            let goes_on =
                |it: &Unfinished| it.next == token && it.query == *query && it.version == *version;
            let index = self.0.iter().position(goes_on)?;
            let before = self.0.remove(index)?;
            digest.join(before.digest);
            after = before.last;
        }
        let Some(next) = next else {
            return Some(Page { after, until: None, digest: Some(digest) });
        };
        let last = last.or_else(|| after.clone());
        let (query, version, until) = (query.clone(), version.clone(), last.clone());
        self.0.push_back(Unfinished { query, version, next, last, digest });
        while self.0.len() > UNFINISHED_MAX || self.bytes() > UNFINISHED_BYTES_MAX {
            self.0.pop_front();
        }
        Some(Page { after, until, digest: None })
    }

    /// Returns the memory held, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(Unfinished::bytes).sum()
    }
}

// === impl Unfinished ===

impl Unfinished {
    fn bytes(&self) -> usize {
        let last = self.last.as_ref().map_or(0, |key| key.as_str().len());
        size_of::<Self>() + self.query.selector_bytes() + self.next.len() + last
    }
}
