//! Resources that no rule includes unless it names them.
//!
//! These are confidential resources, those that leader election depends on, the busiest ones, and
//! API groups of known aggregated servers. An aggregated server's responses may differ from caller
//! to caller. An aggregated group that is missing here is still detected by discovery or by its
//! responses; this list is only checked first.

use crate::api::GroupResource;

/// Reports whether "*" does not include this resource.
pub fn is_reserved(resource: &GroupResource) -> bool {
    match (&*resource.group, &*resource.resource) {
        ("", "secrets" | "events" | "bindings") => true,
        ("coordination.k8s.io", "leases" | "leasecandidates") => true,
        ("events.k8s.io", "events") => true,
        // Reviews and tokens: they are created, never stored.
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
    // OpenShift serves these groups from openshift-apiserver and oauth-apiserver, and filters some
    // per user.
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
