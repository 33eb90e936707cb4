//! What a watch proves of how recent the state is. Pure; time is passed in.
//!
//! A watch that was just opened first tells what happened while nobody listened. Such an event may
//! be as old as the gap, and the next may never come: it proves nothing until a bookmark came, or
//! the version that the apiserver itself was at is reached.

use tokio::time::Instant;

use crate::{
    api::version::ResourceVersion,
    mutants::{Mutant, is_on},
};

/// The standing of one open watch.
#[derive(Debug)]
pub(super) enum Proof {
    /// What it tells has just happened.
    Live,
    /// What it tells may have happened long ago.
    Behind(Option<Awaited>),
}

/// Once a version is reached, the state is known to be as new as the question for it.
#[derive(Debug)]
pub(super) struct Awaited {
    version: ResourceVersion,
    asked_at: Instant,
}

// === impl Proof ===

impl Proof {
    /// A watch was opened.
    pub(super) fn opened() -> Self {
        if is_on(Mutant::GapProves) { Self::Live } else { Self::Behind(None) }
    }

    /// Events led to a version, with a bookmark among them or not; since when is the state known to
    /// be the newest?
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

    /// The apiserver was asked for its version; is what is shown the newest state?
    pub(super) fn questioned(
        &mut self,
        shown: &ResourceVersion,
        current: ResourceVersion,
        asked_at: Instant,
    ) -> Option<Instant> {
        let is_newest = current <= *shown || is_on(Mutant::SilenceBelieved);
        *self = if is_newest {
            Self::Live
        } else {
            Self::Behind(Some(Awaited { version: current, asked_at }))
        };
        is_newest.then_some(asked_at)
    }
}
