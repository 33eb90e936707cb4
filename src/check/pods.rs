//! The pods of a cluster, counted while their list arrives in parts; pure.
//!
//! Only what the checks need is kept: a bounded number of kinds, each with a count and one example.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Found, Row,
    injector::{Injector, tag},
};
use crate::injector::patch::{SIDECAR, injected_by};

/// What was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// Namespaces whose pods get a sidecar unless they say no, if that is known.
    asking: Found<BTreeSet<String>>,
    /// Pods that have not ended.
    seen: usize,
    /// Those with a sidecar, by the version of the injector.
    injected: BTreeMap<String, Group>,
    /// Whose sidecar has not started, or not again.
    not_running: Group,
    /// Whose image cannot be had, by reason.
    without_image: BTreeMap<String, Group>,
    /// Whose sidecar starts again and again.
    crashing: Group,
    /// Whose sidecar was started again sometimes.
    restarted: Group,
    /// Images of ours that run, and in how many pods.
    running: BTreeMap<String, usize>,
    /// Which ask for a sidecar and have none.
    left_out: Group,
}

/// Pods that are alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    count: usize,
    /// One of them.
    example: String,
}

/// Why a container waits that has no image.
const NO_IMAGE: &[&str] = &[
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];
/// More kinds of the same than this are one.
const KINDS_MAX: usize = 32;
/// The kind of those that are not told apart.
const OTHER: &str = "others";
/// A sidecar that was started so often has something to tell.
const RESTARTS_MANY: u64 = 3;
/// The label of what is part of Listless.
const COMPONENT: &str = "listless.dev/component";
const INJECT: &str = "listless.dev/inject";

// === impl Group ===

impl Group {
    fn add(&mut self, pod: &str) {
        self.count += 1;
        if self.example.is_empty() {
            pod.clone_into(&mut self.example);
        }
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// `3 pods, such as shop/web-0`.
    fn told(&self) -> String {
        match self.count {
            1 => format!("the pod {}", self.example),
            count => format!("{count} pods, such as {}", self.example),
        }
    }
}

// === impl Pods ===

impl Pods {
    /// None yet; pods in these namespaces ask for a sidecar unless they say no.
    pub fn new(asking: Found<Vec<String>>) -> Self {
        Self {
            asking: asking.map(|names| names.into_iter().collect()),
            seen: 0,
            injected: BTreeMap::new(),
            not_running: Group::default(),
            without_image: BTreeMap::new(),
            crashing: Group::default(),
            restarted: Group::default(),
            running: BTreeMap::new(),
            left_out: Group::default(),
        }
    }

    /// Counts one.
    pub fn add(&mut self, pod: &Value) {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or_default();
        if matches!(text("/status/phase"), "Succeeded" | "Failed") {
            return;
        }
        let called = format!("{}/{}", text("/metadata/namespace"), text("/metadata/name"));
        self.seen += 1;
        let inits = pod["spec"]["initContainers"].as_array().into_iter().flatten();
        let mut inits = inits.filter(|container| container["name"] == SIDECAR);
        if let Some(sidecar) = inits.next() {
            let version = injected_by(pod).unwrap_or_else(|| "unknown".to_owned());
            of_kind(&mut self.injected, version).add(&called);
            self.add_sidecar(pod, sidecar, &called);
        } else if pod["metadata"]["labels"].get(COMPONENT).is_some() {
            self.add_part(pod, &called);
        } else if self.asks(pod) {
            self.left_out.add(&called);
        }
    }

    fn add_sidecar(&mut self, pod: &Value, sidecar: &Value, called: &str) {
        let statuses = pod["status"]["initContainerStatuses"].as_array().into_iter().flatten();
        let mut statuses = statuses.filter(|status| status["name"] == SIDECAR);
        let status = statuses.next().unwrap_or(&Value::Null);
        let reason = status["state"]["waiting"]["reason"].as_str().unwrap_or_default();
        let restarts = status["restartCount"].as_u64().unwrap_or_default();
        if NO_IMAGE.contains(&reason) {
            of_kind(&mut self.without_image, reason.to_owned()).add(called);
        } else if reason == "CrashLoopBackOff" {
            self.crashing.add(called);
        } else if !status["state"]["running"].is_object() {
            self.not_running.add(called);
        } else {
            self.note_running(&sidecar["image"]);
            if restarts >= RESTARTS_MANY {
                self.restarted.add(called);
            }
        }
    }

    /// A pod of the injector or of a gateway.
    fn add_part(&mut self, pod: &Value, called: &str) {
        for status in pod["status"]["containerStatuses"].as_array().into_iter().flatten() {
            let reason = status["state"]["waiting"]["reason"].as_str().unwrap_or_default();
            if NO_IMAGE.contains(&reason) {
                of_kind(&mut self.without_image, reason.to_owned()).add(called);
            } else if status["state"]["running"].is_object() {
                let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
                let mut own = containers.filter(|container| container["name"] == status["name"]);
                self.note_running(own.next().map_or(&Value::Null, |container| &container["image"]));
            }
        }
    }

    fn note_running(&mut self, image: &Value) {
        if let Some(image) = image.as_str()
            && (self.running.len() < KINDS_MAX || self.running.contains_key(image))
        {
            *self.running.entry(image.to_owned()).or_default() += 1;
        }
    }

    /// Whether the webhook is asked about it and would have a reason to inject it.
    fn asks(&self, pod: &Value) -> bool {
        let label = pod["metadata"]["labels"][INJECT].as_str();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let is_mirror = pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some();
        let is_unfit =
            is_mirror || pod["spec"]["hostNetwork"] == true || namespace == "kube-system";
        let is_asking = self.asking.as_ref().is_ok_and(|names| names.contains(namespace));
        let wants = if is_asking { label != Some("false") } else { label == Some("true") };
        wants && !is_unfit
    }

    fn sidecar_count(&self) -> usize {
        self.injected.values().map(|group| group.count).sum()
    }
}

/// The group of a kind; one for all that are too many.
fn of_kind(groups: &mut BTreeMap<String, Group>, kind: String) -> &mut Group {
    let kind = if groups.len() < KINDS_MAX || groups.contains_key(&kind) {
        kind
    } else {
        OTHER.to_owned()
    };
    groups.entry(kind).or_default()
}

const RIGHT: &str = "counting pods takes list of pods everywhere";

/// Whether nodes get the image.
pub fn image(found: &Found<Pods>, injector: Option<&Injector>) -> Row {
    let name = "image";
    let pods = match found {
        Ok(pods) => pods,
        Err(missing) => return missing.skip(name, RIGHT),
    };
    if !pods.without_image.is_empty() {
        let told: Vec<_> = pods
            .without_image
            .iter()
            .map(|(reason, group)| format!("{reason}: {}", group.told()))
            .collect();
        let hint = "these pods do not start; mend image, injector.sidecar.imagePullSecrets or the \
                    registry, or take the label away and create them anew";
        return Row::fail(name, told.join("; "), hint);
    }
    let Some(injector) = injector else {
        return Row::skipped(name, "no injector says which image sidecars get", "");
    };
    let image = &injector.sidecar_image;
    let is_pinned = image.contains('@') || tag(image).is_some_and(|tag| tag != "latest");
    if !is_pinned {
        let hint = "pin it (image.digest): another image under this name reaches every new pod";
        return Row::warn(name, format!("{image} may be another image tomorrow"), hint);
    }
    match pods.running.get(image) {
        Some(count) => Row::pass(name, format!("{image} runs in {count} pods")),
        None => {
            let hint = "helm test pulls it on one node";
            Row::skipped(name, format!("no pod has tried to pull {image} yet"), hint)
        }
    }
}

/// Whether sidecars run.
pub fn sidecars(found: &Found<Pods>) -> Row {
    let name = "sidecars";
    let pods = match found {
        Ok(pods) => pods,
        Err(missing) => return missing.skip(name, RIGHT),
    };
    let count = pods.sidecar_count();
    if !pods.crashing.is_empty() {
        let detail = format!("the sidecar starts again and again: {}", pods.crashing.told());
        return Row::fail(name, detail, "look at its log: kubectl logs POD -c listless-proxy");
    }
    if !pods.restarted.is_empty() {
        let detail = format!("the sidecar was started again, often: {}", pods.restarted.told());
        let hint = "kubectl describe pod says why; memory short? listless.dev/memory-limit";
        return Row::warn(name, detail, hint);
    }
    let waiting = match pods.not_running.count {
        0 => String::new(),
        count => format!(", {count} not started"),
    };
    Row::pass(name, format!("{count} of {} pods have one{waiting}", pods.seen))
}

/// Whether pods have the sidecar they would get now.
pub fn up_to_date(found: &Found<Pods>, injector: Option<&Injector>) -> Row {
    let name = "up-to-date";
    let pods = match found {
        Ok(pods) => pods,
        Err(missing) => return missing.skip(name, RIGHT),
    };
    if pods.injected.is_empty() {
        return Row::skipped(name, "no pod has a sidecar", "");
    }
    let (wanted, whose) = match injector.map(|injector| injector.version.as_str()) {
        Some(version) if !version.is_empty() => (version, "the injector is"),
        _ => (env!("CARGO_PKG_VERSION"), "this program is"),
    };
    let others = pods.injected.iter().filter(|(version, _)| *version != wanted);
    let others: Vec<_> =
        others.map(|(version, group)| format!("{version}: {}", group.told())).collect();
    if others.is_empty() {
        return Row::pass(name, format!("all {} sidecars are of {wanted}", pods.sidecar_count()));
    }
    let hint = "restart their workloads: kubectl rollout restart";
    Row::warn(name, format!("{whose} {wanted}, sidecars are of {}", others.join("; ")), hint)
}

/// Whether pods that ask have a sidecar.
pub fn left_out(found: &Found<Pods>, injects: bool) -> Row {
    let name = "left-out";
    let pods = match found {
        Ok(pods) => pods,
        Err(missing) => return missing.skip(name, RIGHT),
    };
    if let Err(missing) = &pods.asking {
        return missing.skip(name, "which namespaces ask takes list of namespaces");
    }
    if pods.left_out.is_empty() {
        return Row::pass(name, "every pod that asks for a sidecar has one");
    }
    let detail = format!("without the sidecar they ask for: {}", pods.left_out.told());
    let hint = if injects {
        "created before the namespace was labelled? restart their workloads; else their owner's \
         events say why"
    } else {
        "there is no injector that would give it to them"
    };
    Row::warn(name, detail, hint)
}

#[cfg(test)]
mod tests;
