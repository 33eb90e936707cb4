//! The files in the repository: the default one, the examples, the page that explains each key.

use std::{
    fs,
    path::{Path, PathBuf},
};

use listless::config::{
    Config, RawConfig, choices, default_document, effective_document, schema, schema_of,
};
use serde_json::Value;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The keys of a rule that have a meaning only when they are present.
const WITHOUT_DEFAULT: [&str; 5] = [
    "cache.rules.forms",
    "cache.rules.namespaces",
    "cache.rules.selectors",
    "cache.rules.userAgents",
    "cache.rules.verbs",
];

#[test]
fn the_default_file_is_written_from_the_types() {
    let file = repository("config/default.yaml");
    if std::env::var_os("LISTLESS_UPDATE").is_some() {
        fs::write(&file, default_document()).expect("the file can be written");
    }
    let written = fs::read_to_string(&file).expect("config/default.yaml");
    let hint = "out of date: LISTLESS_UPDATE=1 cargo test --test it config";
    assert!(written == default_document(), "{hint}");
}

#[test]
fn the_default_file_equals_an_empty_one() {
    let config = Config::load(&repository("config/default.yaml")).expect("a good file");
    assert_eq!(*config.raw(), RawConfig::default());
    assert_eq!(config.warnings(), []);
}

#[test]
fn every_key_of_the_default_file_has_a_comment() {
    let text = default_document();
    let lines: Vec<_> = text.lines().collect();
    for key in keys(&schema(), &schema()) {
        let last = key.rsplit('.').next().expect("a name");
        let field = format!("{last}:");
        let Some(at) =
            lines.iter().position(|line| line.trim_start_matches([' ', '-']).starts_with(&field))
        else {
            assert!(WITHOUT_DEFAULT.contains(&key.as_str()), "{key} is not in the file");
            continue;
        };
        assert!(lines[at - 1].trim_start().starts_with("# "), "{key}");
    }
}

#[test]
fn every_example_is_valid_without_warnings() {
    let directory = fs::read_dir(repository("config/examples")).expect("config/examples");
    let files: Vec<_> = directory.map(|entry| entry.expect("an entry").path()).collect();
    assert!(files.len() >= 3, "{files:?}");
    for file in files {
        let config = Config::load(&file).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.warnings(), [], "{}", file.display());
    }
}

#[test]
fn the_effective_configuration_parses_back_to_itself() {
    for file in ["operator", "observe", "pollers", "strict"] {
        let file = repository(&format!("config/examples/{file}.yaml"));
        let config = Config::load(&file).expect("a good file");
        let text = effective_document(config.raw());
        let again = Config::from_bytes(&file, text.as_bytes()).expect("a good file");
        assert_eq!(again.raw(), config.raw(), "{text}");
    }
}

/// Every key of the schema, for example `cache.rules.start`.
fn keys(schema: &Value, node: &Value) -> Vec<String> {
    let Some(properties) = node.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (name, property) in properties {
        found.push(name.clone());
        let inner = property.get("items").unwrap_or(property);
        let reference = inner.get("$ref").and_then(Value::as_str);
        let definition = reference.and_then(|path| path.rsplit('/').next());
        if let Some(definition) = definition.and_then(|name| schema.get("$defs")?.get(name)) {
            found.extend(keys(schema, definition).iter().map(|key| format!("{name}.{key}")));
        }
    }
    found
}

/// The part of the page under the heading of a key.
fn section<'a>(page: &'a str, key: &str) -> Option<&'a str> {
    let (_, after) = page.split_once(&format!("\n### `{key}`\n"))?;
    Some(after.split("\n### ").next().unwrap_or(after).split("\n## ").next().unwrap_or(after))
}

#[test]
fn the_page_explains_every_key_with_its_default_and_choices() {
    let page = fs::read_to_string(repository("docs/configuration.md")).expect("the page");
    let schema = schema();
    let keys = keys(&schema, &schema);
    assert!(keys.len() > 15, "the schema is really read: {keys:?}");
    for key in &keys {
        let heading = key.replace("cache.rules.", "cache.rules[].");
        let text = section(&page, &heading).unwrap_or_else(|| panic!("no heading for {heading}"));
        let parts: Vec<_> = key.split('.').collect();
        for choice in choices(&schema, &parts) {
            assert!(text.contains(&format!("`{choice}`")), "{key} does not mention {choice}");
        }
        let default = schema_of(&schema, &parts).and_then(|node| node.get("default"));
        let default = match default {
            Some(Value::String(text)) if text.is_empty() => "empty".to_owned(),
            Some(Value::String(text)) => format!("`{text}`"),
            Some(Value::Number(number)) => format!("`{number}`"),
            Some(Value::Bool(truth)) => format!("`{truth}`"),
            _ => continue,
        };
        assert!(text.contains(&format!("Default: {default}")), "{key}: {default}");
    }
    assert!(page.contains("Every key is reloaded"), "the page does not list the reloaded keys");
    let headings = page.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    for heading in headings {
        assert!(keys.contains(&heading.replace("[]", "")), "{heading} is no key");
    }
}
