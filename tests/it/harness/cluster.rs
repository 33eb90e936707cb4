//! A small cluster with every kind of object that affects responses: order, styles, scopes,
//! letters.

use std::hash::{DefaultHasher, Hash, Hasher};

use listless::{
    api::GroupResource,
    simulator::{ResourceType, Simulator},
};
use serde_json::{Value, json};

/// A simulated apiserver with some objects of every style and scope.
pub(crate) fn populated() -> Simulator {
    let simulator = Simulator::default();
    simulator.register(ResourceType::custom("x.io", &["v1", "v1beta1"], "widgets", "Widget"));
    let gadgets = ResourceType::custom("x.io", &["v1"], "gadgets", "Gadget");
    simulator.register(gadgets.cluster_scoped());
    let put = |resource: &str, object: Value| {
        simulator.put(&group_resource(resource), object).expect("a served resource");
    };
    for namespace in ["a", "a-b", "b"] {
        put("namespaces", json!({"metadata": {"name": namespace}, "status": {"phase": "Active"}}));
    }
    // In byte order `a-b/` is before `a/` (S-LIST-60).
    for (namespace, name, app, node) in [
        ("a", "db-0", "db", "n1"),
        ("a", "web-0", "web", "n1"),
        ("a", "web-1", "web", "n2"),
        ("a-b", "web-0", "web", "n2"),
        ("b", "lone", "", ""),
    ] {
        put("pods", pod(namespace, name, &[("app", app)], node));
    }
    put("pods", unusual_pod());
    for node in ["n1", "n2"] {
        put("nodes", json!({"metadata": {"name": node, "labels": {"zone": "z1"}}, "spec": {}}));
    }
    put("deployments.apps", deployment("a", "web"));
    put("configmaps", json!({"metadata": {"namespace": "a", "name": "c"}, "data": {"b": "<1>"}}));
    put("secrets", json!({"metadata": {"namespace": "a", "name": "s"}, "data": {"k": "dg=="}}));
    put("widgets.x.io", widget("a", "w1", "red"));
    put("widgets.x.io", widget("b", "w2", "blue"));
    put(
        "gadgets.x.io",
        json!({"metadata": {"name": "g"}, "spec": {"z": 1, "a": {"d": [], "c": 0}}}),
    );
    simulator
}

/// `pods` or `deployments.apps`.
pub(crate) fn group_resource(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource::new(group, resource)
}

/// Text of this length that compression does not make much shorter.
pub(crate) fn incompressible(seed: usize, length: usize) -> String {
    let words = (0..).map(|word: usize| {
        let mut hasher = DefaultHasher::new();
        (seed, word).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    });
    words.take(length / 16).collect()
}

/// A pod; labels without a value are left out.
pub(crate) fn pod(namespace: &str, name: &str, labels: &[(&str, &str)], node: &str) -> Value {
    let labels = labels.iter().filter(|(_, value)| !value.is_empty());
    let labels: Value =
        labels.map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"});
    if !node.is_empty() {
        spec["nodeName"] = node.into();
    }
    let mut metadata = json!({"name": name, "namespace": namespace});
    // The apiserver prints no empty maps.
    if labels.as_object().is_some_and(|labels| !labels.is_empty()) {
        metadata["labels"] = labels;
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": if node.is_empty() { "Pending" } else { "Running" }},
    })
}

fn unusual_pod() -> Value {
    let mut pod = pod("b", "unusual", &[("app", "Z_1.x-y")], "n1");
    pod["metadata"]["annotations"] = json!({
        "letters": "äöü 漢字 🦀 <a href=\"x\">&\u{2028}\u{2029}\t\\ \u{7f}",
        "list-like": "{\"metadata\":{\"resourceVersion\":\"1\"},\"items\":[]}",
    });
    pod["metadata"]["finalizers"] = json!(["x.io/hold"]);
    // The apiserver keeps the two equal.
    pod["status"]["podIP"] = json!("10.0.0.9");
    pod["status"]["podIPs"] = json!([{"ip": "10.0.0.9"}, {"ip": "fd00::9"}]);
    pod
}

/// A deployment with one replica.
pub(crate) fn deployment(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}},
    })
}

/// A widget of one colour.
pub(crate) fn widget(namespace: &str, name: &str, colour: &str) -> Value {
    json!({
        "apiVersion": "x.io/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": namespace, "labels": {"colour": colour}},
        "spec": {"size": 3, "colour": colour, "parts": [{"z": 1, "a": null}]},
    })
}
