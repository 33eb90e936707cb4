//! Reads that repeat too often, and the two limits that hold or refuse them. Pure.
//!
//! [`PollLimit::Upstream`] counts unsafe reads that cost the apiserver something. [`PollLimit::Memory`]
//! guards against a client that loops on responses from memory. Writes, watches, health, discovery,
//! reviews, subresources, `continue`, exact versions and leader election are never held or refused.

use std::{num::NonZeroU32, time::Duration};

use tokio::time::Instant;

use super::Plan;
use crate::{
    api::{
        query::Query,
        request::{Read, RequestInfo, ResourceRequest},
        selector::NAME_PATH,
        version::VersionMatch,
    },
    limit::{Bucket, Rate, Turn, WaiterPlace},
    metrics::PollLimit,
    policy::{RepeatAction, RepeatPolls, ResourcePolicy, elects_leaders},
    proxy::identify::Caller,
};

/// A read that may be repeated too often.
#[derive(Clone, Copy, Debug)]
pub struct Poll<'a> {
    /// The caller.
    pub caller: Caller,
    /// The read.
    pub read: &'a Read,
    /// The configured limits.
    pub terms: RepeatPolls,
    /// The longest time between the request's arrival and its release.
    patience: Duration,
}

/// Everything that is equal in all repetitions of a poll, however it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PollKey<'a> {
    caller: Caller,
    query: &'a Query,
    named: bool,
    version: &'a VersionMatch,
    limit: Option<u64>,
}

/// A poll that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The limit that holds it.
    pub limit: PollLimit,
    /// The end of its hold; never later than its client's timeout allows.
    pub until: Instant,
    /// The release of all polls that wait with it.
    pub released_at: Instant,
    /// `First` if no other waited.
    pub place: WaiterPlace,
    /// The rate of the limit.
    pub rate: Rate,
}

/// A poll that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// When it may come again, in seconds.
    pub retry_after_secs: NonZeroU32,
}

/// A held poll is released this long before its client's timeout.
const MARGIN: Duration = Duration::from_secs(2);

/// The longest hold of a poll that memory answers.
pub const MEMORY_DELAY_MAX: Duration = Duration::from_millis(50);

/// Returns the poll that a request is, if the rules let it be held or refused.
pub fn poll<'a>(info: &'a RequestInfo, caller: Caller, rules: &ResourcePolicy) -> Option<Poll<'a>> {
    let terms = rules.repeat_polls?;
    let (RequestInfo::Resource(request), Caller::Own | Caller::Bearer(_)) = (info, caller) else {
        return None;
    };
    let read = request.read.as_ref().ok()?;
    let name = read.query.fields.pinned(NAME_PATH);
    if elects_leaders(&request.resource, name) {
        return None;
    }
    Some(Poll { caller, read, terms, patience: patience(request) })
}

/// Reports whether the read asks for the most recent state, or makes the apiserver filter every
/// object.
pub(super) fn is_unsafe(read: &Read) -> bool {
    match read.version {
        VersionMatch::MostRecent => true,
        // Even from its cache, the apiserver filters every object of a LIST with a selector.
        VersionMatch::Any => read.name.is_none() && !read.query.selects_all(),
        VersionMatch::NotOlderThan(_) | VersionMatch::Exact(_) => false,
    }
}

/// Returns the longest time from a request's arrival to its release.
fn patience(request: &ResourceRequest) -> Duration {
    request.timeout.map_or(Duration::MAX, |timeout| timeout.saturating_sub(MARGIN))
}

// === impl Poll ===

impl<'a> Poll<'a> {
    /// Returns the key of its counters.
    pub fn key(&self) -> PollKey<'a> {
        PollKey {
            caller: self.caller,
            query: &self.read.query,
            named: self.read.name.is_some(),
            version: &self.read.version,
            limit: self.read.limit,
        }
    }

    /// Returns the limit that applies to a plan for this poll, if one does.
    pub fn limit(&self, plan: &Plan) -> Option<PollLimit> {
        match plan {
            Plan::Read(_) => Some(PollLimit::Memory),
            Plan::Share(_) | Plan::Forward(_) => self.upstream_limit(),
            Plan::Watch(_) | Plan::Document(_) | Plan::Pace(_) | Plan::Reject(_) => None,
        }
    }

    /// Returns the limit that applies to this poll when it is forwarded, if one does.
    pub fn upstream_limit(&self) -> Option<PollLimit> {
        is_unsafe(self.read).then_some(PollLimit::Upstream)
    }

    /// Returns the rate of a limit.
    pub fn rate(&self, limit: PollLimit) -> Rate {
        match limit {
            PollLimit::Upstream => self.terms.rate,
            PollLimit::Memory => self.terms.from_memory,
        }
    }

    /// Takes a token of `bucket`, or holds or refuses the poll; `waited` is the time since it arrived.
    pub fn plan(
        &self,
        limit: PollLimit,
        bucket: &Bucket,
        now: Instant,
        waited: Duration,
    ) -> Option<Plan> {
        let rate = self.rate(limit);
        let max_delay = match (limit, self.terms.action) {
            (_, RepeatAction::Off) => return None,
            (PollLimit::Upstream, RepeatAction::Reject) => {
                let wait = bucket.take(&rate, now).err()?;
                return Some(Plan::Reject(Reject { retry_after_secs: whole_seconds(wait) }));
            }
            (PollLimit::Upstream, RepeatAction::Pace) => self.terms.max_delay,
            (PollLimit::Memory, _) => MEMORY_DELAY_MAX,
        };
        let patience = self.patience.min(max_delay).saturating_sub(waited);
        if patience.is_zero() {
            return None;
        }
        match bucket.join(&rate, max_delay, now) {
            Turn::Now => None,
            Turn::At(released_at, place) => {
                let until = released_at.min(now + patience);
                Some(Plan::Pace(Pace { limit, until, released_at, place, rate }))
            }
        }
    }
}

/// Rounds up: an earlier retry would be refused again, and clients parse neither zero nor
/// fractions.
fn whole_seconds(wait: Duration) -> NonZeroU32 {
    let seconds = u32::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
    NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
}
