//! The reads whose version is useless (S-CLI-03). Pure.

use crate::api::query::Query;

/// The reads of one group-resource whose version is useless, the newest last: each goes to the
/// apiserver once.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpiredReads(Vec<ExpiredRead>);

/// A read that was told that its version is too old or too new, without the version.
#[derive(Clone, Debug)]
struct ExpiredRead {
    query: Query,
    /// The name of its object, if it reads only one.
    name: Option<Box<str>>,
}

/// The limit of such reads per group-resource. A selector has at most 4 KiB.
const EXPIRED_MAX: usize = 16;

// === impl ExpiredReads ===

impl ExpiredReads {
    /// Adds a read; returns `false` if the oldest was forgotten for it.
    pub(super) fn add(&mut self, query: &Query, name: Option<&str>) -> bool {
        self.settle(query, name);
        let fits = self.0.len() < EXPIRED_MAX;
        if !fits {
            self.0.remove(0);
        }
        self.0.push(ExpiredRead { query: query.clone(), name: name.map(Into::into) });
        fits
    }

    /// Removes a read, which the apiserver answered.
    pub(super) fn settle(&mut self, query: &Query, name: Option<&str>) {
        self.0.retain(|expired| !expired.is(query, name));
    }

    pub(super) fn contains(&self, query: &Query, name: Option<&str>) -> bool {
        self.0.iter().any(|expired| expired.is(query, name))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the memory held, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(ExpiredRead::bytes).sum()
    }
}

// === impl ExpiredRead ===

impl ExpiredRead {
    fn is(&self, query: &Query, name: Option<&str>) -> bool {
        self.name.as_deref() == name && self.query == *query
    }

    fn bytes(&self) -> usize {
        let name = self.name.as_ref().map_or(0, |name| name.len());
        size_of::<Self>() + self.query.selector_bytes() + self.query.scope.as_str().len() + name
    }
}
