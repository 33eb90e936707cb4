//! Authorization, discovery, and the journal.

use super::Bench;
use crate::{
    api::Verb,
    simulator::{Effect, Fault, Rule, User},
};

fn guarded() -> Bench {
    let bench = Bench::new();
    bench.simulator.admit("root", User::admin("root"));
    let reads = Rule::new(&["get", "list"], &["pods"]).within("shop");
    let mut named = Rule::new(&["list"], &["configmaps"]);
    named.names.push("settings".to_owned());
    bench.simulator.admit("ann", User::with_rules("ann", vec![reads, named]));
    bench
}

#[tokio::test]
async fn a_caller_gets_its_allowed_requests_and_the_servers_refusals() {
    for (authorization, path, code) in [
        ("Bearer root", "/api/v1/nodes", 200),
        ("Bearer ann", "/api/v1/namespaces/shop/pods", 200),
        ("Bearer ann", "/api/v1/pods", 403),
        ("Bearer ann", "/api/v1/namespaces/shop/pods?watch=1", 403),
        ("Bearer ann", "/api/v1/configmaps", 403),
        ("Bearer ann", "/api/v1/configmaps?fieldSelector=metadata.name=settings", 200),
        ("Bearer ann", "/apis", 200),
        ("Bearer ann", "/metrics", 403),
        ("Bearer nobody", "/version", 401),
        ("Basic cm9vdA==", "/version", 200),
        ("Basic cm9vdA==", "/apis", 403),
        ("Basic cm9vdA==", "/api/v1/pods", 403),
    ] {
        let answer = guarded().header("authorization", authorization).get(path).await;
        assert_eq!(answer.code, code, "{authorization} {path}: {}", answer.body);
    }
    let unknown = guarded().header("authorization", "Bearer nobody").get("/api/v1/pods").await;
    assert_eq!(
        unknown.body,
        concat!(
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
            r#""message":"Unauthorized","reason":"Unauthorized","code":401}"#,
            "\n"
        )
    );
    let bench = guarded().header("authorization", "Bearer ann");
    bench.simulator.expel("ann");
    assert_eq!(bench.get("/api/v1/namespaces/shop/pods").await.code, 401);
}

#[tokio::test]
async fn a_caller_may_review_its_own_permissions() {
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, allowed) in [("list", true), ("watch", false)] {
        let bench = guarded().header("authorization", "Bearer ann");
        let attributes = serde_json::json!({"verb": verb, "resource": "pods", "namespace": "shop"});
        let review = serde_json::json!({"kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1", "spec": {"resourceAttributes": attributes}});
        let answer = bench.post(path, &review.to_string()).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        let expected = format!(r#""status":{{"allowed":{allowed}"#);
        assert!(answer.body.contains(&expected), "{verb}: {}", answer.body);
    }
    assert_eq!(guarded().post(path, "{}").await.code, 403, "without a token");
}

#[tokio::test]
async fn discovery_lists_the_registered_resources() {
    let bench = Bench::new();
    assert_eq!(
        bench.get("/api").await.json().get("versions").map(crate::simulator::Json::to_bytes),
        Some(b"[\"v1\"]".to_vec())
    );
    for (path, part) in [
        ("/apis", r#"{"name":"x.io","versions":[{"groupVersion":"x.io/v1","version":"v1"},"#),
        ("/apis/x.io", r#""preferredVersion":{"groupVersion":"x.io/v1","version":"v1"}"#),
        (
            "/apis/x.io/v1beta1",
            r#"{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget""#,
        ),
        (
            "/api/v1",
            r#"{"name":"pods/status","singularName":"","namespaced":true,"kind":"Pod","verbs":["get","patch","update"]}"#,
        ),
        ("/version", r#""gitVersion": "v1.36.3""#),
        ("/readyz", "ok"),
    ] {
        let answer = bench.get(path).await;
        assert_eq!(answer.code, 200, "{path}");
        assert!(answer.body.contains(part), "{path}: {}", answer.body);
    }
    assert_eq!(bench.get("/apis/nobody.io").await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn every_request_is_recorded_with_its_outcome_and_bytes() {
    let bench = Bench::new().header("user-agent", "tester/1");
    let list = bench.get("/api/v1/namespaces/d/pods?limit=5").await;
    bench.post("/api/v1/namespaces/d/configmaps", r#"{"metadata":{"name":"c"}}"#).await;
    let records = bench.simulator.records();
    assert_eq!(records.len(), 2);
    assert_eq!(records[0].asked.verb, Verb::List);
    assert_eq!(records[0].asked.path_and_query, "/api/v1/namespaces/d/pods?limit=5");
    assert_eq!(records[0].asked.user_agent, "tester/1");
    assert_eq!((records[0].code, records[0].bytes), (200, list.body.len() as u64));
    assert_eq!((records[1].asked.verb, records[1].code), (Verb::Create, 201));
    let counters = bench.simulator.counters();
    assert_eq!((counters.requests, counters.lists, counters.writes), (2, 1, 1));
    assert_eq!(counters.bytes, records[0].bytes + records[1].bytes);
}

#[tokio::test(start_paused = true)]
async fn faults_answer_delay_and_break() {
    let bench = Bench::new();
    let fault = |effect| bench.simulator.inject(Fault::next(1, effect, |_| true));
    fault(Effect::Answer { code: 429, retry_after_secs: Some(3) });
    let refused = bench.get("/api/v1/pods").await;
    assert_eq!((refused.code, refused.text_at(&["reason"]).as_str()), (429, "TooManyRequests"));
    assert_eq!(refused.headers["retry-after"], "3");
    fault(Effect::Expired);
    assert_eq!(bench.get("/api/v1/pods").await.code, 410);
    fault(Effect::Garbage);
    let garbage = bench.get("/api/v1/pods").await;
    assert!(garbage.code == 200 && !garbage.body.starts_with("{\"kind"), "{}", garbage.body);
    fault(Effect::Delay(std::time::Duration::from_secs(7)));
    let started = tokio::time::Instant::now();
    assert_eq!(bench.get("/api/v1/pods").await.code, 200);
    assert_eq!(started.elapsed().as_secs(), 7);
    bench.simulator.inject(Fault::always(Effect::Close, |_| true));
    bench.simulator.clear_faults();
    assert_eq!(bench.get("/api/v1/pods").await.code, 200);
}
