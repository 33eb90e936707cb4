//! The conditions under which a pod is skipped.

use serde_json::{Value, json};

use super::{
    environment::{ADDRESS, HOST, PORT, literal, variable, wanted},
    pod::{ContainerPlace, Pod, list, name},
    reason::{Skip, SkipReason},
    settings::{self, ADMIN_PORT, HEALTH_PORT, Settings, Wish},
    sidecar,
};

/// The annotation of pods that a kubelet runs from files.
const MIRROR: &str = "kubernetes.io/config.mirror";
const OS_LABELS: [&str; 2] = ["kubernetes.io/os", "beta.kubernetes.io/os"];
/// The variables that make a client ignore the service account.
const ELSEWHERE: [&str; 2] = ["KUBECONFIG", "KUBERNETES_MASTER"];

/// Skips pods that must not be changed.
pub(super) fn unwanted(pod: &Pod<'_>, namespace: &str, settings: &Settings) -> Result<(), Skip> {
    if settings::wish(pod)? == Wish::No {
        return Err(SkipReason::OptedOut.into());
    }
    if settings.excluded_namespaces.iter().any(|excluded| excluded == namespace) {
        return Err(SkipReason::SystemNamespace.into());
    }
    if pod.annotation(MIRROR).is_some() {
        return Err(SkipReason::MirrorPod.into());
    }
    Ok(())
}

/// Skips pods that a sidecar cannot serve, or not safely.
pub(super) fn unfit(pod: &Pod<'_>) -> Result<(), Skip> {
    let spec = pod.spec();
    if spec["hostNetwork"] == json!(true) {
        return Err(SkipReason::HostNetwork.into());
    }
    if is_windows(spec) {
        return Err(SkipReason::Windows.into());
    }
    // The containers see the processes of the pod, or of the node.
    let shares = ["shareProcessNamespace", "hostPID"].iter().any(|key| spec[*key] == json!(true));
    if shares && !settings::may_share_processes(pod)? {
        return Err(SkipReason::SharedProcessNamespace.into());
    }
    if ["requests", "limits"].iter().any(|kind| spec["resources"][*kind].is_object()) {
        return Err(SkipReason::PodResources.into());
    }
    Ok(())
}

fn is_windows(spec: &Value) -> bool {
    if spec["os"]["name"] == "windows" {
        return true;
    }
    if OS_LABELS.iter().any(|label| spec["nodeSelector"][*label] == "windows") {
        return true;
    }
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = list(required, "nodeSelectorTerms");
    // The terms are alternatives.
    !terms.is_empty()
        && terms.iter().all(|term| {
            list(term, "matchExpressions").iter().any(|expression| {
                let key = expression["key"].as_str().unwrap_or("");
                OS_LABELS.contains(&key)
                    && expression["operator"] == "In"
                    && expression["values"] == json!(["windows"])
            })
        })
}

/// Skips pods in which the sidecar's names or ports are in use.
pub(super) fn taken(pod: &Pod<'_>, port: u16) -> Result<(), Skip> {
    if let Some(taken) = sidecar::taken_name(pod) {
        return Err(Skip::because(SkipReason::NameTaken, taken));
    }
    let mut places = pod.places().into_iter();
    match places.find_map(|place| collision(place.container, port)) {
        Some(detail) => Err(Skip::because(SkipReason::PortTaken, detail)),
        None => Ok(()),
    }
}

/// Returns the sidecar's own ports, each with its purpose.
fn ports(port: u16) -> [(u16, &'static str); 3] {
    [(port, "its clients"), (HEALTH_PORT, "probes"), (ADMIN_PORT, "operators")]
}

/// Returns the sidecar's port that this container uses, if any.
fn collision(container: &Value, port: u16) -> Option<String> {
    let declared = list(container, "ports").iter();
    let numbers = declared
        .filter(|declared| declared["protocol"].as_str().is_none_or(|name| name == "TCP"))
        .filter_map(|declared| declared["containerPort"].as_u64());
    let taken = |number: u64| ports(port).into_iter().find(|(own, _)| u64::from(*own) == number);
    numbers.filter_map(taken).next().map(|(own, what)| {
        format!("container {} has port {own}, which the sidecar needs for {what}", name(container))
    })
}

/// Skips pods whose containers have apiserver addresses that one sidecar cannot serve.
pub(super) fn conflicts(redirected: &[ContainerPlace<'_>], port: u16) -> Result<(), Skip> {
    let conflict = |detail| Err(Skip::because(SkipReason::ConflictingApiserverEnv, detail));
    let Some(first) = redirected.first().map(|place| place.container) else { return Ok(()) };
    for name_of in ADDRESS {
        for place in redirected {
            if !is_same(value_of(first, name_of), value_of(place.container, name_of)) {
                let (one, other) = (name(first), name(place.container));
                return conflict(format!("{name_of} differs between {one} and {other}"));
            }
        }
        let text = value_of(first, name_of).and_then(literal).unwrap_or("");
        if text.contains("$(") {
            return conflict(format!("{name_of} of {} refers to other variables", name(first)));
        }
    }
    let is_ours =
        |name: &str| value_of(first, name).and_then(literal) == Some(&*wanted(name, port));
    if is_ours(HOST) && is_ours(PORT) {
        return conflict(format!(
            "{} already uses the sidecar's own port as the apiserver",
            name(first)
        ));
    }
    Ok(())
}

/// Reports whether a container has the same apiserver address as this sidecar.
pub(super) fn is_for(container: &Value, sidecar: &Value) -> bool {
    ADDRESS.iter().all(|name| is_same(value_of(container, name), value_of(sidecar, name)))
}

/// Reports whether a container's variables hide the cluster from it.
pub(super) fn has_left_the_cluster(container: &Value) -> bool {
    value_of(container, HOST).and_then(literal) == Some("")
}

/// Reports whether a container has another way to an apiserver.
pub(super) fn has_kubeconfig(container: &Value) -> bool {
    let is_set =
        |name: &str| variable(container, name).is_some_and(|(_, v)| literal(v) != Some(""));
    let words = ["command", "args"].into_iter().flat_map(|field| match &container[field] {
        Value::Array(words) => words.as_slice(),
        _ => &[],
    });
    let is_flag = |word: &str| {
        let word = word.trim_start_matches('-');
        word == "kubeconfig" || word.starts_with("kubeconfig=")
    };
    ELSEWHERE.into_iter().any(is_set)
        || words.filter_map(Value::as_str).any(|word| word.starts_with('-') && is_flag(word))
}

fn value_of<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    variable(container, name).map(|(_, variable)| variable)
}

fn is_same(one: Option<&Value>, other: Option<&Value>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => match (literal(one), literal(other)) {
            (Some(one), Some(other)) => one == other,
            (None, None) => one["valueFrom"] == other["valueFrom"],
            _ => false,
        },
        _ => false,
    }
}
