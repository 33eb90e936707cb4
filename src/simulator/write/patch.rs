//! The patch formats: JSON Patch, merge patch, strategic merge, apply.
//!
//! A strategic merge patch is treated as a merge patch, so lists are replaced and not merged. Apply
//! creates or merges, and tracks no field owners. Both are simplifications of the simulator.

use crate::simulator::{call::Call, json::Json, kind::Style, status::StatusFailure};

/// A parsed patch.
#[derive(Debug)]
pub(super) enum Patch {
    /// RFC 6902.
    Operations(Vec<Operation>),
    /// RFC 7386.
    Merge(Json),
    /// Server-side apply, reduced to create or merge.
    Apply(Json),
}

/// One operation of a JSON Patch.
#[derive(Debug)]
pub(super) struct Operation {
    name: String,
    path: Vec<String>,
    from: Vec<String>,
    value: Json,
}

// === impl Patch ===

impl Patch {
    /// Parses the body by its Content-Type.
    pub(super) fn parse(call: &Call) -> Result<Self, StatusFailure> {
        let json = || {
            Json::parse(&call.body).map_err(|error| {
                StatusFailure::bad_request(format!("error decoding patch: {error}"))
            })
        };
        match call.content_type.as_str() {
            "application/json-patch+json" => json()?
                .as_array()
                .iter()
                .map(Operation::parse)
                .collect::<Result<_, _>>()
                .map(Self::Operations),
            "application/merge-patch+json" => json().map(Self::Merge),
            "application/strategic-merge-patch+json" if call.kind.style == Style::Typed => {
                json().map(Self::Merge)
            }
            "application/apply-patch+yaml" => {
                let text = std::str::from_utf8(&call.body).unwrap_or_default();
                serde_saphyr::from_str(text).map(Self::Apply).map_err(|error| {
                    StatusFailure::bad_request(format!("error decoding YAML: {error}"))
                })
            }
            _ => Err(unsupported(call)),
        }
    }

    /// Reports whether a missing object is created.
    pub(super) fn may_create(&self) -> bool {
        matches!(self, Self::Apply(_))
    }

    /// Returns the patched object.
    pub(super) fn apply(&self, object: &Json) -> Result<Json, StatusFailure> {
        let mut patched = object.clone();
        match self {
            Self::Merge(patch) | Self::Apply(patch) => merge(&mut patched, patch),
            Self::Operations(operations) => {
                for operation in operations {
                    operation.apply(&mut patched).ok_or_else(refused)?;
                }
            }
        }
        Ok(patched)
    }
}

// === impl Operation ===

impl Operation {
    fn parse(json: &Json) -> Result<Self, StatusFailure> {
        let text = |key: &str| json.str_at(&[key]).unwrap_or_default();
        Ok(Self {
            name: text("op").to_owned(),
            path: pointer(text("path"))?,
            from: pointer(text("from"))?,
            value: json.get("value").cloned().unwrap_or(Json::Null),
        })
    }

    /// Applies the operation. `None` if the object does not fit.
    fn apply(&self, object: &mut Json) -> Option<()> {
        match self.name.as_str() {
            "add" => add(object, &self.path, self.value.clone()),
            "remove" => take(object, &self.path).map(drop),
            "replace" => {
                take(object, &self.path)?;
                add(object, &self.path, self.value.clone())
            }
            "move" => {
                let value = take(object, &self.from)?;
                add(object, &self.path, value)
            }
            "copy" => {
                let value = find(object, &self.from)?.clone();
                add(object, &self.path, value)
            }
            "test" if find(object, &self.path) == Some(&self.value) => Some(()),
            _ => None,
        }
    }
}

fn merge(object: &mut Json, patch: &Json) {
    let Json::Object(members) = patch else {
        *object = patch.clone();
        return;
    };
    object.members_mut();
    for (key, value) in members {
        match value {
            Json::Null => drop(object.remove(key)),
            _ => merge(object.entry(key), value),
        }
    }
}

fn pointer(text: &str) -> Result<Vec<String>, StatusFailure> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let Some(path) = text.strip_prefix('/') else {
        return Err(StatusFailure::bad_request(format!("not a JSON pointer: {text:?}")));
    };
    Ok(path.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
}

fn find<'a>(value: &'a Json, path: &[String]) -> Option<&'a Json> {
    path.iter().try_fold(value, |value, part| match value {
        Json::Object(_) => value.get(part),
        Json::Array(elements) => elements.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn find_mut<'a>(value: &'a mut Json, path: &[String]) -> Option<&'a mut Json> {
    path.iter().try_fold(value, |value, part| match value {
        Json::Object(members) => {
            members.iter_mut().find(|(name, _)| name == part).map(|(_, value)| value)
        }
        Json::Array(elements) => elements.get_mut(part.parse::<usize>().ok()?),
        _ => None,
    })
}

fn add(object: &mut Json, path: &[String], value: Json) -> Option<()> {
    let Some((last, parents)) = path.split_last() else {
        *object = value;
        return Some(());
    };
    match find_mut(object, parents)? {
        Json::Array(elements) if last == "-" => elements.push(value),
        Json::Array(elements) => {
            let index = last.parse::<usize>().ok().filter(|index| *index <= elements.len())?;
            elements.insert(index, value);
        }
        parent @ Json::Object(_) => parent.set(last, value),
        _ => return None,
    }
    Some(())
}

fn take(object: &mut Json, path: &[String]) -> Option<Json> {
    let (last, parents) = path.split_last()?;
    match find_mut(object, parents)? {
        Json::Array(elements) => {
            let index = last.parse::<usize>().ok().filter(|index| *index < elements.len())?;
            Some(elements.remove(index))
        }
        parent => parent.remove(last),
    }
}

/// Returns the server's response to any patch that does not fit.
fn refused() -> StatusFailure {
    let message = "the server rejected our request due to an error in our request";
    StatusFailure::new(422, "Invalid", message).with_empty_details()
}

/// Returns a 415. The router of built-in resources says less than that of custom ones.
fn unsupported(call: &Call) -> StatusFailure {
    match call.kind.style {
        Style::Typed => {
            StatusFailure::new(415, UNSUPPORTED, "415: Unsupported Media Type").with_empty_details()
        }
        Style::Custom => StatusFailure::new(
            415,
            UNSUPPORTED,
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, \
             application/apply-patch+yaml",
        ),
    }
}

const UNSUPPORTED: &str = "UnsupportedMediaType";
