//! The admin address of a whole proxy: its content, its access rules, and that reading it changes
//! nothing.

mod command;
mod events;
mod probes;

use std::time::Duration;

use http::Method;

use crate::harness::{Setup, TestClient, TestProxy, eventually, pass};

const PODS: &str = "/api/v1/namespaces/a/pods";

/// A script that a client puts into its name, to run in an operator's browser.
const HOSTILE_AGENT: &str = "</script><img src=x onerror=alert(1)>";

/// Every path that shows data of requests or objects.
const DATA: [&str; 5] = [
    "/debug/replicas",
    "/api/v1/status",
    "/api/v1/timeline",
    "/api/v1/explain?url=/api/v1/pods",
    "/api/v1/events",
];

async fn told(admin: &TestClient, url: &str) -> serde_json::Value {
    let mut question = url::form(&[("method", "GET"), ("url", url)]);
    question.insert_str(0, "/api/v1/explain?");
    let answer = admin.get(&question).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Returns the explanation of a topic.
fn about<'a>(explanation: &'a serde_json::Value, topic: &str) -> &'a str {
    let told = explanation["told"].as_array().expect("topics");
    told.iter()
        .find(|told| told["topic"] == topic)
        .map_or("", |told| told["text"].as_str().expect("a text"))
}

mod url {
    //! Parameters encoded as a browser encodes them.

    pub(super) fn form(pairs: &[(&str, &str)]) -> String {
        let escaped =
            |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let pairs = pairs.iter().map(|(name, value)| format!("{name}={}", escaped(value)));
        pairs.collect::<Vec<_>>().join("&")
    }
}

#[tokio::test]
async fn the_status_shows_mode_readiness_and_savings() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    let fresh = admin.get("/api/v1/status").await.json();
    assert_eq!(
        (&fresh["mode"], &fresh["ready"], &fresh["upstream"]),
        (&"enforce".into(), &true.into(), &"simulated".into())
    );
    assert_eq!(fresh["saved"], serde_json::json!({"requests": 0, "share": 0.0}));
    assert_eq!(fresh["version"], env!("CARGO_PKG_VERSION"));

    proxy.warm(PODS).await;
    for _ in 0..18 {
        assert!(proxy.client().get(PODS).await.is_hit());
    }
    let status = admin.get("/api/v1/status").await.json();
    let requests = &status["requests"];
    assert_eq!((&requests["answered"], &requests["fromMemory"]), (&20.into(), &19.into()));
    let for_itself = requests["upstreamForItself"].as_u64().expect("a number");
    // The read that was forwarded.
    assert_eq!(requests["upstream"].as_u64(), Some(for_itself + 1), "{status}");
    assert_eq!(status["saved"]["requests"].as_u64(), Some(19 - for_itself));
    let share = status["saved"]["share"].as_f64().expect("a number");
    assert!((share - (19 - for_itself) as f64 / 20.0).abs() < 1e-9, "{status}");
    assert_eq!(
        (&status["replicas"]["count"], &status["replicas"]["synced"]),
        (&1.into(), &1.into())
    );
    assert!(status["replicas"]["objects"].as_u64() > Some(0), "{status}");

    proxy.configure("mode: observe");
    assert_eq!(admin.get("/api/v1/status").await.json()["mode"], "observe");
}

#[tokio::test]
async fn an_explanation_predicts_the_outcome_and_starts_no_replica() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    for _ in 0..5 {
        let cold = told(&admin, PODS).await;
        assert_eq!(about(&cold, "request"), "list pods.v1 in namespace a");
        assert_eq!(about(&cold, "replica"), "none covers it");
        assert!(about(&cold, "now").ends_with("not-demanded"), "{cold}");
    }
    assert!(proxy.replicas().is_empty(), "asking is no demand");
    assert_eq!(proxy.upstream.all().len(), 0, "the apiserver receives no request");

    proxy.warm(PODS).await;
    let warm = told(&admin, PODS).await;
    assert_eq!(about(&warm, "now"), "answered from memory");
    let replica = about(&warm, "replica");
    let begins = "pods.v1 in namespace a: it follows the apiserver, ";
    assert!(replica.starts_with(begins) && replica.contains(" objects at version "), "{replica}");
    let watch = told(&admin, &format!("{PODS}?watch=1")).await;
    assert_eq!(about(&watch, "now"), "answered from memory");
    let ahead = told(&admin, &format!("{PODS}?resourceVersion=999999")).await;
    let now = about(&ahead, "now");
    assert!(now.starts_with("waits until the replica reaches version 999999, at most "), "{now}");
    let write = admin.get("/api/v1/explain?method=POST&url=/api/v1/namespaces/a/pods").await.json();
    assert_eq!(about(&write, "outcome"), "forwarded unchanged: write");
}

#[tokio::test(start_paused = true)]
async fn an_explanation_does_not_keep_a_replica_alive() {
    let proxy = TestProxy::warmed(PODS).await;
    for _ in 0..11 {
        pass(Duration::from_secs(60)).await;
        assert!(proxy.explained(PODS).to_string().contains("list pods.v1"));
    }
    assert!(proxy.replicas().is_empty(), "{:?}", proxy.replicas());
}

#[tokio::test]
async fn a_bad_query_gets_a_message_with_its_error() {
    let admin = Setup::default().in_memory().admin().await;
    for (query, problem) in [
        ("", "url: required"),
        ("url=", "url: "),
        ("url=http://[bad", "url: "),
        ("url=/api/v1/pods&method=G%20T", "method: "),
        ("url=/api/v1/pods&method=watch", "method: \"watch\" is not an HTTP method; use GET with"),
        ("url=/api/v1/pods&header=nothing", "\"nothing\": write the header as NAME: VALUE"),
    ] {
        let answer = admin.get(&format!("/api/v1/explain?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().starts_with(problem), "{query}: {}", answer.text());
        assert!(answer.header("content-type").starts_with("text/plain"), "never markup");
    }
    let header = "header=accept:%20application/yaml";
    let answer = admin.get(&format!("/api/v1/explain?url={PODS}&{header}")).await.json();
    assert!(about(&answer, "outcome").contains("yaml"), "{answer}");
}

#[tokio::test]
async fn the_timeline_counts_every_request_and_marks_what_goes_wrong() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    proxy.warm(PODS).await;
    for _ in 0..10 {
        proxy.client().get(PODS).await;
    }
    let counted = |document: &serde_json::Value| {
        let points = document["points"].as_array().expect("points").clone();
        points.iter().map(|point| point["client"].as_u64().expect("a number")).sum::<u64>()
    };
    // Counting begins in the first second. No point may contain it.
    let mut document = serde_json::Value::Null;
    for _ in 0..100 {
        document = admin.get("/api/v1/timeline").await.json();
        if counted(&document) > 0 {
            break;
        }
        proxy.client().get(PODS).await;
        // The timeline gets one point a second.
        pass(Duration::from_millis(50)).await;
    }
    assert!(counted(&document) > 0, "{document}");
    let point = &document["points"][0];
    let since = point["at"].as_u64().expect("a time");
    let later = admin.get(&format!("/api/v1/timeline?since={since}")).await.json();
    assert!(later["points"].as_array().expect("points").iter().all(|other| other["at"] != since));
    assert_eq!((&document["periodSeconds"], &document["pointsMax"]), (&1.into(), &900.into()));
}

#[tokio::test]
async fn the_timeline_marks_a_relist() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    proxy.warm(PODS).await;
    // A state from before the counting began is no incident.
    let began = until(&admin, |document| document["points"][0].is_object()).await;
    assert_eq!(began["marks"], serde_json::json!([]));
    proxy.simulator.skip_revisions(5);
    proxy.simulator.forget_history();
    proxy.simulator.end_watches();
    eventually("a relist", || proxy.replicas()[0].relists > 0).await;
    let relist = |document: &serde_json::Value| {
        let marks = document["marks"].as_array().expect("marks");
        marks.iter().find(|mark| mark["kind"] == "relist").cloned()
    };
    let document = until(&admin, |document| relist(document).is_some()).await;
    let mark = relist(&document).unwrap_or_else(|| panic!("no mark: {document}"));
    let text = mark["text"].as_str().expect("a text");
    assert!(mark["count"] == 1 && text.contains("relisted"), "{mark}");
    let at = mark["at"].as_u64().expect("a time");
    let points = document["points"].as_array().expect("points");
    assert!(points.iter().any(|point| point["at"] == at), "beside its second: {document}");
    let later = admin.get(&format!("/api/v1/timeline?since={at}")).await.json();
    assert!(relist(&later).is_none(), "reported once: {later}");
}

/// Waits until the timeline matches; returns the last one read otherwise.
async fn until(
    admin: &TestClient,
    holds: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    let mut document = serde_json::Value::Null;
    for _ in 0..100 {
        document = admin.get("/api/v1/timeline").await.json();
        if holds(&document) {
            break;
        }
        // The timeline gets one point a second.
        pass(Duration::from_millis(50)).await;
    }
    document
}

#[tokio::test]
async fn only_ip_addresses_localhost_and_configured_hosts_are_answered() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await;
    let rebound = admin.with("host", "listless.evil.example:7444");
    let files = ["/", "/page.js", "/page.css", "/nothing"];
    for path in DATA.iter().chain(&files) {
        let answer = rebound.get(path).await;
        assert_eq!(answer.status, 421, "{path}");
        assert!(answer.text().contains("--admin-name"), "{path}: {}", answer.text());
    }
    for path in ["/metrics", "/livez", "/readyz"] {
        assert_eq!(rebound.get(path).await.status, 200, "{path}: scraped under any name");
    }
    for host in ["localhost:7444", "[::1]:7444", "listless.shop.svc"] {
        assert_eq!(admin.with("host", host).get("/api/v1/status").await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn other_sites_may_not_read_and_nobody_may_write() {
    let proxy = Setup::default().in_memory();
    let admin = proxy.admin().await.with("origin", "https://evil.example");
    let paths = DATA.iter().filter(|path| !path.contains("events"));
    for path in paths.chain(&["/", "/page.js", "/metrics"]) {
        let answer = admin.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        let headers: Vec<_> = answer.headers.keys().map(http::HeaderName::as_str).collect();
        assert!(!headers.iter().any(|name| name.starts_with("access-control")), "{headers:?}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{path}");
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(admin.send(method, path, "").await.status, 405, "{path}");
        }
        assert_eq!(admin.send(Method::HEAD, path, "").await.status, 200, "{path}");
    }
    let embedded = admin.with("sec-fetch-site", "cross-site");
    assert_eq!(embedded.get("/api/v1/events").await.status, 403);
}

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere() {
    let admin = Setup::default().in_memory().admin().await;
    for (path, media) in
        [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
    {
        let answer = admin.get(path).await;
        assert_eq!(answer.status, 200);
        assert!(answer.header("content-type").starts_with(media), "{path}");
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    }
    let page = admin.get("/").await;
    for part in ["timeline", "polls", "patterns", "replicas", "explain", "live"] {
        assert!(page.text().contains(&format!("<section id=\"{part}\"")), "{part}");
    }
    let nothing = admin.get("/nothing").await;
    assert_eq!(nothing.status, 404);
    assert!(nothing.text().contains("/api/v1/status\n"), "{}", nothing.text());
}

/// Waits until the proxy has shown a request to a listener.
async fn settled(proxy: &TestProxy, path: &str) {
    eventually("a replica", || !proxy.replicas().is_empty()).await;
    assert!(proxy.client().get(path).await.is_hit());
}
