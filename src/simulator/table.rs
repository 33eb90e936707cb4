//! Tables: the columns of some kinds, and their cells at a moment (S-CT-30).
//!
//! They are converted from the whole response, as the real server does. Kinds without columns of
//! their own have a name and an age.

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use jiff::Timestamp;

use super::{json::Json, metadata};
use crate::{
    api::media::{Include, Table},
    body::Body,
};

/// A column: its name, type, format, description and priority.
type Column = (&'static str, &'static str, &'static str, &'static str, u64);

const NAME: Column = ("Name", "string", "name", "Name must be unique within a namespace.", 0);
const AGE: Column = ("Age", "string", "", "CreationTimestamp is the time of creation.", 0);

const PODS: &[Column] = &[
    NAME,
    ("Ready", "string", "", "The aggregate readiness state of this pod.", 0),
    ("Status", "string", "", "The aggregate status of the containers in this pod.", 0),
    ("Restarts", "string", "", "The number of restarts, and the time since the last one.", 0),
    AGE,
    ("Node", "string", "", "NodeName is the node of this pod.", 1),
];

const JOBS: &[Column] =
    &[NAME, ("Duration", "string", "", "Time required to complete the job.", 0), AGE];

const EVENTS: &[Column] = &[
    ("Last Seen", "string", "", "The time of the most recent occurrence.", 0),
    ("Reason", "string", "", "The reason.", 0),
    ("First Seen", "string", "", "The time of the first occurrence.", 1),
    NAME,
];

const CUSTOM: &[Column] = &[
    NAME,
    (
        "Color",
        "string",
        "",
        "Custom resource definition column (in JSONPath format): .spec.color",
        0,
    ),
    ("Due", "date", "", "The time of the next run.", 0),
    (
        "Age",
        "date",
        "",
        "Custom resource definition column (in JSONPath format): .metadata.creationTimestamp",
        0,
    ),
];

/// Converts the response of a GET or LIST to a Table.
pub(super) async fn converted(
    answered: Response<Body>,
    wanted: Table,
    now: Timestamp,
) -> Response<Body> {
    let (parts, body) = answered.into_parts();
    let bytes = body.collect(usize::MAX).await.unwrap_or_default();
    let whole = Json::parse(&bytes).unwrap_or(Json::Null);
    let table = match whole.get("items").map(Json::as_array) {
        None => table(&whole, std::slice::from_ref(&whole), wanted, true, now),
        Some(items) => {
            let items: Vec<_> = items.iter().map(|item| with_kind(&whole, item)).collect();
            table(&whole, &items, wanted, true, now)
        }
    };
    let mut bytes = table.to_bytes();
    bytes.push(b'\n');
    Response::from_parts(parts, Body::full(bytes))
}

/// Converts the objects of a WATCH to Tables. Each event is a frame of its own; only the first one
/// has the columns.
pub(super) fn streamed(
    answered: Response<Body>,
    wanted: Table,
    now: impl Fn() -> Timestamp + Send + Sync + 'static,
) -> Response<Body> {
    let mut is_first = true;
    let line = move |line: Bytes| {
        let with_columns = std::mem::replace(&mut is_first, false);
        rewritten(&line, wanted, with_columns, now()).unwrap_or(line)
    };
    answered.map(|body| {
        let mut line = line;
        Body::wrap(body.map_frame(move |frame| frame.map_data(&mut line)))
    })
}

/// Returns an event with a Table of its object. Errors are unchanged.
fn rewritten(line: &[u8], wanted: Table, with_columns: bool, now: Timestamp) -> Option<Bytes> {
    let mut event = Json::parse(line).ok()?;
    let object = event
        .get("object")
        .filter(|object| object.get("kind").and_then(Json::as_str) != Some("Status"))?;
    let table = table(object, std::slice::from_ref(object), wanted, with_columns, now);
    event.set("object", table);
    let mut bytes = event.to_bytes();
    bytes.push(b'\n');
    Some(bytes.into())
}

fn table(
    whole: &Json,
    objects: &[Json],
    wanted: Table,
    with_columns: bool,
    now: Timestamp,
) -> Json {
    let mut list = Json::object([]);
    for key in ["resourceVersion", "continue", "remainingItemCount"] {
        if let Some(value) = whole.at(&["metadata", key]).filter(|value| value.as_str() != Some(""))
        {
            list.set(key, value.clone());
        }
    }
    let columns = columns(whole);
    let definitions = columns.iter().map(|(name, kind, format, description, priority)| {
        Json::object([
            ("name", (*name).into()),
            ("type", (*kind).into()),
            ("format", (*format).into()),
            ("description", (*description).into()),
            ("priority", (*priority).into()),
        ])
    });
    let definitions = if with_columns { Json::Array(definitions.collect()) } else { Json::Null };
    let row = |object: &Json| {
        let cells = columns.iter().map(|(name, ..)| cell(name, object, now)).collect();
        let part = match wanted.include {
            Include::None => Json::Null,
            Include::Metadata => metadata::partial_of(object, wanted.version),
            Include::Object => object.clone(),
        };
        Json::object([("cells", Json::Array(cells)), ("object", part)])
    };
    Json::object([
        ("kind", "Table".into()),
        ("apiVersion", wanted.version.api_version().into()),
        ("metadata", list),
        ("columnDefinitions", definitions),
        ("rows", Json::Array(objects.iter().map(row).collect())),
    ])
}

/// Returns an item of a list with the kind that it has alone.
fn with_kind(list: &Json, item: &Json) -> Json {
    if item.get("kind").is_some() {
        return item.clone();
    }
    let kind = list.str_at(&["kind"]).unwrap_or_default();
    let kind = kind.strip_suffix("List").unwrap_or(kind);
    let api_version = list.get("apiVersion").cloned().unwrap_or(Json::Null);
    let mut whole = Json::object([("kind", kind.into()), ("apiVersion", api_version)]);
    whole.members_mut().extend_from_slice(item.members());
    whole
}

fn columns(whole: &Json) -> &'static [Column] {
    let is_custom = whole.members().first().is_some_and(|(key, _)| key == "apiVersion");
    match whole.str_at(&["kind"]).unwrap_or_default() {
        _ if is_custom => CUSTOM,
        "Pod" | "PodList" => PODS,
        "Job" | "JobList" => JOBS,
        "Event" | "EventList" => EVENTS,
        _ => &[NAME, AGE],
    }
}

fn cell(column: &str, object: &Json, now: Timestamp) -> Json {
    let text = |path: &[&str]| object.str_at(path).unwrap_or_default();
    let since = |path: &[&str], unset: &str| match text(path) {
        "" => unset.to_owned(),
        time => time.parse().map_or_else(|_| "<invalid>".to_owned(), |time| age(time, now)),
    };
    let is_custom = object.members().first().is_some_and(|(key, _)| key == "apiVersion");
    let text = match column {
        "Name" => text(&["metadata", "name"]).to_owned(),
        "Age" if is_custom && object.str_at(&["metadata", "creationTimestamp"]).is_none() => {
            return Json::Null;
        }
        "Age" => since(&["metadata", "creationTimestamp"], "<unknown>"),
        "Ready" => {
            let containers = object.at(&["spec", "containers"]).map_or(0, |c| c.as_array().len());
            format!("0/{containers}")
        }
        "Status" => text(&["status", "phase"]).to_owned(),
        "Restarts" => restarts(object, now),
        "Node" => match text(&["spec", "nodeName"]) {
            "" => "<none>".to_owned(),
            node => node.to_owned(),
        },
        "Duration" => since(&["status", "startTime"], ""),
        "Last Seen" => since(&["lastTimestamp"], "<unknown>"),
        "First Seen" => since(&["firstTimestamp"], "<unknown>"),
        "Reason" => text(&["reason"]).to_owned(),
        "Color" if object.at(&["spec", "color"]).is_none() => return Json::Null,
        "Color" => text(&["spec", "color"]).to_owned(),
        "Due" if object.at(&["spec", "due"]).is_none() => return Json::Null,
        "Due" => since(&["spec", "due"], "<unknown>"),
        _ => return Json::Null,
    };
    text.into()
}

fn restarts(pod: &Json, now: Timestamp) -> String {
    let statuses = pod.at(&["status", "containerStatuses"]).map_or(&[][..], Json::as_array);
    let count = |status: &Json| match status.get("restartCount") {
        Some(Json::Number(number)) => number.as_u64().unwrap_or_default(),
        _ => 0,
    };
    let restarts: u64 = statuses.iter().map(count).sum();
    let ended = |status: &Json| {
        status.str_at(&["lastState", "terminated", "finishedAt"])?.parse::<Timestamp>().ok()
    };
    match statuses.iter().filter_map(ended).max() {
        Some(last) if restarts > 0 => format!("{restarts} ({} ago)", age(last, now)),
        _ => restarts.to_string(),
    }
}

/// Returns the time since a timestamp in the printers' short form.
fn age(time: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(time).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |first: String, rest: i64, unit: &str| match rest {
        0 => first,
        rest => format!("{first}{rest}{unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => with(format!("{minutes}m"), seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => with(format!("{hours}h"), minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => with(format!("{days}d"), hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => with(format!("{}y", days / 365), days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}
