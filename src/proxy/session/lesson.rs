//! Facts that an answer teaches a session.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use crate::{
    api::{ObjectKey, query::Query, version::ResourceVersion},
    cache::digest::Digest,
};

/// A list that the apiserver answered.
#[derive(Clone, Debug)]
pub struct List {
    /// The query that selects it.
    pub query: Query,
    /// Its version.
    pub version: ResourceVersion,
    /// The way it was read.
    pub source: Source,
    /// Its content, if all of it was read.
    pub digest: Option<Digest>,
    /// The replicas it was compared with, by query: from which version on each shows as much, apart
    /// from what is expected of single objects.
    pub compared: Vec<(Query, ResourceVersion)>,
    /// When it was sent, if it was consistent and all of it was read.
    pub consistent_since: Option<Instant>,
}

/// One page of a list, which may be all of it.
#[derive(Clone, Debug)]
pub struct Paging {
    /// The token it was asked for by; none: it is the first.
    pub token: Option<Arc<str>>,
    /// The token of the next page; none: it is the last.
    pub next: Option<Arc<str>>,
    /// Its last key.
    pub last: Option<ObjectKey>,
    /// Its content.
    pub digest: Digest,
}

/// The place of a page in its list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// It holds what comes after this key.
    pub after: Option<ObjectKey>,
    /// It holds nothing after this key.
    pub until: Option<ObjectKey>,
    /// The content of the whole list, if this was its last page.
    pub digest: Option<Digest>,
}

/// Where a version was seen.
///
/// A consistent read of an old release has the revision of the whole storage; the cache of a quiet
/// resource reaches it only with its next event or bookmark, and answers 504 until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// In a consistent list, or one of ours.
    Storage,
    /// In an answer of the apiserver's cache, or in an object.
    Cache,
}

/// Labels of an object as a write's answer or a GET showed them; `None` when they were not seen.
pub type KnownLabels = Option<Arc<BTreeMap<String, String>>>;

/// What the session knows of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It was shown or written at this version.
    AtLeast(ResourceVersion, KnownLabels),
    /// It was deleted; the version of the deletion is known where the answer was an object.
    Gone {
        /// The deleted object's uid, when the answer told it.
        uid: Option<Arc<str>>,
        /// The version of the deletion, when the answer told it.
        version: Option<ResourceVersion>,
    },
    /// A list did not have it, though it should have been in it.
    Left {
        /// What selects the list.
        selection: Arc<Query>,
        /// The version it was known at before.
        than: ResourceVersion,
        /// The list's version.
        version: ResourceVersion,
    },
    /// A create was refused because it exists.
    Exists,
    /// A write's outcome is unknown, or it was refused because our view was stale.
    Uncertain,
}

// === impl List ===

impl List {
    /// A list of which nothing is known but its version.
    pub fn unread(query: Query, version: ResourceVersion, source: Source) -> Self {
        let (digest, compared, consistent_since) = (None, Vec::new(), None);
        Self { query, version, source, digest, compared, consistent_since }
    }
}

// === impl Expectation ===

impl Expectation {
    /// The version that was told, of the object or of what became of it.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        match self {
            Self::AtLeast(version, _) | Self::Left { version, .. } => Some(version),
            Self::Gone { version, .. } => version.as_ref(),
            Self::Exists | Self::Uncertain => None,
        }
    }
}
