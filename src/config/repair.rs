//! Several problems of one file: the parser stops at the first, so the file is read again without it.
//!
//! The repaired copy exists only to find what else is wrong; it never becomes a configuration.

use serde_json::{Value, json};
use serde_saphyr::DuplicateKeyPolicy;

use super::{
    locations::{DEPTH_MAX, FieldLocations},
    problem::Problem,
    raw::RawConfig,
};

/// More problems than anyone reads at once.
const PROBLEMS_MAX: usize = 20;

/// Adds to `problems`, which the text is known to have, all others that can be found in it.
pub(super) fn find_others(text: &str, locations: &FieldLocations, problems: &mut Vec<Problem>) {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        // Without a type, `off` would become false, which is no value of `action`.
        strict_booleans: true,
    };
    let Ok(mut tree) = serde_saphyr::from_str_with_options::<Value>(text, options) else { return };
    if problems.iter().any(|problem| !problem.is_repeated_key() && !repair(&mut tree, problem)) {
        return;
    }
    while problems.len() < PROBLEMS_MAX {
        let Ok(copy) = serde_saphyr::to_string(&tree) else { return };
        match serde_saphyr::from_str::<RawConfig>(&copy) {
            Ok(raw) => {
                let found = raw.check().err().unwrap_or_default().into_iter();
                let new = found.filter(|found| problems.iter().all(|old| old.field != found.field));
                let new: Vec<_> = new.map(|problem| problem.located(locations)).collect();
                return problems.extend(new);
            }
            Err(error) => {
                let found =
                    Problem::from_yaml(&error, &FieldLocations::read(&copy)).moved(locations);
                let is_new = problems.iter().all(|old| old.field != found.field);
                if !is_new || !repair(&mut tree, &found) {
                    return;
                }
                problems.push(found);
            }
        }
    }
}

/// Takes a wrong field away, or puts a right value where one is required.
fn repair(tree: &mut Value, problem: &Problem) -> bool {
    let steps = steps(&problem.field);
    let Some((last, outer)) = steps.split_last() else { return false };
    let mut node = tree;
    for step in outer {
        let inner = match step {
            Step::Key(key) => node.get_mut(*key),
            Step::Index(index) => node.get_mut(*index),
        };
        let Some(inner) = inner else { return false };
        node = inner;
    }
    match (node, last) {
        (Value::Object(fields), Step::Key(key)) => {
            match required(key) {
                Some(value) => fields.insert((*key).to_owned(), value),
                None => fields.remove(*key),
            };
            true
        }
        (Value::Array(elements), Step::Index(index)) if *index < elements.len() => {
            let list = outer.iter().rev().find_map(|step| match step {
                Step::Key(key) => Some(*key),
                Step::Index(_) => None,
            });
            elements[*index] = element(list.unwrap_or_default());
            true
        }
        _ => false,
    }
}

/// One step from a field to one in it.
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// The steps of a path such as `cache.rules[0].start`.
fn steps(field: &str) -> Vec<Step<'_>> {
    let parts = field.split(['.', '[']).filter(|part| !part.is_empty());
    let step = |part: &'_ str| part.strip_suffix(']').and_then(|index| index.parse().ok());
    parts.map(|part| step(part).map_or(Step::Key(part), Step::Index)).collect()
}

fn required(key: &str) -> Option<Value> {
    match key {
        "apiVersion" => Some(json!("listless.dev/v1alpha1")),
        "kind" => Some(json!("ProxyConfiguration")),
        "resources" => Some(json!(["pods"])),
        _ => None,
    }
}

/// An element that a list of this key may have.
fn element(list: &str) -> Value {
    match list {
        "rules" => json!({"resources": ["pods"]}),
        "verbs" => json!("get"),
        "forms" => json!("json"),
        _ => json!("any"),
    }
}
