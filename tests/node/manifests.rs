//! The objects that scenarios create.

use serde_json::{Value, json};

use crate::artifacts::WORKLOAD;

/// The namespace of most workloads.
pub const SHOP: &str = "shop";
/// The namespace of the pods that workloads list.
pub const FLEET: &str = "fleet";

/// A namespace with labels.
pub fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

/// The label of namespaces whose pods get a sidecar.
pub fn labelled() -> Value {
    json!({"listless.dev/injection": "enabled"})
}

/// The right of a namespace's default service account to read most of the cluster.
pub fn viewer(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("viewer-{namespace}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": namespace}],
    })
}

/// A container of the workload.
pub fn container(name: &str, role: &str, environment: &[(&str, &str)]) -> Value {
    // The last of two entries with the same name counts.
    let all = std::iter::once(&("LISTED", FLEET)).chain(environment);
    let env: Vec<_> = all.map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"name": name, "image": WORKLOAD, "args": [role], "env": env})
}

/// The specification of a pod that only polls.
pub fn polling(environment: &[(&str, &str)]) -> Value {
    let app = container("app", "poll", environment);
    json!({"containers": [app], "terminationGracePeriodSeconds": 1})
}

/// A template of pods.
pub fn template(app: &str, annotations: &Value, spec: &Value) -> Value {
    json!({"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": spec})
}

/// A Deployment; its pods end before others start, so that there is one at a time.
pub fn deployment(namespace: &str, app: &str, replicas: u32, template: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": template,
        },
    })
}

/// A pod.
pub fn pod(namespace: &str, app: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": app, "namespace": namespace, "labels": {"app": app}},
        "spec": spec,
    })
}

/// A Job.
pub fn job(namespace: &str, app: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": app, "namespace": namespace},
        "spec": {"backoffLimit": 0, "template": template(app, &json!({}), spec)},
    })
}
