//! Checks of the chart without Helm. Its values, their schema and its page agree, and the program
//! accepts the command lines and configurations that it renders.
//!
//! `tests/cluster/chart` renders and installs it; the rendered files below `tests/golden/chart` are
//! read here.

mod values;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use listless::config::Config;
use serde_json::Value;

use values::{Key, page, read_keys, schema_with};

const HINT: &str = "out of date: LISTLESS_UPDATE=1 cargo test --test it chart";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn keys() -> Vec<Key> {
    read_keys(&text_of("charts/listless/values.yaml")).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares a file with its expected content, or writes it.
fn hold(path: &str, wanted: &str) {
    if std::env::var_os("LISTLESS_UPDATE").is_some() {
        fs::write(repository(path), wanted).expect("the file can be written");
    }
    assert!(text_of(path) == wanted, "{path}: {HINT}");
}

/// Every rendered object of every example.
fn rendered() -> Vec<Value> {
    let files = fs::read_dir(repository("tests/golden/chart")).expect("tests/golden/chart");
    let mut objects = Vec::new();
    for file in files {
        let path = file.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a text");
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            objects.extend(object.is_object().then_some(object));
        }
    }
    assert!(objects.len() > 40, "only {} objects are rendered", objects.len());
    objects
}

/// The arguments of every rendered container.
fn command_lines() -> BTreeSet<Vec<String>> {
    let containers = |object: &Value| {
        let pod = if object["kind"] == "Pod" {
            &object["spec"]
        } else {
            &object["spec"]["template"]["spec"]
        };
        pod["containers"].as_array().cloned().unwrap_or_default()
    };
    let arguments = |container: Value| -> Vec<String> {
        serde_json::from_value(container["args"].clone()).expect("arguments")
    };
    rendered().iter().flat_map(containers).map(arguments).collect()
}

#[test]
fn every_value_has_a_comment_that_becomes_its_line_on_the_page() {
    let readme = text_of("charts/listless/README.md");
    let (before, rest) = readme.split_once(values::BEGIN).expect("where the values begin");
    let (_, after) = rest.split_once(values::END).expect("where they end");
    let wanted = format!("{before}{}\n\n{}\n{}{after}", values::BEGIN, page(&keys()), values::END);
    hold("charts/listless/README.md", &wanted);
}

#[test]
fn the_schema_describes_every_value_and_embeds_that_of_the_configuration() {
    let schema: Value = serde_json::from_str(&text_of("charts/listless/values.schema.json"))
        .expect("a schema in JSON");
    let wanted = schema_with(schema, &keys(), listless::config::schema());
    let text = serde_json::to_string_pretty(&wanted).expect("JSON") + "\n";
    hold("charts/listless/values.schema.json", &text);
}

#[test]
fn the_schema_knows_all_values_and_no_others() {
    let schema: Value = serde_json::from_str(&text_of("charts/listless/values.schema.json"))
        .expect("a schema in JSON");
    let known: BTreeSet<String> = values::schema_paths(&schema);
    let keys = keys();
    for key in &keys {
        assert!(known.contains(&key.path), "{}: not in values.schema.json", key.path);
    }
    // Helm itself adds these; the others have no default.
    let beyond = |path: &String| {
        path != "global"
            && !keys
                .iter()
                .any(|key| key.path == *path || path.starts_with(&format!("{}.", key.path)))
            && !keys.iter().any(|key| key.path.starts_with(&format!("{path}.")))
    };
    let unknown: Vec<_> = known.into_iter().filter(beyond).collect();
    assert!(unknown.is_empty(), "not in values.yaml: {unknown:?}");
}

#[test]
fn no_object_of_the_schema_takes_keys_it_does_not_name() {
    let schema: Value = serde_json::from_str(&text_of("charts/listless/values.schema.json"))
        .expect("a schema in JSON");
    values::every_object(&schema, &mut |object| {
        assert_eq!(object["additionalProperties"], false, "{object}");
    });
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart: Value =
        serde_saphyr::from_str(&text_of("charts/listless/Chart.yaml")).expect("YAML");
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_rules_and_the_dashboard_are_those_of_the_repository() {
    let pairs =
        [("charts/listless/files/rules", "yaml"), ("charts/listless/files/dashboards", "json")];
    for (folder, extension) in pairs {
        let Ok(entries) = fs::read_dir(repository(folder)) else { continue };
        for entry in entries {
            let copy = entry.expect("an entry").path();
            assert_eq!(copy.extension().and_then(|it| it.to_str()), Some(extension));
            let name = copy.file_name().expect("a name").to_string_lossy().into_owned();
            let source = format!("config/monitoring/{name}");
            if repository("config/monitoring").is_dir() {
                hold(&format!("{folder}/{name}"), &text_of(&source));
            }
        }
    }
}

#[test]
fn the_program_accepts_every_rendered_command_line() {
    let help = run(&["--help".to_owned()]).1;
    let lines = command_lines();
    assert!(lines.len() >= 4, "{lines:?}");
    for line in lines {
        let command = line.first().expect("a command").clone();
        let named = help.lines().any(|text| text.split_whitespace().next() == Some(&*command));
        let known = named || command.starts_with("--");
        assert!(known, "{command}: the program has no such command");
        // Everything in front of it is parsed first.
        let arguments = [line.clone(), vec!["--help".to_owned()]].concat();
        let (code, text) = run(&arguments);
        assert_eq!(code, Some(0), "{line:?}: {text}");
    }
}

#[test]
fn every_rendered_configuration_is_valid() {
    let mut checked = 0;
    for object in rendered() {
        let Some(text) = object["data"]["proxy.yaml"].as_str() else { continue };
        let config = Config::from_bytes("proxy.yaml".as_ref(), text.as_bytes())
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(config.warnings(), [], "{text}");
        checked += 1;
    }
    assert!(checked >= 2, "only {checked} configurations");
}

/// Returns the program's exit code and its output.
fn run(arguments: &[String]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_listless")).args(arguments).output();
    let output = output.expect("the program under test runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn the_image_has_the_version_and_the_toolchain_of_the_program() {
    let file = text_of("Dockerfile");
    assert!(file.contains(concat!("ARG VERSION=", env!("CARGO_PKG_VERSION"), "\n")), "{file}");
    let toolchain = text_of("rust-toolchain.toml");
    let channel = toolchain.split('"').nth(1).expect("a channel");
    assert!(file.contains(&format!("FROM rust:{channel}-")), "{file}");
}
