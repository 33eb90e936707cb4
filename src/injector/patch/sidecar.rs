//! The sidecar's container and volumes.
//!
//! The pod contains everything it needs, so no missing object can block its start.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    environment::{ADDRESS, variable},
    mounts::SERVICE_ACCOUNT,
    pod::{ContainerPlace, Pod, SIDECAR, name},
    settings::{ADMIN_PORT, CONFIG, Choice, HEALTH_PORT},
};

/// The sidecar's user if the pod's containers have no common one.
const USER: i64 = 65532;
const STATE_VOLUME: &str = "listless-state";
const CONFIG_VOLUME: &str = "listless-config";
const MIRROR_VOLUME: &str = "listless-sa";
/// The volume of the service account's token in a manifest, before the apiserver mounts one.
pub(super) const TOKEN_VOLUME: &str = "listless-token";
const CONFIG_FILE: &str = "config.yaml";
/// The lifetime of that volume's token: the same as the apiserver's own mounts have.
const TOKEN_SECONDS: u64 = 3607;

/// The names of the sidecar's volumes. Numbered ones start with the first.
pub(super) const VOLUMES: [&str; 4] = [MIRROR_VOLUME, STATE_VOLUME, CONFIG_VOLUME, TOKEN_VOLUME];

/// Reports whether a volume is one of the sidecar's.
pub(super) fn is_ours(volume: &str) -> bool {
    VOLUMES.contains(&volume)
        || volume
            .strip_prefix(MIRROR_VOLUME)
            .and_then(|rest| rest.strip_prefix('-'))
            .is_some_and(|number| number.parse::<usize>().is_ok())
}

/// Returns the replacement of each of these volumes.
pub(super) fn mirrors(sources: &[&str]) -> BTreeMap<String, String> {
    let numbered = sources.iter().enumerate();
    numbered.map(|(index, source)| (mirror(index), (*source).to_owned())).collect()
}

fn mirror(index: usize) -> String {
    match index {
        0 => MIRROR_VOLUME.to_owned(),
        _ => format!("{MIRROR_VOLUME}-{}", index + 1),
    }
}

/// Returns the container.
pub(super) fn container(
    pod: &Pod<'_>,
    redirected: &[ContainerPlace<'_>],
    sources: &[&str],
    choice: &Choice,
) -> Value {
    let mut arguments = vec![
        "sidecar".to_owned(),
        format!("--listen=127.0.0.1:{}", choice.port),
        format!("--service-account={SERVICE_ACCOUNT}"),
        "--mirror=/run/listless/sa".to_owned(),
        "--state=/run/listless/state".to_owned(),
        format!("--config=/run/listless/config/{CONFIG_FILE}"),
        format!("--health={}:{HEALTH_PORT}", choice.health_address),
        format!("--admin=127.0.0.1:{ADMIN_PORT}"),
    ];
    let mut mounts = vec![
        json!({"name": STATE_VOLUME, "mountPath": "/run/listless/state"}),
        json!({"name": CONFIG_VOLUME, "mountPath": "/run/listless/config", "readOnly": true}),
    ];
    for (index, source) in sources.iter().enumerate() {
        let number = if index == 0 { String::new() } else { format!("-{}", index + 1) };
        let from = match index {
            0 => SERVICE_ACCOUNT.to_owned(),
            _ => format!("/run/listless/source{number}"),
        };
        let to = format!("/run/listless/sa{number}");
        if index > 0 {
            arguments.push(format!("--also-mirror={from}={to}"));
        }
        mounts.push(json!({"name": source, "mountPath": from, "readOnly": true}));
        mounts.push(json!({"name": mirror(index), "mountPath": to}));
    }
    json!({
        "name": SIDECAR,
        "image": choice.image,
        "imagePullPolicy": "IfNotPresent",
        "restartPolicy": "Always",
        "args": arguments,
        "env": environment(redirected),
        "ports": [{"name": "listless-health", "containerPort": HEALTH_PORT, "protocol": "TCP"}],
        "lifecycle": {"postStart": {"exec": {"command": probe(&["--started", STARTED_WITHIN])}}},
        "livenessProbe": {
            "exec": {"command": probe(&["--live"])},
            "periodSeconds": 30,
            "failureThreshold": 4,
        },
        "resources": choice.resources.to_json(),
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": pod.common_user().unwrap_or(USER),
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts,
    })
}

/// The time that the hook waits before the kubelet restarts the sidecar. It also bounds the delay
/// of a pod's deletion.
///
/// It is a hook and no startup probe. A kubelet may run a probe before the container exists, and
/// then only a second later. It runs the hook as soon as the container runs, and starts the next
/// container when the hook has ended.
const STARTED_WITHIN: &str = "--within=30s";

/// Returns the command of an exec probe.
fn probe(question: &[&str]) -> Vec<String> {
    let health = format!("--health=127.0.0.1:{HEALTH_PORT}");
    let words = ["/listless", "probe"].iter().chain(question).map(|word| (*word).to_owned());
    words.chain([health]).collect()
}

/// Returns the pod's identity, and the apiserver's address if the workload has its own.
fn environment(redirected: &[ContainerPlace<'_>]) -> Vec<Value> {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut env = vec![
        field("POD_NAME", "metadata.name"),
        field("POD_NAMESPACE", "metadata.namespace"),
        field("POD_UID", "metadata.uid"),
    ];
    let first_of = |name: &str| {
        let variables = redirected.iter().map(|place| variable(place.container, name));
        variables.flatten().map(|(_, variable)| variable.clone()).next()
    };
    env.extend(ADDRESS.into_iter().filter_map(first_of));
    env
}

/// Returns the pod's new volumes: the sidecar's, and a token if the apiserver has not mounted one.
pub(super) fn volumes(sources: &[&str]) -> Vec<Value> {
    let memory = |name: &str, size: &str| json!({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}});
    let mut volumes: Vec<_> =
        (0..sources.len()).map(|index| memory(&mirror(index), "1Mi")).collect();
    volumes.push(memory(STATE_VOLUME, "4Mi"));
    let field = format!("metadata.annotations['{CONFIG}']");
    volumes.push(json!({
        "name": CONFIG_VOLUME,
        "downwardAPI": {"items": [{"path": CONFIG_FILE, "fieldRef": {"fieldPath": field}}]},
    }));
    if sources.contains(&TOKEN_VOLUME) {
        volumes.push(json!({"name": TOKEN_VOLUME, "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
            {"configMap": {
                "name": "kube-root-ca.crt",
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            }},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
    }
    volumes
}

/// Returns a name of the sidecar that is already in use.
pub(super) fn taken_name(pod: &Pod<'_>) -> Option<String> {
    let mut volumes = pod.volumes().iter().map(name);
    if let Some(volume) = volumes.find(|volume| is_ours(volume)) {
        return Some(format!("volume {volume}"));
    }
    let mut containers = pod.places().into_iter().map(|place| name(place.container));
    containers.find(|container| *container == SIDECAR).map(|name| format!("container {name}"))
}
