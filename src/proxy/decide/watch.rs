//! The decision about a watch. Pure, as all of `decide`.
//!
//! A watch is served from a replica that covers it if the session may see the replica's state. It
//! is also served if the replica's window of events holds the watch's version, or will reach it
//! soon. Only a watch that begins with the state counts as demand. The apiserver's window may reach
//! further back than the replica's. A watch outside the replica's window is therefore forwarded,
//! never refused (S-WATCH-26), unless the storage was restored. If the cause is temporary, it is
//! forwarded for a short time only.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Await, Forward, ForwardReason, Level, Plan, SESSION_PATIENCE, START_PATIENCE, Step,
    VERSION_PATIENCE, addressed,
    encoding::{Encoding, NoEncoding},
    is_path_known, rules, unproven, verdict,
};
use crate::{
    api::{
        form::Form,
        media::{Include, MetadataKind, Negotiated, Representation, UnmodelledMedia},
        request::{self, RequestInfo, Watch},
        version::{Freshness, ResourceVersion, VersionMatch},
    },
    cache::{
        Absence, Lookup, Reach, Replica, SyncState, View, store::Snapshot, subscription::Begin,
        table::has_columns_once,
    },
    policy::ResourcePolicy,
    proxy::{
        identify::Caller,
        session::{Held, Imminence, Session, Verdict},
    },
    websocket::Asked,
};

/// A watch that the cache could serve.
#[derive(Clone, Copy, Debug)]
pub struct WatchCandidate<'a> {
    /// The watch.
    pub watch: &'a Watch,
    /// The required freshness of its start.
    pub level: Level,
    encoding: Encoding,
    max_staleness: Duration,
}

/// A watch that a replica serves.
#[derive(Clone, Debug)]
pub struct LocalWatch {
    /// The replica that it follows.
    pub replica: Arc<Replica>,
    /// The state that the decision was made by.
    pub snapshot: Arc<Snapshot>,
    /// The epoch of that state.
    pub epoch: u32,
    /// The start of the watch.
    pub begin: Begin,
    /// The representation of each object.
    pub representation: Representation,
    /// The level, for the response's Cache-Status.
    pub level: Level,
    /// The longest time that it continues without a link to the apiserver.
    pub max_staleness: Duration,
}

/// Returns the candidate if the cache could serve this watch, or else how it is forwarded. `rules`
/// apply to it.
pub fn watch_candidate<'a>(
    info: &'a RequestInfo,
    caller: Caller,
    media: Negotiated,
    asked: &Asked,
    rules: &ResourcePolicy,
    session: &Session,
) -> Result<WatchCandidate<'a>, Plan> {
    let request = addressed(info, caller)?;
    let watch = match (&request.watch, &request.read) {
        (Some(watch), _) => watch,
        (None, Err(why)) => return Err(Plan::keep((*why).into())),
        (None, Ok(_)) => return Err(Plan::keep(request::NotModelled::Watch.into())),
    };
    rules::permit(rules, request, session).map_err(|reason| match reason {
        ForwardReason::AfterExpiry => Plan::Forward(Forward::detour(watch, reason)),
        reason => Plan::keep(reason),
    })?;
    // A watch shows objects, never a list of them.
    let kind = (MetadataKind::Object, watch.include);
    let encoding = Encoding::of(media, &request.resource, kind);
    let encoding = encoding.map_err(|why| match why {
        NoEncoding::OtherKind => UnmodelledMedia::PartialObjectMetadata,
        NoEncoding::Unmodelled(media) => media,
    });
    let encoding = encoding.and_then(|encoding| match encoding.form {
        Form::Table if !has_columns_once(&request.resource.group) => Err(UnmodelledMedia::Table),
        _ => Ok(encoding),
    });
    let encoding = encoding.map_err(|media| Plan::keep(ForwardReason::MediaType(media)))?;
    if *asked == Asked::Other {
        return Err(Plan::keep(ForwardReason::Upgrade));
    }
    let level = match watch.version {
        VersionMatch::MostRecent => Level::Configured(rules.freshness),
        VersionMatch::Any => Level::Any,
        VersionMatch::NotOlderThan(_) | VersionMatch::Exact(_) => Level::NotOlderThan,
    };
    if level == Level::Configured(Freshness::MostRecent) {
        return Err(Plan::keep(ForwardReason::MostRecent));
    }
    Ok(WatchCandidate { watch, level, encoding, max_staleness: rules.max_staleness })
}

// === impl WatchCandidate ===

impl WatchCandidate<'_> {
    /// Returns the form of the replica that can serve it.
    pub fn form(&self) -> Form {
        self.encoding.form
    }

    /// Returns the reason why a replica's objects cannot be sent, whatever their state.
    fn refusal(&self, view: &View, snapshot: &Snapshot) -> Option<ForwardReason> {
        let (watch, encoding) = (self.watch, self.encoding);
        if !is_path_known(&watch.query, false, view.replica.query(), snapshot) {
            Some(ForwardReason::PathUnknown)
        } else if encoding.is_refused(snapshot) {
            Some(ForwardReason::MediaType(UnmodelledMedia::Protobuf))
        } else {
            None
        }
    }

    /// Returns the reason why the bookmark that ends the initial events cannot be printed yet: a
    /// row's cells, or a custom resource's kind, are first known from one of the apiserver's.
    fn lacks_bookmark(&self, replica: &Replica, snapshot: &Snapshot) -> Option<ForwardReason> {
        if !self.watch.bookmarks {
            return None;
        }
        match self.encoding.representation {
            // Newer apiservers show the mark in a row that has no object otherwise.
            Representation::Table(table) if table.include == Include::None => {
                Some(ForwardReason::MediaType(UnmodelledMedia::Table))
            }
            _ if replica.knows_bookmark() => None,
            Representation::Table(_) => Some(ForwardReason::MediaType(UnmodelledMedia::Table)),
            Representation::Object if snapshot.envelope().kind().is_none() => {
                Some(ForwardReason::NotCovered(Absence::NotReplicable))
            }
            Representation::Object | Representation::Metadata(_) => None,
        }
    }
}

/// Decides whether the current state may serve the watch; `waited` is the time it waited already.
pub fn decide_watch(
    candidate: &WatchCandidate<'_>,
    lookup: &Lookup,
    session: &Session,
    now: Instant,
    waited: Duration,
) -> Step {
    let view = match lookup {
        Lookup::Found(view) => view,
        Lookup::Absent(absence) => return keep(absence.into()),
    };
    let detour = |reason| Step::Act(Plan::Forward(Forward::detour(candidate.watch, reason)));
    let wait = |reach, patience, reason| {
        if waited < patience {
            Step::Await(Await { replica: view.replica.clone(), reach, patience })
        } else {
            detour(reason)
        }
    };
    let snapshot = match (&view.snapshot, view.state) {
        (Some(snapshot), SyncState::Synced) => snapshot,
        (_, SyncState::Starting) => {
            return wait(Reach::Synced, START_PATIENCE, ForwardReason::NotSynced);
        }
        // The replica lists again. The apiserver also accepts versions that it has lost; see below.
        _ => return detour(ForwardReason::NotSynced),
    };
    if let Some(reason) = unproven(view, candidate.max_staleness, now) {
        return detour(reason);
    }
    let WatchCandidate { watch, level, max_staleness, .. } = *candidate;
    if let Some(reason) = candidate.refusal(view, snapshot) {
        return keep(reason);
    }
    let state = watch.start == request::Start::State;
    if let Some(reason) = candidate.lacks_bookmark(&view.replica, snapshot).filter(|_| state) {
        return detour(reason);
    }
    let patience = match (&watch.version, state) {
        (VersionMatch::NotOlderThan(_), true) => VERSION_PATIENCE,
        _ => SESSION_PATIENCE,
    };
    let begin = match &watch.version {
        _ if state => Begin::State,
        VersionMatch::NotOlderThan(version) => {
            return continue_after(version, candidate, view, snapshot, waited);
        }
        _ => Begin::Now,
    };
    let held = Held { query: view.replica.query(), snapshot };
    match verdict(&watch.query, level, &watch.version, max_staleness, held, session, now) {
        Verdict::Satisfied => follow(candidate, view, snapshot, begin),
        Verdict::Behind(version, Imminence::Likely) => {
            wait(Reach::Version(version), patience, ForwardReason::Behind)
        }
        Verdict::Behind(_, Imminence::Unlikely) => detour(ForwardReason::Behind),
        Verdict::Leaving => {
            let newer = Reach::Newer(snapshot.version().clone());
            wait(newer, SESSION_PATIENCE, ForwardReason::Barred)
        }
        Verdict::Barred => detour(ForwardReason::Barred),
    }
}

/// Decides a watch that continues at a version which the client has reached.
fn continue_after(
    version: &ResourceVersion,
    candidate: &WatchCandidate<'_>,
    view: &View,
    snapshot: &Arc<Snapshot>,
    waited: Duration,
) -> Step {
    // The storage was restored, and may never have been at this version (S-CONS-11).
    if view.restored && version > snapshot.version() {
        if waited < VERSION_PATIENCE {
            let (replica, reach) = (view.replica.clone(), Reach::Version(version.clone()));
            return Step::Await(Await { replica, reach, patience: VERSION_PATIENCE });
        }
        return follow(candidate, view, snapshot, Begin::Expired);
    }
    if view.oldest.as_ref().is_none_or(|oldest| version < oldest) {
        let forward = Forward::detour(candidate.watch, ForwardReason::BeforeWindow);
        return Step::Act(Plan::Forward(forward));
    }
    // Changes that the session saw elsewhere are still to come. If the client is ahead of the
    // replica, events up to its version are not sent (S-WATCH-03).
    follow(candidate, view, snapshot, Begin::After(version.clone()))
}

fn keep(reason: ForwardReason) -> Step {
    Step::Act(Plan::keep(reason))
}

fn follow(
    candidate: &WatchCandidate<'_>,
    view: &View,
    snapshot: &Arc<Snapshot>,
    begin: Begin,
) -> Step {
    Step::Act(Plan::Watch(LocalWatch {
        replica: view.replica.clone(),
        snapshot: snapshot.clone(),
        epoch: view.epoch,
        begin,
        representation: candidate.encoding.representation,
        level: candidate.level,
        max_staleness: candidate.max_staleness,
    }))
}
