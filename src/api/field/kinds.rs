//! The table of built-in kinds with field selectors of their own (S-SEL-12).

use super::GroupVersionResource;

/// A built-in kind that accepts fields beyond name and namespace, or refuses the namespace.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) versions: &'static [&'static str],
    pub(super) resource: &'static str,
    /// `true` if `metadata.namespace` is accepted.
    pub(super) namespace: bool,
    /// The canonical paths accepted.
    pub(super) paths: &'static [&'static str],
    /// Other names of canonical paths.
    pub(super) aliases: &'static [(&'static str, &'static str)],
    /// The place of a path in the object's JSON, if it differs from the path.
    pub(super) places: &'static [(&'static str, &'static str)],
    /// The value of a path that the JSON omits, if it is not "".
    pub(super) defaults: &'static [(&'static str, &'static str)],
    /// The path whose value replaces an empty one.
    pub(super) fallbacks: &'static [(&'static str, &'static str)],
}

/// Returns the row of a resource in a version that the table lists.
pub(super) fn kind_of(resource: &GroupVersionResource) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.is(resource) && kind.versions.contains(&&*resource.version))
}

/// Reports whether the table has the resource in some version.
pub(super) fn is_in_table(resource: &GroupVersionResource) -> bool {
    KINDS.iter().any(|kind| kind.is(resource))
}

/// Looks a path up in a short table.
pub(super) fn find(pairs: &[(&'static str, &'static str)], path: &str) -> Option<&'static str> {
    pairs.iter().find(|(from, _)| *from == path).map(|(_, to)| *to)
}

/// Reports whether the group is one of the apiserver's own.
pub fn is_built_in_group(group: &str) -> bool {
    BUILT_IN_GROUPS.contains(&group)
}

// === impl Kind ===

impl Kind {
    fn is(&self, resource: &GroupVersionResource) -> bool {
        *self.resource == *resource.resource && *self.group == *resource.group
    }

    /// Returns the index of a canonical path in `paths`.
    pub(super) fn index(&self, path: &str) -> Option<usize> {
        self.paths.iter().position(|candidate| *candidate == path)
    }

    /// Returns the place of a path's value in the JSON, as keys joined by dots.
    pub(super) fn place(&self, path: &'static str) -> &'static str {
        find(self.places, path).unwrap_or(path)
    }
}

/// A kind that accepts only its name, as a base for the table.
const PLAIN: Kind = Kind {
    group: "",
    versions: &["v1"],
    resource: "",
    namespace: true,
    paths: &[],
    aliases: &[],
    places: &[],
    defaults: &[],
    fallbacks: &[],
};

pub(super) static KINDS: [Kind; 12] = [
    Kind {
        resource: "pods",
        paths: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        aliases: &[("spec.host", "spec.nodeName")],
        // The server accepts this field and never fills it; the JSON contains an array.
        places: &[("status.podIPs", "")],
        defaults: &[("spec.hostNetwork", "false")],
        ..PLAIN
    },
    Kind {
        resource: "nodes",
        namespace: false,
        paths: &["spec.unschedulable"],
        defaults: &[("spec.unschedulable", "false")],
        ..PLAIN
    },
    Kind { resource: "namespaces", namespace: false, paths: &["status.phase"], ..PLAIN },
    Kind { resource: "secrets", paths: &["type"], ..PLAIN },
    Kind {
        resource: "replicationcontrollers",
        paths: &["status.replicas"],
        defaults: &[("status.replicas", "0")],
        ..PLAIN
    },
    Kind {
        resource: "events",
        paths: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        places: &[("source", "source.component")],
        fallbacks: &[("source", "reportingComponent")],
        ..PLAIN
    },
    Kind {
        group: "events.k8s.io",
        versions: &["v1", "v1beta1"],
        resource: "events",
        paths: &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ..PLAIN
    },
    Kind {
        group: "batch",
        resource: "jobs",
        paths: &["status.successful"],
        places: &[("status.successful", "status.succeeded")],
        defaults: &[("status.successful", "0")],
        ..PLAIN
    },
    Kind {
        group: "certificates.k8s.io",
        versions: &["v1", "v1beta1"],
        resource: "certificatesigningrequests",
        namespace: false,
        paths: &["spec.signerName"],
        ..PLAIN
    },
    Kind {
        group: "certificates.k8s.io",
        versions: &["v1", "v1beta1", "v1alpha1"],
        resource: "clustertrustbundles",
        namespace: false,
        paths: &["spec.signerName"],
        ..PLAIN
    },
    Kind {
        group: "certificates.k8s.io",
        versions: &["v1", "v1beta1", "v1alpha1"],
        resource: "podcertificaterequests",
        namespace: false,
        paths: &["spec.signerName", "spec.podName", "spec.nodeName"],
        ..PLAIN
    },
    Kind {
        group: "resource.k8s.io",
        versions: &["v1", "v1beta1", "v1beta2"],
        resource: "resourceslices",
        namespace: false,
        paths: &["spec.nodeName", "spec.driver"],
        ..PLAIN
    },
];

/// The groups whose kinds accept `metadata.namespace`, unless the table says otherwise; this
/// includes cluster-scoped kinds.
pub const BUILT_IN_GROUPS: [&str; 23] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];
