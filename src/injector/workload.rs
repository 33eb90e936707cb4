//! The position of pods in an object: the object itself, its template, or its job's template.

use serde_json::Value;

use super::patch::Pointer;

/// A pod or pod template in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its position.
    pub pointer: Pointer,
    /// The object's kind.
    pub kind: String,
    /// The object's name. Empty if the apiserver generates it.
    pub name: String,
    /// The namespace in the object. Empty if it has none.
    pub namespace: String,
}

/// The kinds with their group and the path of their pods.
const KINDS: [(&str, &str, &[&str]); 9] = [
    ("Pod", "", &[]),
    ("PodTemplate", "", &["template"]),
    ("ReplicationController", "", &["spec", "template"]),
    ("Deployment", "apps", &["spec", "template"]),
    ("StatefulSet", "apps", &["spec", "template"]),
    ("DaemonSet", "apps", &["spec", "template"]),
    ("ReplicaSet", "apps", &["spec", "template"]),
    ("Job", "batch", &["spec", "template"]),
    ("CronJob", "batch", &["spec", "jobTemplate", "spec", "template"]),
];

/// Returns all pod templates of an object, or of a list's objects. Empty for kinds without pods.
pub fn templates(object: &Value) -> Vec<Template> {
    let kind = object["kind"].as_str().unwrap_or("");
    let version = object["apiVersion"].as_str().unwrap_or("");
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    if kind == "List" || kind.ends_with("List") && object["items"].is_array() {
        let items = object["items"].as_array().map_or(&[][..], Vec::as_slice).iter().enumerate();
        let place = |index: usize| Pointer::root().child("items").child(index);
        let of = |(index, item): (usize, &Value)| {
            let found = templates(item).into_iter();
            let within = move |template: Template| Template {
                pointer: place(index).join(&template.pointer),
                ..template
            };
            found.map(within).collect::<Vec<_>>()
        };
        return items.flat_map(of).collect();
    }
    let known = KINDS.iter().find(|(known, of, _)| *known == kind && *of == group);
    let Some((_, _, path)) = known else { return Vec::new() };
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or("").to_owned();
    let pointer = path.iter().collect();
    vec![Template {
        pointer,
        kind: kind.to_owned(),
        name: text("name"),
        namespace: text("namespace"),
    }]
}
