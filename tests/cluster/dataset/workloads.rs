//! Pods and the controllers' objects that would own them.

use serde_json::{Value, json};

use super::Item;

const APPS: [&str; 4] = ["web", "api", "db", "cache"];
const TIERS: [&str; 3] = ["front", "back", ""];
const PHASES: [&str; 4] = ["Running", "Pending", "Succeeded", "Failed"];
const PODS: [(&str, u32); 5] =
    [("shop", 90), ("shop-east", 50), ("a", 25), ("a-b", 20), ("a0", 15)];

pub(super) fn items() -> Vec<Item> {
    let mut items = Vec::new();
    for (namespace, count) in PODS {
        items.extend((0..count).map(|number| pod(namespace, number)));
    }
    items.extend(controllers());
    items.extend(jobs());
    items
}

fn pod(namespace: &str, number: u32) -> Item {
    let app = APPS[number as usize % APPS.len()];
    let name = format!("{app}-{number}");
    let object = json!({
        "metadata": {
            "name": name,
            "labels": labels(number, app),
            "annotations": {"example.com/note": format!("<{name}> & \u{2028} \u{1F680}")},
        },
        "spec": spec(number),
    });
    let item = Item::new(format!("/api/v1/namespaces/{namespace}/pods"), object);
    if number % 5 == 4 {
        // Left as created: Pending, with an almost empty status.
        return item;
    }
    item.status(json!({
        "phase": PHASES[number as usize % PHASES.len()],
        "podIP": format!("192.0.2.{number}"),
        "podIPs": [{"ip": format!("192.0.2.{number}")}],
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": null}],
    }))
}

fn labels(number: u32, app: &str) -> Value {
    let mut labels = json!({
        "app": app,
        "tier": TIERS[number as usize % TIERS.len()],
        "example.com/role": format!("r{}", number % 2),
        "release": number.to_string(),
        "index": (number * 10).to_string(),
    });
    if number.is_multiple_of(3) {
        labels["canary"] = json!("true");
    }
    if number.is_multiple_of(7) {
        labels["in"] = json!("notin");
        labels["weird_.-x"] = json!("A_b.C-9");
    }
    labels
}

fn spec(number: u32) -> Value {
    let env: Vec<Value> = (0..number % 4)
        .map(|index| json!({"name": format!("V{index}"), "value": "\\ \" < > & '"}))
        .collect();
    let mut spec = json!({
        "containers": [{"name": "main", "image": format!("example.com/app:{number}"), "env": env}],
        "terminationGracePeriodSeconds": 0,
    });
    if number % 3 == 1 {
        spec["nodeName"] = json!(format!("node-{}", number % 4 + 1));
    }
    if number.is_multiple_of(11) {
        spec["restartPolicy"] = json!("Never");
        spec["schedulerName"] = json!("other");
        spec["serviceAccountName"] = json!("builder");
    }
    if number.is_multiple_of(13) {
        spec["hostNetwork"] = json!(true);
    }
    spec
}

fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "example.com/app:1"}]},
    })
}

fn controllers() -> Vec<Item> {
    let mut items = Vec::new();
    for (index, app) in APPS.iter().enumerate() {
        let metadata = json!({"name": app, "labels": {"app": app}});
        let selector = json!({"matchLabels": {"app": app}});
        let spec = json!({"replicas": index, "selector": selector, "template": template(app)});
        let object = json!({"metadata": metadata, "spec": spec});
        for kind in ["deployments", "replicasets"] {
            let collection = format!("/apis/apps/v1/namespaces/shop/{kind}");
            items.push(
                Item::new(collection, object.clone())
                    .status(json!({"replicas": index, "observedGeneration": 1})),
            );
        }
        let set = json!({"metadata": metadata, "spec": {
            "serviceName": app, "selector": selector, "template": template(app)}});
        items.push(Item::new("/apis/apps/v1/namespaces/shop/statefulsets", set));
        let daemon = json!({"metadata": metadata, "spec": {
            "selector": selector, "template": template(app)}});
        items.push(Item::new("/apis/apps/v1/namespaces/shop/daemonsets", daemon));
        let controller = json!({"metadata": metadata, "spec": {
            "replicas": index, "selector": {"app": app}, "template": template(app)}});
        items.push(
            Item::new("/api/v1/namespaces/shop/replicationcontrollers", controller)
                .status(json!({"replicas": index})),
        );
    }
    items
}

fn jobs() -> Vec<Item> {
    let run = |app: &str| {
        let mut template = template(app);
        template["spec"]["restartPolicy"] = json!("Never");
        json!({"template": template})
    };
    let job = |number: u32| {
        let object = json!({"metadata": {"name": format!("job-{number}")}, "spec": run("job")});
        Item::new("/apis/batch/v1/namespaces/shop/jobs", object)
            .status(json!({"succeeded": number}))
    };
    let schedule = json!({"metadata": {"name": "nightly"}, "spec": {
        "schedule": "0 3 * * *", "jobTemplate": {"spec": run("nightly")}}});
    let mut items = vec![job(0), job(1)];
    items.push(Item::new("/apis/batch/v1/namespaces/shop/cronjobs", schedule));
    items
}
