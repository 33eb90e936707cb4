//! The results of a session's decisions.

use crate::{
    api::{query::Query, version::ResourceVersion},
    cache::store::Snapshot,
};

/// A replica's query and its content.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// The query that it follows.
    pub query: &'a Query,
    /// Its objects.
    pub snapshot: &'a Snapshot,
}

/// The decision whether a snapshot may answer a read of this session, from the mildest to the
/// strictest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The snapshot lacks nothing that was shown or written.
    Satisfied,
    /// The snapshot must first reach this version.
    Behind(ResourceVersion, Imminence),
    /// A deleted object must first leave the snapshot.
    Leaving,
    /// Something happened whose version is unknown; only the apiserver can answer.
    Barred,
}

/// The prospect that a short wait for a version helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Imminence {
    /// Its event should have arrived already: only a bookmark will show the version.
    Unlikely,
    /// Its event should arrive soon.
    Likely,
}

/// The floor of a forwarded read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Floor {
    /// None: nothing was shown or written yet.
    Unknown,
    /// This version, which the apiserver's caches will certainly reach.
    At(ResourceVersion),
    /// A consistent read: the version is unknown, or a cache may not reach it for a long time.
    Consistent,
}

// === impl Verdict ===

impl Verdict {
    pub(super) fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Behind(a, how_a), Self::Behind(b, how_b)) => {
                Self::Behind(a.max(b), how_a.min(how_b))
            }
            (a, b) if a.rank() >= b.rank() => a,
            (_, b) => b,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Satisfied => 0,
            Self::Behind(..) => 1,
            Self::Leaving => 2,
            Self::Barred => 3,
        }
    }
}
