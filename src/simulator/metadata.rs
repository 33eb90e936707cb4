//! Metadata-only responses: PartialObjectMetadata and its list (S-CT-03, S-LIST-63).
//!
//! They are converted from the whole response, as the real server does.

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;

use super::{json::Json, object::METADATA_ORDER};
use crate::{
    api::media::{Metadata, MetadataKind, MetadataVersion},
    body::Body,
};

const OWNER_REFERENCE_ORDER: &[&str] =
    &["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];

const MANAGED_FIELDS_ORDER: &[&str] =
    &["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];

/// The starts of annotations that are not stored, but added when a whole object is converted to its version.
const CONVERTED: [&str; 3] = [
    "deprecated.daemonset.template.generation",
    "deprecated.deployment.rollback",
    "autoscaling.alpha.kubernetes.io/",
];

/// Reduces the response of a GET or LIST to metadata.
pub(super) async fn converted(answered: Response<Body>, wanted: Metadata) -> Response<Body> {
    let (parts, body) = answered.into_parts();
    let bytes = body.collect(usize::MAX).await.unwrap_or_default();
    let whole = Json::parse(&bytes).unwrap_or(Json::Null);
    let version = wanted.version.api_version();
    let converted = match wanted.kind {
        MetadataKind::Object => partial("PartialObjectMetadata", version, metadata(&whole)),
        MetadataKind::List => {
            let items = whole.get("items").map(Json::as_array).unwrap_or_default();
            let item = |item: &Json| partial("PartialObjectMetadata", version, metadata(item));
            let items: Vec<_> = items.iter().map(item).collect();
            let mut list = whole.get("metadata").cloned().unwrap_or(Json::Null);
            list.members_mut().retain(|(_, value)| value.as_str() != Some(""));
            list.order_members(&["resourceVersion", "continue", "remainingItemCount"]);
            let mut list = partial("PartialObjectMetadataList", version, list);
            list.set("items", if items.is_empty() { Json::Null } else { Json::Array(items) });
            list
        }
    };
    let mut bytes = converted.to_bytes();
    bytes.push(b'\n');
    Response::from_parts(parts, Body::full(bytes))
}

/// Reduces the objects of a WATCH to metadata. Each event is a frame of its own.
pub(super) fn streamed(answered: Response<Body>, version: MetadataVersion) -> Response<Body> {
    let line = move |line: Bytes| rewritten(&line, version.api_version()).unwrap_or(line);
    answered.map(|body| Body::wrap(body.map_frame(move |frame| frame.map_data(line))))
}

/// Returns an event with its object's metadata only. Errors are unchanged.
fn rewritten(line: &[u8], version: &str) -> Option<Bytes> {
    let mut event = Json::parse(line).ok()?;
    let object = event
        .get("object")
        .filter(|object| object.get("kind").and_then(Json::as_str) != Some("Status"))?;
    let object = partial("PartialObjectMetadata", version, metadata(object));
    event.set("object", object);
    let mut bytes = event.to_bytes();
    bytes.push(b'\n');
    Some(bytes.into())
}

/// Returns an object's metadata only.
pub(super) fn partial_of(object: &Json, version: MetadataVersion) -> Json {
    partial("PartialObjectMetadata", version.api_version(), metadata(object))
}

fn partial(kind: &str, api_version: &str, metadata: Json) -> Json {
    Json::object([
        ("kind", kind.into()),
        ("apiVersion", api_version.into()),
        ("metadata", metadata),
    ])
}

fn metadata(object: &Json) -> Json {
    let mut metadata = object.get("metadata").cloned().unwrap_or(Json::Null);
    if let Some(mut annotations) = metadata.get("annotations").cloned() {
        let is_converted = |name: &str| CONVERTED.iter().any(|start| name.starts_with(start));
        annotations.members_mut().retain(|(name, _)| !is_converted(name));
        metadata.set("annotations", annotations);
    }
    metadata.members_mut().retain(|(_, value)| !value.is_blank());
    metadata.order_members(METADATA_ORDER);
    for (list, order) in
        [("ownerReferences", OWNER_REFERENCE_ORDER), ("managedFields", MANAGED_FIELDS_ORDER)]
    {
        if let Some(Json::Array(entries)) = metadata.get(list).cloned() {
            let ordered = entries.into_iter().map(|mut entry| {
                entry.order_members(order);
                entry
            });
            metadata.set(list, Json::Array(ordered.collect()));
        }
    }
    metadata
}
