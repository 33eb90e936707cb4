//! Answers to the questions a session is asked.

use crate::{
    api::{query::Query, version::ResourceVersion},
    cache::store::Snapshot,
};

/// A replica's query and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// What it follows.
    pub query: &'a Query,
    /// Its objects.
    pub snapshot: &'a Snapshot,
}

/// Whether a snapshot may answer a read of this session, from the mildest to the strictest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing shown or written is missing from it.
    Satisfied,
    /// It must first reach this version.
    Behind(ResourceVersion, Imminence),
    /// An object that was deleted must first leave it.
    Leaving,
    /// Something happened whose version is unknown; only the apiserver can answer.
    Barred,
}

/// Whether waiting a little for a version is likely to help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Imminence {
    /// It was seen long enough ago for its event to have arrived: none is to be expected, and only
    /// a bookmark will tell.
    Unlikely,
    /// Its event should be on the way.
    Likely,
}

/// What a forwarded read must not be older than.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Nothing was shown or written yet.
    Unknown,
    /// At least this version, which the apiserver's caches are sure to reach.
    At(ResourceVersion),
    /// It must be consistent: something happened whose version is unknown, or which a cache may not
    /// reach for a long time.
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
