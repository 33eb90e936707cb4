//! A pod as a Deployment of a Java service creates it: about 9 kB of JSON, including managed
//! fields.

use serde_json::{Value, json};

/// The number of a pod in the simulated cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodNumber {
    /// The application.
    pub app: usize,
    /// The replica of the application. Replica 0 has the poller's marker.
    pub replica: usize,
}

/// The namespace of all simulated pods.
pub(super) const NAMESPACE: &str = "shop";

const CONTAINER_VARIABLES: usize = 14;
const SIDECARS: [&str; 2] = ["metrics", "logs"];
const NODES: usize = 50;

// === impl PodNumber ===

impl PodNumber {
    /// Returns the pod's name.
    pub(super) fn name(self) -> String {
        format!("{}-6c9f7d5b8{:01x}-{:05}", app_name(self.app), self.app % 16, self.replica)
    }
}

/// Returns the name of an application, which is also its label.
pub(super) fn app_name(app: usize) -> String {
    format!("service-{app:03}")
}

/// Returns the pod after this many changes of its status.
pub(super) fn pod(number: PodNumber, changes: u64) -> Value {
    let app = app_name(number.app);
    let node = (number.app * 7 + number.replica) % NODES;
    let mut containers = vec![container(&app, &app)];
    containers.extend(SIDECARS.map(|sidecar| container(&app, sidecar)));
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata(number, &app, changes),
        "spec": {
            "volumes": [volume("config"), volume("secrets"), volume("ca"), volume("kube-api-access")],
            "containers": containers,
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": app,
            "serviceAccount": app,
            "nodeName": format!("node-{node:03}"),
            "securityContext": {"runAsNonRoot": true, "fsGroup": 1000},
            "schedulerName": "default-scheduler",
            "tolerations": [toleration("not-ready"), toleration("unreachable")],
            "priority": 0,
            "enableServiceLinks": true,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": status(number, &app, changes),
    })
}

fn metadata(number: PodNumber, app: &str, changes: u64) -> Value {
    json!({
        "name": number.name(),
        "generateName": format!("{app}-6c9f7d5b8{:01x}-", number.app % 16),
        "namespace": NAMESPACE,
        "labels": {
            "app": app,
            "app.kubernetes.io/component": "backend",
            "app.kubernetes.io/managed-by": "Helm",
            "pod-template-hash": format!("6c9f7d5b8{:01x}", number.app % 16),
        },
        "annotations": {
            "checksum/config": "3f1c6d6b9d0f4e8aa7c2b5d49e7f60c18b2a95e4d3c7f1086ab59d2e4c7f1a35",
            "prometheus.io/path": "/actuator/prometheus",
            "prometheus.io/port": "8081",
            "prometheus.io/scrape": "true",
        },
        "ownerReferences": [{
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": format!("{app}-6c9f7d5b8{:01x}", number.app % 16),
            "uid": format!("00000000-0000-4000-8000-{:012x}", number.app),
            "controller": true,
            "blockOwnerDeletion": true,
        }],
        "managedFields": [
            managed("kube-controller-manager", "", &controller_fields()),
            managed("kubelet", "status", &kubelet_fields(changes)),
        ],
    })
}

fn container(app: &str, name: &str) -> Value {
    let variables: Vec<Value> = (0..CONTAINER_VARIABLES)
        .map(|number| {
            json!({"name": format!("{}_SETTING_{number:02}", name.to_uppercase().replace('-', "_")),
                   "value": format!("http://{app}.shop.svc.cluster.local:80{number:02}/")})
        })
        .collect();
    let variables = if name == app { variables } else { variables[..4].to_vec() };
    json!({
        "name": name,
        "image": format!("registry.example.com/shop/{name}:2026.1.4"),
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": variables,
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"},
                      "requests": {"cpu": "250m", "memory": "512Mi"}},
        "volumeMounts": [
            {"name": "config", "readOnly": true, "mountPath": "/etc/config"},
            {"name": "kube-api-access", "readOnly": true,
             "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
        ],
        "livenessProbe": probe("liveness"),
        "readinessProbe": probe("readiness"),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    })
}

fn probe(path: &str) -> Value {
    json!({"httpGet": {"path": format!("/actuator/health/{path}"), "port": 8081, "scheme": "HTTP"},
           "initialDelaySeconds": 20, "timeoutSeconds": 3, "periodSeconds": 10,
           "successThreshold": 1, "failureThreshold": 3})
}

fn volume(name: &str) -> Value {
    json!({"name": name, "projected": {"sources": [{"configMap": {"name": name,
           "items": [{"key": "application.yaml", "path": "application.yaml"}]}}],
           "defaultMode": 420}})
}

fn toleration(condition: &str) -> Value {
    json!({"key": format!("node.kubernetes.io/{condition}"), "operator": "Exists",
           "effect": "NoExecute", "tolerationSeconds": 300})
}

fn managed(manager: &str, subresource: &str, fields: &Value) -> Value {
    let mut entry = json!({
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    });
    if !subresource.is_empty() {
        entry["subresource"] = subresource.into();
    }
    entry
}

fn controller_fields() -> Value {
    let names: serde_json::Map<String, Value> = (0..CONTAINER_VARIABLES)
        .map(|number| {
            (
                format!("k:{{\"name\":\"SETTING_{number:02}\"}}"),
                json!({".": {}, "f:name": {}, "f:value": {}}),
            )
        })
        .collect();
    json!({"f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}}},
           "f:spec": {"f:containers": {"k:{\"name\":\"service\"}": {"f:env": names,
           "f:image": {}, "f:livenessProbe": {}, "f:readinessProbe": {}, "f:resources": {}}}}})
}

fn kubelet_fields(changes: u64) -> Value {
    json!({"f:status": {"f:conditions": {"k:{\"type\":\"Ready\"}": {".": {}, "f:status": {}}},
           "f:containerStatuses": {}, "f:phase": {}, "f:podIP": {}, "f:startTime": {},
           "f:observed": {format!("f:{changes}"): {}}}})
}

fn status(number: PodNumber, app: &str, changes: u64) -> Value {
    let address = format!("10.{}.{}.{}", number.app / 250, number.app % 250, number.replica % 250);
    let conditions: Vec<Value> =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .map(|kind| {
                json!({"type": kind, "status": "True", "lastProbeTime": null,
                       "lastTransitionTime": "2026-01-01T00:00:00Z"})
            })
            .into();
    let running = |name: &str| {
        json!({"name": name, "ready": true, "restartCount": changes, "started": true,
               "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
               "image": format!("registry.example.com/shop/{name}:2026.1.4"),
               "containerID": format!("containerd://{:064x}", number.app * 1000 + number.replica)})
    };
    json!({
        "phase": "Running",
        "conditions": conditions,
        "hostIP": "192.168.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": "2026-01-01T00:00:00Z",
        "containerStatuses": [running(app), running("metrics"), running("logs")],
        "qosClass": "Burstable",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_about_nine_kilobytes_and_changes_with_its_status() {
        let number = PodNumber { app: 3, replica: 1 };
        let bytes = pod(number, 0).to_string().len();
        assert!((8_000..10_000).contains(&bytes), "{bytes} bytes");
        assert_ne!(pod(number, 0), pod(number, 1));
    }
}
