//! Answers from memory, byte for byte against the apiserver's own.

use crate::harness::{
    Answer, Setup, TestProxy, group_resource, pod, populated, settle, without_version,
};

/// Collections whose replicas cover everything below.
const COLLECTIONS: &[&str] = &[
    "/api/v1/pods",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/configmaps",
    "/api/v1/services",
    "/apis/apps/v1/deployments",
    "/apis/x.io/v1/widgets",
    "/apis/x.io/v1beta1/widgets",
    "/apis/x.io/v1/gadgets",
];

/// Lists of every scope, style and kind of selector.
const LISTS: &[&str] = &[
    // Scopes: all namespaces, one, one without objects, cluster-scoped.
    "/api/v1/pods",
    "/api/v1/namespaces/a/pods",
    "/api/v1/namespaces/a-b/pods",
    "/api/v1/namespaces/none/pods",
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/namespaces/a/configmaps",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/namespaces/a/deployments",
    "/api/v1/services",
    // Custom resources: both versions, both scopes, nothing selected.
    "/apis/x.io/v1/widgets",
    "/apis/x.io/v1beta1/widgets",
    "/apis/x.io/v1/namespaces/b/widgets",
    "/apis/x.io/v1beta1/namespaces/b/widgets",
    "/apis/x.io/v1/namespaces/none/widgets",
    "/apis/x.io/v1/gadgets",
    "/apis/x.io/v1/widgets?labelSelector=colour=red",
    "/apis/x.io/v1/widgets?labelSelector=colour=green",
    "/apis/x.io/v1/widgets?fieldSelector=metadata.name=w2",
    // Label selectors: every operator, several requirements, escapes.
    "/api/v1/pods?labelSelector=app%3Dweb",
    "/api/v1/pods?labelSelector=app==web",
    "/api/v1/pods?labelSelector=app!=web",
    "/api/v1/pods?labelSelector=app",
    "/api/v1/pods?labelSelector=!app",
    "/api/v1/pods?labelSelector=%21app",
    "/api/v1/pods?labelSelector=app+in+(web,db)",
    "/api/v1/pods?labelSelector=app%20in%20%28web%2C%20db%29",
    "/api/v1/pods?labelSelector=app+notin+(web)",
    "/api/v1/pods?labelSelector=app,app+notin+(web)",
    "/api/v1/pods?labelSelector=app=web,app!=db",
    "/api/v1/pods?labelSelector=app=web,app=db",
    "/api/v1/pods?labelSelector=app+in+(Z_1.x-y,)",
    "/api/v1/pods?labelSelector=app=Z_1.x-y",
    "/api/v1/pods?labelSelector=app%3E1",
    "/api/v1/pods?labelSelector=none=here",
    "/api/v1/pods?labelSelector=",
    "/api/v1/namespaces/a/pods?labelSelector=app=web",
    "/api/v1/nodes?labelSelector=zone=z1",
    // Field selectors: every operator, the fields pods have, several at once.
    "/api/v1/pods?fieldSelector=metadata.name=web-0",
    "/api/v1/pods?fieldSelector=metadata.namespace=a",
    "/api/v1/pods?fieldSelector=metadata.namespace!=a",
    "/api/v1/namespaces/a/pods?fieldSelector=metadata.namespace=b",
    "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=web-0",
    "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=none",
    "/api/v1/pods?fieldSelector=spec.nodeName=n1",
    "/api/v1/pods?fieldSelector=spec.nodeName=",
    "/api/v1/pods?fieldSelector=spec.nodeName!=n1",
    "/api/v1/pods?fieldSelector=status.phase==Running",
    "/api/v1/pods?fieldSelector=status.phase!=Running,status.phase!=Failed",
    "/api/v1/pods?fieldSelector=spec.restartPolicy=Always,spec.nodeName=n2",
    "/api/v1/pods?fieldSelector=status.podIP=10.0.0.9",
    "/api/v1/pods?fieldSelector=",
    "/api/v1/nodes?fieldSelector=spec.unschedulable=false",
    "/api/v1/namespaces?fieldSelector=status.phase=Active",
    "/api/v1/namespaces?fieldSelector=metadata.name=a",
    "/api/v1/pods?labelSelector=app=web&fieldSelector=spec.nodeName=n2",
    // Parameters that change nothing about the answer.
    "/api/v1/pods?",
    "/api/v1/pods?&labelSelector=app=web",
    "/api/v1/pods?timeout=30s",
    "/api/v1/pods?timeoutSeconds=30",
    "/api/v1/pods?allowWatchBookmarks=true",
    "/api/v1/pods?watch=false",
    "/api/v1/pods?limit=500",
    "/api/v1/pods?limit=0",
    "/api/v1/pods?limit=-1",
    "/api/v1/pods?pretty=false",
    "/api/v1/pods?resourceVersion=",
    "/api/v1/pods?resourceVersion=0",
    "/api/v1/pods?resourceVersion=0&limit=1",
    "/api/v1/pods?resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "/api/v1/pods?resourceVersion=1001",
    "/api/v1/pods?resourceVersion=1001&resourceVersionMatch=NotOlderThan",
    "/api/v1/pods?resourceVersion=1001&resourceVersionMatch=NotOlderThan&limit=500",
];

/// Objects that exist, and some that do not.
const OBJECTS: &[&str] = &[
    "/api/v1/namespaces/a/pods/web-0",
    "/api/v1/namespaces/a-b/pods/web-0",
    "/api/v1/namespaces/b/pods/unusual",
    "/api/v1/namespaces/a/pods/web-0?resourceVersion=0",
    "/api/v1/namespaces/a/pods/web-0?resourceVersion=1001",
    "/api/v1/nodes/n1",
    "/api/v1/namespaces/a",
    "/api/v1/namespaces/a/configmaps/c",
    "/apis/apps/v1/namespaces/a/deployments/web",
    "/apis/x.io/v1/namespaces/a/widgets/w1",
    "/apis/x.io/v1beta1/namespaces/a/widgets/w1",
    "/apis/x.io/v1/gadgets/g",
    "/api/v1/namespaces/a/pods/none",
    "/api/v1/namespaces/none/pods/none",
    "/api/v1/nodes/none",
    "/api/v1/namespaces/none",
    "/apis/apps/v1/namespaces/a/deployments/none",
    "/apis/x.io/v1/namespaces/a/widgets/none",
    "/apis/x.io/v1/gadgets/none",
];

/// Reports whether an answer from memory is the one the apiserver would give.
async fn assert_exact(proxy: &TestProxy, path: &str, answer: &Answer) {
    let straight = proxy.straight().get(path).await;
    assert_eq!(answer.status, straight.status, "{path}: {}", answer.summary());
    for header in ["content-type", "cache-control"] {
        assert_eq!(answer.header(header), straight.header(header), "{path}: {header}");
    }
    assert_eq!(answer.header("audit-id").is_empty(), straight.header("audit-id").is_empty());
    if straight.json().get("items").is_none() {
        assert_eq!(answer.text(), straight.text(), "{path}");
    } else {
        assert_eq!(without_version(answer), without_version(&straight), "{path}");
        assert!(answer.version() <= straight.version(), "{path}: a version from the future");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wider_replica_answers_in_the_apiservers_own_bytes() {
    let proxy = Setup::default().in_memory();
    for collection in COLLECTIONS {
        proxy.warm(collection).await;
    }
    let client = proxy.client();
    for path in LISTS.iter().chain(OBJECTS) {
        let answer = client.get(path).await;
        assert!(answer.is_hit(), "{path}: {}", answer.cache_status());
        assert_exact(&proxy, path, &answer).await;
    }
    let others: Vec<_> = proxy.upstream.all();
    assert_eq!(
        others.len(),
        proxy.upstream.reviews(),
        "only access reviews go upstream: {others:?}"
    );
    assert_eq!(proxy.replicas().len(), COLLECTIONS.len());
}

#[tokio::test(start_paused = true)]
async fn a_replica_of_one_query_answers_in_the_apiservers_own_bytes() {
    for path in LISTS.iter().chain(OBJECTS) {
        // Reads that name a version without a selector start no replica by themselves.
        if path.contains("resourceVersion=0") || path.contains("resourceVersion=1001") {
            continue;
        }
        // A missing object does not show whether the resource has namespaces.
        if *path == "/api/v1/nodes/none" {
            continue;
        }
        let proxy = Setup::default().in_memory();
        let client = proxy.client();
        client.get(path).await;
        let answer = client.get(path).await;
        // A missing object without a namespace does not show that its path is served.
        let known = answer.status == 200 || path.matches('/').count() > 5;
        assert_eq!(answer.is_hit(), known, "{path}: {}", answer.cache_status());
        assert_exact(&proxy, path, &answer).await;
    }
}

#[tokio::test(start_paused = true)]
async fn answers_follow_writes_of_others_and_stay_exact() {
    let proxy = Setup::of(populated()).in_memory();
    proxy.warm("/api/v1/pods").await;
    proxy.warm("/apis/x.io/v1/widgets").await;
    let (client, pods) = (proxy.client(), group_resource("pods"));
    for round in 0..20 {
        let name = format!("p-{}", round % 7);
        match round % 3 {
            0 => drop(proxy.simulator.put(&pods, pod("a-b", &name, &[("app", "db")], "n2"))),
            1 => drop(proxy.simulator.put(&pods, pod("a-b", &name, &[("app", "web")], ""))),
            _ => {
                let key = listless::api::ObjectKey::new(Some("a-b"), &name);
                proxy.simulator.remove(&pods, &key);
            }
        }
        settle().await;
        for path in [
            "/api/v1/pods",
            "/api/v1/namespaces/a-b/pods?labelSelector=app=web",
            "/api/v1/pods?fieldSelector=spec.nodeName=n2",
            "/api/v1/namespaces/a-b/pods/p-0",
            "/apis/x.io/v1/widgets",
        ] {
            let answer = client.get(path).await;
            assert!(answer.is_hit(), "{path}: {}", answer.cache_status());
            assert_exact(&proxy, path, &answer).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lists_version_is_one_that_an_exact_list_confirms() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    proxy.simulator.skip_revisions(1000);
    let client = proxy.client();
    for app in ["web", "db", "none"] {
        let path = format!("/api/v1/pods?labelSelector=app={app}");
        let answer = client.get(&path).await;
        assert!(answer.is_hit());
        let version = answer.version();
        let exact = format!("{path}&resourceVersion={version}&resourceVersionMatch=Exact");
        assert_eq!(answer.text(), proxy.straight().get(&exact).await.text());
    }
}

#[tokio::test]
async fn answers_are_the_same_over_tls_in_both_versions_of_http() {
    let proxy = Setup::default().on_loopback().await;
    for client in [proxy.client(), proxy.client().over_http2()] {
        for path in ["/api/v1/pods", "/apis/x.io/v1/widgets", "/api/v1/namespaces/a/pods/web-0"] {
            client.get(path).await;
            client.get(path).await;
            let answer = client.get(path).await;
            assert!(answer.is_hit(), "{path}: {}", answer.cache_status());
            assert_exact(&proxy, path, &answer).await;
        }
    }
    proxy.drain().await;
}
