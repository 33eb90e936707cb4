//! Reads in forms that memory does not answer: forwarded, with the reason and the apiserver's
//! response.

use http::Method;

use crate::harness::TestProxy;

/// Targets, and the reason of their forward although replicas cover them.
const FORWARDED: &[(&str, &str)] = &[
    // A version other than the newest.
    ("/api/v1/pods?resourceVersion=1005&resourceVersionMatch=Exact", "exact-version"),
    ("/api/v1/pods?resourceVersion=1005&limit=2", "exact-version"),
    ("/api/v1/pods?continue=abc", "continue"),
    // The first page of a resource, whose tokens are not known yet.
    ("/api/v1/pods?limit=2", "limit"),
    ("/api/v1/pods?limit=1&fieldSelector=metadata.namespace%3Da", "limit"),
    // The apiserver itself refuses these.
    ("/api/v1/pods?resourceVersionMatch=Exact", "illegal-combination"),
    ("/api/v1/pods?resourceVersion=0&resourceVersionMatch=Exact", "illegal-combination"),
    ("/api/v1/pods?resourceVersion=1005&resourceVersionMatch=Newest", "illegal-combination"),
    ("/api/v1/pods?sendInitialEvents=true", "illegal-combination"),
    ("/api/v1/pods?resourceVersion=latest", "bad-version"),
    ("/api/v1/pods?resourceVersion=-1", "bad-version"),
    ("/api/v1/namespaces/a/pods/web-0?resourceVersion=x", "bad-version"),
    ("/api/v1/pods?limit=many", "bad-value"),
    ("/api/v1/pods?timeoutSeconds=soon", "bad-value"),
    ("/api/v1/pods?labelSelector=a%20b", "bad-selector"),
    ("/api/v1/pods?labelSelector=app=(", "bad-selector"),
    ("/api/v1/pods?fieldSelector=a", "bad-selector"),
    ("/api/v1/pods?fieldSelector=spec.hostname=x", "unmodelled-field"),
    ("/apis/apps/v1/deployments?fieldSelector=spec.replicas=1", "unmodelled-field"),
    // Parameters that Listless does not know.
    ("/api/v1/pods?shardSelector=0", "unknown-parameter"),
    ("/api/v1/pods?limits=1", "unknown-parameter"),
    ("/api/v1/pods?dryRun=All", "unknown-parameter"),
    ("/api/v1/namespaces/a/pods/web-0?limit=1", "unknown-parameter"),
    ("/api/v1/pods?labelSelector=app&labelSelector=tier", "repeated-parameter"),
    ("/api/v1/pods?labelSelector=app;limit=1", "malformed-query"),
    ("/api/v1/pods?labelSelector=%zz", "malformed-query"),
    // Targets other than a plain collection or object.
    ("/api/v1/namespaces/a/pods/web-0/status", "subresource"),
    ("/apis/apps/v1/namespaces/a/deployments/web/scale", "subresource"),
    ("/api/v1/pods/", "unusual-path"),
    ("/api/v1/namespaces/a/pods/web%2D0", "unusual-path"),
    ("/api/v1//pods", "unusual-path"),
    ("/api/v1/unknowns", "not-demanded"),
    ("/apis/none.io/v1/things", "not-demanded"),
    ("/", "non-resource"),
    ("/api/", "non-resource"),
    ("/apis?pretty=true", "non-resource"),
    ("/version", "non-resource"),
    ("/healthz", "non-resource"),
    ("/nowhere", "non-resource"),
    // Types that "*" does not match.
    ("/api/v1/namespaces/a/secrets", "never-cached"),
    ("/api/v1/namespaces/a/secrets/s", "never-cached"),
    ("/api/v1/events", "never-cached"),
    ("/apis/coordination.k8s.io/v1/leases", "never-cached"),
];

async fn warmed() -> TestProxy {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    proxy.warm("/apis/apps/v1/deployments").await;
    proxy
}

#[tokio::test(start_paused = true)]
async fn reads_that_memory_does_not_answer_are_forwarded_unchanged_with_a_reason() {
    let proxy = warmed().await;
    let client = proxy.client();
    for (path, reason) in FORWARDED {
        proxy.upstream.forget();
        let answer = client.get(path).await;
        assert_eq!(answer.detail(), *reason, "{path}: {}", answer.cache_status());
        assert!(answer.cache_status().starts_with("listless; fwd="), "{path}");
        let straight = proxy.straight().get(path).await;
        assert_eq!(answer.status, straight.status, "{path}");
        assert_eq!(answer.text(), straight.text(), "{path}");
        assert_eq!(answer.header("content-type"), straight.header("content-type"), "{path}");
        // Only a read that no replica covers may be relaxed. Listless must not change any other.
        if *reason != "not-demanded" {
            assert_eq!(proxy.upstream.last().asked.path_and_query, *path);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_method_get_is_answered_from_memory() {
    let proxy = warmed().await;
    let client = proxy.client();
    for path in ["/api/v1/pods", "/api/v1/namespaces/a/pods/web-0"] {
        for method in ["HEAD", "OPTIONS", "TRACE", "get", "PROPFIND"] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let answer = client.send(method.clone(), path, "").await;
            assert!(!answer.is_hit(), "{method} {path}");
            assert_eq!(proxy.upstream.last().asked.method, method, "{path}");
        }
        assert!(client.get(path).await.is_hit());
        assert_eq!(client.send(Method::GET, path, "{}").await.detail(), "body");
    }
}

#[tokio::test(start_paused = true)]
async fn every_response_names_its_source() {
    let proxy = warmed().await;
    let client = proxy.client();
    for (path, expected) in [
        ("/api/v1/pods", "listless; hit; detail=session"),
        ("/api/v1/pods?resourceVersion=0", "listless; hit; detail=any"),
        ("/api/v1/pods?resourceVersion=1001", "listless; hit; detail=notOlderThan"),
        ("/api/v1/namespaces/a/pods/none", "listless; hit; detail=session"),
        ("/api/v1/nodes", "listless; fwd=uri-miss; detail=not-demanded"),
        ("/api/v1/secrets", "listless; fwd=bypass; detail=never-cached"),
        ("/version", "listless; fwd=bypass; detail=non-resource"),
        ("/api/v1/pods?limit=1", "listless; fwd=request; detail=limit"),
    ] {
        assert_eq!(client.get(path).await.cache_status(), expected, "{path}");
    }
    let written = client.delete("/api/v1/namespaces/a/pods/web-0").await;
    assert_eq!(written.cache_status(), "listless; fwd=method; detail=write");
    let other_caller = proxy.anybody().get("/api/v1/pods").await;
    assert_eq!(other_caller.cache_status(), "listless; fwd=bypass; detail=no-credential");
    proxy.simulator.stop();
    let failed = client.get("/version").await;
    assert_eq!(failed.status, 503);
    assert!(failed.cache_status().starts_with("listless; "), "{}", failed.cache_status());
}

#[tokio::test(start_paused = true)]
async fn oversized_selectors_and_names_are_forwarded_unparsed() {
    let proxy = warmed().await;
    let client = proxy.client();
    let values = |count: usize| vec!["v"; count].join(",");
    let bytes =
        |count: usize| format!("app%21%3D{}", vec!["x".repeat(63); count / 70].join(",app%21%3D"));
    let name = |bytes: usize| format!("/api/v1/namespaces/a/pods/{}", "x".repeat(bytes));
    for (path, read) in [
        (format!("/api/v1/pods?labelSelector=app%20in%20({})", values(64)), true),
        (format!("/api/v1/pods?labelSelector=app%20in%20({})", values(65)), false),
        (format!("/api/v1/pods?labelSelector={}", bytes(2000)), true),
        (format!("/api/v1/pods?labelSelector={}", bytes(5000)), false),
        (format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{}", "x".repeat(5000)), false),
        (format!("/api/v1/pods?watch=1&labelSelector={}&timeoutSeconds=1", bytes(5000)), false),
        (format!("/api/v1/pods?fieldSelector=metadata.name%3D{}", "x".repeat(254)), false),
        (name(253), true),
        (name(254), false),
    ] {
        let answer = client.get(&path).await;
        let straight = proxy.straight().get(&path).await;
        assert_eq!((answer.status, answer.text()), (straight.status, straight.text()), "{path}");
        assert_eq!(answer.is_hit(), read, "{path}: {}", answer.cache_status());
        assert!(read || answer.detail() == "oversized", "{path}: {}", answer.cache_status());
    }
    let oversized = proxy.counted("listless_forwarded_total", "reason=\"oversized\"");
    assert_eq!(oversized, 6.0);
}
