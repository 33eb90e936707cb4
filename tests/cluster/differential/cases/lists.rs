//! Whole collections: every kind, every scope.

use super::super::case::Pace;
use super::Case;

/// Built-in and custom collections that are cached by default.
const CACHED: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/a-b/pods",
    "/api/v1/namespaces/a0/pods",
    "/api/v1/namespaces/shop/pods",
    "/api/v1/namespaces/shop-east/pods",
    "/api/v1/namespaces/empty/pods",
    "/api/v1/namespaces/none/pods",
    "/api/v1/configmaps",
    "/api/v1/namespaces/a/configmaps",
    "/api/v1/namespaces/shop/configmaps",
    "/api/v1/namespaces/empty/configmaps",
    "/api/v1/namespaces/none/configmaps",
    "/api/v1/services",
    "/api/v1/namespaces/shop/services",
    "/api/v1/namespaces/default/services",
    "/api/v1/serviceaccounts",
    "/api/v1/namespaces/shop/serviceaccounts",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/namespaces/shop/persistentvolumeclaims",
    "/api/v1/replicationcontrollers",
    "/api/v1/namespaces/shop/replicationcontrollers",
    "/api/v1/podtemplates",
    "/api/v1/limitranges",
    "/api/v1/resourcequotas",
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/namespaces/shop/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/namespaces/shop/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/controllerrevisions",
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/namespaces/shop/cronjobs",
    "/apis/networking.k8s.io/v1/ingresses",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/autoscaling/v2/horizontalpodautoscalers",
    "/apis/autoscaling/v1/horizontalpodautoscalers",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/certificates.k8s.io/v1/certificatesigningrequests",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/shop.example.com/v1/widgets",
    "/apis/shop.example.com/v1/namespaces/shop/widgets",
    "/apis/shop.example.com/v1/namespaces/a/widgets",
    "/apis/shop.example.com/v1/namespaces/empty/widgets",
    "/apis/shop.example.com/v1beta1/widgets",
    "/apis/shop.example.com/v1beta1/namespaces/shop/widgets",
    "/apis/shop.example.com/v1/planets",
    "/apis/shop.example.com/v1alpha1/planets",
];

/// Collections that may be held or not; the implementation decides.
const FREE: &[&str] = &[
    "/api/v1/endpoints",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "/apis/apiregistration.k8s.io/v1/apiservices",
    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
];

/// Collections that are neither cached nor rewritten unless named explicitly.
const NEVER: &[&str] = &[
    "/api/v1/secrets",
    "/api/v1/namespaces/shop/secrets",
    "/api/v1/namespaces/empty/secrets",
    "/api/v1/namespaces/shop/events",
    "/apis/events.k8s.io/v1/namespaces/shop/events",
    "/apis/coordination.k8s.io/v1/namespaces/shop/leases",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = CACHED.iter().map(|path| Case::get(path).wanted()).collect();
    cases.extend(FREE.iter().map(|path| Case::get(path)));
    cases.extend(NEVER.iter().map(|path| Case::get(path).never()));
    // The apiserver renews its own lease during the comparison.
    let leases = "/apis/coordination.k8s.io/v1/leases";
    cases.push(Case::get(leases).never().pace(Pace::Clock));
    cases
}
