//! Counts the pods of a cluster while their list arrives in pages. Pure.
//!
//! It keeps only a bounded number of groups, each with a count and one example.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    Found, Row,
    injector::{Injector, tag},
};
use crate::injector::patch::{SIDECAR, injected_by, is_opted_out};

/// The counted pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// The namespaces whose pods get a sidecar by default, if known.
    asking: Found<BTreeSet<String>>,
    /// The number of pods that have not ended.
    seen: usize,
    /// Pods with a sidecar, by the injector's version.
    injected: BTreeMap<String, Group>,
    /// Pods whose sidecar has not started.
    not_running: Group,
    /// Pods whose image cannot be pulled, by reason.
    without_image: BTreeMap<String, Group>,
    /// Pods whose sidecar restarts in a loop.
    crashing: Group,
    /// Pods whose sidecar restarted several times.
    restarted: Group,
    /// Running Listless images, with their number of pods.
    running: BTreeMap<String, usize>,
    /// Pods that request a sidecar and have none.
    left_out: Group,
}

/// A group of similar pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Group {
    count: usize,
    /// One pod of the group.
    example: String,
}

/// The waiting reasons of a container without its image.
const NO_IMAGE: &[&str] = &[
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];
/// The maximum number of groups of one kind.
const KINDS_MAX: usize = 32;
/// The name of the group beyond that maximum.
const OTHER: &str = "others";
/// The number of restarts from which a sidecar is reported.
const RESTARTS_MANY: u64 = 3;
/// The label of Listless's own parts.
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

    /// Formats the group: `3 pods, such as shop/web-0`.
    fn summary(&self) -> String {
        match self.count {
            1 => format!("the pod {}", self.example),
            count => format!("{count} pods, such as {}", self.example),
        }
    }
}

// === impl Pods ===

impl Pods {
    /// Returns empty counts. Pods in the `asking` namespaces get a sidecar by default.
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

    /// Counts one pod.
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

    /// Counts a pod of the injector or of a gateway.
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

    /// Reports whether the webhook sees the pod and would inject it.
    fn asks(&self, pod: &Value) -> bool {
        let label = pod["metadata"]["labels"][INJECT].as_str();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
        let is_mirror = pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some();
        let is_unfit =
            is_mirror || pod["spec"]["hostNetwork"] == true || namespace == "kube-system";
        let is_asking = self.asking.as_ref().is_ok_and(|names| names.contains(namespace));
        let wants = is_asking || label == Some("true");
        wants && !is_opted_out(pod) && !is_unfit
    }

    fn sidecar_count(&self) -> usize {
        self.injected.values().map(|group| group.count).sum()
    }
}

/// Returns the group of a kind, or the shared group beyond the maximum.
fn of_kind(groups: &mut BTreeMap<String, Group>, kind: String) -> &mut Group {
    let kind = if groups.len() < KINDS_MAX || groups.contains_key(&kind) {
        kind
    } else {
        OTHER.to_owned()
    };
    groups.entry(kind).or_default()
}

const RIGHT: &str = "counting pods needs permission to list pods in all namespaces";

/// Checks that nodes can pull the image.
pub fn image(found: &Found<Pods>, injector: Option<&Injector>) -> Row {
    let name = "image";
    let pods = match found {
        Ok(pods) => pods,
        Err(missing) => return missing.skip(name, RIGHT),
    };
    if !pods.without_image.is_empty() {
        let summaries: Vec<_> = pods
            .without_image
            .iter()
            .map(|(reason, group)| format!("{reason}: {}", group.summary()))
            .collect();
        let hint = "these pods do not start; fix image, injector.sidecar.imagePullSecrets or the \
                    registry, or remove the label and recreate the pods";
        return Row::fail(name, summaries.join("; "), hint);
    }
    let Some(injector) = injector else {
        return Row::skipped(name, "no injector defines the image of sidecars", "");
    };
    let image = &injector.sidecar_image;
    let is_pinned = image.contains('@') || tag(image).is_some_and(|tag| tag != "latest");
    if !is_pinned {
        let hint = "pin it (image.digest): another image under this tag reaches every new pod";
        return Row::warn(name, format!("the tag of {image} can change to another image"), hint);
    }
    match pods.running.get(image) {
        Some(count) => Row::pass(name, format!("{image} runs in {count} pods")),
        None => {
            let hint = "helm test pulls it on one node";
            Row::skipped(name, format!("no pod has pulled {image} yet"), hint)
        }
    }
}

/// Checks that sidecars run.
pub fn sidecars(found: &Found<Pods>) -> Row {
    let name = "sidecars";
    let pods = match found {
        Ok(pods) => pods,
        Err(missing) => return missing.skip(name, RIGHT),
    };
    let count = pods.sidecar_count();
    if !pods.crashing.is_empty() {
        let detail = format!("the sidecar restarts in a loop: {}", pods.crashing.summary());
        return Row::fail(name, detail, "see its log: kubectl logs POD -c listless-proxy");
    }
    if !pods.restarted.is_empty() {
        let detail = format!("the sidecar restarted several times: {}", pods.restarted.summary());
        let hint = "see the reason with kubectl describe pod; if memory is short, raise \
                    listless.dev/memory-limit";
        return Row::warn(name, detail, hint);
    }
    let waiting = match pods.not_running.count {
        0 => String::new(),
        count => format!(", {count} not started"),
    };
    Row::pass(name, format!("{count} of {} pods have one{waiting}", pods.seen))
}

/// Checks that the pods' sidecars are of the injector's version.
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
        others.map(|(version, group)| format!("{version}: {}", group.summary())).collect();
    if others.is_empty() {
        return Row::pass(name, format!("all {} sidecars are of {wanted}", pods.sidecar_count()));
    }
    let hint = "restart their workloads: kubectl rollout restart";
    Row::warn(name, format!("{whose} {wanted}, sidecars are of {}", others.join("; ")), hint)
}

/// Checks that all pods that request a sidecar have one.
pub fn left_out(found: &Found<Pods>, injects: bool) -> Row {
    let name = "left-out";
    let pods = match found {
        Ok(pods) => pods,
        Err(missing) => return missing.skip(name, RIGHT),
    };
    if let Err(missing) = &pods.asking {
        return missing.skip(
            name,
            "finding namespaces with injection needs permission to list \
                                   namespaces",
        );
    }
    if pods.left_out.is_empty() {
        return Row::pass(name, "every pod that requests a sidecar has one");
    }
    let detail = format!("without the sidecar they request: {}", pods.left_out.summary());
    let hint = if injects {
        "if the pods are older than the namespace's label, restart their workloads; else see the \
         events of their owners"
    } else {
        "there is no injector to inject them"
    };
    Row::warn(name, detail, hint)
}

#[cfg(test)]
mod tests;
