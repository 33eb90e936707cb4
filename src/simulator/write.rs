//! CREATE, UPDATE, PATCH, DELETE: the effect of a write on the store, and its response (S-WRITE-01..13).
//!
//! Each write checks and stores under one lock, so no other change can come between.

mod delete;
mod metadata;
mod patch;

use http::Response;
use tokio::time::Instant;

use super::{
    Core,
    call::Call,
    json::Json,
    kind::{ResourceType, StatusSubresource, Style},
    object::{Object, Shared},
    read::object_response,
    status::{FieldFault, StatusFailure, evicted, json_response},
    store::Store,
};
use crate::body::Body;

pub(super) use delete::{delete, delete_collection};

/// The part of an object that a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Everything but the status, if that is a subresource.
    Main,
    /// The status only.
    Status,
    /// The finalizers of a namespace; everything else as `Main`.
    Finalize,
}

/// The maximum size of a request body (S-WRITE-24).
pub(super) const BODY_BYTES_MAX: usize = 3 << 20;

/// The maximum number of attempts to generate a free name.
const NAME_DRAWS_MAX: usize = 8;

/// Answers a POST to a collection.
pub(super) fn create(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let mut json = parse_object(call, &call.body)?;
    let version = json.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
    if !matches!(version, "" | "0") {
        return Err(StatusFailure::internal(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if call.kind.status == StatusSubresource::Present {
        json.remove("status");
    }
    let mut store = core.store();
    name_new(core, &store, call, &mut json)?;
    let created = store_new(core, &mut store, call, json)?;
    Ok(object_response(201, call, &created))
}

/// Answers a POST to a subresource.
pub(super) fn create_subresource(
    core: &Core,
    call: &Call,
    subresource: &str,
) -> Result<Response<Body>, StatusFailure> {
    match (call.kind.plural.as_str(), subresource) {
        ("pods", "eviction") => evict(core, call),
        ("pods", "binding") => bind(core, call),
        _ => Err(StatusFailure::unknown_resource()),
    }
}

/// Answers a PUT of an object or of a subresource.
pub(super) fn update(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let part = Part::of(call)?;
    let json = parse_object(call, &call.body)?;
    let name = json.str_at(&["metadata", "name"]).unwrap_or_default();
    let wanted = call.target.name.as_deref().unwrap_or_default();
    if name != wanted {
        return Err(StatusFailure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    let mut store = core.store();
    let old = existing(&store, call)?;
    let object = replace(&mut store, call, &old, json, part)?;
    Ok(object_response(200, call, &object))
}

/// Answers a PATCH of an object or of a subresource.
pub(super) fn patch(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let part = Part::of(call)?;
    let patch = patch::Patch::parse(call)?;
    let mut store = core.store();
    let old = match existing(&store, call) {
        Ok(old) => old,
        Err(missing) if !patch.may_create() || part != Part::Main => return Err(missing),
        Err(_) => {
            let json = name_applied(call, patch.apply(&Json::Object(Vec::new()))?);
            let created = store_new(core, &mut store, call, json)?;
            return Ok(object_response(201, call, &created));
        }
    };
    let patched = patch.apply(&served(call, &old))?;
    let object = replace(&mut store, call, &old, patched, part)?;
    Ok(object_response(200, call, &object))
}

/// Refuses subresources that the resource does not have.
pub(super) fn check_subresource(call: &Call) -> Result<(), StatusFailure> {
    Part::of(call).map(drop)
}

/// Returns the object in the path.
fn existing(store: &Store, call: &Call) -> Result<Shared, StatusFailure> {
    let key = call.key();
    let found = store
        .collection(&call.kind.group_resource())
        .and_then(|collection| collection.object(&key))
        .cloned();
    found.ok_or_else(|| StatusFailure::not_found(&call.kind, key.name()))
}

/// Returns the object as a value at the API version of the request.
fn served(call: &Call, object: &Object) -> Json {
    let mut json = object.to_json(&call.kind);
    json.set("apiVersion", call.kind.api_version(&call.target.version));
    json
}

/// Parses a body as an object of the resource's kind, in the namespace of the path.
fn parse_object(call: &Call, body: &[u8]) -> Result<Json, StatusFailure> {
    let mut json =
        Json::parse(body).ok().filter(|json| matches!(json, Json::Object(_))).ok_or_else(|| {
            StatusFailure::bad_request(not_decodable(&call.kind, &call.target.version))
        })?;
    let part = |name: &str| json.str_at(&[name]).filter(|text| !text.is_empty());
    let expected = call.kind.api_version(&call.target.version);
    // Only built-in types are accepted without their kind.
    let kind_missing = call.kind.style == Style::Custom && part("kind").is_none();
    let other = part("kind").is_some_and(|kind| kind != call.kind.kind)
        || part("apiVersion").is_some_and(|api_version| api_version != expected);
    if kind_missing || other {
        return Err(StatusFailure::bad_request(not_decodable(&call.kind, &call.target.version)));
    }
    place(call, &mut json)?;
    Ok(json)
}

/// Sets the path's namespace in the object. It may have no other.
fn place(call: &Call, json: &mut Json) -> Result<(), StatusFailure> {
    let Some(namespace) = call.namespace() else {
        json.entry("metadata").remove("namespace");
        return Ok(());
    };
    match json.str_at(&["metadata", "namespace"]) {
        Some(other) if !other.is_empty() && other != namespace => Err(StatusFailure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        )),
        _ => {
            json.entry("metadata").set("namespace", namespace);
            Ok(())
        }
    }
}

fn not_decodable(kind: &ResourceType, version: &str) -> String {
    format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; \
         json parse error or wrong kind for {}",
        kind.kind,
        kind.api_version(version)
    )
}

/// Sets the name of a new object, generated if only a prefix is given.
fn name_new(core: &Core, store: &Store, call: &Call, json: &mut Json) -> Result<(), StatusFailure> {
    let kind = &call.kind;
    let collection = store.collection(&kind.group_resource());
    let taken = |name: &str| {
        let key = crate::api::ObjectKey::new(call.namespace(), name);
        collection.is_some_and(|collection| collection.object(&key).is_some())
    };
    if let Some(name) = json.str_at(&["metadata", "name"]).filter(|name| !name.is_empty()) {
        return if taken(name) { Err(StatusFailure::already_exists(kind, name)) } else { Ok(()) };
    }
    let prefix = json.str_at(&["metadata", "generateName"]).unwrap_or_default().to_owned();
    if prefix.is_empty() {
        let fault = FieldFault::required("metadata.name", "name or generateName is required");
        return Err(StatusFailure::invalid(&kind.group, &kind.kind, "", &[fault]));
    }
    let drawn = (0..NAME_DRAWS_MAX)
        .map(|_| format!("{prefix}{}", core.random.name_suffix()))
        .find(|name| !taken(name))
        .ok_or_else(|| StatusFailure::already_exists(kind, &prefix))?;
    json.entry("metadata").set("name", drawn);
    Ok(())
}

fn name_applied(call: &Call, mut json: Json) -> Json {
    let metadata = json.entry("metadata");
    metadata.set("name", call.target.name.as_deref().unwrap_or_default());
    if let Some(namespace) = call.namespace() {
        metadata.set("namespace", namespace);
    }
    json
}

/// Stores a new object, unless the write is a dry run.
fn store_new(
    core: &Core,
    store: &mut Store,
    call: &Call,
    mut json: Json,
) -> Result<Shared, StatusFailure> {
    metadata::fill_new(core, &call.kind, &mut json);
    if call.dry_run() {
        return Ok(Object::unsaved(&call.kind, json).into());
    }
    store
        .put(&call.kind.group_resource(), json, Instant::now())
        .ok_or_else(StatusFailure::unknown_resource)
}

/// Replaces an object: conflicts, no-ops, finalizers, generation. Returns the result.
fn replace(
    store: &mut Store,
    call: &Call,
    old: &Shared,
    new: Json,
    part: Part,
) -> Result<Shared, StatusFailure> {
    let kind = &call.kind;
    metadata::check_preconditions(call, old, &new)?;
    let before = served(call, old);
    let mut json = part.merge(kind, &before, new);
    metadata::keep_immutable(kind, &before, &mut json);
    if metadata::same(kind, &before, &json) {
        return Ok(old.clone());
    }
    metadata::count_generation(kind, &before, &mut json);
    if call.dry_run() {
        return Ok(Object::seal(kind, json, old.version).into());
    }
    let resource = kind.group_resource();
    let now = Instant::now();
    if metadata::is_finished(&json) {
        // The last finalizer is removed: the object is deleted, and the response has its old
        // version (S-WRITE-04).
        store.remove(&resource, &old.key, now);
        return Ok(Object::seal(kind, json, old.version).into());
    }
    store.put(&resource, json, now).ok_or_else(StatusFailure::unknown_resource)
}

fn evict(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let mut store = core.store();
    let old = existing(&store, call)?;
    if !call.dry_run() {
        delete::remove_or_mark(core, &mut store, call, &old, delete::Options::default())?;
    }
    Ok(json_response(201, &evicted()))
}

fn bind(core: &Core, call: &Call) -> Result<Response<Body>, StatusFailure> {
    let binding = Json::parse(&call.body)
        .map_err(|_| StatusFailure::bad_request("the body is not a Binding"))?;
    if binding.str_at(&["metadata", "name"]) != call.target.name.as_deref() {
        return Err(StatusFailure::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let node = binding.str_at(&["target", "name"]).unwrap_or_default().to_owned();
    let mut store = core.store();
    let old = existing(&store, call)?;
    let mut json = old.to_json(&call.kind);
    json.entry("spec").set("nodeName", node);
    if !call.dry_run() {
        store.put(&call.kind.group_resource(), json, Instant::now());
    }
    Ok(json_response(201, &evicted()))
}

// === impl Part ===

impl Part {
    fn of(call: &Call) -> Result<Self, StatusFailure> {
        let has_status = call.kind.status == StatusSubresource::Present;
        match call.target.subresource.as_deref() {
            None => Ok(Self::Main),
            Some("status") if has_status => Ok(Self::Status),
            Some("finalize") if call.kind.plural == "namespaces" => Ok(Self::Finalize),
            Some("eviction" | "binding") if call.kind.plural == "pods" => {
                Err(StatusFailure::method_not_allowed())
            }
            Some("token") if call.kind.plural == "serviceaccounts" => {
                Err(StatusFailure::method_not_allowed())
            }
            Some(_) if call.kind.style == Style::Custom => {
                Err(StatusFailure::not_found(&call.kind, call.key().name()))
            }
            Some(_) => Err(StatusFailure::unknown_resource()),
        }
    }

    /// Returns the object to store: the sent one, with the parts that this write may not change
    /// restored.
    fn merge(self, kind: &ResourceType, before: &Json, new: Json) -> Json {
        let status = |json: &Json| json.get("status").cloned();
        let with_status = |mut json: Json, status: Option<Json>| {
            match status {
                Some(status) => json.set("status", status),
                None => drop(json.remove("status")),
            }
            json
        };
        match self {
            Self::Status => with_status(before.clone(), status(&new)),
            Self::Main | Self::Finalize if kind.status == StatusSubresource::Present => {
                with_status(new, status(before))
            }
            Self::Main | Self::Finalize => new,
        }
    }
}
