//! DELETE of one object and of a collection (S-WRITE-05..08).

use http::Response;
use tokio::time::Instant;

use super::existing;
use crate::{
    body::Body,
    simulator::{
        Core,
        call::Call,
        json::Json,
        kind::DeletionAnswer,
        object::{Object, Shared},
        options::Purpose,
        read::{list_response, object_response},
        status::{StatusFailure, deleted, json_response},
        store::Store,
    },
};

/// DeleteOptions, from the body or the query.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    grace_seconds: Option<u64>,
    uid: Option<String>,
    version: Option<String>,
    dry_run: bool,
}

/// The outcome for an object.
enum Outcome {
    /// It is deleted. This is its last state.
    Removed(Shared),
    /// It waits for finalizers or for its grace period.
    Marked(Shared),
}

/// The default grace period of a pod.
const GRACE_SECONDS_DEFAULT: u64 = 30;

/// Answers a DELETE of one object.
pub(crate) fn delete(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let options = Options::parse(call)?;
    let mut store = core.store();
    let old = existing(&store, call)?;
    options.check(call, &old)?;
    let name = old.key.name();
    Ok(match remove_or_mark_outcome(core, &mut store, call, &old, &options)? {
        Outcome::Marked(object) => object_response(200, call, &object),
        Outcome::Removed(last) if call.kind.deletion == DeletionAnswer::Object => {
            object_response(200, call, &last)
        }
        Outcome::Removed(last) => json_response(200, &deleted(&call.kind, name, &last.uid)),
    })
}

/// Answers a DELETE of a collection with the earlier list.
pub(crate) fn delete_collection(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let options = Options::parse(call)?;
    let selection = call.list_options(core.settings.features, Purpose::List)?;
    let mut store = core.store();
    let revision = store.revision();
    let collection = store.collection(&call.kind.group_resource());
    let doomed: Vec<Shared> = collection
        .ok_or_else(StatusFailure::unknown_resource)?
        .objects()
        .values()
        .filter(|object| selection.filter.selects(object))
        .cloned()
        .collect();
    for object in &doomed {
        remove_or_mark_outcome(core, &mut store, call, object, &options)?;
    }
    Ok(list_response(call, doomed, revision))
}

/// Deletes an object, or marks it if finalizers or a grace period hold it.
pub(super) fn remove_or_mark(
    core: &Core,
    store: &mut Store,
    call: &Call,
    old: &Shared,
    options: Options,
) -> Result<(), StatusFailure> {
    remove_or_mark_outcome(core, store, call, old, &options).map(drop)
}

fn remove_or_mark_outcome(
    core: &Core,
    store: &mut Store,
    call: &Call,
    old: &Shared,
    options: &Options,
) -> Result<Outcome, StatusFailure> {
    let kind = &call.kind;
    let resource = kind.group_resource();
    let now = Instant::now();
    let mut json = old.to_json(kind);
    let grace = options.grace(core, call, &json);
    let held = !json.at(&["metadata", "finalizers"]).is_none_or(Json::is_blank);
    if !held && grace == 0 {
        if options.dry_run {
            return Ok(Outcome::Removed(old.clone()));
        }
        let last = store.remove(&resource, &old.key, now);
        return Ok(Outcome::Removed(last.unwrap_or_else(|| old.clone())));
    }
    let metadata = json.entry("metadata");
    if metadata.get("deletionTimestamp").is_some() {
        return Ok(Outcome::Marked(old.clone()));
    }
    let due = now + std::time::Duration::from_secs(grace);
    metadata.set("deletionTimestamp", core.timestamp(due));
    metadata.set("deletionGracePeriodSeconds", grace);
    if let Some(Json::Number(generation)) = metadata.get("generation") {
        let next = generation.as_u64().unwrap_or(0) + 1;
        metadata.set("generation", next);
    }
    if options.dry_run {
        return Ok(Outcome::Marked(Object::seal(kind, json, old.version).into()));
    }
    let marked = store.put(&resource, json, now).ok_or_else(StatusFailure::unknown_resource)?;
    Ok(Outcome::Marked(marked))
}

// === impl Options ===

impl Options {
    fn parse(call: &Call) -> Result<Self, StatusFailure> {
        let body = if call.body.is_empty() {
            Json::Object(Vec::new())
        } else {
            Json::parse(&call.body).map_err(|error| {
                StatusFailure::bad_request(format!("invalid DeleteOptions: {error}"))
            })?
        };
        let text = |path: &[&str]| body.str_at(path).map(str::to_owned);
        // The query counts only without a body (S-WRITE-25).
        let in_query = call.body.is_empty();
        let grace_seconds = match body.get("gracePeriodSeconds") {
            Some(Json::Number(number)) => number.as_u64(),
            _ if in_query => {
                call.parameters.value("gracePeriodSeconds").and_then(|text| text.parse().ok())
            }
            _ => None,
        };
        Ok(Self {
            grace_seconds,
            uid: text(&["preconditions", "uid"]),
            version: text(&["preconditions", "resourceVersion"]),
            dry_run: (in_query && call.dry_run())
                || body.get("dryRun").is_some_and(|value| !value.is_blank()),
        })
    }

    fn check(&self, call: &Call, old: &Object) -> Result<(), StatusFailure> {
        let name = old.key.name();
        if let Some(uid) = self.uid.as_deref().filter(|uid| *uid != old.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The \
                 object might have been deleted and then recreated",
                old.uid
            );
            return Err(StatusFailure::precondition(&call.kind, name, &why));
        }
        let stored = old.version.to_string();
        if let Some(version) = self.version.as_deref().filter(|version| *version != stored) {
            let why = format!(
                "the ResourceVersion in the precondition ({version}) does not match the \
                 ResourceVersion in record ({stored}). The object might have been modified"
            );
            return Err(StatusFailure::precondition(&call.kind, name, &why));
        }
        Ok(())
    }

    /// Returns the effective grace period. Only scheduled pods have one, and only if it is enabled.
    fn grace(&self, core: &Core, call: &Call, json: &Json) -> u64 {
        let graceful = core.settings.features.graceful_pods
            && call.kind.group.is_empty()
            && call.kind.plural == "pods"
            && json.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
        if !graceful {
            return 0;
        }
        let of_pod = match json.at(&["spec", "terminationGracePeriodSeconds"]) {
            Some(Json::Number(number)) => number.as_u64(),
            _ => None,
        };
        self.grace_seconds.or(of_pod).unwrap_or(GRACE_SECONDS_DEFAULT)
    }
}
