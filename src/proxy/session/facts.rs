//! The facts that a session learns from a response.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;

use crate::{
    api::{ObjectKey, query::Query, version::ResourceVersion},
    cache::digest::Digest,
};

/// A list response of the apiserver, or one page of it.
#[derive(Clone, Debug)]
pub struct List {
    /// The query that selects it.
    pub query: Query,
    /// Its version.
    pub version: ResourceVersion,
    /// The way it was read.
    pub source: Source,
    /// `true` if this is all of the list; `false` for one page of several.
    pub whole: bool,
    /// The content of the list, if all of it was read.
    pub digest: Option<Digest>,
    /// The replicas that this response was compared with. Each has the version from which it shows
    /// as much, apart from the expectations of single objects.
    pub compared: Vec<(Query, ResourceVersion)>,
    /// The time it was sent, if it was consistent and read completely.
    pub consistent_since: Option<Instant>,
}

/// One page of a list, which may be the whole list.
#[derive(Clone, Debug)]
pub struct Paging {
    /// The token of the request; `None` for the first page.
    pub token: Option<Arc<str>>,
    /// The token of the next page; `None` for the last page.
    pub next: Option<Arc<str>>,
    /// Its last key.
    pub last: Option<ObjectKey>,
    /// Its content.
    pub digest: Digest,
}

/// The range of a page in its list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The last key before the page.
    pub after: Option<ObjectKey>,
    /// The last key of the page.
    pub until: Option<ObjectKey>,
    /// The content of the whole list, if this was its last page.
    pub digest: Option<Digest>,
}

/// The source of a version.
///
/// A consistent read of an old release returns the revision of the whole storage. The apiserver's
/// cache of a quiet resource reaches it only with its next event or bookmark, and answers 504 until
/// then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A consistent list, or a list of a replica.
    Storage,
    /// A response of the apiserver's cache, or an object.
    Cache,
}

/// The labels of an object in a write's response or a GET; `None` if they were not seen.
pub type KnownLabels = Option<Arc<BTreeMap<String, String>>>;

/// The known state of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It was shown or written at this version.
    AtLeast(ResourceVersion, KnownLabels),
    /// It was deleted; the version of the deletion is known if the response was an object.
    Gone {
        /// The deleted object's uid, if the response contained it.
        uid: Option<Arc<str>>,
        /// The version of the deletion, if the response contained it.
        version: Option<ResourceVersion>,
    },
    /// A list lacked it, though its selection matched.
    Left {
        /// The query of the list.
        selection: Arc<Query>,
        /// The object's version before.
        than: ResourceVersion,
        /// The list's version.
        version: ResourceVersion,
    },
    /// A create was refused because it exists.
    Exists,
    /// A write's outcome is unknown, or a write was refused because the client's view was stale.
    Uncertain,
}

// === impl List ===

impl List {
    /// Returns a list of which only the version is known.
    pub fn unread(query: Query, version: ResourceVersion, source: Source) -> Self {
        let (whole, digest, compared, consistent_since) = (false, None, Vec::new(), None);
        Self { query, version, source, whole, digest, compared, consistent_since }
    }
}

// === impl Expectation ===

impl Expectation {
    /// Returns the version in the response, of the object or of its deletion.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        match self {
            Self::AtLeast(version, _) | Self::Left { version, .. } => Some(version),
            Self::Gone { version, .. } => version.as_ref(),
            Self::Exists | Self::Uncertain => None,
        }
    }

    /// Reports whether the object was not shown.
    pub(super) fn is_absence(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::Left { .. })
    }
}
