//! GET and LIST: the required state of a read, and its bytes (S-LIST-20..63, S-GET-01..09).
//!
//! This follows the published rules only, and shares no code with the proxy's replica and
//! rendering.

use std::{collections::VecDeque, ops::Bound, time::Duration};

use bytes::Bytes;
use http::Response;
use tokio::time::{Instant, timeout_at};

use super::{
    Core, Features,
    call::Call,
    json::Json,
    kind::{ResourceType, Style, WatchCache},
    object::{ObjectContext, Shared},
    options::{Filter, ListOptions, Match, Purpose, parse_version},
    status::{StatusFailure, response},
    store::Objects,
    token::{ContinueToken, CutBy},
};
use crate::{api::ObjectKey, body::Body};

/// The required state of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The state of etcd, without the cache.
    Stored,
    /// At least the revision of the request's arrival, from the cache if possible.
    MostRecent,
    /// Any state of the cache.
    Any,
    /// At least this revision.
    NotOlderThan(u64),
    /// Exactly this revision.
    Exact(u64),
}

/// A state and its revision.
#[derive(Clone, Debug)]
pub(super) struct RevisionState {
    /// The objects.
    pub objects: Objects,
    /// The resourceVersion of a list of them.
    pub revision: u64,
}

/// The time that the server waits for a future version (S-LIST-40).
pub(super) const VERSION_WAIT: Duration = Duration::from_secs(3);

/// The approximate size of a list's chunks.
const PIECE_BYTES: usize = 64 << 10;

/// Answers a GET of one object.
pub(super) async fn get(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let version = call.parameters.value("resourceVersion").unwrap_or_default();
    let moment = match version {
        "" => Moment::Stored,
        text => match parse_version(text, Purpose::Watch)? {
            0 => Moment::Any,
            version => Moment::NotOlderThan(version),
        },
    };
    let state = state(core, &call.kind, moment).await?;
    let key = call.key();
    let object = state.objects.get(&key);
    let object = object.ok_or_else(|| StatusFailure::not_found(&call.kind, key.name()))?;
    Ok(object_response(200, call, object))
}

/// Answers a LIST.
pub(super) async fn list(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let options = call.list_options(core.settings.features, Purpose::List)?;
    let plan = Plan::of(&options, &call.kind, core.settings.features)?;
    let state = match state(core, &call.kind, plan.moment).await {
        Err(failure) if failure.code() == 410 => return Err(plan.explain_expiry(failure)),
        state => state?,
    };
    let page = Page::cut(&state, &options.filter, &plan);
    let chunks = page.render(&call.kind, &call.target.version, state.revision);
    Ok(with_body(Body::chunks(chunks)))
}

/// Returns a single object, as in the response of a GET or a write.
pub(super) fn object_response(code: u16, call: &Call, object: &Shared) -> Response<Body> {
    let mut bytes = Vec::with_capacity(object.bytes());
    object.write(&call.kind, &call.target.version, ObjectContext::Alone, &mut bytes);
    bytes.push(b'\n');
    response(code, "application/json", bytes)
}

/// Returns a list of exactly these objects.
pub(super) fn list_response(call: &Call, objects: Vec<Shared>, revision: u64) -> Response<Body> {
    let page = Page { objects, next: None, remaining: None };
    with_body(Body::chunks(page.render(&call.kind, &call.target.version, revision)))
}

/// Returns the required state. Waits for a future version.
pub(super) async fn state(
    core: &Core,
    kind: &ResourceType,
    moment: Moment,
) -> Result<RevisionState, StatusFailure> {
    let moment = core.settle(kind, moment).await?;
    let resource = kind.group_resource();
    let mut store = core.store();
    let now = Instant::now();
    let revision = match moment {
        Moment::Stored | Moment::MostRecent => store.revision(),
        Moment::Any => store.cached_revision(&resource, now),
        Moment::NotOlderThan(version) => match store.cached_revision(&resource, now) {
            known if known >= version => known,
            _ => store.refresh_cache(&resource),
        },
        Moment::Exact(version) => version,
    };
    let (compacted, limit) = (store.compacted(), store.cache_limit());
    let collection = store.collection(&resource).ok_or_else(StatusFailure::unknown_resource)?;
    let objects = match moment {
        Moment::Exact(version) if version < compacted => Err(expired()),
        Moment::Exact(version) => collection.objects_at(version).map_err(|_| expired()),
        Moment::Any | Moment::NotOlderThan(_) if limit < u64::MAX => {
            collection.objects_at(revision).map_err(|_| expired())
        }
        _ => Ok(collection.objects().clone()),
    }?;
    Ok(RevisionState { objects, revision })
}

// === impl Core ===

impl Core {
    /// Waits for the required state, and returns the place to read it from.
    async fn settle(&self, kind: &ResourceType, moment: Moment) -> Result<Moment, StatusFailure> {
        let cached = kind.watch_cache == WatchCache::Cached;
        match moment {
            Moment::Any | Moment::MostRecent if !cached => Ok(Moment::Stored),
            Moment::MostRecent if !self.settings.features.consistent_list_from_cache => {
                Ok(Moment::Stored)
            }
            Moment::MostRecent => {
                let current = self.store().revision();
                // A cache that does not catch up in time is bypassed (S-LIST-20).
                let caught_up = self.reach(current, VERSION_WAIT, Through::Cache).await;
                Ok(if caught_up { Moment::NotOlderThan(current) } else { Moment::Stored })
            }
            Moment::NotOlderThan(version) | Moment::Exact(version) => {
                let wait = if cached { VERSION_WAIT } else { Duration::ZERO };
                let through = match moment {
                    Moment::NotOlderThan(_) if cached => Through::Cache,
                    _ => Through::Etcd,
                };
                if self.reach(version, wait, through).await {
                    let stored = !cached && moment == Moment::NotOlderThan(version);
                    return Ok(if stored { Moment::Stored } else { moment });
                }
                let store = self.store();
                let current = store.revision().min(store.cache_limit());
                Err(StatusFailure::too_large_version(version, current, cached.then_some(1)))
            }
            Moment::Stored | Moment::Any => Ok(moment),
        }
    }

    /// Waits for a revision. Returns whether it arrived in time (S-LIST-40).
    async fn reach(&self, wanted: u64, wait: Duration, through: Through) -> bool {
        let mut revisions = self.store().follow();
        let deadline = Instant::now() + wait;
        loop {
            let reached = {
                let store = self.store();
                let limit = match through {
                    Through::Cache => store.cache_limit(),
                    Through::Etcd => u64::MAX,
                };
                store.revision().min(limit) >= wanted
            };
            if reached {
                return true;
            }
            if timeout_at(deadline, revisions.changed()).await.is_err() {
                return false;
            }
        }
    }
}

/// The place at which a revision must arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Through {
    Cache,
    Etcd,
}

/// The evaluated parameters of a LIST.
#[derive(Debug)]
struct Plan {
    moment: Moment,
    /// The maximum number of objects. Zero for all.
    limit: usize,
    after: Option<String>,
    cut_by: CutBy,
}

// === impl Plan ===

impl Plan {
    fn of(
        options: &ListOptions,
        kind: &ResourceType,
        features: Features,
    ) -> Result<Self, StatusFailure> {
        if !options.continue_token.is_empty() {
            return Self::going_on(options, kind, features);
        }
        let cached = kind.watch_cache == WatchCache::Cached;
        let limit = options.limit;
        let (moment, limit) = match (options.version(Purpose::List)?, options.version_match) {
            (None, _) => (Moment::MostRecent, limit),
            (Some(0), _) if cached => (Moment::Any, 0),
            (Some(0), _) => (Moment::MostRecent, limit),
            (Some(version), Match::Exact) => (Moment::Exact(version), limit),
            (Some(version), Match::Unset) if limit > 0 => (Moment::Exact(version), limit),
            (Some(version), _) => (Moment::NotOlderThan(version), limit),
        };
        Ok(Self { moment, limit, after: None, cut_by: cut_by(kind, features) })
    }

    fn going_on(
        options: &ListOptions,
        kind: &ResourceType,
        features: Features,
    ) -> Result<Self, StatusFailure> {
        let token = ContinueToken::decode(&options.continue_token)?;
        if !matches!(options.resource_version.as_str(), "" | "0") {
            return Err(StatusFailure::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let moment = token.revision.map_or(Moment::MostRecent, Moment::Exact);
        Ok(Self {
            moment,
            limit: options.limit,
            after: Some(token.after),
            cut_by: cut_by(kind, features),
        })
    }

    /// Adds the token with which a chunked list may continue inconsistently (S-LIST-41).
    fn explain_expiry(&self, failure: StatusFailure) -> StatusFailure {
        let Some(after) = &self.after else { return failure };
        let token = ContinueToken { revision: None, after: after.clone(), cut_by: self.cut_by };
        StatusFailure::expired(CONTINUE_EXPIRED).continuing_with(token.encode())
    }
}

/// The objects of one response, and the start of the next one.
struct Page {
    objects: Vec<Shared>,
    next: Option<ContinueToken>,
    remaining: Option<usize>,
}

// === impl Page ===

impl Page {
    fn cut(state: &RevisionState, filter: &Filter, plan: &Plan) -> Self {
        let namespace = filter.namespace();
        let start = match &plan.after {
            Some(after) => Bound::Excluded(ObjectKey::new(namespace, after)),
            None => Bound::Unbounded,
        };
        let mut selected = state
            .objects
            .range((start, Bound::Unbounded))
            .map(|(_, object)| object)
            .filter(|object| filter.selects(object));
        if plan.limit == 0 {
            return Self { objects: selected.cloned().collect(), next: None, remaining: None };
        }
        let objects: Vec<_> = selected.by_ref().take(plan.limit).cloned().collect();
        let left = selected.count();
        // The server goes on if any object follows, selected or not.
        let goes_on = |last: &&Shared| {
            let in_scope = namespace.is_some() || last.key.namespace().is_none();
            let single = filter.pins_name() && in_scope;
            objects.len() == plan.limit && !single && follows(state, namespace, &last.key)
        };
        let last = objects.last().filter(goes_on).map(|last| match namespace {
            Some(_) => last.key.name().to_owned(),
            None => last.key.as_str().to_owned(),
        });
        let next = last.map(|after| ContinueToken {
            revision: Some(state.revision),
            after,
            cut_by: plan.cut_by,
        });
        let remaining = (next.is_some() && filter.selects_all()).then_some(left);
        Self { objects, next, remaining }
    }

    fn render(&self, kind: &ResourceType, version: &str, revision: u64) -> VecDeque<Bytes> {
        let (head, tail) = self.envelope(kind, version, revision);
        let mut pieces = VecDeque::new();
        let mut piece = head;
        for (index, object) in self.objects.iter().enumerate() {
            if index > 0 {
                piece.push(b',');
            }
            object.write(kind, version, ObjectContext::InList, &mut piece);
            if piece.len() >= PIECE_BYTES {
                pieces.push_back(std::mem::take(&mut piece).into());
            }
        }
        piece.extend_from_slice(&tail);
        pieces.push_back(piece.into());
        pieces
    }

    /// Returns the bytes before and after the items.
    fn envelope(&self, kind: &ResourceType, version: &str, revision: u64) -> (Vec<u8>, Vec<u8>) {
        let list_kind = &kind.list_kind;
        let api_version = kind.api_version(version);
        let mut metadata = Json::object([("resourceVersion", revision.to_string().into())]);
        let token = self.next.as_ref().map(ContinueToken::encode);
        if kind.style == Style::Custom || token.is_some() {
            metadata.set("continue", token.unwrap_or_default());
        }
        if let Some(remaining) = self.remaining {
            metadata.set("remainingItemCount", remaining as u64);
        }
        match kind.style {
            Style::Typed => {
                let metadata = text(&metadata);
                let head = format!(
                    r#"{{"kind":"{list_kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#
                );
                (head.into_bytes(), b"]}\n".to_vec())
            }
            Style::Custom => {
                metadata.sort_keys();
                let metadata = text(&metadata);
                let head = format!(r#"{{"apiVersion":"{api_version}","items":["#);
                let tail = format!("],\"kind\":\"{list_kind}\",\"metadata\":{metadata}}}\n");
                (head.into_bytes(), tail.into_bytes())
            }
        }
    }
}

/// Reports whether an object of the namespace, or of any, follows a key.
fn follows(state: &RevisionState, namespace: Option<&str>, last: &ObjectKey) -> bool {
    let after = (Bound::Excluded(last.clone()), Bound::Unbounded);
    let mut following = state.objects.range(after).map(|(key, _)| key.namespace());
    following.any(|found| namespace.is_none() || found == namespace)
}

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a \
    consistent list result. You can start a new list without the continue parameter, or use the \
    continue token in this response to retrieve the remainder of the results. Continuing with the \
    provided token results in an inconsistent list - objects that were created, modified, or \
    deleted between the time the first chunk was returned and now may show up in the list.";

fn cut_by(kind: &ResourceType, features: Features) -> CutBy {
    match kind.watch_cache {
        WatchCache::Cached if features.consistent_list_from_cache => CutBy::Cache,
        WatchCache::Cached | WatchCache::Uncached => CutBy::Etcd,
    }
}

fn expired() -> StatusFailure {
    StatusFailure::expired("The resourceVersion for the provided list is too old.")
}

fn text(json: &Json) -> String {
    String::from_utf8_lossy(&json.to_bytes()).into_owned()
}

fn with_body(body: Body) -> Response<Body> {
    let mut answer = response(200, "application/json", Bytes::new());
    *answer.body_mut() = body;
    answer
}
