//! Custom resources: one namespaced kind and one of the cluster, each in two versions.

use serde_json::{Value, json};

use super::Item;

/// The names of the definitions.
pub(super) const DEFINITIONS: [&str; 2] = ["widgets.shop.example.com", "planets.shop.example.com"];
/// The OpenAPI paths that appear once the definitions are known everywhere.
pub(super) const PATHS_IN_OPENAPI: [&str; 3] =
    ["apis/shop.example.com/v1", "apis/shop.example.com/v1beta1", "apis/shop.example.com/v1alpha1"];

pub(super) fn definitions() -> Vec<Item> {
    let collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    vec![Item::new(collection, widgets()), Item::new(collection, planets())]
}

pub(super) fn items() -> Vec<Item> {
    let mut items: Vec<Item> = (0..12).map(widget).collect();
    items.extend((0..5).map(planet));
    items
}

fn widgets() -> Value {
    let fields = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.size"}]);
    let columns = json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]);
    let subresources = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}});
    let mut current = version("v1", true);
    current["selectableFields"] = fields.clone();
    current["additionalPrinterColumns"] = columns;
    current["subresources"] = subresources.clone();
    let mut old = version("v1beta1", false);
    old["selectableFields"] = fields;
    old["subresources"] = subresources;
    old["deprecated"] = json!(true);
    old["deprecationWarning"] = json!("shop.example.com/v1beta1 Widget is old; use v1");
    definition("Namespaced", json!({"plural": "widgets", "kind": "Widget"}), [current, old])
}

/// Its list kind is not the one a client would derive.
fn planets() -> Value {
    let names = json!({"plural": "planets", "kind": "Planet", "listKind": "PlanetCatalog"});
    definition("Cluster", names, [version("v1", true), version("v1alpha1", false)])
}

fn definition(scope: &str, names: Value, versions: [Value; 2]) -> Value {
    let plural = names["plural"].as_str().unwrap_or_default();
    json!({
        "metadata": {"name": format!("{plural}.shop.example.com")},
        "spec": {
            "group": "shop.example.com", "scope": scope, "names": names, "versions": versions,
        },
    })
}

fn version(name: &str, storage: bool) -> Value {
    let spec = json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "color": {"type": "string"}, "size": {"type": "integer"},
            "replicas": {"type": "integer"},
        },
    });
    let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
    json!({
        "name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema},
    })
}

fn widget(number: u32) -> Item {
    let namespace = if number.is_multiple_of(3) { "a" } else { "shop" };
    let color = ["red", "green", "blue", ""][number as usize % 4];
    let object = json!({
        "apiVersion": "shop.example.com/v1", "kind": "Widget",
        "metadata": {
            "name": format!("widget-{number}"),
            "labels": {"size": if number > 5 { "large" } else { "small" }},
        },
        "spec": {
            "color": color, "size": number, "replicas": 1,
            "free": {"z": 1, "a": [1.5, -0.0, 1e21, null, "<&>\u{2028}"], "Z": {"\u{e9}": true}},
        },
    });
    Item::new(format!("/apis/shop.example.com/v1/namespaces/{namespace}/widgets"), object)
        .status(json!({"replicas": number}))
}

fn planet(number: u32) -> Item {
    let object = json!({
        "apiVersion": "shop.example.com/v1alpha1", "kind": "Planet",
        "metadata": {"name": format!("planet-{number}"), "labels": {"rocky": "yes"}},
        "spec": {"size": number},
    });
    Item::new("/apis/shop.example.com/v1alpha1/planets", object)
}
