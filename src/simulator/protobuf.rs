//! Responses in protobuf, encoded from JSON: metadata and selectable fields as the real server has
//! them, all else as one text (S-CT-20..23, S-WATCH-41).
//!
//! It has a writer of its own, so that the simulator checks the proxy's.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt as _;

use super::json::Json;
use crate::{api::protobuf::MEDIA_TYPE, body::Body};

/// The encoding of one member of a message.
enum Shape {
    /// A string, which is encoded even if it is empty.
    Text,
    /// A number, which is encoded even if it is zero.
    Number,
    /// A boolean, which is encoded even if it is false.
    Flag,
    /// A message, which is encoded even if it is empty.
    Message(&'static [Member]),
}

/// A member's name in JSON, its number and its encoding.
type Member = (&'static str, u64, Shape);

/// The members of an object after its metadata, for some kinds.
struct Schema {
    kind: &'static str,
    members: &'static [Member],
}

/// The field with the text of everything that has no number here.
const REST: u64 = 1000;

const REFERENCE: Shape = Shape::Message(&[
    ("kind", 1, Shape::Text),
    ("namespace", 2, Shape::Text),
    ("name", 3, Shape::Text),
    ("uid", 4, Shape::Text),
    ("apiVersion", 5, Shape::Text),
    ("resourceVersion", 6, Shape::Text),
    ("fieldPath", 7, Shape::Text),
]);

const SCHEMAS: &[Schema] = &[
    Schema {
        kind: "Pod",
        members: &[
            (
                "spec",
                2,
                Shape::Message(&[
                    ("restartPolicy", 3, Shape::Text),
                    ("serviceAccountName", 8, Shape::Text),
                    ("nodeName", 10, Shape::Text),
                    ("hostNetwork", 11, Shape::Flag),
                    ("schedulerName", 19, Shape::Text),
                ]),
            ),
            (
                "status",
                3,
                Shape::Message(&[
                    ("phase", 1, Shape::Text),
                    ("podIP", 6, Shape::Text),
                    ("nominatedNodeName", 11, Shape::Text),
                ]),
            ),
        ],
    },
    Schema {
        kind: "Node",
        members: &[("spec", 2, Shape::Message(&[("unschedulable", 4, Shape::Flag)]))],
    },
    Schema {
        kind: "Namespace",
        members: &[("status", 3, Shape::Message(&[("phase", 1, Shape::Text)]))],
    },
    Schema { kind: "Secret", members: &[("type", 3, Shape::Text)] },
    Schema {
        kind: "Event",
        members: &[
            ("involvedObject", 2, REFERENCE),
            ("reason", 3, Shape::Text),
            ("source", 5, Shape::Message(&[("component", 1, Shape::Text)])),
            ("type", 9, Shape::Text),
            ("reportingComponent", 14, Shape::Text),
        ],
    },
    Schema {
        kind: "Job",
        members: &[("status", 3, Shape::Message(&[("succeeded", 5, Shape::Number)]))],
    },
];

/// Converts a whole response in JSON.
pub(super) async fn converted(answered: Response<Body>) -> Response<Body> {
    let (mut parts, body) = answered.into_parts();
    let bytes = body.collect(usize::MAX).await.unwrap_or_default();
    let Ok(json) = Json::parse(&bytes) else {
        return Response::from_parts(parts, Body::full(bytes));
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    Response::from_parts(parts, Body::full(Bytes::from(enveloped(&json))))
}

/// Converts the events of a watch in JSON. Each event is a frame of its own.
pub(super) fn events(answered: Response<Body>) -> Response<Body> {
    let frame = |line: Bytes| delimited(&line).map_or(line, Bytes::from);
    answered.map(|body| Body::wrap(body.map_frame(move |event| event.map_data(frame))))
}

/// Sets the media type of a watch.
pub(super) fn name_stream(headers: &mut HeaderMap) {
    let media = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
    headers.insert(header::CONTENT_TYPE, media);
}

fn delimited(line: &[u8]) -> Option<Vec<u8>> {
    let event = Json::parse(line).ok()?;
    let mut message = text(1, event.str_at(&["type"])?);
    message.extend(bytes(2, &bytes(1, &enveloped(event.get("object")?))));
    let length = u32::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes()[..], &message].concat())
}

fn enveloped(json: &Json) -> Vec<u8> {
    let at = |name: &str| json.str_at(&[name]).unwrap_or_default();
    let (kind, api_version) = (at("kind"), at("apiVersion"));
    let content = match kind.strip_suffix("List") {
        _ if kind == "Status" => status(json),
        Some(_) if json.get("items").is_some() => list(json, kind, api_version),
        _ => object(json, kind),
    };
    let types = [text(1, api_version), text(2, kind)].concat();
    let unknown = [bytes(1, &types), bytes(2, &content), text(3, ""), text(4, "")].concat();
    [b"k8s\0".to_vec(), unknown].concat()
}

fn list(json: &Json, kind: &str, api_version: &str) -> Vec<u8> {
    // The older list of metadata has its fields the other way round (S-CT-22).
    let is_old = kind == "PartialObjectMetadataList" && api_version == "meta.k8s.io/v1beta1";
    let (meta, item) = if is_old { (2, 1) } else { (1, 2) };
    let items = json.get("items").map(Json::as_array).unwrap_or_default();
    let item_kind = kind.strip_suffix("List").unwrap_or_default();
    let items = items.iter().flat_map(|each| bytes(item, &object(each, item_kind)));
    let items: Vec<u8> = items.collect();
    let meta = bytes(meta, &list_meta(json.get("metadata").unwrap_or(&Json::Null)));
    if is_old { [items, meta].concat() } else { [meta, items].concat() }
}

fn list_meta(json: &Json) -> Vec<u8> {
    let at = |name: &str| json.str_at(&[name]).unwrap_or_default();
    let mut meta = [text(1, ""), text(2, at("resourceVersion")), text(3, at("continue"))].concat();
    if let Some(remaining) = number_at(json, "remainingItemCount") {
        meta.extend(number(4, remaining));
    }
    meta
}

fn object(json: &Json, kind: &str) -> Vec<u8> {
    let metadata = object_meta(json.get("metadata").unwrap_or(&Json::Null));
    let mut out = bytes(1, &metadata);
    if kind == "PartialObjectMetadata" {
        return out;
    }
    let schema = SCHEMAS.iter().find(|schema| schema.kind == kind);
    out.extend(message(json, schema.map_or(&[], |schema| schema.members)));
    let mut rest = json.clone();
    for known in ["kind", "apiVersion", "metadata"] {
        rest.remove(known);
    }
    out.extend(bytes(REST, &rest.to_bytes()));
    out
}

fn message(json: &Json, members: &[Member]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, field, shape) in members {
        let value = json.get(name).unwrap_or(&Json::Null);
        out.extend(match shape {
            Shape::Text => text(*field, value.as_str().unwrap_or_default()),
            Shape::Number => number(*field, number_at(json, name).unwrap_or_default()),
            Shape::Flag => number(*field, u64::from(matches!(value, Json::Bool(true)))),
            Shape::Message(members) => bytes(*field, &message(value, members)),
        });
    }
    out
}

fn object_meta(json: &Json) -> Vec<u8> {
    let at = |name: &str| json.str_at(&[name]).unwrap_or_default();
    let mut meta = Vec::new();
    for (field, name) in [
        (1, "name"),
        (2, "generateName"),
        (3, "namespace"),
        (4, "selfLink"),
        (5, "uid"),
        (6, "resourceVersion"),
    ] {
        meta.extend(text(field, at(name)));
    }
    meta.extend(number(7, number_at(json, "generation").unwrap_or_default()));
    meta.extend(bytes(8, &time(at("creationTimestamp"))));
    if json.get("deletionTimestamp").is_some() {
        meta.extend(bytes(9, &time(at("deletionTimestamp"))));
    }
    if let Some(grace) = number_at(json, "deletionGracePeriodSeconds") {
        meta.extend(number(10, grace));
    }
    for (field, name) in [(11, "labels"), (12, "annotations")] {
        for (key, value) in json.get(name).map(Json::members).unwrap_or_default() {
            let entry = [text(1, key), text(2, value.as_str().unwrap_or_default())].concat();
            meta.extend(bytes(field, &entry));
        }
    }
    let all = |name: &str| json.get(name).map(Json::as_array).unwrap_or_default();
    meta.extend(all("ownerReferences").iter().flat_map(|owner| bytes(13, &owner_reference(owner))));
    for finalizer in all("finalizers") {
        meta.extend(text(14, finalizer.as_str().unwrap_or_default()));
    }
    meta.extend(all("managedFields").iter().flat_map(|entry| bytes(17, &managed_fields(entry))));
    meta
}

fn owner_reference(json: &Json) -> Vec<u8> {
    let members = [("kind", 1), ("name", 3), ("uid", 4), ("apiVersion", 5)];
    let mut out = texts(json, &members);
    for (name, field) in [("controller", 6), ("blockOwnerDeletion", 7)] {
        if let Some(Json::Bool(flag)) = json.get(name) {
            out.extend(number(field, u64::from(*flag)));
        }
    }
    out
}

fn managed_fields(json: &Json) -> Vec<u8> {
    let mut out = texts(json, &[("manager", 1), ("operation", 2), ("apiVersion", 3)]);
    if let Some(at) = json.str_at(&["time"]) {
        out.extend(bytes(4, &time(at)));
    }
    out.extend(texts(json, &[("fieldsType", 6)]));
    if let Some(fields) = json.get("fieldsV1") {
        out.extend(bytes(7, &bytes(1, &fields.to_bytes())));
    }
    out.extend(texts(json, &[("subresource", 8)]));
    out
}

fn texts(json: &Json, members: &[(&str, u64)]) -> Vec<u8> {
    let text =
        |(name, field): &(&str, u64)| text(*field, json.str_at(&[*name]).unwrap_or_default());
    members.iter().flat_map(text).collect()
}

fn status(json: &Json) -> Vec<u8> {
    let at = |name: &str| json.str_at(&[name]).unwrap_or_default();
    let mut out = bytes(1, &list_meta(json.get("metadata").unwrap_or(&Json::Null)));
    for (field, name) in [(2, "status"), (3, "message"), (4, "reason")] {
        out.extend(text(field, at(name)));
    }
    if let Some(details) = json.get("details") {
        let at = |name: &str| details.str_at(&[name]).unwrap_or_default();
        let mut message = [text(1, at("name")), text(2, at("group")), text(3, at("kind"))].concat();
        for cause in details.get("causes").map(Json::as_array).unwrap_or_default() {
            let at = |name: &str| cause.str_at(&[name]).unwrap_or_default();
            let cause = [text(1, at("reason")), text(2, at("message")), text(3, at("field"))];
            message.extend(bytes(4, &cause.concat()));
        }
        message.extend(number(5, number_at(details, "retryAfterSeconds").unwrap_or_default()));
        message.extend(text(6, at("uid")));
        out.extend(bytes(5, &message));
    }
    out.extend(number(6, number_at(json, "code").unwrap_or_default()));
    out
}

/// Returns a time as seconds and nanoseconds; empty if there is none.
fn time(text: &str) -> Vec<u8> {
    let Ok(time) = text.parse::<jiff::Timestamp>() else { return Vec::new() };
    let seconds = u64::try_from(time.as_second()).unwrap_or_default();
    [number(1, seconds), number(2, 0)].concat()
}

fn number_at(json: &Json, name: &str) -> Option<u64> {
    match json.get(name)? {
        Json::Number(number) => number.as_u64(),
        _ => None,
    }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push((value % 0x80) as u8 | 0x80);
        value /= 0x80;
    }
    out.push(value as u8);
    out
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field * 8), varint(value)].concat()
}

fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [varint(field * 8 + 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn text(field: u64, value: &str) -> Vec<u8> {
    bytes(field, value.as_bytes())
}
