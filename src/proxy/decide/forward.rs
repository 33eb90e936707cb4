//! A request that is forwarded to the apiserver, and its rewriting. Pure.

use std::time::Duration;

use super::ForwardReason;
use crate::api::{request::Watch, version::ResourceVersion};

/// A request to forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The reason why the cache does not answer.
    pub reason: ForwardReason,
    /// The change of its query.
    pub rewriting: Rewriting,
}

/// The change in the query of a forwarded read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Rewriting {
    /// No change.
    Keep,
    /// resourceVersion=0 is added.
    Any,
    /// resourceVersion=N (and, for a LIST, resourceVersionMatch=NotOlderThan) is added.
    NotOlderThan(ResourceVersion),
    /// A watch is given this timeout at most: the cache may serve the next one.
    Brief(Duration),
}

/// The longest duration of a forwarded watch that the cache could serve at another time. Without
/// it, an outage would leave every watcher at the apiserver for up to an hour.
const DETOUR: Duration = Duration::from_secs(60);

// === impl Forward ===

impl Forward {
    pub(super) fn keep(reason: ForwardReason) -> Self {
        Self { reason, rewriting: Rewriting::Keep }
    }

    /// Forwards a watch that the cache cannot serve now, for a short time unless the reason is
    /// permanent. Its end costs the client nothing (S-WATCH-24) if the client continues at the
    /// version of a bookmark. The apiserver sends that bookmark just before the end (S-WATCH-31).
    pub fn detour(watch: &Watch, reason: ForwardReason) -> Self {
        let lasts = matches!(reason, ForwardReason::MediaType(_) | ForwardReason::MayBeAggregated);
        let longer = watch.timeout.is_none_or(|timeout| timeout > DETOUR);
        let brief = watch.bookmarks && longer && !lasts;
        Self { reason, rewriting: if brief { Rewriting::Brief(DETOUR) } else { Rewriting::Keep } }
    }
}
