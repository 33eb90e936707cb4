//! The metadata that the server keeps, adds and compares.

use tokio::time::Instant;

use crate::simulator::{
    Core,
    call::Call,
    json::Json,
    kind::{ResourceType, Style},
    object::Object,
    options::{Purpose, parse_version},
    status::{FieldFault, StatusFailure},
};

/// The message of a write whose version is not the stored one.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest \
                        version and try again";

/// The fields that only the server sets.
const SERVER_SET: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"];

/// Adds the server's fields to a new object.
pub(super) fn fill_new(core: &Core, kind: &ResourceType, json: &mut Json) {
    json.set("kind", kind.kind.as_str());
    let metadata = json.entry("metadata");
    for member in SERVER_SET.iter().chain(&["resourceVersion", "selfLink"]) {
        metadata.remove(member);
    }
    metadata.set("uid", core.random.uid());
    if kind.generation {
        metadata.set("generation", 1);
    }
    metadata.set("creationTimestamp", core.timestamp(Instant::now()));
    default_status(kind, json);
}

/// Sets the initial status of a new object.
fn default_status(kind: &ResourceType, json: &mut Json) {
    let phase = match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => "Pending",
        ("", "namespaces") => "Active",
        _ => return,
    };
    let status = json.entry("status");
    if status.get("phase").is_none() {
        status.set("phase", phase);
    }
}

/// Checks the version and uid in a written object against the stored one.
pub(super) fn check_preconditions(
    call: &Call,
    old: &Object,
    new: &Json,
) -> Result<(), StatusFailure> {
    let (kind, name) = (&call.kind, old.key.name());
    let version = new.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
    let asked = if version.is_empty() { 0 } else { parse_version(version, Purpose::Watch)? };
    if asked == 0 && kind.style == Style::Custom {
        let field = "metadata.resourceVersion";
        let fault = FieldFault::invalid(field, "0", "must be specified for an update");
        return Err(StatusFailure::invalid(&kind.group, &kind.kind, name, &[fault]));
    }
    if asked != 0 && asked != old.version {
        return Err(StatusFailure::conflict(kind, name, MODIFIED));
    }
    match new.str_at(&["metadata", "uid"]) {
        Some(uid) if !uid.is_empty() && uid != old.uid => {
            let why = format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                old.uid
            );
            Err(StatusFailure::conflict(kind, name, &why))
        }
        _ => Ok(()),
    }
}

/// Restores immutable fields, so that they do not count as a change.
pub(super) fn keep_immutable(kind: &ResourceType, before: &Json, json: &mut Json) {
    json.set("kind", kind.kind.as_str());
    let api_version = before.str_at(&["apiVersion"]).unwrap_or_default().to_owned();
    json.set("apiVersion", api_version);
    let metadata = json.entry("metadata");
    for member in SERVER_SET.iter().chain(&["resourceVersion", "generateName"]) {
        match before.at(&["metadata", member]) {
            Some(value) => metadata.set(member, value.clone()),
            None => drop(metadata.remove(member)),
        }
    }
    for member in ["labels", "annotations", "finalizers", "ownerReferences"] {
        if metadata.get(member).is_some_and(Json::is_blank) {
            metadata.remove(member);
        }
    }
}

/// Reports whether two objects would be stored as the same bytes.
pub(super) fn same(kind: &ResourceType, left: &Json, right: &Json) -> bool {
    let sealed = |json: &Json| {
        let mut bytes = Vec::new();
        let object = Object::seal(kind, json.clone(), 0);
        object.write(
            kind,
            kind.stored_version(),
            super::super::object::ObjectContext::Alone,
            &mut bytes,
        );
        bytes
    };
    sealed(left) == sealed(right)
}

/// Raises the generation if something besides metadata and status changed.
pub(super) fn count_generation(kind: &ResourceType, before: &Json, json: &mut Json) {
    let substance = |json: &Json| {
        let mut rest = json.clone();
        for member in ["metadata", "status", "kind", "apiVersion"] {
            rest.remove(member);
        }
        rest.sort_keys();
        rest
    };
    if kind.generation && substance(before) != substance(json) {
        let old = match before.at(&["metadata", "generation"]) {
            Some(Json::Number(number)) => number.as_u64().unwrap_or(0),
            _ => 0,
        };
        json.entry("metadata").set("generation", old + 1);
    }
}

/// Reports whether a terminating object has nothing left to wait for (S-WRITE-04).
pub(super) fn is_finished(json: &Json) -> bool {
    let metadata = |member: &str| json.at(&["metadata", member]);
    let grace = match metadata("deletionGracePeriodSeconds") {
        Some(Json::Number(number)) => number.as_u64().unwrap_or(0),
        _ => 0,
    };
    metadata("deletionTimestamp").is_some()
        && metadata("finalizers").is_none_or(Json::is_blank)
        && grace == 0
}
