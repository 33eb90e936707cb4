//! Single objects and their subresources.

use super::super::case::Memory;
use super::Case;

const HELD: &[&str] = &[
    "/api/v1/namespaces/shop/pods/web-0",
    "/api/v1/namespaces/a/pods/api-1",
    "/api/v1/namespaces/a-b/pods/api-1",
    "/api/v1/namespaces/shop/configmaps/settings",
    "/api/v1/namespaces/shop/configmaps/going",
    "/api/v1/namespaces/shop/configmaps/none",
    "/api/v1/namespaces/shop/configmaps/9.z",
    "/api/v1/namespaces/shop/configmaps/a.b",
    "/api/v1/namespaces/shop/configmaps/big-3",
    "/api/v1/namespaces/shop/configmaps/escape-markup",
    "/api/v1/namespaces/shop/configmaps/escape-separators",
    "/api/v1/namespaces/shop/configmaps/escape-emoji",
    "/api/v1/namespaces/shop/configmaps/escape-controls",
    "/api/v1/namespaces/shop/configmaps/escape-backslashes",
    "/api/v1/namespaces/shop/configmaps/escape-scripts",
    "/api/v1/namespaces/shop/configmaps/escape-combining",
    "/api/v1/namespaces/shop/configmaps/escape-last",
    "/api/v1/namespaces/shop/configmaps/escape-json",
    "/api/v1/namespaces/shop/configmaps/escape-empty",
    "/api/v1/namespaces/shop/services/web",
    "/api/v1/namespaces/shop/serviceaccounts/builder",
    "/api/v1/namespaces/shop/persistentvolumeclaims/data",
    "/api/v1/nodes/node-4",
    "/api/v1/namespaces/shop",
    "/api/v1/persistentvolumes/volume-1",
    "/apis/apps/v1/namespaces/shop/deployments/web",
    "/apis/batch/v1/namespaces/shop/cronjobs/nightly",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/admin",
    "/apis/storage.k8s.io/v1/storageclasses/fast",
    "/apis/shop.example.com/v1/namespaces/shop/widgets/widget-1",
    "/apis/shop.example.com/v1beta1/namespaces/shop/widgets/widget-1",
    "/apis/shop.example.com/v1/planets/planet-1",
    "/apis/shop.example.com/v1alpha1/planets/planet-1",
    "/api/v1/namespaces/shop/pods/web-0?resourceVersion=0",
    "/api/v1/namespaces/shop/pods/web-0?resourceVersion=",
    "/api/v1/namespaces/shop/pods/web-0?resourceVersion={after}",
    "/api/v1/namespaces/shop/pods/web-0?resourceVersion=1",
    "/api/v1/namespaces/shop/pods/web-0?resourceVersionMatch=Exact",
    "/api/v1/namespaces/shop/pods/web-0?resourceVersionMatch=NotOlderThan&resourceVersion=0",
    "/api/v1/namespaces/shop/pods/web-0?labelSelector=app%3Dnone",
    "/api/v1/namespaces/shop/pods/web-0?limit=1",
    "/api/v1/namespaces/shop/pods/web-0?unknown=1",
    "/api/v1/namespaces/shop/pods/web-0?timeout=5s",
    "/api/v1/namespaces/shop/pods/web-0?includeObject=None",
    "/apis/shop.example.com/v1/planets/planet-1?resourceVersion=0",
];

/// Absent objects; a replica that covers them may also report that they do not exist.
const MISSING: &[&str] = &[
    "/api/v1/namespaces/shop/pods/none",
    "/api/v1/namespaces/shop/pods/none?resourceVersion=0",
    "/api/v1/namespaces/none/pods/none",
    "/api/v1/namespaces/none",
    "/api/v1/nodes/none",
    "/api/v1/namespaces/shop/configmaps/UPPER",
    "/api/v1/namespaces/shop/configmaps/a%20b",
    "/api/v1/namespaces/shop/configmaps/%C3%A9",
    "/api/v1/namespaces/shop/configmaps/..x",
    "/apis/apps/v1/namespaces/shop/deployments/none",
    "/apis/shop.example.com/v1/namespaces/shop/widgets/none",
    "/apis/shop.example.com/v1beta1/namespaces/shop/widgets/none",
    "/apis/shop.example.com/v1/planets/none",
];

const NEVER: &[(&str, u16)] = &[
    ("/api/v1/namespaces/shop/secrets/login", 200),
    ("/api/v1/namespaces/shop/secrets/none", 404),
    ("/api/v1/namespaces/shop/events/event-1", 200),
    ("/apis/coordination.k8s.io/v1/namespaces/shop/leases/leader", 200),
    ("/api/v1/namespaces/shop/pods/web-0/status", 200),
    ("/api/v1/namespaces/shop/pods/web-0/ephemeralcontainers", 200),
    ("/api/v1/namespaces/shop/pods/none/status", 404),
    ("/api/v1/namespaces/shop/pods/web-0/log?container=nope", 400),
    ("/api/v1/namespaces/shop/pods/none/log", 404),
    ("/api/v1/namespaces/shop/pods/web-0/nothing", 404),
    ("/api/v1/namespaces/shop/pods/web-0/eviction", 405),
    ("/api/v1/namespaces/shop/pods/web-0/binding", 405),
    ("/api/v1/namespaces/shop/status", 200),
    ("/api/v1/namespaces/shop/finalize", 405),
    ("/api/v1/nodes/node-1/status", 200),
    ("/api/v1/namespaces/shop/serviceaccounts/builder/token", 405),
    ("/apis/apps/v1/namespaces/shop/deployments/web/scale", 200),
    ("/apis/apps/v1/namespaces/shop/deployments/web/status", 200),
    ("/apis/apps/v1/namespaces/shop/deployments/none/scale", 404),
    ("/apis/shop.example.com/v1/namespaces/shop/widgets/widget-1/status", 200),
    ("/apis/shop.example.com/v1/namespaces/shop/widgets/widget-1/scale", 200),
    ("/apis/shop.example.com/v1/namespaces/shop/widgets/widget-1/nothing", 404),
    ("/apis/shop.example.com/v1/planets/planet-1/status", 404),
    ("/api/v1/namespaces/shop/pods/web-0?resourceVersion=abc", 500),
    ("/api/v1/namespaces/shop/pods/web-0?resourceVersion=-1", 500),
    ("/api/v1/namespaces/shop/pods/web-0?export=true", 400),
    ("/api/v1/namespaces/shop/pods/web-0?timeout=abc", 400),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = HELD.iter().map(|target| Case::get(target)).collect();
    for target in MISSING {
        let mut case = Case::get(target).status(404);
        case.memory = Memory::Free;
        cases.push(case);
    }
    cases.extend(NEVER.iter().map(|(target, status)| Case::get(target).never().status(*status)));
    cases
}
