//! LIST and GET, rule by rule.

use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use super::{Bench, pods};
use crate::api::ObjectKey;

#[tokio::test]
async fn typed_lists_are_in_struct_order_with_bare_items() {
    let bench = Bench::new();
    let empty = bench.get("/api/v1/pods").await;
    assert_eq!(
        empty.body,
        "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"1000\"},\"items\":[]}\n"
    );
    let config = r#"{"metadata":{"name":"c"},"data":{"b":"<","a":"1"}}"#;
    bench.post("/api/v1/namespaces/d/configmaps", config).await;
    let uid = bench.get("/api/v1/namespaces/d/configmaps/c").await.text_at(&["metadata", "uid"]);
    let list = bench.get("/api/v1/namespaces/d/configmaps").await;
    let expected = format!(
        "{{\"kind\":\"ConfigMapList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"1001\"}},\
         \"items\":[{{\"metadata\":{{\"name\":\"c\",\"namespace\":\"d\",\"uid\":\"{uid}\",\
         \"resourceVersion\":\"1001\",\"creationTimestamp\":\"2026-01-01T00:00:00Z\"}},\
         \"data\":{{\"a\":\"1\",\"b\":\"\\u003c\"}}}}]}}\n"
    );
    assert_eq!(list.body, expected);
    assert_eq!(list.headers["content-type"], "application/json");
    assert_eq!(list.headers["cache-control"], "no-cache, private");
}

#[tokio::test]
async fn custom_lists_have_sorted_keys_and_items_with_kinds_at_the_requested_version() {
    let bench = Bench::new();
    let widget = serde_json::json!({"metadata": {"name": "w", "namespace": "d", "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"b": 1, "a": 2}});
    bench.simulator.put(&crate::api::GroupResource::new("x.io", "widgets"), widget);
    let list = bench.get("/apis/x.io/v1beta1/widgets").await;
    assert_eq!(
        list.body,
        concat!(
            r#"{"apiVersion":"x.io/v1beta1","items":[{"apiVersion":"x.io/v1beta1","#,
            r#""kind":"Widget","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","#,
            r#""name":"w","namespace":"d","resourceVersion":"1001","uid":"u"},"#,
            r#""spec":{"a":2,"b":1}}],"kind":"WidgetList","#,
            r#""metadata":{"continue":"","resourceVersion":"1001"}}"#,
            "\n"
        )
    );
}

#[tokio::test]
async fn lists_are_in_byte_order_of_namespace_slash_name() {
    let bench = Bench::new();
    for (namespace, name) in [("a", "x"), ("a-b", "x"), ("a", "w"), ("b", "a")] {
        bench.pod(namespace, name, "Running");
    }
    assert_eq!(bench.get("/api/v1/pods").await.names(), ["a-b/x", "a/w", "a/x", "b/a"]);
    assert_eq!(bench.get("/api/v1/namespaces/a/pods").await.names(), ["a/w", "a/x"]);
}

#[tokio::test]
async fn selectors_narrow_lists() {
    let bench = Bench::new();
    for (name, phase) in [("a", "Running"), ("b", "Pending"), ("c", "Running")] {
        bench.pod("d", name, phase);
    }
    for (query, expected) in [
        ("labelSelector=app%3Da", vec!["d/a"]),
        ("labelSelector=app+in+(a,b)", vec!["d/a", "d/b"]),
        ("labelSelector=!app", vec![]),
        ("fieldSelector=status.phase%3DRunning", vec!["d/a", "d/c"]),
        ("fieldSelector=metadata.name=b", vec!["d/b"]),
        ("fieldSelector=metadata.namespace%21%3Dd", vec![]),
        ("fieldSelector=status.phase=Running&labelSelector=app!=a", vec!["d/c"]),
        ("labelSelector=&fieldSelector=", vec!["d/a", "d/b", "d/c"]),
    ] {
        let list = bench.get(&format!("/api/v1/pods?{query}")).await;
        assert_eq!(list.names(), expected, "{query}: {}", list.body);
    }
}

#[tokio::test]
async fn options_that_the_server_refuses_are_refused_in_its_words() {
    let bench = Bench::new();
    let invalid = |text: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {text}");
    let matched = |text: &str| invalid(&format!("resourceVersionMatch: {text}"));
    for (query, code, reason, message) in [
        (
            "resourceVersionMatch=Exact",
            422,
            "Invalid",
            matched(
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
        ),
        (
            "resourceVersion=5&resourceVersionMatch=Near",
            422,
            "Invalid",
            matched(
                "Unsupported value: \"Near\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
        ),
        (
            "resourceVersion=0&resourceVersionMatch=Exact",
            422,
            "Invalid",
            matched(
                "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
        ),
        (
            "sendInitialEvents=true",
            422,
            "Invalid",
            invalid("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"),
        ),
        (
            "resourceVersion=5&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIvZC9hXHUwMDAwIn0",
            400,
            "BadRequest",
            "specifying resource version is not allowed when using continue".to_owned(),
        ),
        (
            "fieldSelector=spec.x=1",
            400,
            "BadRequest",
            "field label not supported: spec.x".to_owned(),
        ),
    ] {
        let answer = bench.get(&format!("/api/v1/pods?{query}")).await;
        assert_eq!(answer.code, code, "{query}");
        assert_eq!(answer.text_at(&["reason"]), reason, "{query}");
        assert_eq!(answer.text_at(&["message"]), message, "{query}");
    }
    for query in
        ["limit=x", "continue=%25", "resourceVersion=a", "labelSelector=a+in", "timeoutSeconds=x"]
    {
        assert_eq!(bench.get(&format!("/api/v1/pods?{query}")).await.code, 400, "{query}");
    }
    assert_eq!(bench.get("/api/v1/namespaces/d/pods/p?resourceVersion=a").await.code, 500);
}

#[tokio::test]
async fn an_invalid_option_is_listed_among_the_causes() {
    let answer = Bench::new().get("/api/v1/pods?resourceVersionMatch=Exact&continue=x").await;
    assert_eq!(
        answer.body,
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"#,
            r#""ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: "#,
            r#"resourceVersionMatch is forbidden unless resourceVersion is provided, "#,
            r#"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue "#,
            r#"is provided]","reason":"Invalid","details":{"group":"meta.k8s.io","#,
            r#""kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"#,
            r#""Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided","#,
            r#""field":"resourceVersionMatch"},{"reason":"FieldValueForbidden","message":"#,
            r#""Forbidden: resourceVersionMatch is forbidden when continue is provided","#,
            r#""field":"resourceVersionMatch"}]},"code":422}"#,
            "\n"
        )
    );
}

#[tokio::test(start_paused = true)]
async fn each_version_and_match_reads_its_own_state() {
    let bench = Bench::new();
    let first = bench.pod("d", "a", "Running");
    bench.pod("d", "b", "Running");
    let current = bench.simulator.skip_revisions(10);
    let at_first = format!("resourceVersion={first}");
    for (query, names, version) in [
        ("".to_owned(), vec!["d/a", "d/b"], current),
        ("resourceVersion=0".to_owned(), vec!["d/a", "d/b"], current),
        (at_first.clone(), vec!["d/a", "d/b"], current),
        (format!("{at_first}&resourceVersionMatch=NotOlderThan"), vec!["d/a", "d/b"], current),
        (format!("{at_first}&resourceVersionMatch=Exact"), vec!["d/a"], first),
        (format!("{at_first}&limit=5"), vec!["d/a"], first),
        ("resourceVersion=0&limit=1".to_owned(), vec!["d/a", "d/b"], current),
    ] {
        let list = bench.get(&format!("/api/v1/pods?{query}")).await;
        assert_eq!(list.names(), names, "{query}");
        assert_eq!(list.version(), version, "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn reads_at_any_version_have_the_caches_version_not_etcds() {
    let bench = Bench::new();
    let written = bench.pod("d", "a", "Running");
    bench.simulator.skip_revisions(10);
    assert_eq!(bench.get("/api/v1/pods?resourceVersion=0").await.version(), written);
    assert_eq!(bench.get("/api/v1/pods").await.version(), written + 10);
    assert_eq!(bench.get("/api/v1/pods?resourceVersion=0").await.version(), written + 10);
}

#[tokio::test(start_paused = true)]
async fn a_get_and_an_old_releases_list_bypass_the_cache() {
    let (recent, old) = (Bench::new(), Bench::old());
    for bench in [&recent, &old] {
        bench.pod("d", "a", "Running");
        bench.simulator.skip_revisions(10);
        bench.get("/api/v1/namespaces/d/pods/a").await;
        assert_eq!(bench.get("/api/v1/pods?resourceVersion=0").await.version(), 1001);
        assert_eq!(bench.get("/api/v1/pods").await.version(), 1011);
    }
    assert_eq!(recent.get("/api/v1/pods?resourceVersion=0").await.version(), 1011);
    assert_eq!(old.get("/api/v1/pods?resourceVersion=0").await.version(), 1001);
}

#[tokio::test(start_paused = true)]
async fn a_lagging_cache_is_stale_and_consistent_reads_bypass_it() {
    let bench = Bench::new();
    bench.pod("d", "a", "Running");
    bench.simulator.hold_caches();
    let written = bench.pod("d", "b", "Running");
    let stale = bench.get("/api/v1/pods?resourceVersion=0").await;
    assert_eq!((stale.names(), stale.version()), (vec!["d/a".to_owned()], 1001));
    assert_eq!(bench.get("/api/v1/namespaces/d/pods/b?resourceVersion=0").await.code, 404);
    assert_eq!(bench.get("/api/v1/namespaces/d/pods/b").await.code, 200);
    assert_eq!(bench.get(&format!("/api/v1/pods?resourceVersion={written}")).await.code, 504);
    let started = Instant::now();
    assert_eq!(bench.get("/api/v1/pods").await.names(), ["d/a", "d/b"]);
    assert_eq!(started.elapsed().as_secs(), 3, "waits for the cache first");
    bench.simulator.release_caches();
    assert_eq!(bench.get("/api/v1/pods?resourceVersion=0").await.version(), written);
}

#[tokio::test(start_paused = true)]
async fn a_future_version_is_waited_for_and_then_refused() {
    let bench = Bench::new();
    let current = bench.pod("d", "a", "Running");
    let started = Instant::now();
    for query in ["", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact"] {
        let path = format!("/api/v1/pods?resourceVersion={}{query}", current + 1);
        let answer = bench.get(&path).await;
        assert_eq!(answer.code, 504, "{query}");
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(
            answer.body,
            format!(
                "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\
                 \"message\":\"Timeout: Too large resource version: {}, current: {current}\",\
                 \"reason\":\"Timeout\",\"details\":{{\"causes\":[{{\"reason\":\"ResourceVersionTooLarge\",\
                 \"message\":\"Too large resource version\"}}],\"retryAfterSeconds\":1}},\"code\":504}}\n",
                current + 1
            )
        );
    }
    assert_eq!(started.elapsed().as_secs(), 9);
    let path = format!("/api/v1/namespaces/d/pods/a?resourceVersion={}", current + 1);
    let writer = async {
        crate::testing::pass(Duration::from_secs(1)).await;
        bench.pod("d", "a", "Failed");
    };
    let (answer, ()) = tokio::join!(bench.get(&path), writer);
    assert_eq!((answer.code, answer.version()), (200, current + 1));
}

#[tokio::test(start_paused = true)]
async fn events_have_no_cache_to_wait_for() {
    let bench = Bench::new();
    let started = Instant::now();
    let answer = bench.get("/api/v1/events?resourceVersion=999999").await;
    assert_eq!((answer.code, started.elapsed().as_secs()), (504, 0));
    assert!(!answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn chunked_lists_stay_at_their_first_version() {
    let bench = Bench::new();
    for name in ["a", "b", "c", "d", "e"] {
        bench.pod("n", name, "Running");
    }
    let first = bench.get("/api/v1/namespaces/n/pods?limit=2").await;
    assert_eq!(first.names(), ["n/a", "n/b"]);
    assert!(first.body.contains(r#""remainingItemCount":3"#), "{}", first.body);
    bench.pod("n", "bb", "Running");
    bench.simulator.remove(&pods(), &ObjectKey::new(Some("n"), "c"));
    let mut names = Vec::new();
    let mut token = first.text_at(&["metadata", "continue"]);
    while !token.is_empty() {
        let page = bench.get(&format!("/api/v1/namespaces/n/pods?limit=2&continue={token}")).await;
        assert_eq!(page.version(), first.version());
        names.extend(page.names());
        token = page.text_at(&["metadata", "continue"]);
    }
    assert_eq!(names, ["n/c", "n/d", "n/e"]);
}

#[tokio::test]
async fn remaining_items_are_not_counted_under_a_selector() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.pod("n", name, "Running");
    }
    let page = bench.get("/api/v1/pods?limit=1&fieldSelector=status.phase=Running").await;
    assert!(!page.text_at(&["metadata", "continue"]).is_empty());
    assert!(!page.body.contains("remainingItemCount"));
}

#[tokio::test]
async fn compacted_versions_are_expired_and_chunks_may_continue_inconsistently() {
    let bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.pod("n", name, "Running");
    }
    let first = bench.get("/api/v1/pods?limit=1").await;
    let token = first.text_at(&["metadata", "continue"]);
    bench.pod("n", "d", "Running");
    bench.simulator.compact(bench.simulator.revision());
    let exact = bench.get("/api/v1/pods?resourceVersion=1001&resourceVersionMatch=Exact").await;
    assert_eq!(exact.code, 410);
    assert_eq!(exact.text_at(&["reason"]), "Expired");
    assert_eq!(
        exact.text_at(&["message"]),
        "The resourceVersion for the provided list is too old."
    );
    let next = bench.get(&format!("/api/v1/pods?limit=9&continue={token}")).await;
    assert_eq!(next.code, 410);
    let inconsistent = next.text_at(&["metadata", "continue"]);
    let rest = bench.get(&format!("/api/v1/pods?limit=9&continue={inconsistent}")).await;
    assert_eq!(rest.names(), ["n/b", "n/c", "n/d"]);
}

#[tokio::test]
async fn missing_objects_and_resources_have_different_errors() {
    let bench = Bench::new();
    let missing = bench.get("/apis/apps/v1/namespaces/d/deployments/x").await;
    assert_eq!(
        missing.body,
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
            r#""message":"deployments.apps \"x\" not found","reason":"NotFound","#,
            r#""details":{"name":"x","group":"apps","kind":"deployments"},"code":404}"#,
            "\n"
        )
    );
    let unknown = bench.get("/api/v1/gadgets").await;
    assert_eq!(
        unknown.body,
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
            r#""message":"the server could not find the requested resource","#,
            r#""reason":"NotFound","details":{},"code":404}"#,
            "\n"
        )
    );
    for path in ["/apis/x.io/v9/widgets", "/apis/nobody.io/v1/things", "/nowhere"] {
        let plain = bench.get(path).await;
        assert_eq!((plain.code, plain.body.as_str()), (404, "404 page not found\n"), "{path}");
    }
}

#[tokio::test]
async fn json_tables_and_protobuf_are_supported_and_large_responses_are_compressed_on_request() {
    for (accept, code) in [
        ("application/json", 200),
        ("*/*", 200),
        ("application/vnd.kubernetes.protobuf,application/json", 200),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", 200),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", 406),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", 200),
        ("application/vnd.kubernetes.protobuf", 200),
        ("application/yaml", 406),
    ] {
        let answer = Bench::new().header("accept", accept).get("/api/v1/pods").await;
        assert_eq!(answer.code, code, "{accept}");
    }
    for (encoding, compressed) in [("gzip", true), ("br, gzip", true), ("gzip;q=1.0", false)] {
        let bench = Bench::new().header("accept-encoding", encoding);
        let padding = "x".repeat(200 << 10);
        let config = serde_json::json!({"metadata": {"name": "c", "namespace": "d"},
            "data": {"padding": padding}});
        bench.simulator.put(&crate::api::GroupResource::new("", "configmaps"), config);
        let large = bench.get("/api/v1/configmaps").await;
        assert_eq!(large.headers.contains_key("content-encoding"), compressed, "{encoding}");
        assert!(!bench.get("/api/v1/pods").await.headers.contains_key("content-encoding"));
    }
}

#[tokio::test]
async fn head_is_served_for_custom_resources_only() {
    let bench = Bench::new();
    assert_eq!(bench.send(Method::HEAD, "/api/v1/pods", "").await.code, 405);
    let custom = bench.send(Method::HEAD, "/apis/x.io/v1/widgets", "").await;
    assert_eq!((custom.code, custom.body.as_str()), (200, ""));
}
