//! Whether a read is a poll that may be held back or refused, and what comes of that. Pure.
//!
//! Only what is surely the same read over and over is ever touched: never a write, a watch, health,
//! discovery, a review, a subresource, a `continue`, an exact version, or what leaders are elected by.

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
    limit::{Bucket, Place, Turn},
    mutants::{Mutant, is_on},
    policy::{RepeatAction, RepeatPolls, ResourcePolicy, elects_leaders},
    proxy::identify::Caller,
};

/// A read that may be repeated too often.
#[derive(Clone, Copy, Debug)]
pub struct Poll<'a> {
    /// Who asks.
    pub caller: Caller,
    /// What it asks.
    pub read: &'a Read,
    /// What becomes of too many.
    pub terms: RepeatPolls,
    /// How long it may be held back at most: its client waits for an answer.
    patience: Duration,
}

/// What is the same in all repetitions of a poll, however it is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PollKey {
    caller: Caller,
    query: Query,
    named: bool,
    any_version: bool,
    limit: Option<u64>,
}

/// A poll that is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Until then; not longer than its client has patience.
    pub until: Instant,
    /// When those it waits with are released.
    pub released_at: Instant,
    /// Whether it was the first.
    pub place: Place,
    /// At which rate they come.
    pub terms: RepeatPolls,
}

/// A poll that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// When it may come again, in seconds.
    pub retry_after_secs: NonZeroU32,
}

/// So long before its client gives up a poll is on its way again.
const MARGIN: Duration = Duration::from_secs(2);

/// The poll that a request is, if it is one that may be held back or refused.
pub fn poll<'a>(info: &'a RequestInfo, caller: Caller, rules: &ResourcePolicy) -> Option<Poll<'a>> {
    let terms = rules.repeat_polls?;
    let (RequestInfo::Resource(request), Caller::Own | Caller::Bearer(_)) = (info, caller) else {
        return None;
    };
    let read = request.read.as_ref().ok()?;
    let name = read.query.fields.pinned(NAME_PATH);
    if !is_unsafe(read) || elects_leaders(&request.resource, name) {
        return None;
    }
    Some(Poll { caller, read, terms, patience: patience(request, &terms) })
}

/// What asks for the most recent state, or lets the apiserver filter every object.
pub(super) fn is_unsafe(read: &Read) -> bool {
    match read.version {
        VersionMatch::MostRecent => true,
        // Even from its cache, the apiserver filters every object of a LIST with a selector.
        VersionMatch::Any => read.name.is_none() && !read.query.selects_all(),
        VersionMatch::NotOlderThan(_) | VersionMatch::Exact(_) => false,
    }
}

fn patience(request: &ResourceRequest, terms: &RepeatPolls) -> Duration {
    match request.timeout {
        Some(timeout) if !is_on(Mutant::TimeoutIgnored) => {
            terms.max_delay.min(timeout.saturating_sub(MARGIN))
        }
        _ => terms.max_delay,
    }
}

// === impl Poll ===

impl Poll<'_> {
    /// What its bucket is found by.
    pub fn key(&self) -> PollKey {
        PollKey {
            caller: self.caller,
            query: self.read.query.clone(),
            named: self.read.name.is_some(),
            any_version: self.read.version == VersionMatch::Any,
            limit: self.read.limit,
        }
    }

    /// What comes of it, if it comes too often; otherwise it has taken a token.
    pub fn plan(&self, bucket: &Bucket, now: Instant) -> Option<Plan> {
        match self.terms.action {
            RepeatAction::Off => None,
            RepeatAction::Reject => {
                let wait = bucket.take(&self.terms.rate, now).err()?;
                Some(Plan::Reject(Reject { retry_after_secs: whole_seconds(wait) }))
            }
            // Its client has no patience at all.
            RepeatAction::Pace if self.patience.is_zero() => None,
            RepeatAction::Pace => match bucket.join(&self.terms.rate, self.terms.max_delay, now) {
                Turn::Now => None,
                Turn::At(released_at, place) => {
                    let until = released_at.min(now + self.patience);
                    let terms = self.terms;
                    Some(Plan::Pace(Pace { until, released_at, place, terms }))
                }
            },
        }
    }
}

/// Rounded up, for an earlier return would be refused again; clients know neither zero nor fractions.
fn whole_seconds(wait: Duration) -> NonZeroU32 {
    let seconds = u32::try_from(wait.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
    NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
}
