//! The kinds whose forms are compared: the object that stands for each, and its collection.

use serde_json::{Value, json};

use crate::dataset::Item;

/// The namespace of the aged objects.
pub const NAMESPACE: &str = "ages";

/// The collection of the kind with columns of the type `date`.
pub const CLOCKS: &str = "/apis/ages.example.com/v1/clocks";

/// The expectation about a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Its collection may be answered from memory by default.
    Yes,
    /// It is not, or the apiserver changes it by itself.
    No,
}

/// A kind of objects.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The path before the resource.
    pub api: &'static str,
    /// The resource.
    pub resource: &'static str,
    /// Its objects have a namespace.
    pub namespaced: bool,
    /// See [`Held`].
    pub held: Held,
    /// All of an object beside its metadata.
    body: &'static str,
}

const fn kind(api: &'static str, resource: &'static str, body: &'static str) -> Kind {
    Kind { api, resource, namespaced: true, held: Held::Yes, body }
}

const fn global(api: &'static str, resource: &'static str, body: &'static str) -> Kind {
    Kind { api, resource, namespaced: false, held: Held::Yes, body }
}

const fn unheld(kind: Kind) -> Kind {
    Kind { held: Held::No, ..kind }
}

const TEMPLATE: &str = r#"{"metadata": {"labels": {"app": "aged"}},
    "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]}}"#;
const RUN: &str = r#"{"spec": {"restartPolicy": "Never",
    "containers": [{"name": "main", "image": "example.com/app:1"}]}}"#;

const CORE: &str = "/api/v1";
const APPS: &str = "/apis/apps/v1";
const BATCH: &str = "/apis/batch/v1";
const NETWORK: &str = "/apis/networking.k8s.io/v1";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const STORAGE: &str = "/apis/storage.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const SELECTOR: &str = r#"{"matchLabels": {"app": "aged"}}"#;

/// Every kind; `TEMPLATE`, `RUN`, `SELECTOR` and `NAME` in a body stand for their values.
pub const KINDS: &[Kind] = &[
    kind(
        CORE,
        "pods",
        r#"{"spec": {"nodeName": "node-1",
        "containers": [{"name": "main", "image": "example.com/app:1"}]}}"#,
    ),
    kind(CORE, "services", r#"{"spec": {"ports": [{"port": 80}], "selector": {"app": "aged"}}}"#),
    kind(CORE, "configmaps", r#"{"data": {"a": "1", "b": "<&>"}}"#),
    unheld(kind(CORE, "secrets", r#"{"stringData": {"password": "x"}}"#)),
    kind(CORE, "serviceaccounts", "{}"),
    unheld(kind(
        CORE,
        "endpoints",
        r#"{"subsets": [{"addresses": [{"ip": "192.0.2.7"}],
        "ports": [{"port": 80}]}]}"#,
    )),
    unheld(kind(
        CORE,
        "events",
        r#"{"involvedObject": {"kind": "Pod", "namespace": "ages",
        "name": "NAME"}, "reason": "Pulled", "type": "Normal", "message": "text", "count": 3,
        "source": {"component": "rig", "host": "node-1"}}"#,
    )),
    kind(CORE, "limitranges", r#"{"spec": {"limits": []}}"#),
    kind(
        CORE,
        "persistentvolumeclaims",
        r#"{"spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "aged"}}"#,
    ),
    kind(CORE, "podtemplates", r#"{"template": TEMPLATE}"#),
    kind(
        CORE,
        "replicationcontrollers",
        r#"{"spec": {"replicas": 2, "selector": {"app": "aged"},
        "template": TEMPLATE}}"#,
    ),
    kind(CORE, "resourcequotas", r#"{"spec": {"hard": {"count/none.example.com": "5"}}}"#),
    global(CORE, "namespaces", "{}"),
    global(CORE, "nodes", r#"{"metadata": {"labels": {"node-role.kubernetes.io/worker": ""}}}"#),
    global(
        CORE,
        "persistentvolumes",
        r#"{"spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"}}}"#,
    ),
    kind(APPS, "controllerrevisions", r#"{"revision": 3, "data": {"a": 1}}"#),
    kind(APPS, "daemonsets", r#"{"spec": {"selector": SELECTOR, "template": TEMPLATE}}"#),
    kind(
        APPS,
        "deployments",
        r#"{"spec": {"replicas": 2, "selector": SELECTOR,
        "template": TEMPLATE}}"#,
    ),
    kind(
        APPS,
        "replicasets",
        r#"{"spec": {"replicas": 2, "selector": SELECTOR,
        "template": TEMPLATE}}"#,
    ),
    kind(
        APPS,
        "statefulsets",
        r#"{"spec": {"serviceName": "aged", "selector": SELECTOR,
        "template": TEMPLATE}}"#,
    ),
    kind(
        "/apis/autoscaling/v2",
        "horizontalpodautoscalers",
        r#"{"spec": {"maxReplicas": 5,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "aged"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 60}}}]}}"#,
    ),
    kind(BATCH, "jobs", r#"{"spec": {"template": RUN}}"#),
    kind(
        BATCH,
        "cronjobs",
        r#"{"spec": {"schedule": "0 3 * * *",
        "jobTemplate": {"spec": {"template": RUN}}}}"#,
    ),
    unheld(kind(
        "/apis/coordination.k8s.io/v1",
        "leases",
        r#"{"spec": {"holderIdentity": "nobody"}}"#,
    )),
    kind(
        "/apis/discovery.k8s.io/v1",
        "endpointslices",
        r#"{"addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.7"]}], "ports": [{"port": 80}]}"#,
    ),
    kind(
        NETWORK,
        "ingresses",
        r#"{"spec": {"ingressClassName": "edge", "defaultBackend": {
        "service": {"name": "web", "port": {"number": 80}}}}}"#,
    ),
    global(NETWORK, "ingressclasses", r#"{"spec": {"controller": "example.com/none"}}"#),
    kind(NETWORK, "networkpolicies", r#"{"spec": {"podSelector": SELECTOR}}"#),
    global("/apis/node.k8s.io/v1", "runtimeclasses", r#"{"handler": "none"}"#),
    kind(
        "/apis/policy/v1",
        "poddisruptionbudgets",
        r#"{"spec": {"minAvailable": 1,
        "selector": SELECTOR}}"#,
    ),
    kind(RBAC, "roles", r#"{"rules": []}"#),
    kind(
        RBAC,
        "rolebindings",
        r#"{"roleRef": {"apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role", "name": "aged"}, "subjects": [{"kind": "User", "name": "none",
        "apiGroup": "rbac.authorization.k8s.io"}]}"#,
    ),
    global(RBAC, "clusterroles", r#"{"rules": []}"#),
    global(
        RBAC,
        "clusterrolebindings",
        r#"{"roleRef": {"kind": "ClusterRole", "name": "aged",
        "apiGroup": "rbac.authorization.k8s.io"}, "subjects": []}"#,
    ),
    global("/apis/scheduling.k8s.io/v1", "priorityclasses", r#"{"value": 7}"#),
    global(STORAGE, "storageclasses", r#"{"provisioner": "example.com/none"}"#),
    global(STORAGE, "csidrivers", r#"{"spec": {"attachRequired": false}}"#),
    global(STORAGE, "csinodes", r#"{"spec": {"drivers": []}}"#),
    global(
        STORAGE,
        "volumeattachments",
        r#"{"spec": {"attacher": "none.example.com",
        "nodeName": "node-1", "source": {"persistentVolumeName": "aged"}}}"#,
    ),
    kind(STORAGE, "csistoragecapacities", r#"{"storageClassName": "fast", "capacity": "1Gi"}"#),
    global(ADMISSION, "mutatingwebhookconfigurations", r#"{"webhooks": []}"#),
    global(ADMISSION, "validatingwebhookconfigurations", r#"{"webhooks": []}"#),
    global(
        ADMISSION,
        "validatingadmissionpolicies",
        r#"{"spec": {"matchConstraints": {
        "resourceRules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["nothing"]}]},
        "validations": [{"expression": "true"}]}}"#,
    ),
    global(
        ADMISSION,
        "validatingadmissionpolicybindings",
        r#"{"spec": {"policyName": "none",
        "validationActions": ["Deny"]}}"#,
    ),
    unheld(global(
        FLOW,
        "flowschemas",
        r#"{"spec": {"matchingPrecedence": 9000,
        "priorityLevelConfiguration": {"name": "catch-all"}}}"#,
    )),
    unheld(global(
        FLOW,
        "prioritylevelconfigurations",
        r#"{"spec": {"type": "Limited",
        "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}}"#,
    )),
    kind(
        "/apis/shop.example.com/v1",
        "widgets",
        r#"{"apiVersion": "shop.example.com/v1",
        "kind": "Widget", "spec": {"color": "red", "size": 3}}"#,
    ),
    global(
        "/apis/shop.example.com/v1",
        "planets",
        r#"{"apiVersion": "shop.example.com/v1",
        "kind": "Planet", "spec": {"size": 3}}"#,
    ),
    kind(
        "/apis/ages.example.com/v1",
        "clocks",
        r#"{"apiVersion": "ages.example.com/v1",
        "kind": "Clock", "spec": {"text": "3d4h"}}"#,
    ),
];

// === impl Kind ===

impl Kind {
    /// The kind of a resource.
    pub fn of(resource: &str) -> Self {
        *KINDS.iter().find(|kind| kind.resource == resource).expect("a kind of the table")
    }

    /// The objects that are compared: the collection without namespace where nothing renews them.
    pub fn collection(&self) -> String {
        if self.held == Held::No { self.own() } else { format!("{}/{}", self.api, self.resource) }
    }

    /// The collection that the aged objects are made in.
    pub fn own(&self) -> String {
        let Self { api, resource, .. } = self;
        if self.namespaced {
            format!("{api}/namespaces/{NAMESPACE}/{resource}")
        } else {
            format!("{api}/{resource}")
        }
    }

    /// Reports whether the apiserver has a protobuf form of it.
    pub fn speaks_protobuf(&self) -> bool {
        !self.api.contains("example.com")
    }

    /// The name of an aged object.
    pub fn name(&self, number: usize) -> String {
        format!("aged-{}-{number}", self.resource)
    }

    /// The path of an aged object.
    pub fn path(&self, number: usize) -> String {
        format!("{}/{}", self.own(), self.name(number))
    }

    /// An object of this kind as it is created.
    pub fn object(&self, number: usize) -> Value {
        let name = self.name(number);
        let body = self.body.replace("TEMPLATE", TEMPLATE).replace("RUN", RUN);
        let body = body.replace("SELECTOR", SELECTOR).replace("NAME", &name);
        let mut object: Value = serde_json::from_str(&body).expect("a body of the table");
        object["metadata"]["name"] = json!(name);
        object["metadata"]["labels"]["aged"] = json!(format!("n{}", number % 2));
        object
    }
}

/// The definition of a kind whose columns show dates of several sources.
pub fn definition() -> Item {
    let column =
        |name: &str, kind: &str, path: &str| json!({"name": name, "type": kind, "jsonPath": path});
    let columns = [
        column("Text", "string", ".spec.text"),
        column("Seen", "date", ".status.seen"),
        column("Absent", "date", ".status.absent"),
        column("Number", "integer", ".spec.number"),
        column("Age", "date", ".metadata.creationTimestamp"),
    ];
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": free, "status": free}});
    let version = json!({
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema}, "additionalPrinterColumns": columns,
    });
    let spec = json!({
        "group": "ages.example.com", "scope": "Namespaced", "versions": [version],
        "names": {"plural": "clocks", "kind": "Clock"},
    });
    Item::new(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        json!({"metadata": {"name": "clocks.ages.example.com"}, "spec": spec}),
    )
}
