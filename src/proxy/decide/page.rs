//! Pages: the part of a list that a read with a limit gets, and the rest of an earlier list. Pure.
//!
//! A page ends where the apiserver ends it. Its token is the apiserver's: it names the list's
//! version and the last returned key. Where the end of a page cannot be known, the read is
//! forwarded (S-LIST-51).

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    Candidate, ForwardReason, Level, Plan, addressed, path::is_path_known, proof::unproven, rules,
};
use crate::{
    api::{
        Scope,
        continue_token::{ContinueToken, TokenForm},
        media::{Negotiated, Representation},
        query::Query,
        request::{NotModelled, Read, RequestInfo, Rest},
        selector::{NAME_PATH, NAMESPACE_PATH},
        version::{Freshness, ResourceVersion, VersionMatch},
    },
    cache::{
        Replica,
        outstanding::Kept,
        portion::{Next, Portion},
        selection::Selection,
        store::Snapshot,
    },
    policy::ResourcePolicy,
    proxy::{identify::Caller, session::Session},
};

/// The state that a list is cut from.
#[derive(Clone, Copy)]
pub(super) struct ListState<'a> {
    /// Its objects.
    pub snapshot: &'a Snapshot,
    /// The query whose content it has.
    pub query: &'a Query,
    /// The version that the list shows.
    pub version: &'a ResourceVersion,
    /// The form of the apiserver's tokens.
    pub form: Option<TokenForm>,
}

/// A response from the cache.
#[derive(Clone, Debug)]
pub struct LocalRead {
    /// The replica that holds it.
    pub replica: Arc<Replica>,
    /// The snapshot to answer from.
    pub snapshot: Arc<Snapshot>,
    /// The query whose content it has at the version to show, if another page follows.
    query: Option<Box<Query>>,
    /// The version of a list, if it is higher than the snapshot's: the content at both versions is
    /// equal.
    pub list_version: Option<ResourceVersion>,
    /// The representation of each object.
    pub representation: Representation,
    /// The part of a list to return.
    pub portion: Portion,
    /// The level, for the response's Cache-Status.
    pub level: Level,
}

/// The field for which the apiserver has an index of pods and of resource slices.
const INDEXED: &str = "spec.nodeName";

/// Returns the candidate for the rest of an earlier list, or else the plan of its forward.
pub fn page_candidate<'a>(
    info: &'a RequestInfo,
    caller: Caller,
    media: Negotiated,
    rest: &'a Rest,
    rules: &ResourcePolicy,
    session: &Session,
) -> Result<Candidate<'a>, Plan> {
    let request = addressed(info, caller)?;
    rules::permit(rules, request, session).map_err(Plan::keep)?;
    let candidate = Candidate::new(request, &rest.read, rules);
    let candidate = candidate.in_form(media, request, session).map_err(|_| forwarded())?;
    match rules.freshness {
        Freshness::MostRecent => Err(forwarded()),
        _ => Ok(candidate),
    }
}

/// Decides whether a state that is still held answers the rest of an earlier list.
///
/// The read names its version. It shows the same objects whatever the session has seen since, as
/// the apiserver's pages do.
pub fn decide_page(
    candidate: &Candidate<'_>,
    rest: &Rest,
    kept: Option<Kept>,
    now: Instant,
) -> Plan {
    let Some(kept) = kept else { return forwarded() };
    // An apiserver that was restored from a backup has other objects at the same version.
    if let Some(reason) = unproven(&kept.replica.view(), candidate.max_staleness, now) {
        return Plan::keep(reason);
    }
    let Kept { replica, snapshot, query } = kept;
    let VersionMatch::Exact(version) = &rest.read.version else { return forwarded() };
    let namespaced = snapshot.is_namespaced();
    let in_namespace = rest.after.contains('/');
    if namespaced != Some(in_namespace)
        || candidate.encoding.is_refused(&snapshot)
        || !is_path_known(&rest.read.query, false, replica.query(), &snapshot)
    {
        return forwarded();
    }
    let state = ListState { snapshot: &snapshot, query: &query, version, form: Some(rest.form) };
    let Some(portion) = portion(&rest.read, Some(&rest.after), state) else { return forwarded() };
    Plan::Read(LocalRead {
        replica,
        snapshot,
        query: portion.next.is_some().then(|| Box::new(query)),
        list_version: None,
        representation: candidate.encoding.representation,
        portion,
        level: Level::Exact,
    })
}

fn forwarded() -> Plan {
    Plan::keep(ForwardReason::NotModelled(NotModelled::Continue))
}

/// Returns the part of the list that the apiserver would return; `None` if that is not known.
pub(super) fn portion(
    read: &Read,
    after: Option<&Arc<str>>,
    state: ListState<'_>,
) -> Option<Portion> {
    let whole = Portion { after: after.cloned(), next: None };
    let Some(limit) = read.limit.filter(|_| heeds_limit(read)) else {
        return Some(whole);
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let rest = whole.select(state.snapshot, &read.query);
    if rest.len() < limit || is_single(read, state.snapshot) {
        return Some(whole);
    }
    if read.query.fields.pinned(NAMESPACE_PATH).is_some() {
        // The apiserver may narrow the list to that namespace, which changes its keys.
        return None;
    }
    let last = rest.iter().nth(limit - 1)?;
    if rest.len() == limit && !follows(read, last.key().as_str(), after.is_none(), state)? {
        return Some(whole);
    }
    let next = next(read, &rest, limit, state)?;
    Some(Portion { next: Some(next), ..whole })
}

/// Reports whether the apiserver heeds the limit. With version 0 its watch cache does not
/// (S-LIST-23); events have none (S-LIST-28).
fn heeds_limit(read: &Read) -> bool {
    let resource = &read.query.resource;
    let is_event =
        matches!((&*resource.group, &*resource.resource), ("" | "events.k8s.io", "events"));
    read.version != VersionMatch::Any || is_event
}

/// Reports whether the apiserver reads a single key, which has no next page (S-LIST-29).
fn is_single(read: &Read, snapshot: &Snapshot) -> bool {
    let in_namespace = matches!(read.query.scope, Scope::Namespace(_));
    read.query.fields.pinned(NAME_PATH).is_some()
        && (in_namespace || snapshot.is_namespaced() == Some(false))
}

/// Reports whether an object follows below the list's prefix, selected or not: then the apiserver
/// continues. `None` if that is not known.
fn follows(read: &Read, last: &str, is_first: bool, state: ListState<'_>) -> Option<bool> {
    let query = &read.query;
    if query.selects_all() {
        return Some(false);
    }
    let all = Query::all(query.resource.clone(), query.scope.clone());
    // The first page of an indexed field comes from the index.
    let is_indexed = is_first && query.fields.pinned(INDEXED).is_some();
    let knows_all = state.query.covers(&all) && !is_indexed;
    knows_all.then(|| !state.snapshot.select(&all).after(last).is_empty())
}

fn next(read: &Read, rest: &Selection<'_>, limit: usize, state: ListState<'_>) -> Option<Next> {
    let last = rest.iter().nth(limit - 1)?;
    let after = match &read.query.scope {
        Scope::Namespace(_) => last.key().name(),
        Scope::All => last.key().as_str(),
    };
    let version = state.version.clone();
    let token = ContinueToken { version, after: after.into(), form: state.form? };
    let remaining = rest.len() - limit;
    Some(Next {
        limit,
        token: token.encode()?.into(),
        remaining: read.query.selects_all().then_some(remaining as u64),
    })
}

// === impl LocalRead ===

impl LocalRead {
    /// Returns the state to keep for the next page, if there is one.
    pub fn outstanding(&self) -> Option<Kept> {
        let query = self.query.as_deref()?.clone();
        Some(Kept { replica: self.replica.clone(), snapshot: self.snapshot.clone(), query })
    }

    /// Returns the same response, from a snapshot with the version to show.
    #[must_use]
    pub fn at_list_version(self) -> Self {
        match self.list_version {
            None => self,
            Some(version) => {
                let snapshot = self.replica.also_at(&self.snapshot, version);
                Self { snapshot, list_version: None, ..self }
            }
        }
    }
}

// === impl Candidate ===

impl Candidate<'_> {
    /// Returns the response from a snapshot that is fresh enough; `None` if the end of its page is
    /// not known.
    pub(super) fn answer(
        &self,
        replica: &Arc<Replica>,
        snapshot: &Arc<Snapshot>,
        list_version: Option<ResourceVersion>,
    ) -> Option<LocalRead> {
        // At another version only the content of the read itself is known.
        let query = match &list_version {
            Some(_) => &self.read.query,
            None => replica.query(),
        };
        let version = list_version.as_ref().unwrap_or_else(|| snapshot.version());
        let state = ListState { snapshot, query, version, form: self.token_form };
        let portion = portion(self.read, None, state)?;
        Some(LocalRead {
            query: portion.next.as_ref().map(|_| Box::new(query.clone())),
            portion,
            replica: replica.clone(),
            snapshot: snapshot.clone(),
            list_version,
            representation: self.encoding.representation,
            level: self.level,
        })
    }
}
