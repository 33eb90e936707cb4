//! Pods as the webhook receives them, each with its expected patch or its reason to be skipped.
//!
//! After an intended change: `LISTLESS_UPDATE=1 cargo test --test it injection`, and read the
//! difference.

use std::{collections::BTreeSet, path::Path};

use listless::injector::patch::{Patch, Skip, SkipReason, patch, undo};
use serde_json::{Value, json};

use super::{applied, files, golden, is_update, read, settings, yaml};

/// The minimum number of pods; fewer would leave out shapes that are in use.
const PODS_MIN: usize = 60;
/// The pod whose added container is the usual one.
const PLAIN: &str = "deployment-plain";
/// Reasons that no pod of the corpus can have, because it would not be a pod.
const WITHOUT_A_POD: [SkipReason; 1] = [SkipReason::Malformed];

fn pods() -> Vec<(String, Value)> {
    let name = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
    let of = files(&golden("inject"), "yaml");
    of.iter().map(|path| (name(path), yaml(&read(path)))).collect()
}

fn decided(pod: &Value) -> Result<Patch, Skip> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("");
    patch(pod, namespace, &settings())
}

/// The file beside a pod: the reason to skip it, or a line for each note and each operation.
///
/// The added container is written as its differences from the `usual` one.
fn expected(decision: &Result<Patch, Skip>, usual: &Value) -> String {
    let patch = match decision {
        Ok(patch) => patch,
        Err(skip) => return format!("skip {}: {skip}\n", skip.reason.as_str()),
    };
    let mut lines: Vec<_> = patch.notes.iter().map(|note| format!("note {note}")).collect();
    for operation in operations(patch) {
        match added_container(&operation) {
            None => lines.push(line(&operation)),
            Some(container) => {
                let differences = differences(usual, container);
                let but = if differences.is_empty() { "" } else { ", but" };
                lines.push(format!("{} the usual container{but}", place(&operation)));
                lines
                    .extend(differences.iter().map(|difference| format!("  {}", line(difference))));
            }
        }
    }
    lines.join("\n") + "\n"
}

fn operations(patch: &Patch) -> Vec<Value> {
    patch
        .operations
        .iter()
        .map(|operation| serde_json::to_value(operation).expect("JSON"))
        .collect()
}

/// The container that an operation adds, if it adds the proxy's and no other.
fn added_container(operation: &Value) -> Option<&Value> {
    let value = operation.get("value")?;
    let container = match value.as_array() {
        Some(containers) if containers.len() == 1 => &containers[0],
        Some(_) => return None,
        None => value,
    };
    (container["name"] == "listless-proxy").then_some(container)
}

fn differences(usual: &Value, container: &Value) -> Vec<Value> {
    let differences = serde_json::to_value(json_patch::diff(usual, container)).expect("JSON");
    differences.as_array().expect("operations").clone()
}

fn line(operation: &Value) -> String {
    let value = operation.get("value").map_or_else(String::new, |value| format!(" {value}"));
    format!("{}{value}", place(operation))
}

/// The operation and its path.
fn place(operation: &Value) -> String {
    let text = |field: &str| operation[field].as_str().expect("a text");
    format!("{} {}", text("op"), text("path"))
}

/// Compares a file with its expected text, or writes it.
fn is_as_expected(path: &Path, text: &str) -> bool {
    if is_update() {
        std::fs::write(path, text).expect("the file is written");
    }
    std::fs::read_to_string(path).is_ok_and(|found| found == text)
}

#[test]
fn every_pod_of_the_corpus_has_its_expected_result() {
    let pods = pods();
    assert!(pods.len() >= PODS_MIN, "{} pods", pods.len());
    let folder = golden("inject");
    let plain = &pods.iter().find(|(name, _)| name == PLAIN).expect("the plain pod").1;
    let plain = operations(&decided(plain).expect("a patch"));
    let usual = plain.iter().find_map(added_container).expect("a container");
    let usual_text = serde_json::to_string_pretty(usual).expect("JSON") + "\n";
    assert!(is_as_expected(&folder.join("usual-container.json"), &usual_text), "{usual_text}");
    let wrong: Vec<_> = pods
        .iter()
        .map(|(name, pod)| (name, expected(&decided(pod), usual)))
        .filter(|(name, text)| !is_as_expected(&folder.join(format!("{name}.expected")), text))
        .map(|(name, text)| format!("{name}: {text}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_skip_reason_has_a_pod() {
    let reasons: BTreeSet<&str> = pods()
        .iter()
        .filter_map(|(_, pod)| decided(pod).err())
        .map(|skip| skip.reason.as_str())
        .collect();
    let without = WITHOUT_A_POD.map(SkipReason::as_str);
    let missing: Vec<_> = SkipReason::ALL
        .iter()
        .map(|reason| reason.as_str())
        .filter(|reason| !reasons.contains(reason) && !without.contains(reason))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn an_injected_pod_needs_no_change_and_can_be_restored() {
    for (name, pod) in pods() {
        let Ok(patch) = decided(&pod) else { continue };
        let after = applied(&pod, &patch.operations);
        let again = decided(&after).expect_err(&name);
        assert_eq!(again.reason, SkipReason::AlreadyInjected, "{name}");
        let back = applied(&after, &undo(&after).expect(&name));
        let is_already_injected =
            pod["metadata"]["annotations"].get("listless.dev/status").is_some();
        if !is_already_injected {
            assert_eq!(back, pod, "{name}");
        }
    }
}

#[test]
fn other_json_patch_libraries_apply_the_patch_equally() {
    for (name, pod) in pods() {
        let Ok(patch) = decided(&pod) else { continue };
        let operations = serde_json::to_value(&patch.operations).expect("JSON");
        let operations: json_patch::Patch = serde_json::from_value(operations).expect("a patch");
        let mut others = pod.clone();
        json_patch::patch(&mut others, &operations).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(others, applied(&pod, &patch.operations), "{name}");
    }
}

#[test]
fn only_the_documented_fields_are_changed() {
    let may_change = |path: &str| {
        let field = path.split('/').nth(4).unwrap_or("");
        path.starts_with("/metadata/annotations")
            || path.starts_with("/spec/volumes")
            || path.starts_with("/spec/initContainers") && path.split('/').count() <= 4
            || (path.starts_with("/spec/containers/") || path.starts_with("/spec/initContainers/"))
                && ["env", "volumeMounts"].contains(&field)
    };
    for (name, pod) in pods() {
        let Ok(patch) = decided(&pod) else { continue };
        for operation in &patch.operations {
            let path = operation.path.to_string();
            assert!(may_change(&path), "{name}: {path}");
        }
    }
}

#[test]
fn every_sidecar_satisfies_restricted_namespaces_and_quotas() {
    for (name, pod) in pods() {
        let Ok(patch) = decided(&pod) else { continue };
        let after = applied(&pod, &patch.operations);
        let containers = after["spec"]["initContainers"].as_array().expect("init containers");
        let find = |container: &&Value| container["name"] == "listless-proxy";
        let sidecar = containers.iter().find(find).expect("a sidecar");
        if pod["metadata"]["annotations"].get("listless.dev/status").is_some() {
            continue;
        }
        assert_eq!(sidecar["restartPolicy"], "Always", "{name}");
        let context = &sidecar["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{name}");
        assert_ne!(context["runAsUser"], 0, "{name}");
        assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{name}");
        assert_eq!(context["seccompProfile"], json!({"type": "RuntimeDefault"}), "{name}");
        for kind in ["requests", "limits"] {
            for what in ["cpu", "memory"] {
                assert!(sidecar["resources"][kind][what].is_string(), "{name}: {kind} {what}");
            }
        }
        assert!(sidecar.get("readinessProbe").is_none(), "{name}");
        let volumes = after["spec"]["volumes"].as_array().expect("volumes");
        for volume in
            volumes.iter().filter(|v| v["name"].as_str().unwrap_or("").starts_with("listless-"))
        {
            assert!(
                volume.get("emptyDir").is_some() || volume.get("downwardAPI").is_some(),
                "{name}"
            );
        }
    }
}
