//! Lists in pages, to their end: each side follows its own tokens.

use super::Case;

/// Lists without a limit, of every scope, style and kind of selector.
const LISTS: &[&str] = &[
    "/api/v1/pods?",
    "/api/v1/pods?labelSelector=app&",
    "/api/v1/pods?labelSelector=app%3Dweb&",
    "/api/v1/pods?labelSelector=app%3Dnone&",
    "/api/v1/pods?fieldSelector=status.phase%3DRunning&",
    "/api/v1/namespaces/shop/pods?",
    "/api/v1/namespaces/shop/pods?labelSelector=canary&",
    "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb&",
    "/api/v1/namespaces/shop/pods?fieldSelector=status.phase%3DRunning&",
    "/api/v1/namespaces/shop/pods?resourceVersion={before}&resourceVersionMatch=NotOlderThan&",
    "/api/v1/namespaces/none/pods?",
    "/api/v1/configmaps?",
    "/api/v1/namespaces/shop/configmaps?",
    "/api/v1/nodes?",
    "/apis/apps/v1/deployments?",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles?",
    "/apis/shop.example.com/v1/widgets?",
    "/apis/shop.example.com/v1/namespaces/shop/widgets?",
];

/// The limit of one page, and of a few.
const LIMITS: &[u32] = &[25, 40, 70, 499];

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

pub(super) fn cases() -> Vec<Case> {
    let page = |list: &str, limit: u32| Case::get(&format!("{list}limit={limit}")).all_pages();
    let mut cases = Vec::new();
    for list in LISTS {
        cases.extend(LIMITS.iter().map(|limit| page(list, *limit)));
    }
    for (list, limit) in [
        ("/apis/shop.example.com/v1/widgets?", 5),
        ("/apis/shop.example.com/v1beta1/namespaces/shop/widgets?", 3),
        ("/api/v1/namespaces/shop/pods?labelSelector=canary&", 4),
        ("/api/v1/nodes?", 2),
    ] {
        cases.push(page(list, limit));
    }
    for list in ["/api/v1/pods?", "/api/v1/configmaps?", "/apis/shop.example.com/v1/widgets?"] {
        cases.push(page(list, 30).accept(METADATA));
    }
    // Events are never cached, and have no watch cache in the apiserver.
    cases.push(page("/api/v1/namespaces/shop/events?", 2).never());
    cases
}
