//! The timestamps that cells may count from, read from a row's object. Pure.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::{
    columns::Source,
    human::{Moment, human},
};

/// The contents that a cell may have, by its rule.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// The text without a timestamp, which does not change with time.
    pub fixed: Option<Cow<'static, str>>,
    /// The timestamps to count from, each once.
    pub since: Vec<Moment>,
}

/// A timestamp that may be absent or null, as text.
type Timestamp<'a> = Option<Cow<'a, str>>;

#[derive(Deserialize)]
struct Created<'a> {
    #[serde(borrow)]
    metadata: CreatedMetadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreatedMetadata<'a> {
    #[serde(borrow, default)]
    creation_timestamp: Timestamp<'a>,
}

#[derive(Deserialize)]
struct Pod<'a> {
    #[serde(borrow, default)]
    spec: PodSpec<'a>,
    #[serde(borrow, default)]
    status: PodStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec<'a> {
    #[serde(borrow, default)]
    init_containers: Vec<InitContainer<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitContainer<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    restart_policy: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus<'a> {
    #[serde(borrow, default)]
    init_container_statuses: Vec<ContainerStatus<'a>>,
    #[serde(borrow, default)]
    container_statuses: Vec<ContainerStatus<'a>>,
    #[serde(borrow, default)]
    conditions: Vec<Condition<'a>>,
}

#[derive(Deserialize)]
struct Condition<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    last_state: LastState<'a>,
}

#[derive(Default, Deserialize)]
struct LastState<'a> {
    #[serde(borrow, default)]
    terminated: Option<Terminated<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminated<'a> {
    #[serde(borrow, default)]
    finished_at: Timestamp<'a>,
}

#[derive(Deserialize)]
struct Run<'a> {
    #[serde(borrow, default)]
    status: RunStatus<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RunStatus<'a> {
    #[serde(borrow, default)]
    start_time: Timestamp<'a>,
    #[serde(borrow, default)]
    completion_time: Timestamp<'a>,
    #[serde(borrow, default)]
    last_schedule_time: Timestamp<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Occurrence<'a> {
    #[serde(borrow, default, alias = "deprecatedFirstTimestamp")]
    first_timestamp: Timestamp<'a>,
    #[serde(borrow, default, alias = "deprecatedLastTimestamp")]
    last_timestamp: Timestamp<'a>,
    #[serde(borrow, default)]
    event_time: Timestamp<'a>,
    #[serde(borrow, default)]
    series: Option<Series<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series<'a> {
    #[serde(borrow, default)]
    last_observed_time: Timestamp<'a>,
}

/// The text of a timestamp that was never set.
const UNKNOWN: &str = "<unknown>";

/// The text of a timestamp that need not be set.
const NONE: &str = "<none>";

// === impl Source ===

impl Source {
    /// Returns what a cell may hold for an object; `None` if the object has an unknown form.
    pub(super) fn of(&self, object: &str) -> Option<Expected> {
        match self {
            Self::Created => {
                let created: Created<'_> = serde_json::from_str(object).ok()?;
                Expected::counted(created.metadata.creation_timestamp, UNKNOWN)
            }
            Self::Restarts => restarts(&serde_json::from_str(object).ok()?),
            Self::JobStart => job(serde_json::from_str::<Run<'_>>(object).ok()?.status),
            Self::LastSchedule => {
                let run: Run<'_> = serde_json::from_str(object).ok()?;
                Expected::counted(run.status.last_schedule_time, NONE)
            }
            Self::FirstSeen => first_seen(serde_json::from_str(object).ok()?),
            Self::LastSeen => last_seen(serde_json::from_str(object).ok()?),
            Self::PoolsCompleted => pools_completed(&serde_json::from_str(object).ok()?),
            Self::TaintAdded => {
                let object: Value = serde_json::from_str(object).ok()?;
                Expected::counted(text(object.pointer("/spec/taint/timeAdded")), "")
            }
            Self::Date(path) => date(&serde_json::from_str(object).ok()?, path.as_deref()),
        }
    }
}

// === impl Expected ===

impl Expected {
    fn fixed(text: impl Into<Cow<'static, str>>) -> Self {
        Self { fixed: Some(text.into()), since: Vec::new() }
    }

    /// Returns the content of a cell that counts from one timestamp.
    fn counted(timestamp: Timestamp<'_>, otherwise: &'static str) -> Option<Self> {
        match timestamp {
            None => Some(Self::fixed(otherwise)),
            Some(text) => Some(Self { fixed: None, since: vec![Moment::parse(&text)?] }),
        }
    }
}

fn text(value: Option<&Value>) -> Timestamp<'_> {
    value.and_then(Value::as_str).map(Cow::from)
}

/// Returns the possible last restarts. The printer takes the one of all init containers while the pod
/// starts. Later it takes the one of those that run beside the others, and of the others.
fn restarts(pod: &Pod<'_>) -> Option<Expected> {
    let last = |states: &mut dyn Iterator<Item = &ContainerStatus<'_>>| {
        let mut last = None;
        for state in states {
            let terminated = state.last_state.terminated.as_ref();
            if let Some(finished) = terminated.and_then(|ended| ended.finished_at.as_ref()) {
                last = last.max(Some(Moment::parse(finished)?));
            }
        }
        Some(last)
    };
    let restartable = |state: &&ContainerStatus<'_>| {
        let mut init = pod.spec.init_containers.iter();
        let spec = init.find(|container| container.name == state.name);
        spec.is_some_and(|spec| spec.restart_policy.as_deref() == Some("Always"))
    };
    let initial = &pod.status.init_container_statuses;
    let starting = last(&mut initial.iter())?;
    let beside = initial.iter().filter(restartable);
    let started = last(&mut beside.chain(&pod.status.container_statuses))?;
    let mut conditions = pod.status.conditions.iter();
    let initialized = conditions.find(|condition| condition.r#type == "Initialized");
    let has_started = initialized.is_some_and(|condition| condition.status == "True");
    let starting = starting.filter(|_| !has_started);
    let mut since: Vec<_> = starting.into_iter().chain(started).collect();
    since.dedup();
    Some(Expected { fixed: None, since })
}

fn job(status: RunStatus<'_>) -> Option<Expected> {
    match (status.start_time, status.completion_time) {
        (Some(start), Some(end)) => {
            let length = Moment::parse(&end)?.since(Moment::parse(&start)?);
            Some(Expected::fixed(human(length)))
        }
        (start, _) => Expected::counted(start, ""),
    }
}

fn first_seen(event: Occurrence<'_>) -> Option<Expected> {
    Expected::counted(event.first_timestamp.or(event.event_time), UNKNOWN)
}

fn last_seen(event: Occurrence<'_>) -> Option<Expected> {
    match event.series {
        Some(series) => Expected::counted(series.last_observed_time, UNKNOWN),
        None if event.last_timestamp.is_some() => Expected::counted(event.last_timestamp, UNKNOWN),
        None => first_seen(event),
    }
}

fn pools_completed(request: &Value) -> Option<Expected> {
    let conditions = request.pointer("/status/conditions").and_then(Value::as_array);
    let is_true = |condition: &&Value| condition["status"] == "True";
    for condition in conditions.into_iter().flatten().filter(is_true) {
        match condition["type"].as_str() {
            Some("Complete") => {
                return Expected::counted(text(condition.get("lastTransitionTime")), UNKNOWN);
            }
            Some("Failed") => break,
            _ => {}
        }
    }
    Some(Expected::fixed(NONE))
}

/// Returns the timestamp at a path, or every timestamp of the object.
fn date(object: &Value, path: Option<&[Box<str>]>) -> Option<Expected> {
    let mut since = Vec::new();
    match path {
        None => collect(object, &mut since),
        Some(path) => {
            let found = path.iter().try_fold(object, |value, key| value.get(&**key));
            match found.and_then(Value::as_str) {
                Some("" | "null") => return Some(Expected::fixed(UNKNOWN)),
                Some(text) => since.push(Moment::parse(text)?),
                // The printer prints null, which is no text.
                None => {}
            }
        }
    }
    since.sort_unstable();
    since.dedup();
    Some(Expected { fixed: None, since })
}

fn collect(value: &Value, found: &mut Vec<Moment>) {
    match value {
        Value::String(text) => found.extend(Moment::parse(text)),
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        Value::Object(members) => members.values().for_each(|value| collect(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reports whether some text of an object is equal to this one.
pub(super) fn contains_text(object: &str, wanted: &str) -> bool {
    fn search(value: &Value, wanted: &str) -> bool {
        match value {
            Value::String(text) => text == wanted,
            Value::Array(values) => values.iter().any(|value| search(value, wanted)),
            Value::Object(members) => members.values().any(|value| search(value, wanted)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    serde_json::from_str(object).is_ok_and(|object| search(&object, wanted))
}

#[cfg(test)]
#[path = "source/tests.rs"]
mod tests;
