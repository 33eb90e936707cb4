//! The objects that a query selects in a snapshot: runs of adjacent objects within pages. Pure.
//!
//! The scope becomes a range of keys. If every match must have a label or a value of a field, the
//! index names the objects that may match. Each of them is matched.

use std::ops::Range;

use super::{
    held::Held,
    object::Head,
    page::Page,
    pair::{Pair, PairKind},
};
use crate::api::query::Query;

/// The objects that a query selects, in LIST order.
#[derive(Debug, Default)]
pub struct Selection<'a> {
    runs: Vec<Run<'a>>,
    len: usize,
}

/// Adjacent objects of one page.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The page.
    pub page: &'a Page,
    /// The range of its objects.
    pub objects: Range<usize>,
}

/// A query, prepared to match many objects.
#[derive(Debug)]
pub struct Wanted<'a> {
    query: &'a Query,
    namespace: Option<&'a str>,
    from: String,
    end: Option<String>,
    pairs: Vec<u64>,
}

/// Reports whether the query selects an object of its resource.
pub fn selects(query: &Query, object: &Head) -> bool {
    let namespace = query.scope.namespace();
    let in_scope = namespace.is_none() || namespace == object.key.namespace();
    in_scope && query.labels.matches(object) && query.fields.matches(object)
}

// === impl Selection ===

impl<'a> Selection<'a> {
    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reports whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the objects, in LIST order.
    pub fn iter(&self) -> impl Iterator<Item = Held<'a>> {
        self.runs.iter().flat_map(|run| run.page.objects(run.objects.clone()))
    }

    /// Returns the same as runs.
    pub fn runs(&self) -> &[Run<'a>] {
        &self.runs
    }

    /// Returns the objects above a key.
    #[must_use]
    pub fn after(mut self, key: &str) -> Self {
        self.runs.retain_mut(|run| {
            let left_out = run.page.partition_point(|held| held <= key);
            run.objects.start = left_out.clamp(run.objects.start, run.objects.end);
            !run.objects.is_empty()
        });
        self.counted()
    }

    /// Returns the first objects.
    #[must_use]
    pub fn first(mut self, limit: usize) -> Self {
        let mut left = limit;
        self.runs.retain_mut(|run| {
            run.objects.end = run.objects.start + run.objects.len().min(left);
            left -= run.objects.len();
            !run.objects.is_empty()
        });
        self.counted()
    }

    fn counted(mut self) -> Self {
        self.len = self.runs.iter().map(|run| run.objects.len()).sum();
        self
    }

    /// Adds the matching objects of a page's range.
    pub fn add_matching(&mut self, page: &'a Page, objects: Range<usize>, wanted: &Wanted<'_>) {
        if wanted.query.selects_all() && !objects.is_empty() {
            return self.add(page, objects);
        }
        for index in objects {
            if wanted.matches(page.head(index)) {
                self.add(page, index..index + 1);
            }
        }
    }

    fn add(&mut self, page: &'a Page, objects: Range<usize>) {
        self.len += objects.len();
        match self.runs.last_mut() {
            Some(last) if std::ptr::eq(last.page, page) && last.objects.end == objects.start => {
                last.objects.end = objects.end;
            }
            _ => self.runs.push(Run { page, objects }),
        }
    }
}

// === impl Wanted ===

impl<'a> Wanted<'a> {
    /// Prepares a query.
    pub fn new(query: &'a Query) -> Self {
        let pinned = query.fields.pinned("metadata.namespace");
        let namespace = query.scope.namespace().or(pinned).filter(|pinned| !pinned.is_empty());
        // The byte after `/` is `0`: `namespace0` bounds all of `namespace/…`.
        let (from, end) = match namespace {
            Some(namespace) => (format!("{namespace}/"), Some(format!("{namespace}0"))),
            None => (String::new(), None),
        };
        let labels = query.labels.pinned_pairs().map(|(key, value)| (PairKind::Label, key, value));
        // Key parts and empty values are not among an object's field pairs.
        let fields = query
            .fields
            .pinned_pairs()
            .filter(|(path, value)| !path.starts_with("metadata.") && !value.is_empty())
            .map(|(path, value)| (PairKind::Field, path, value));
        let pairs = labels
            .chain(fields)
            .map(|(kind, key, value)| Pair::hash_of(kind, key, value))
            .collect();
        Self { query, namespace, from, end, pairs }
    }

    /// Returns the hashes of pairs that all matches have.
    pub fn pairs(&self) -> &[u64] {
        &self.pairs
    }

    /// Returns the namespace of all matches, if there is one.
    pub fn namespace(&self) -> Option<&'a str> {
        self.namespace
    }

    /// Returns the lowest key that may match.
    pub fn from(&self) -> &str {
        &self.from
    }

    /// Reports whether the key is below the end of the range.
    pub fn is_before_end(&self, key: &str) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Returns the range of a page's objects whose keys are in range.
    pub fn range(&self, page: &Page) -> Range<usize> {
        if self.namespace.is_none() {
            return 0..page.len();
        }
        let start = page.partition_point(|key| key < self.from());
        start..page.partition_point(|key| self.is_before_end(key))
    }

    fn matches(&self, object: &Head) -> bool {
        self.query.labels.matches(object) && self.query.fields.matches(object)
    }
}
