//! Computes the changes that add a sidecar to a pod, or the reason why the pod is skipped.
//!
//! It is one pure function for the webhook, the command line and the tests. Invariants: its own
//! output needs no change. Every change can be undone exactly. It never changes commands,
//! arguments, ports, probes, labels or the service account. In doubt a pod is skipped, because a
//! pod without a sidecar works and one with a broken sidecar does not start.

mod edit;
mod environment;
mod mounts;
mod pod;
mod quantity;
mod reason;
mod refuse;
mod settings;
mod sidecar;
mod status;
#[cfg(test)]
mod tests;
mod undo;

use serde_json::{Map, Value, json};

use self::{
    edit::Editor,
    mounts::{Mount, SERVICE_ACCOUNT},
    pod::{ContainerPlace, List, Pod, name},
    settings::{CONFIG, Choice, Wish},
    status::{STATUS, Status, Undo},
};
pub use self::{
    edit::{Action, Operation, Pointer},
    pod::SIDECAR,
    reason::{Note, Skip, SkipReason},
    settings::{Origin, Resources, Settings, freshness_named, mode_named},
    undo::undo,
};

/// The changes of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// The changes in order, at least one.
    pub operations: Vec<Operation>,
    /// The notes for its owner.
    pub notes: Vec<Note>,
}

/// A container that is redirected to the sidecar.
struct Redirected<'a> {
    place: ContainerPlace<'a>,
    /// The volume of its service account and the index of its mount. `None` if it has no such mount
    /// yet.
    mount: Option<(&'a str, usize)>,
}

/// The containers of a pod, by their treatment.
struct Plan<'a> {
    redirected: Vec<Redirected<'a>>,
    notes: Vec<Note>,
}

/// Returns the changes of a pod, or of a pod template, in a namespace.
pub fn patch(pod: &Value, namespace: &str, settings: &Settings) -> Result<Patch, Skip> {
    let pod = Pod::read(pod)?;
    refuse::unwanted(&pod, namespace, settings)?;
    match (pod.sidecar(), Status::read(&pod)) {
        (Some(_), Some(status)) => return complete(&pod, status),
        (None, _) if pod.annotation(STATUS).is_some() => {
            return Err(SkipReason::IncompleteInjection.into());
        }
        _ => {}
    }
    refuse::unfit(&pod)?;
    let choice = Choice::of(&pod, settings)?;
    refuse::taken(&pod, choice.port)?;
    let plan = Plan::of(&pod, settings.origin)?;
    let places: Vec<_> =
        plan.redirected.iter().map(|redirected| redirected.place.clone()).collect();
    refuse::conflicts(&places, choice.port)?;
    let operations = inject(&pod, &plan, &places, &choice, settings);
    Ok(Patch { operations, notes: plan.notes })
}

/// Returns the injector's version that a pod records.
pub fn injected_by(pod: &Value) -> Option<String> {
    Status::read(&Pod::read(pod).ok()?).map(|status| status.version)
}

/// Reports whether a label or an annotation of a pod disables injection.
pub fn is_opted_out(pod: &Value) -> bool {
    let wish = Pod::read(pod).and_then(|pod| settings::wish(&pod));
    wish.is_ok_and(|wish| wish == Wish::No)
}

/// Returns all changes of a pod without a sidecar.
fn inject(
    pod: &Pod<'_>,
    plan: &Plan<'_>,
    places: &[ContainerPlace<'_>],
    choice: &Choice,
    settings: &Settings,
) -> Vec<Operation> {
    let sources = plan.sources();
    let mut status = Status {
        version: settings.version.clone(),
        rev: settings.revision.clone(),
        mode: settings::mode_name(choice.mode).to_owned(),
        port: choice.port,
        mirrors: sidecar::mirrors(&sources),
        ..Status::default()
    };
    let mut editor = Editor::new(pod.value());
    for redirected in &plan.redirected {
        redirect(&mut editor, redirected, &mut status);
    }
    let container = sidecar::container(pod, places, &sources, choice);
    let was = editor.insert(&List::Init.pointer(), 0, vec![container]);
    status.undo.note_empty("initContainers", was);
    let volumes = sidecar::volumes(&sources);
    let was = editor.insert(&["spec", "volumes"].into_iter().collect(), usize::MAX, volumes);
    status.undo.note_empty("volumes", was);
    add_pull_secrets(&mut editor, pod, settings, &mut status.undo);
    annotate(&mut editor, status, choice.generated_config.as_deref());
    editor.finish()
}

/// Returns the missing changes of a pod with a sidecar: containers that were added after the
/// injection.
fn complete(pod: &Pod<'_>, mut status: Status) -> Result<Patch, Skip> {
    let Ok(plan) = Plan::of(pod, Origin::Admission) else {
        return Err(SkipReason::AlreadyInjected.into());
    };
    let upstream = &pod.containers(List::Init)[pod.sidecar().unwrap_or(0)];
    let mut editor = Editor::new(pod.value());
    let mut notes = Vec::new();
    for redirected in &plan.redirected {
        let container = redirected.place.container;
        let volume = redirected.mount.map_or("", |(volume, _)| volume);
        let is_led = status.mirrors.contains_key(volume);
        let is_mirrored = status.mirrors.values().any(|source| source == volume);
        let is_new = is_mirrored && refuse::is_for(container, upstream);
        if is_led || is_new {
            redirect(&mut editor, redirected, &mut status);
            notes.extend(is_new.then(|| kubeconfig_note(container)).flatten());
        }
    }
    if !editor.has_changed() {
        return Err(SkipReason::AlreadyInjected.into());
    }
    editor.set(annotation(STATUS), json!(status.to_text()));
    Ok(Patch { operations: editor.finish(), notes })
}

/// Redirects one container to the sidecar: its variables, and its mount of the service account.
fn redirect(editor: &mut Editor, redirected: &Redirected<'_>, status: &mut Status) {
    let (place, name) = (redirected.place.pointer(), name(redirected.place.container));
    let before = status.undo.env.entry(name.to_owned()).or_default();
    let is_led = status.containers.iter().any(|led| led == name);
    let was = environment::redirect(editor, &place, status.port, is_led, before);
    if before.is_empty() {
        status.undo.env.remove(name);
    }
    status.undo.note_empty(format!("{name}/env"), was);
    let mirror_of = |source: &str| {
        let mut mirrors = status.mirrors.iter();
        mirrors.find(|(_, of)| *of == source).map(|(mirror, _)| mirror.clone())
    };
    let mounts = place.child("volumeMounts");
    match redirected.mount {
        Some((volume, index)) => {
            if let Some(mirror) = mirror_of(volume) {
                editor.set(mounts.child(index).child("name"), json!(mirror));
            }
        }
        None => {
            if let Some(mirror) = mirror_of(sidecar::TOKEN_VOLUME) {
                let mount = json!({"name": mirror, "mountPath": SERVICE_ACCOUNT, "readOnly": true});
                let was = editor.insert(&mounts, usize::MAX, vec![mount]);
                status.undo.note_empty(format!("{name}/volumeMounts"), was);
            }
        }
    }
    if !is_led {
        status.containers.push(name.to_owned());
    }
}

fn add_pull_secrets(editor: &mut Editor, pod: &Pod<'_>, settings: &Settings, undo: &mut Undo) {
    let there = pod::list(pod.spec(), "imagePullSecrets");
    let missing = |secret: &&String| !there.iter().any(|known| name(known) == secret.as_str());
    let added: Vec<_> = settings.image_pull_secrets.iter().filter(missing).cloned().collect();
    if added.is_empty() {
        return;
    }
    let secrets = added.iter().map(|name| json!({"name": name})).collect();
    let list = ["spec", "imagePullSecrets"].into_iter().collect();
    let was = editor.insert(&list, usize::MAX, secrets);
    undo.note_empty("imagePullSecrets", was);
    undo.image_pull_secrets = added;
}

/// Records the injection in the pod's annotations. The pod's own configuration is kept if none was
/// generated.
fn annotate(editor: &mut Editor, mut status: Status, config: Option<&str>) {
    status.undo.own_config = config.is_none();
    let [metadata, annotations] = [&ANNOTATIONS[..1], &ANNOTATIONS].map(|path| {
        let path: Pointer = path.iter().collect();
        path.of(editor.document()).cloned()
    });
    let is_empty = |value: &Value| value.as_object().is_none_or(Map::is_empty);
    for (name, was) in [("metadata", &metadata), ("annotations", &annotations)] {
        status.undo.note_empty(name, was.clone().filter(is_empty));
    }
    let mut added = Map::new();
    added.extend(config.map(|config| (CONFIG.to_owned(), json!(config))));
    added.insert(STATUS.to_owned(), json!(status.to_text()));
    if annotations.is_some_and(|annotations| !is_empty(&annotations)) {
        added.into_iter().for_each(|(name, value)| editor.set(annotation(&name), value));
    } else if metadata.is_some_and(|metadata| !is_empty(&metadata)) {
        editor.set(ANNOTATIONS.into_iter().collect(), Value::Object(added));
    } else {
        editor.set(ANNOTATIONS[..1].iter().collect(), json!({"annotations": added}));
    }
}

const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];

fn annotation(name: &str) -> Pointer {
    ANNOTATIONS.into_iter().collect::<Pointer>().child(name)
}

// === impl Plan ===

impl<'a> Plan<'a> {
    fn of(pod: &Pod<'a>, origin: Origin) -> Result<Self, Skip> {
        let mut plan = Self { redirected: Vec::new(), notes: Vec::new() };
        let mounted_later = origin == Origin::Manifest
            && pod.spec()["automountServiceAccountToken"] != json!(false);
        for place in pod.served() {
            let mount = match mounts::of(pod, &place)? {
                Mount::Volume { volume, index } => Some((volume, index)),
                Mount::Absent if mounted_later => None,
                Mount::Absent => continue,
                Mount::Unusable(detail) => {
                    let container = name(place.container).to_owned();
                    plan.notes.push(Note::VolumeLeftAlone { container, detail });
                    continue;
                }
            };
            if refuse::has_left_the_cluster(place.container) {
                continue;
            }
            let is_led = mount.is_some_and(|(volume, _)| sidecar::is_ours(volume));
            if !is_led && environment::may_hide_exceptions(place.container) {
                let container = name(place.container).to_owned();
                plan.notes.push(Note::UnknownProxyExceptions { container });
                continue;
            }
            plan.notes.extend(kubeconfig_note(place.container));
            plan.redirected.push(Redirected { place, mount });
        }
        if !plan.redirected.is_empty() {
            return Ok(plan);
        }
        let skip = plan.notes.into_iter().find_map(|note| match note {
            Note::VolumeLeftAlone { detail, .. } => {
                Some(Skip::because(SkipReason::UnusableServiceAccount, detail))
            }
            Note::UnknownProxyExceptions { container } => {
                let detail = format!("container {container}");
                Some(Skip::because(SkipReason::UnknownProxyExceptions, detail))
            }
            Note::KubeconfigPresent { .. } => None,
        });
        Err(skip.unwrap_or_else(|| SkipReason::NoServiceAccountMount.into()))
    }

    /// Returns the volumes to copy. The sidecar reads as the first, the workload's own.
    fn sources(&self) -> Vec<&'a str> {
        let of = |list: List| self.redirected.iter().filter(move |one| one.place.list == list);
        let mut sources = Vec::new();
        for redirected in of(List::Main).chain(of(List::Init)) {
            let source = redirected.mount.map_or(sidecar::TOKEN_VOLUME, |(volume, _)| volume);
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        sources
    }
}

fn kubeconfig_note(container: &Value) -> Option<Note> {
    let noted = refuse::has_kubeconfig(container);
    noted.then(|| Note::KubeconfigPresent { container: name(container).to_owned() })
}
