//! The decision about a request. Pure: every forward has a reason, and every decision is made here.
//!
//! [`candidate`] checks whether the cache could answer at all. [`decide`] checks whether its
//! current state may. Neither uses a clock, a lock or a socket.

mod document;
mod encoding;
mod forward;
mod page;
mod path;
mod poll;
mod proof;
mod reason;
mod rules;
mod watch;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    api::{
        Verb,
        continue_token::TokenForm,
        form::Form,
        media::{MetadataKind, Negotiated, UnmodelledMedia},
        request::{self, Read, RequestInfo, ResourceRequest},
        version::{Freshness, ResourceVersion, VersionMatch},
    },
    cache::{Demand, Lookup, Reach, Replica, SyncState, View},
    policy::{ResourcePolicy, Rewrite},
    proxy::{
        identify::Caller,
        session::{Floor, Held, Imminence, Session, Verdict},
    },
};

pub use document::{
    DocumentPlan, DocumentSource, Keeping, SETTLING, decide_document, document_candidate,
};
pub use forward::{Forward, Rewriting};
pub use page::{LocalRead, decide_page, page_candidate};
pub use poll::{MEMORY_DELAY_MAX, Pace, Poll, PollKey, Reject, poll};
pub use proof::proven_until;
pub use reason::ForwardReason;
pub use rules::rules;
pub use watch::{LocalWatch, WatchCandidate, decide_watch, watch_candidate};

use encoding::{Encoding, NoEncoding};
use path::is_path_known;
use poll::is_unsafe;
use proof::{unproven, verdict};

/// A read that the cache could answer.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The read.
    pub read: &'a Read,
    /// The required freshness of the response.
    pub level: Level,
    /// The demand for a replica that the read counts as.
    pub demand: Demand,
    /// The form of the apiserver's tokens for the resource, once known.
    pub token_form: Option<TokenForm>,
    encoding: Encoding,
    rewrite: Rewrite,
    max_staleness: Duration,
    timeout: Option<Duration>,
}

/// The freshness that a read requires, after configuration (S-CONS-30..35).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The resourceVersion is unset: the configured level.
    Configured(Freshness),
    /// resourceVersion=0.
    Any,
    /// resourceVersion=N, not older than it.
    NotOlderThan,
    /// The version that a continue token names.
    Exact,
}

/// The result of [`decide`].
#[derive(Debug)]
pub enum Step {
    /// Execute this plan.
    Act(Plan),
    /// Wait until the replica reaches a state, then decide again.
    Await(Await),
}

/// The plan for a request.
#[derive(Debug)]
pub enum Plan {
    /// Answer from this snapshot.
    Read(LocalRead),
    /// Serve a watch from this replica.
    Watch(LocalWatch),
    /// Return a document of discovery, or fetch it.
    Document(DocumentPlan),
    /// Forward it, together with identical concurrent reads.
    Share(Forward),
    /// Forward it to the apiserver.
    Forward(Forward),
    /// Hold it, then decide again: it repeats too often.
    Pace(Pace),
    /// Refuse it for now: it repeats too often.
    Reject(Reject),
}

/// A state that a replica will reach soon.
#[derive(Debug)]
pub struct Await {
    /// The replica.
    pub replica: Arc<Replica>,
    /// The state to wait for.
    pub reach: Reach,
    /// The longest wait, counted from the arrival of the request.
    pub patience: Duration,
}

/// The longest wait of a read for its session's floor.
const SESSION_PATIENCE: Duration = Duration::from_millis(250);

/// The longest wait of a read for the version it names, as in the apiserver (S-CONS-33).
const VERSION_PATIENCE: Duration = Duration::from_secs(3);

/// The longest wait of a read for a replica's first LIST; well below the timeout of any client.
const START_PATIENCE: Duration = Duration::from_secs(5);

/// Returns the request if it reads a resource in the name of the session's owner.
fn addressed(info: &RequestInfo, caller: Caller) -> Result<&ResourceRequest, Plan> {
    let RequestInfo::Resource(request) = info else {
        return Err(Plan::keep(ForwardReason::NonResource));
    };
    if let Caller::Other(unauthenticated) = caller {
        return Err(Plan::keep(unauthenticated.into()));
    }
    if request.verb.is_write() || request.verb == Verb::Other {
        return Err(Plan::keep(ForwardReason::Write));
    }
    Ok(request)
}

/// Returns the candidate if the cache could answer this request, or else the reason and form of its
/// forward. `rules` apply to the request.
pub fn candidate<'a>(
    info: &'a RequestInfo,
    caller: Caller,
    media: Negotiated,
    rules: &ResourcePolicy,
    session: &Session,
) -> Result<Candidate<'a>, Plan> {
    let request = addressed(info, caller)?;
    let read = request.read.as_ref().map_err(|&why| Plan::keep(why.into()))?;
    rules::permit(rules, request, session).map_err(Plan::keep)?;
    let candidate = Candidate::new(request, read, rules).in_form(media, request, session)?;
    match (candidate.level, &read.version) {
        (_, VersionMatch::Exact(_)) => Err(Plan::keep(ForwardReason::ExactVersion)),
        (Level::Configured(Freshness::MostRecent), _) => {
            Err(Plan::Share(Forward::keep(ForwardReason::MostRecent)))
        }
        _ => Ok(candidate),
    }
}

/// Decides whether the current state may answer the candidate; `waited` is the time it waited
/// already.
pub fn decide(
    candidate: &Candidate<'_>,
    lookup: &Lookup,
    session: &Session,
    now: Instant,
    waited: Duration,
) -> Step {
    let view = match lookup {
        Lookup::Found(view) => view,
        Lookup::Absent(absence) => {
            return Step::Act(candidate.forward(absence.into(), session));
        }
    };
    let not_synced = || candidate.forward(ForwardReason::NotSynced, session);
    let snapshot = match (&view.snapshot, view.state) {
        (Some(snapshot), SyncState::Synced) => snapshot,
        (_, SyncState::Starting) => {
            return candidate.wait(view, Reach::Synced, START_PATIENCE, waited, not_synced);
        }
        _ => return Step::Act(not_synced()),
    };
    if let Some(reason) = unproven(view, candidate.max_staleness, now) {
        return Step::Act(Plan::keep(reason));
    }
    let read = candidate.read;
    if !is_path_known(&read.query, read.name.is_some(), view.replica.query(), snapshot) {
        return Step::Act(Plan::keep(ForwardReason::PathUnknown));
    }
    if candidate.encoding.is_refused(snapshot) {
        return Step::Act(Plan::keep(ForwardReason::MediaType(UnmodelledMedia::Protobuf)));
    }
    let behind = || candidate.forward(ForwardReason::Behind, session);
    let Candidate { level, max_staleness, .. } = *candidate;
    let held = Held { query: view.replica.query(), snapshot };
    match verdict(&read.query, level, &read.version, max_staleness, held, session, now) {
        Verdict::Satisfied => {
            let list_version = candidate.list_version(session, held);
            let read = candidate.answer(&view.replica, snapshot, list_version);
            let limited = || Plan::keep(ForwardReason::Limited);
            Step::Act(read.map_or_else(limited, Plan::Read))
        }
        Verdict::Behind(_, Imminence::Unlikely) => Step::Act(behind()),
        Verdict::Behind(version, Imminence::Likely) => {
            let patience = candidate.patience();
            candidate.wait(view, Reach::Version(version), patience, waited, behind)
        }
        Verdict::Leaving => {
            let newer = Reach::Newer(snapshot.version().clone());
            let barred = || Plan::keep(ForwardReason::Barred);
            candidate.wait(view, newer, SESSION_PATIENCE, waited, barred)
        }
        Verdict::Barred => Step::Act(Plan::keep(ForwardReason::Barred)),
    }
}

// === impl Plan ===

impl Plan {
    fn keep(reason: ForwardReason) -> Self {
        Self::Forward(Forward::keep(reason))
    }

    /// Returns the plan of a read that waited together with identical ones: a response from the
    /// cache, or one shared forward.
    pub fn after_hold(self) -> Result<LocalRead, Forward> {
        match self {
            Self::Read(read) => Ok(read),
            Self::Share(forward) | Self::Forward(forward) => Err(forward),
            // The plan of a read is none of these.
            Self::Watch(_) | Self::Document(_) | Self::Pace(_) | Self::Reject(_) => {
                Err(Forward::keep(request::NotModelled::NotARead.into()))
            }
        }
    }
}

// === impl Candidate ===

impl<'a> Candidate<'a> {
    fn new(request: &ResourceRequest, read: &'a Read, rules: &ResourcePolicy) -> Self {
        let level = match read.version {
            VersionMatch::MostRecent => Level::Configured(rules.freshness),
            VersionMatch::Any => Level::Any,
            VersionMatch::NotOlderThan(_) | VersionMatch::Exact(_) => Level::NotOlderThan,
        };
        Self {
            read,
            level,
            demand: match read.version {
                _ if is_unsafe(read) => Demand::Count,
                VersionMatch::Exact(_) => Demand::Ignore,
                _ => Demand::Repeated,
            },
            token_form: None,
            encoding: Encoding::default(),
            rewrite: if request.rewritable { rules.rewrite } else { Rewrite::Keep },
            max_staleness: rules.max_staleness,
            timeout: request.timeout,
        }
    }

    /// Returns the form of the replica that can answer.
    pub fn form(&self) -> Form {
        self.encoding.form
    }

    /// Sets the encoding, if the cache can produce it.
    fn in_form(
        mut self,
        media: Negotiated,
        request: &ResourceRequest,
        session: &Session,
    ) -> Result<Self, Plan> {
        let is_object = self.read.name.is_some();
        let kind = if is_object { MetadataKind::Object } else { MetadataKind::List };
        match Encoding::of(media, &request.resource, (kind, self.read.include)) {
            Ok(encoding) => self.encoding = encoding,
            Err(NoEncoding::OtherKind) => {
                let reason = ForwardReason::MediaType(UnmodelledMedia::PartialObjectMetadata);
                return Err(self.forward(reason, session));
            }
            // A response that the cache cannot encode is the most expensive one: identical reads
            // share it.
            Err(NoEncoding::Unmodelled(media)) => {
                let reason = ForwardReason::MediaType(media);
                return Err(Plan::Share(self.relaxed(reason, session)));
            }
        }
        Ok(self)
    }

    /// Returns the version to show, if the response is a list and the version is not the snapshot's
    /// own.
    fn list_version(&self, session: &Session, held: Held<'_>) -> Option<ResourceVersion> {
        let is_list = self.read.name.is_none();
        is_list.then(|| session.list_version(&self.read.query, held)).flatten()
    }

    fn patience(&self) -> Duration {
        match self.level {
            Level::NotOlderThan => VERSION_PATIENCE,
            Level::Exact | Level::Any | Level::Configured(_) => SESSION_PATIENCE,
        }
    }

    /// Waits, unless the longest wait is over; the wait ends well before the client's own timeout.
    fn wait(
        &self,
        view: &View,
        reach: Reach,
        patience: Duration,
        waited: Duration,
        otherwise: impl FnOnce() -> Plan,
    ) -> Step {
        let patience = self.timeout.map_or(patience, |timeout| patience.min(timeout / 2));
        if waited < patience {
            Step::Await(Await { replica: view.replica.clone(), reach, patience })
        } else {
            Step::Act(otherwise())
        }
    }

    /// Forwards; replaces a consistent read by a cheaper one where that is allowed and safe.
    fn forward(&self, reason: ForwardReason, session: &Session) -> Plan {
        Plan::Forward(self.relaxed(reason, session))
    }

    fn relaxed(&self, reason: ForwardReason, session: &Session) -> Forward {
        let rewriting = match self.rewrite {
            Rewrite::Keep => Rewriting::Keep,
            Rewrite::Any => Rewriting::Any,
            Rewrite::NotOlderThan => match session.floor(&self.read.query) {
                Floor::Unknown => Rewriting::Any,
                Floor::At(version) => Rewriting::NotOlderThan(version),
                Floor::Consistent => Rewriting::Keep,
            },
        };
        Forward { reason, rewriting }
    }
}

// === impl Level ===

impl Level {
    /// Returns the `detail` of a Cache-Status hit.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured(freshness) => freshness.as_str(),
            Self::Any => "any",
            Self::NotOlderThan => "notOlderThan",
            Self::Exact => "exact",
        }
    }
}

#[cfg(test)]
mod tests;
