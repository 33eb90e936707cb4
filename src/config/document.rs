//! The configuration as text: with comments, as a JSON Schema, or as it is in effect.

use std::collections::HashSet;

use serde_json::Value;

use super::raw::RawConfig;
use crate::terminal;

const INTRODUCTION: &str = "\
# The configuration of Listless, with every default. Omitted keys keep their default.
# An unknown key is an error. Listless applies a changed file without a restart.

";

/// The line width of comments.
const COLUMNS_MAX: usize = 100;

/// Returns every key with its default and its meaning, as YAML.
pub fn default_document() -> String {
    let schema = schema();
    let mut commented = HashSet::new();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut out = String::from(INTRODUCTION);
    for line in effective_document(&RawConfig::default()).lines() {
        let content = line.trim_start_matches([' ', '-']);
        let (indent, dash) = (line.len() - content.len(), line.find('-').unwrap_or(usize::MAX));
        if let Some((key, _)) = content.split_once(':') {
            path.retain(|(depth, _)| *depth < indent);
            path.push((indent, key.to_owned()));
            let keys: Vec<&str> = path.iter().map(|(_, key)| key.as_str()).collect();
            if commented.insert(keys.join(".")) {
                push_comment(&mut out, &comment(&schema, &keys), indent.min(dash));
            }
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Returns a configuration with its defaults filled in, as YAML.
pub fn effective_document(config: &RawConfig) -> String {
    serde_saphyr::to_string(config).expect("a configuration has only text, numbers and lists")
}

/// Returns the JSON Schema of the file.
pub fn schema() -> Value {
    schemars::schema_for!(RawConfig).to_value()
}

/// Returns the JSON Schema of the file, as text.
pub fn schema_document() -> String {
    let text = serde_json::to_string_pretty(&schema()).expect("a JSON value serializes");
    text + "\n"
}

/// Returns the schema of the field with these keys. Elements of lists have no key.
pub fn schema_of<'a>(schema: &'a Value, keys: &[&str]) -> Option<&'a Value> {
    keys.iter().try_fold(schema, |node, key| resolve(schema, node).get("properties")?.get(key))
}

/// Follows `items` and `$ref`.
fn resolve<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    if let Some(items) = node.get("items") {
        return resolve(schema, items);
    }
    let name = node.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
    match name.and_then(|name| schema.get("$defs")?.get(name)) {
        Some(definition) => resolve(schema, definition),
        None => node,
    }
}

/// Returns the allowed values of a field. Empty if they cannot be listed.
pub fn choices(schema: &Value, keys: &[&str]) -> Vec<String> {
    let node = schema_of(schema, keys).map(|node| resolve(schema, node));
    let variants = node.and_then(|node| node.get("oneOf")?.as_array());
    let constants = variants.into_iter().flatten().filter_map(|variant| variant.get("const"));
    constants.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn comment(schema: &Value, keys: &[&str]) -> String {
    let described = schema_of(schema, keys).and_then(|node| node.get("description"));
    let text = described.and_then(Value::as_str).unwrap_or_default();
    match choices(schema, keys) {
        choices if choices.len() > 1 => format!("{text} One of {}.", choices.join(", ")),
        _ => text.to_owned(),
    }
}

fn push_comment(out: &mut String, text: &str, indent: usize) {
    let start = format!("{}# ", " ".repeat(indent));
    out.push_str(&terminal::wrap(&start, &start, text, COLUMNS_MAX));
}
