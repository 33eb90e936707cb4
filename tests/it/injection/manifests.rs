//! Injection into manifest files.

use std::path::PathBuf;

use listless::injector::{
    manifest::{Change, Rewritten, inject, uninject},
    patch::{Origin, Settings, SkipReason, patch},
    workload::templates,
};
use serde_json::Value;

use super::{golden, is_update, read, settings};

fn manifest_settings() -> Settings {
    Settings { origin: Origin::Manifest, ..settings() }
}

fn manifests() -> Vec<PathBuf> {
    let folder = golden("manifests");
    let entries = std::fs::read_dir(folder).expect("the folder");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| !path.to_string_lossy().contains(".injected."));
    files.sort();
    files
}

fn injected(text: &str) -> Rewritten {
    inject(text, &manifest_settings()).expect("manifests")
}

/// All objects of a file.
fn objects(text: &str) -> Vec<Value> {
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).expect("YAML");
    objects.into_iter().filter(|object| !object.is_null()).collect()
}

/// The objects with every pod patched, compared without their text.
fn patched(text: &str) -> Vec<Value> {
    let mut objects = objects(text);
    for object in &mut objects {
        for template in templates(object) {
            let pod = template.pointer.of(object).expect("a pod").clone();
            if let Ok(patch) = patch(&pod, &template.namespace, &manifest_settings()) {
                for operation in &patch.operations {
                    operation.below(&template.pointer).apply(object);
                }
            }
        }
    }
    objects
}

#[test]
fn manifests_have_their_expected_result() {
    for path in manifests() {
        let extension = path.extension().expect("an extension").to_string_lossy().into_owned();
        let beside = path.with_extension(format!("injected.{extension}"));
        let text = injected(&read(&path)).text;
        if is_update() {
            std::fs::write(&beside, &text).expect("the file is written");
        }
        assert_eq!(text, read(&beside), "{}", path.display());
    }
}

#[test]
fn injected_manifests_equal_the_patched_objects() {
    for path in manifests().into_iter().filter(|path| !path.ends_with("anchors.yaml")) {
        let text = read(&path);
        assert_eq!(objects(&injected(&text).text), patched(&text), "{}", path.display());
    }
}

#[test]
fn uninject_restores_every_byte_except_expanded_anchors() {
    for path in manifests() {
        let text = read(&path);
        let after = injected(&text).text;
        let back = uninject(&after).expect("manifests");
        if path.ends_with("anchors.yaml") {
            let again = uninject(&injected(&back.text).text).expect("manifests");
            assert_eq!(again.text, back.text, "{}", path.display());
        } else {
            assert_eq!(back.text, text, "{}", path.display());
        }
    }
}

#[test]
fn injecting_again_changes_nothing_and_other_settings_replace_the_sidecar() {
    for path in manifests() {
        let text = read(&path);
        let once = injected(&text);
        let twice = injected(&once.text);
        assert_eq!(twice.text, once.text, "{}", path.display());
        for (before, after) in once.reports.iter().zip(&twice.reports) {
            if matches!(before.change, Change::Injected(_)) {
                let already = SkipReason::AlreadyInjected.into();
                assert_eq!(after.change, Change::Skipped(already), "{after}");
            }
        }
        let newer = Settings { version: "2.0.0".to_owned(), port: 26443, ..manifest_settings() };
        let replaced = inject(&once.text, &newer).expect("manifests");
        assert_eq!(
            objects(&replaced.text),
            objects(&inject(&text, &newer).expect("manifests").text)
        );
    }
}

#[test]
fn documents_without_pods_keep_every_byte() {
    let text = "a: 1\n---\n# x\n\n---\n{\"kind\": \"Service\",   \"apiVersion\": 'v1'}\n...\n";
    assert_eq!(injected(text).text, text);
    let text = "%YAML 1.2\n---\nkind: Deployment\napiVersion: example.com/v1\nspec: [1,  2]";
    assert_eq!(injected(text).text, text);
    assert_eq!(injected("").text, "");
}

#[test]
fn the_result_for_each_pod_is_printed() {
    let text = read(&golden("manifests").join("kinds.yaml"));
    let told: Vec<_> = injected(&text).reports.iter().map(ToString::to_string).collect();
    assert_eq!(told[0], "document 1: StatefulSet db: injected");
    assert!(told[1].starts_with("document 2: DaemonSet agent: not injected: host_network: "));
    assert_eq!(told[4], "document 5: Job (unnamed): injected");
    assert!(told[6].starts_with("document 7: Pod by-hand: not injected: opted_out: "));
    let told: Vec<_> =
        uninject(&text).expect("manifests").reports.iter().map(ToString::to_string).collect();
    assert_eq!(told[0], "document 1: StatefulSet db: nothing to remove");
}

#[test]
fn errors_name_line_document_and_field() {
    let told = |text: &str| inject(text, &manifest_settings()).unwrap_err().to_string();
    let nothing = "a: 1\n---\napiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 1\n";
    assert_eq!(told(nothing), "6:3: document 2: spec.template: there is no pod template");
    let no_list = "apiVersion: v1\nkind: Pod\nspec:\n  containers: none\n";
    assert_eq!(told(no_list), "4:3: document 1: spec.containers is not a list");
    let twice = "a: 1\n---\n\nb: 1\nb: 2\n";
    assert_eq!(told(twice), "5:1: document 2: b is set twice; remove one");
    let broken = told("a: [1, 2\nb: }\n");
    assert!(broken.contains(": document 1: "), "{broken}");
    assert!(told("a: *nowhere\n").contains("document 1: "));
    for two in ["{\"a\": 1}\n{\"b\": 2}\n", "a: 1\n...\nb: 2\n"] {
        assert!(told(two).contains("document 1: "), "{}", told(two));
    }
    assert!(inject("a: 1\n...\n---\nb: 2\n", &manifest_settings()).is_ok());
}

#[test]
fn windows_line_ends_and_a_missing_last_one_do_no_harm() {
    let text =
        "apiVersion: v1\r\nkind: Pod\r\nspec:\r\n  containers:\r\n  - name: a\r\n    image: b";
    let after = injected(text).text;
    let sidecar = &objects(&after)[0]["spec"]["initContainers"][0]["name"];
    assert_eq!(sidecar, "listless-proxy");
    assert_eq!(objects(&uninject(&after).expect("manifests").text), objects(text));
}
