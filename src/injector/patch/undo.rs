//! Reverts an injection.

use serde_json::Value;

use super::{
    annotation,
    edit::{Editor, Operation, Pointer},
    environment,
    pod::{ContainerPlace, List, Pod, SIDECAR, list, name},
    reason::Skip,
    settings::CONFIG,
    sidecar::{TOKEN_VOLUME, is_ours},
    status::{STATUS, Status},
};

/// Returns the changes that revert a pod or pod template. Empty if it was never injected. Later
/// containers and volumes stay.
pub fn undo(pod: &Value) -> Result<Vec<Operation>, Skip> {
    let pod = Pod::read(pod)?;
    let Some(status) = Status::read(&pod) else { return Ok(Vec::new()) };
    let mut editor = Editor::new(pod.value());
    for place in pod.places() {
        if status.containers.iter().any(|led| led == name(place.container)) {
            lead_back(&mut editor, &place, &status);
        }
    }
    let empty = &status.undo.empty;
    remove(&mut editor, List::Init.pointer(), |container| name(container) == SIDECAR);
    editor.tidy(List::Init.pointer(), empty.get("initContainers"));
    let volumes: Pointer = ["spec", "volumes"].into_iter().collect();
    remove(&mut editor, volumes.clone(), |volume| is_ours(name(volume)));
    editor.tidy(volumes, empty.get("volumes"));
    let secrets: Pointer = ["spec", "imagePullSecrets"].into_iter().collect();
    let added = &status.undo.image_pull_secrets;
    if !added.is_empty() {
        remove(&mut editor, secrets.clone(), |secret| added.iter().any(|n| n == name(secret)));
        editor.tidy(secrets, empty.get("imagePullSecrets"));
    }
    editor.remove(annotation(STATUS));
    if !status.undo.own_config && annotation(CONFIG).of(editor.document()).is_some() {
        editor.remove(annotation(CONFIG));
    }
    editor.tidy(["metadata", "annotations"].into_iter().collect(), empty.get("annotations"));
    editor.tidy(["metadata"].into_iter().collect(), empty.get("metadata"));
    Ok(editor.finish())
}

/// Restores one container's variables and service account mount.
fn lead_back(editor: &mut Editor, place: &ContainerPlace<'_>, status: &Status) {
    let (container, name_of) = (place.pointer(), name(place.container));
    let nothing = environment::Before::new();
    let before = status.undo.env.get(name_of).unwrap_or(&nothing);
    let was = status.undo.empty.get(&format!("{name_of}/env"));
    environment::restore(editor, &container, status.port, before, was);
    let mounts = container.child("volumeMounts");
    for (index, mount) in list(place.container, "volumeMounts").iter().enumerate().rev() {
        match status.mirrors.get(name(mount)).map(String::as_str) {
            None => {}
            Some(TOKEN_VOLUME) => editor.remove(mounts.child(index)),
            Some(source) => {
                editor.set(mounts.child(index).child("name"), Value::from(source));
            }
        }
    }
    editor.tidy(mounts, status.undo.empty.get(&format!("{name_of}/volumeMounts")));
}

/// Removes elements from the last to the first, so that indices stay valid.
fn remove(editor: &mut Editor, path: Pointer, is_gone: impl Fn(&Value) -> bool) {
    let Some(Value::Array(elements)) = path.of(editor.document()) else { return };
    let gone: Vec<_> =
        elements.iter().enumerate().filter(|(_, element)| is_gone(element)).collect();
    let gone: Vec<usize> = gone.into_iter().map(|(index, _)| index).rev().collect();
    for index in gone {
        editor.remove(path.child(index));
    }
}
