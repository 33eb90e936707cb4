//! Objects without a namespace, and the rights of the limited users.

use serde_json::{Value, json};

use super::{Item, NAMESPACES, custom};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// The objects that the rest needs: namespaces and custom resource definitions.
pub(super) fn foundations() -> Vec<Item> {
    let namespace = |name: &&str| {
        let labels = json!({"team": if name.starts_with("shop") { "retail" } else { "none" }});
        let metadata = json!({"name": name, "labels": labels});
        Item::new("/api/v1/namespaces", json!({"metadata": metadata}))
    };
    NAMESPACES.iter().map(namespace).chain(custom::definitions()).collect()
}

pub(super) fn items() -> Vec<Item> {
    let mut items: Vec<Item> = (1..=4).map(node).collect();
    items.extend(volumes());
    items.extend(rights());
    items.push(signing_request());
    items.push(Item::new(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        json!({"metadata": {"name": "urgent"}, "value": 1000}),
    ));
    items.push(Item::new(
        "/apis/storage.k8s.io/v1/storageclasses",
        json!({"metadata": {"name": "fast"}, "provisioner": "example.com/none"}),
    ));
    items
}

/// Nodes have no addresses: nothing may ever try to reach a kubelet.
fn node(number: u32) -> Item {
    let labels = json!({
        "kubernetes.io/hostname": format!("node-{number}"),
        "zone": if number.is_multiple_of(2) { "east" } else { "west" },
        "cores": format!("{}", number * 4),
    });
    let spec = if number == 4 { json!({"unschedulable": true}) } else { json!({}) };
    let object =
        json!({"metadata": {"name": format!("node-{number}"), "labels": labels}, "spec": spec});
    let ready = json!({"type": "Ready", "status": if number == 3 { "Unknown" } else { "True" }});
    Item::new("/api/v1/nodes", object)
        .status(json!({"conditions": [ready], "capacity": {"cpu": "8", "pods": "110"}}))
}

fn volumes() -> impl Iterator<Item = Item> {
    let volume = |number: u32| {
        json!({
            "metadata": {"name": format!("volume-{number}"), "labels": {"tier": "slow"}},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/nowhere"},
            },
        })
    };
    (1..=3).map(move |number| Item::new("/api/v1/persistentvolumes", volume(number)))
}

/// A certificate request, for its `spec.signerName` field.
fn signing_request() -> Item {
    let key = rcgen::KeyPair::generate().expect("the provider makes keys");
    let request = rcgen::CertificateParams::new(Vec::new())
        .and_then(|params| params.serialize_request(&key))
        .and_then(|request| request.pem())
        .expect("an empty request can be signed");
    let spec = json!({
        "request": base64_text(&request),
        "signerName": "example.com/signer",
        "usages": ["digital signature"],
    });
    Item::new(
        "/apis/certificates.k8s.io/v1/certificatesigningrequests",
        json!({"metadata": {"name": "request"}, "spec": spec}),
    )
}

fn rights() -> Vec<Item> {
    let read = json!(["get", "list", "watch"]);
    let pods = json!({"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": read});
    let named = json!({
        "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["settings"],
        "verbs": read,
    });
    vec![role("reader", pods), binding("reader"), role("narrow", named), binding("narrow")]
}

fn role(name: &str, rule: Value) -> Item {
    let object = json!({"metadata": {"name": name}, "rules": [rule]});
    Item::new(format!("{RBAC}/namespaces/shop/roles"), object)
}

fn binding(name: &str) -> Item {
    let object = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    });
    Item::new(format!("{RBAC}/namespaces/shop/rolebindings"), object)
}

pub(super) fn base64_text(bytes: impl AsRef<[u8]>) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
