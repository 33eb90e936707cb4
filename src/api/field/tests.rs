//! The fields of each kind (S-SEL-12) in objects as the apiserver writes them.

use serde_json::json;

use super::*;

fn resource(text: &str) -> GroupVersionResource {
    let mut parts = text.splitn(3, '.');
    let mut part = || parts.next().unwrap_or_default();
    let (resource, version, group) = (part(), part(), part());
    GroupVersionResource::new(group, version, resource)
}

fn selector(text: &str) -> FieldSelector {
    FieldSelector::parse(text).expect("a selector")
}

fn check(name: &str, object: &serde_json::Value, expected: &[(&str, &str)]) {
    for bytes in [object.to_string(), format!("{object:#}")] {
        let values = field_values(&resource(name), bytes.as_bytes());
        let values: Vec<_> = values.iter().map(|(path, value)| (*path, &**value)).collect();
        assert_eq!(values, expected, "{name}: {object}");
    }
}

#[test]
fn exactly_the_documented_fields_are_modelled() {
    let table = [
        ("pods.v1", "metadata.name=x", true),
        ("pods.v1", "metadata.namespace=x,spec.nodeName=y,status.podIPs!=z", true),
        ("pods.v1", "spec.host=x", true),
        ("pods.v1", "spec.nodename=x", false),
        ("pods.v1", "metadata.name=x,metadata.uid=y", false),
        ("pods.v2", "status.phase=x", false),
        ("pods.v2", "metadata.namespace=x", false),
        ("pods.v1.example.com", "status.phase=x", false),
        ("nodes.v1", "spec.unschedulable=true", true),
        ("nodes.v1", "metadata.namespace=x", false),
        ("namespaces.v1", "status.phase=Active", true),
        ("namespaces.v1", "name=x", false),
        ("events.v1", "source=kubelet,involvedObject.fieldPath=", true),
        ("events.v1.events.k8s.io", "regarding.uid=x,reportingController=y", true),
        ("events.v1.events.k8s.io", "source=kubelet", false),
        ("events.v1beta1.events.k8s.io", "type=Normal", true),
        ("jobs.v1.batch", "status.successful=1", true),
        ("jobs.v1.batch", "status.succeeded=1", false),
        ("resourceslices.v1beta2.resource.k8s.io", "spec.driver=x", true),
        ("resourceslices.v1alpha3.resource.k8s.io", "spec.driver=x", false),
        ("podcertificaterequests.v1beta1.certificates.k8s.io", "metadata.namespace=x", false),
        ("replicasets.v1.apps", "status.replicas=1", false),
        ("replicasets.v1.apps", "metadata.namespace=x", true),
        ("persistentvolumes.v1", "metadata.namespace=", true),
        ("widgets.v1.example.com", "metadata.name=x", true),
        ("widgets.v1.example.com", "spec.size=x", false),
    ];
    for (name, text, expected) in table {
        assert_eq!(
            fields_are_modelled(&resource(name), &selector(text)),
            expected,
            "{name} {text}"
        );
    }
}

#[test]
fn a_custom_resource_has_a_namespace_field_only_if_certainly_namespaced() {
    let (widgets, fields) = (resource("widgets.v1.example.com"), selector("metadata.namespace=x"));
    let namespace = Scope::Namespace("x".into());
    assert_eq!(canonical_fields(&widgets, &Scope::All, &fields), None);
    assert_eq!(canonical_fields(&widgets, &namespace, &fields), Some(fields.clone()));
    assert_eq!(canonical_fields(&resource("pods.v1"), &Scope::All, &fields), Some(fields));
}

#[test]
fn aliases_become_canonical_paths() {
    let fields = selector("spec.host=x,spec.nodeName=x,status.phase!=Failed");
    let canonical = canonical_fields(&resource("pods.v1"), &Scope::All, &fields);
    assert_eq!(canonical, Some(selector("spec.nodeName=x,status.phase!=Failed")));
}

#[test]
fn a_pods_fields_are_read_from_its_json() {
    let pod = json!({
        "metadata": {"name": "a", "annotations": {"spec.nodeName": "no", "status.phase": "no"}},
        "spec": {
            "containers": [{"nodeName": "no", "restartPolicy": "no"}],
            "nodeName": "node-1", "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "serviceAccountName": "default", "hostNetwork": true,
            "template": {"nodeName": "no"},
        },
        "nodeName": "no", "phase": "no", "spec.nodeName": "no",
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "nominatedNodeName": "node-2",
            "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"phase": "no"}],
        },
    });
    let expected = [
        ("spec.nodeName", "node-1"),
        ("spec.restartPolicy", "Always"),
        ("spec.schedulerName", "default-scheduler"),
        ("spec.serviceAccountName", "default"),
        ("spec.hostNetwork", "true"),
        ("status.phase", "Running"),
        ("status.podIP", "10.0.0.1"),
        ("status.nominatedNodeName", "node-2"),
    ];
    check("pods.v1", &pod, &expected);
}

#[test]
fn omitted_fields_read_as_the_server_renders_them() {
    check("pods.v1", &json!({}), &[("spec.hostNetwork", "false")]);
    check("pods.v1", &json!({"spec": null}), &[("spec.hostNetwork", "false")]);
    check("pods.v1", &json!({"spec": {"hostNetwork": null}}), &[("spec.hostNetwork", "false")]);
    check("nodes.v1", &json!({"spec": {}}), &[("spec.unschedulable", "false")]);
    let cordoned = json!({"spec": {"unschedulable": true}});
    check("nodes.v1", &cordoned, &[("spec.unschedulable", "true")]);
    check("jobs.v1.batch", &json!({"status": {}}), &[("status.successful", "0")]);
    let done = json!({"status": {"succeeded": 3, "successful": 9}});
    check("jobs.v1.batch", &done, &[("status.successful", "3")]);
    let controller = json!({"status": {"replicas": 12}});
    check("replicationcontrollers.v1", &controller, &[("status.replicas", "12")]);
    check("secrets.v1", &json!({"type": ""}), &[]);
    check("widgets.v1.example.com", &json!({"type": "x"}), &[]);
}

#[test]
fn an_events_source_falls_back_to_its_reporting_component() {
    let mut event = json!({
        "involvedObject": {"kind": "Pod", "name": "a", "resourceVersion": "7"},
        "reason": "Started", "source": {"component": "kubelet"}, "reportingComponent": "other",
    });
    let about = [
        ("involvedObject.kind", "Pod"),
        ("involvedObject.name", "a"),
        ("involvedObject.resourceVersion", "7"),
        ("reason", "Started"),
        ("reportingComponent", "other"),
    ];
    check("events.v1", &event, &[&about[..], &[("source", "kubelet")]].concat());
    event["source"] = json!({});
    check("events.v1", &event, &[&about[..], &[("source", "other")]].concat());
}

#[test]
fn the_newer_events_are_read_under_their_own_names() {
    let event = json!({
        "regarding": {"kind": "Pod", "fieldPath": "spec"}, "reportingController": "kubelet",
        "type": "Normal", "deprecatedSource": {"component": "x"},
    });
    let expected = [
        ("regarding.kind", "Pod"),
        ("regarding.fieldPath", "spec"),
        ("reportingController", "kubelet"),
        ("type", "Normal"),
    ];
    check("events.v1.events.k8s.io", &event, &expected);
}

#[test]
fn odd_or_malformed_objects_are_tolerated() {
    check("pods.v1", &json!([{"spec": {"nodeName": "no"}}]), &[("spec.hostNetwork", "false")]);
    let odd = json!({"spec": {"nodeName": {"x": 1}, "restartPolicy": [1], "schedulerName": 1.5}});
    check("pods.v1", &odd, &[("spec.hostNetwork", "false")]);
    for bytes in [&b""[..], b"{", b"{\"spec\":{\"nodeName\":\"x\"", b"\xff", b"{\"\xff\":1}"] {
        field_values(&resource("pods.v1"), bytes);
    }
}
