//! Resources that are left alone unless a rule names them.
//!
//! Confidential ones, the ones leader election depends on, the busiest ones, and the API groups known
//! to be served by aggregated servers, whose answers may differ from caller to caller. An aggregated
//! group missing here is still found out by discovery or by its answers; this list only comes first.

use crate::api::GroupResource;

/// Whether "*" does not reach this resource.
pub fn is_reserved(resource: &GroupResource) -> bool {
    match (&*resource.group, &*resource.resource) {
        ("", "secrets" | "events" | "bindings") => true,
        ("coordination.k8s.io", "leases" | "leasecandidates") => true,
        ("events.k8s.io", "events") => true,
        // Reviews and tokens: created, never stored.
        ("authentication.k8s.io" | "authorization.k8s.io", _) => true,
        (group, _) => is_aggregated(group),
    }
}

fn is_aggregated(group: &str) -> bool {
    const GROUPS: [&str; 5] = [
        "metrics.k8s.io",
        "custom.metrics.k8s.io",
        "external.metrics.k8s.io",
        "packages.operators.coreos.com",
        "subresources.kubevirt.io",
    ];
    // OpenShift serves these from openshift-apiserver and oauth-apiserver, and filters some per user.
    const OPENSHIFT: [&str; 11] = [
        "apps",
        "authorization",
        "build",
        "image",
        "oauth",
        "project",
        "quota",
        "route",
        "security",
        "template",
        "user",
    ];
    GROUPS.contains(&group)
        || group.strip_suffix(".openshift.io").is_some_and(|name| OPENSHIFT.contains(&name))
}
