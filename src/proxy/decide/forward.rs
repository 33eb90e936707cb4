//! A request that the apiserver is to answer, and what is changed in it. Pure.

use std::time::Duration;

use super::ForwardReason;
use crate::api::{request::Watch, version::ResourceVersion};

/// A request on its way to the apiserver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Why memory does not answer.
    pub reason: ForwardReason,
    /// What is changed in its query.
    pub rewriting: Rewriting,
}

/// What is changed in a forwarded read's query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rewriting {
    /// Nothing.
    Keep,
    /// resourceVersion=0 is added.
    Any,
    /// resourceVersion=N (and, for a LIST, resourceVersionMatch=NotOlderThan) is added.
    NotOlderThan(ResourceVersion),
    /// A watch is to end after this time at the latest: memory may answer the next.
    Brief(Duration),
}

/// A watch that memory would have answered at another moment is not kept from it any longer, or an
/// outage would leave every watcher at the apiserver for up to an hour.
const DETOUR: Duration = Duration::from_secs(60);

// === impl Forward ===

impl Forward {
    pub(super) fn keep(reason: ForwardReason) -> Self {
        Self { reason, rewriting: Rewriting::Keep }
    }

    /// A watch that memory cannot answer just now, unless the reason lasts. Its end costs the client
    /// nothing (S-WATCH-24) if it goes on at the version of a bookmark, which the apiserver sends just
    /// before (S-WATCH-31).
    pub fn detour(watch: &Watch, reason: ForwardReason) -> Self {
        let lasts = matches!(reason, ForwardReason::MediaType(_) | ForwardReason::MayBeAggregated);
        let longer = watch.timeout.is_none_or(|timeout| timeout > DETOUR);
        let brief = watch.bookmarks && longer && !lasts;
        Self { reason, rewriting: if brief { Rewriting::Brief(DETOUR) } else { Rewriting::Keep } }
    }
}
