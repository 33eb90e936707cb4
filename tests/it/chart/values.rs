//! The values of the chart: read with their comments, as lines of a page, and as parts of a schema.
//!
//! A line scanner for the plain form of `values.yaml`, two blanks a level; a key without a comment
//! is an error.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

pub(super) const BEGIN: &str = "<!-- values: written from values.yaml -->";
pub(super) const END: &str = "<!-- values: end -->";

/// A key of `values.yaml` with the comment above it.
#[derive(Debug)]
pub(super) struct Key {
    /// Its path, for example `image.tag`.
    pub(super) path: String,
    /// Its meaning.
    pub(super) comment: String,
    /// Its default; none for a section, whose keys follow.
    pub(super) default: Option<Value>,
}

/// Reads all keys in order. A value's comment begins with `# --`, a section's does not.
pub(super) fn read_keys(text: &str) -> Result<Vec<Key>, String> {
    let defaults: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let mut keys: Vec<Key> = Vec::new();
    let mut stack: Vec<&str> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let inside = keys.last().is_some_and(|key: &Key| {
            key.default.is_some() && depth(line) > key.path.matches('.').count()
        });
        let Some((name, _)) = trimmed.split_once(':').filter(|_| !inside) else {
            comment.clear();
            continue;
        };
        let here = depth(line);
        stack.truncate(here);
        stack.push(name);
        let path = stack.join(".");
        let said = comment.join(" ");
        comment.clear();
        if said.is_empty() {
            return Err(format!("values.yaml:{}: {path} has no comment", index + 1));
        }
        let (comment, default) = match said.strip_prefix("-- ") {
            Some(said) => (said.to_owned(), defaults.pointer(&pointer(&path)).cloned()),
            None => (said, None),
        };
        keys.push(Key { path, comment, default });
    }
    Ok(keys)
}

fn depth(line: &str) -> usize {
    (line.len() - line.trim_start().len()) / 2
}

fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

/// A list for each section.
pub(super) fn page(keys: &[Key]) -> String {
    let mut sections: Vec<(String, String)> = vec![(String::new(), String::new())];
    for key in keys {
        let Some(default) = &key.default else {
            if !key.path.contains('.') {
                let heading = format!("### {}\n\n{}\n\n", key.path, key.comment);
                sections.push((key.path.clone(), heading));
            }
            continue;
        };
        // Keys that belong to no section come first.
        let section = key.path.split('.').next();
        let at = sections.iter().position(|(name, _)| section == Some(name.as_str()));
        let (_, text) = &mut sections[at.unwrap_or_default()];
        text.push_str(&format!("- `{}` (`{default}`): {}\n", key.path, key.comment));
    }
    sections.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n")
}

/// The schema with every value's comment as its description, and the schema of the configuration.
pub(super) fn schema_with(mut schema: Value, keys: &[Key], configuration: Value) -> Value {
    for key in keys {
        let node = node_mut(&mut schema, &key.path);
        node.insert("description".to_owned(), Value::String(key.comment.clone()));
    }
    let definitions = schema["definitions"].as_object_mut().expect("definitions");
    definitions.retain(|name, _| !name.starts_with("configuration"));
    definitions.extend(renamed(configuration));
    schema
}

fn node_mut<'a>(schema: &'a mut Value, path: &str) -> &'a mut Map<String, Value> {
    let schema_path = format!("/properties/{}", path.replace('.', "/properties/"));
    // A schema that several keys share is a definition. None of the keys describes it there.
    let shared = "/definitions/serviceAccount/properties/";
    let place = match path.split_once(".serviceAccount.") {
        Some((_, name)) => format!("{shared}{name}"),
        None => schema_path,
    };
    let node = schema.pointer_mut(&place).and_then(Value::as_object_mut);
    node.unwrap_or_else(|| panic!("{path}: not in values.schema.json"))
}

/// The configuration's schema as definitions of another one, in the older draft that Helm reads.
fn renamed(mut schema: Value) -> BTreeMap<String, Value> {
    let root = schema.as_object_mut().expect("an object");
    let parts = root.remove("$defs").expect("parts");
    root.remove("$schema");
    root.remove("title");
    // The chart writes these two.
    let heads = ["apiVersion", "kind"];
    let properties = root["properties"].as_object_mut().expect("properties");
    properties.retain(|name, _| !heads.contains(&&**name));
    if let Some(required) = root.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| !heads.iter().any(|head| name == head));
    }
    root.retain(|name, value| name != "required" || value != &Value::Array(Vec::new()));
    let mut found = BTreeMap::from([("configuration".to_owned(), schema)]);
    for (name, part) in parts.as_object().expect("an object") {
        if !["ApiVersion", "Kind"].contains(&&**name) {
            found.insert(format!("configuration{name}"), part.clone());
        }
    }
    found.values_mut().for_each(rename);
    found
}

fn rename(node: &mut Value) {
    match node {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "$ref" => {
                        *text = text.replace("#/$defs/", "#/definitions/configuration");
                    }
                    value => rename(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rename),
        _ => {}
    }
}

/// Every path that the schema names.
pub(super) fn schema_paths(schema: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    walk(schema, schema, "", &mut found);
    found
}

fn walk(root: &Value, node: &Value, path: &str, found: &mut BTreeSet<String>) {
    let node = match node["$ref"].as_str() {
        Some(place) => root.pointer(place.trim_start_matches('#')).expect("a definition"),
        None => node,
    };
    for (name, inner) in node["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        walk(root, inner, &path, found);
        found.insert(path);
    }
}

/// Calls with every part of the schema that names properties.
pub(super) fn every_object(schema: &Value, check: &mut dyn FnMut(&Value)) {
    match schema {
        Value::Object(map) => {
            let is_condition = |name: &str| matches!(name, "if" | "then");
            if map.contains_key("properties") && map.contains_key("type") {
                check(schema);
            }
            let parts = map.iter().filter(|(name, _)| !is_condition(name));
            parts.for_each(|(_, part)| every_object(part, check));
        }
        Value::Array(items) => items.iter().for_each(|item| every_object(item, check)),
        _ => {}
    }
}
