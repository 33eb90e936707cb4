//! The counts of requests: forwards, latencies, and clients that hang up.

use std::time::Duration;

use http::Method;
use listless::{
    api::Verb,
    body::Body,
    simulator::{Effect, Fault, Rule, User},
};
use serde_json::json;

use crate::harness::{OWN_TOKEN, Setup, TestProxy, group_resource, pass, pod, request, settle};

const PODS: &str = "/api/v1/pods";
const NAMESPACE: &str = "/api/v1/namespaces/a/pods";

fn requests(proxy: &TestProxy, labels: &str) -> f64 {
    proxy.counted("listless_requests_total", labels)
}

#[tokio::test(start_paused = true)]
async fn every_forward_is_counted_with_its_reason() {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client();
    // The denial comes only when memory is about to answer.
    let rule = Rule::new(&["watch"], &["pods"]);
    proxy.simulator.admit(OWN_TOKEN, User::with_rules("own", vec![rule]));
    for path in [PODS, NAMESPACE, "/api/v1/namespaces/b/pods", "/api/v1/nodes"] {
        client.get(path).await;
    }
    client.delete("/api/v1/namespaces/a/pods/none").await;
    let forwarded = proxy.counted("listless_forwarded_total", "");
    assert_eq!(forwarded, requests(&proxy, "served_by=\"upstream\""));
    assert_eq!(proxy.counted("listless_forwarded_total", "not-authorized"), 2.0);
}

#[tokio::test(start_paused = true)]
async fn latencies_to_the_head_and_to_the_last_byte_are_separate() {
    let proxy = Setup::default().in_memory();
    for number in 0..60 {
        let mut large = pod("a", &format!("large-{number}"), &[], "n1");
        large["metadata"]["annotations"] = json!({"text": "x".repeat(100_000)});
        proxy.simulator.put(&group_resource("pods"), large);
    }
    proxy.warm(PODS).await;
    for (level, served_by) in [("session", "cache"), ("mostRecent", "upstream")] {
        proxy.configure(&format!("cache: {{rules: [{{resources: ['*'], freshness: {level}}}]}}\n"));
        let labels = format!("served_by=\"{served_by}\"");
        let seconds = || {
            let of = |metric: &str| proxy.counted(metric, &labels);
            [
                of("listless_request_duration_seconds_sum"),
                of("listless_request_duration_seconds_count"),
                of("listless_request_head_duration_seconds_sum"),
                of("listless_request_head_duration_seconds_count"),
            ]
        };
        let before = seconds();
        // The client reads slowly.
        let response = proxy.client().open(request(Method::GET, PODS, Body::empty())).await;
        pass(Duration::from_secs(10)).await;
        response.into_body().collect(64 << 20).await.expect("the whole list");
        settle().await;
        let after = seconds();
        let [whole, wholes, head, heads] =
            std::array::from_fn(|index| after[index] - before[index]);
        assert_eq!((wholes, heads), (1.0, 1.0), "{served_by}");
        assert!(whole >= 10.0 && head < 1.0, "{served_by}: {whole} s, {head} s to the head");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_hang_up_before_the_response_are_counted() {
    let proxy = Setup::default().in_memory();
    let slow = Effect::Delay(Duration::from_secs(60));
    proxy.simulator.inject(Fault::always(slow, |asked| asked.verb != Verb::Watch));
    let client = proxy.client();
    let hang_up = async |method: Method, path: &'static str, body: String| {
        let client = client.with("content-type", "application/json").apart();
        let asking = tokio::spawn(async move { client.send(method, path, body).await });
        pass(Duration::from_secs(1)).await;
        asking.abort();
        settle().await;
    };
    hang_up(Method::POST, NAMESPACE, pod("a", "new", &[], "n1").to_string()).await;
    hang_up(Method::GET, PODS, String::new()).await;
    for verb in ["create", "list"] {
        let closed = format!("verb=\"{verb}\"");
        assert_eq!(requests(&proxy, &closed), 1.0, "{verb}");
    }
    assert_eq!(requests(&proxy, "served_by=\"client_closed\",code=\"499\""), 2.0);
    assert_eq!(requests(&proxy, "served_by=\"proxy\""), 0.0);
    let report = proxy.report();
    assert_eq!((report.totals.client_closed, report.totals.failed), (2, 0));
    assert!(report.polls.iter().any(|poll| poll.answers.client_closed == 1));
    // The client does not wait for the response.
    assert_eq!(client.get(NAMESPACE).await.status, 200);
    assert_eq!(requests(&proxy, "served_by=\"client_closed\""), 2.0);
}
