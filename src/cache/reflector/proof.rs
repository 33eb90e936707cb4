//! The freshness that a watch proves. Pure; the time is a parameter.
//!
//! A new watch first sends the events that happened while no watch was open. Such an event may be
//! as old as the gap, and the next one may never come. After a gap in the watch, only a bookmark,
//! or reaching the apiserver's current version, proves the replica fresh.

use tokio::time::Instant;

use crate::api::version::ResourceVersion;

/// The state of one open watch.
#[derive(Debug)]
pub(super) enum Proof {
    /// Its events have just happened.
    Live,
    /// Its events may have happened long ago.
    Behind(Option<Awaited>),
}

/// A version that, once reached, proves the state as new as the request for that version.
#[derive(Debug)]
pub(super) struct Awaited {
    version: ResourceVersion,
    asked_at: Instant,
}

// === impl Proof ===

impl Proof {
    /// Returns the state of a new watch.
    pub(super) fn opened() -> Self {
        Self::Behind(None)
    }

    /// Notes that events led to a version, with or without a bookmark; returns the time since when
    /// the state is known to be the newest.
    pub(super) fn reached(
        &mut self,
        version: &ResourceVersion,
        bookmark: bool,
        now: Instant,
    ) -> Option<Instant> {
        let proven_at = match self {
            Self::Live => now,
            Self::Behind(_) if bookmark => now,
            Self::Behind(Some(awaited)) if awaited.version <= *version => awaited.asked_at,
            Self::Behind(_) => return None,
        };
        *self = Self::Live;
        Some(proven_at)
    }

    /// Notes the apiserver's current version; reports whether the published state is the newest.
    pub(super) fn probed(
        &mut self,
        shown: &ResourceVersion,
        current: ResourceVersion,
        asked_at: Instant,
    ) -> Option<Instant> {
        let is_newest = current <= *shown;
        *self = if is_newest {
            Self::Live
        } else {
            Self::Behind(Some(Awaited { version: current, asked_at }))
        };
        is_newest.then_some(asked_at)
    }
}
