//! The built-in resources of the simulator, with their selectable fields (api-semantics 6.3).

use super::{DeletionAnswer, Rendering, ResourceType, StatusSubresource, UnknownField, WatchCache};
use crate::simulator::json::Json;

/// Returns every built-in resource.
pub(crate) fn all() -> Vec<ResourceType> {
    let mut types = core();
    types.extend(apps());
    types.extend(others());
    types
}

fn core() -> Vec<ResourceType> {
    vec![
        pods(),
        nodes(),
        namespaces(),
        typed("", "configmaps", "ConfigMap", "cm"),
        ResourceType { unknown_field: UnknownField::NotSupported, ..secrets() },
        services(),
        returned(typed("", "serviceaccounts", "ServiceAccount", "sa")),
        returned(typed("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc"))
            .shaped(true, r#"{"spec":{"resources":{}},"status":{}}"#),
        typed("", "endpoints", "Endpoints", "ep"),
        events(),
    ]
}

fn apps() -> Vec<ResourceType> {
    let template = r#"{"metadata":{},"spec":{"containers":null}}"#;
    let workload = |plural: &str, kind: &str, short: &str, spec: &str, status: &str| {
        let zero = format!(
            r#"{{"spec":{{"selector":null,"template":{template}{spec}}},"status":{status}}}"#
        );
        ResourceType { generation: true, ..typed("apps", plural, kind, short) }.shaped(true, &zero)
    };
    let update = r#","updateStrategy":{}"#;
    vec![
        workload("deployments", "Deployment", "deploy", r#","strategy":{}"#, "{}"),
        workload("replicasets", "ReplicaSet", "rs", "", r#"{"replicas":0}"#),
        workload(
            "statefulsets",
            "StatefulSet",
            "sts",
            &format!(r#","serviceName":""{update}"#),
            r#"{"replicas":0,"availableReplicas":0}"#,
        ),
        workload(
            "daemonsets",
            "DaemonSet",
            "ds",
            update,
            r#"{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":0}"#,
        ),
    ]
}

fn others() -> Vec<ResourceType> {
    let jobs = ResourceType {
        unknown_field: UnknownField::NotSupportedFor,
        generation: true,
        ..typed("batch", "jobs", "Job", "")
    };
    let definitions = typed(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        "crd",
    );
    let services = typed("apiregistration.k8s.io", "apiservices", "APIService", "");
    vec![
        typed("coordination.k8s.io", "leases", "Lease", "").shaped(false, r#"{"spec":{}}"#),
        jobs.selectable_at("status.successful", "status.succeeded", Rendering::Decimal).shaped(
            true,
            r#"{"spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}}"#,
        ),
        ResourceType { generation: true, ..definitions }.cluster_scoped().shaped(
            true,
            r#"{"spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}"#,
        ),
        services
            .cluster_scoped()
            .shaped(true, r#"{"spec":{"groupPriorityMinimum":0,"versionPriority":0},"status":{}}"#),
    ]
}

fn pods() -> ResourceType {
    let pods = ResourceType {
        unknown_field: UnknownField::NotSupported,
        ..returned(typed("", "pods", "Pod", "po"))
    };
    pods.selectable("spec.nodeName", Rendering::Text)
        .selectable_at("spec.host", "spec.nodeName", Rendering::Text)
        .selectable("spec.restartPolicy", Rendering::Text)
        .selectable("spec.schedulerName", Rendering::Text)
        .selectable("spec.serviceAccountName", Rendering::Text)
        .selectable("spec.hostNetwork", Rendering::Flag)
        .selectable("status.phase", Rendering::Text)
        .selectable_at("status.podIP", "status.podIPs", Rendering::FirstIp)
        .selectable("status.podIPs", Rendering::Never)
        .selectable("status.nominatedNodeName", Rendering::Text)
        .shaped(true, r#"{"spec":{"containers":null},"status":{}}"#)
}

fn nodes() -> ResourceType {
    let nodes = ResourceType {
        unknown_field: UnknownField::NotSupported,
        ..typed("", "nodes", "Node", "no").cluster_scoped()
    };
    let zero = concat!(
        r#"{"spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"#,
        r#""machineID":"","systemUUID":"","bootID":"","kernelVersion":"","osImage":"","#,
        r#""containerRuntimeVersion":"","kubeletVersion":"","kubeProxyVersion":"","#,
        r#""operatingSystem":"","architecture":""}}}"#
    );
    let nodes = nodes.selectable("spec.unschedulable", Rendering::Flag).shaped(true, zero);
    ResourceType { namespace_field: false, ..nodes }
}

fn namespaces() -> ResourceType {
    let namespaces = ResourceType {
        unknown_field: UnknownField::NotSupported,
        ..returned(typed("", "namespaces", "Namespace", "ns").cluster_scoped())
    };
    let namespaces = namespaces
        .selectable("status.phase", Rendering::Text)
        .shaped(true, r#"{"spec":{},"status":{}}"#);
    ResourceType { namespace_field: false, ..namespaces }
}

fn secrets() -> ResourceType {
    typed("", "secrets", "Secret", "").selectable("type", Rendering::Text)
}

fn services() -> ResourceType {
    let services = ResourceType {
        unknown_field: UnknownField::NotSupported,
        ..returned(typed("", "services", "Service", "svc"))
    };
    services
        .selectable("spec.clusterIP", Rendering::Text)
        .selectable("spec.type", Rendering::Text)
        .shaped(true, r#"{"spec":{},"status":{"loadBalancer":{}}}"#)
}

fn events() -> ResourceType {
    let events = ResourceType {
        watch_cache: WatchCache::Uncached,
        unknown_field: UnknownField::NotSupported,
        ..typed("", "events", "Event", "ev")
    };
    let involved =
        ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
    let events = involved.iter().fold(events, |events, field| {
        events.selectable(&format!("involvedObject.{field}"), Rendering::Text)
    });
    events
        .selectable("reason", Rendering::Text)
        .selectable("reportingComponent", Rendering::Text)
        .selectable("source", Rendering::EventSource)
        .selectable("type", Rendering::Text)
        .shaped(
            false,
            r#"{"involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":""}"#,
        )
}

fn typed(group: &str, plural: &str, kind: &str, short: &str) -> ResourceType {
    let mut resource_type = ResourceType::typed(group, &["v1"], plural, kind);
    if !short.is_empty() {
        resource_type.short_names.push(short.to_owned());
    }
    resource_type
}

fn returned(resource_type: ResourceType) -> ResourceType {
    ResourceType { deletion: DeletionAnswer::Object, ..resource_type }
}

// === impl ResourceType ===

impl ResourceType {
    fn shaped(mut self, status: bool, zero: &str) -> Self {
        self.status = if status { StatusSubresource::Present } else { StatusSubresource::Absent };
        self.zero = Json::parse(zero.as_bytes()).expect("the table's zero values are JSON");
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named<'a>(types: &'a [ResourceType], plural: &str) -> &'a ResourceType {
        types.iter().find(|found| found.plural == plural).expect("a built-in")
    }

    #[test]
    fn fields_have_the_servers_text_form() {
        let pod = Json::parse(
            br#"{"spec":{"nodeName":"n1"},"status":{"podIPs":[{"ip":"10.0.0.1"},{"ip":"fd::1"}]}}"#,
        )
        .expect("JSON");
        let types = all();
        let values: Vec<_> = named(&types, "pods")
            .fields
            .iter()
            .map(|field| (field.label.as_str(), field.value(&pod)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        assert_eq!(
            values,
            [
                ("spec.nodeName", "n1".to_owned()),
                ("spec.host", "n1".to_owned()),
                ("spec.hostNetwork", "false".to_owned()),
                ("status.podIP", "10.0.0.1".to_owned()),
            ]
        );
    }

    #[test]
    fn unknown_fields_are_reported_in_their_message_form() {
        let types = all();
        for (plural, label, expected) in [
            ("pods", "spec.nodeName", None),
            ("pods", "spec.x", Some("field label not supported: spec.x")),
            ("nodes", "metadata.namespace", Some("field label not supported: metadata.namespace")),
            ("jobs", "spec.x", Some("field label \"spec.x\" not supported for Job")),
            (
                "replicasets",
                "status.replicas",
                Some(
                    "\"status.replicas\" is not a known field selector: only \"metadata.name\", \
                     \"metadata.namespace\"",
                ),
            ),
        ] {
            let fault = named(&types, plural).field_fault(label);
            assert_eq!(fault.as_deref(), expected, "{plural} {label}");
        }
    }
}
