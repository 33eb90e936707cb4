//! Discovery and OpenAPI documents: served from memory byte for byte, and never when they may have
//! changed.

mod callers;
mod changes;

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use listless::{
    body::Body,
    simulator::{Asked, Effect, Fault},
};
use serde_json::json;

use crate::harness::{Answer, Setup, TestClient, TestProxy, group_resource, pass, request, settle};

/// The Accept header of modern clients, which request all groups at once.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Longer than documents are forwarded after a change.
const SETTLED: Duration = Duration::from_secs(12);

const MEMORY: &str = "listless; hit; detail=discovery";
const REVALIDATED: &str = "listless; fwd=stale; fwd-status=304; detail=discovery";
const FETCHED: &str = "listless; fwd=miss; detail=discovery";

/// Headers that differ between any two responses, or that come with the connection, which the
/// simulator has not.
const MOMENTARY: [&str; 7] = [
    "audit-id",
    "content-length",
    "date",
    "cache-status",
    "x-kubernetes-pf-flowschema-uid",
    "x-kubernetes-pf-prioritylevel-uid",
    "expires",
];

/// A document's path, and its Accept header.
type Document = (&'static str, &'static str);

const DOCUMENTS: &[Document] = &[
    ("/api", ""),
    ("/api?timeout=32s", AGGREGATED),
    ("/apis", "application/json"),
    ("/apis", AGGREGATED),
    ("/apis/x.io", ""),
    ("/apis/x.io/v1", ""),
    ("/api/v1", ""),
    ("/openapi/v2", ""),
    ("/openapi/v3", ""),
    ("/openapi/v3/apis/x.io/v1", "application/json"),
];

fn accepting(client: &TestClient, accept: &str) -> TestClient {
    if accept.is_empty() { client.apart() } else { client.with("accept", accept) }
}

/// The parts of a response that a client can notice.
fn seen(answer: &Answer) -> (u16, Vec<(String, String)>, String) {
    let headers = answer.headers.iter().filter(|(name, _)| !MOMENTARY.contains(&name.as_str()));
    let text = |value: &http::HeaderValue| value.to_str().expect("a text").to_owned();
    let headers = headers.map(|(name, value)| (name.to_string(), text(value)));
    let mut headers: Vec<_> = headers.collect();
    headers.sort();
    (answer.status, headers, answer.text().to_owned())
}

/// Requests through the proxy and directly; both responses must be equal.
async fn same(proxy: &TestProxy, client: &TestClient, path: &str) -> Answer {
    let mut straight = proxy.straight();
    for (name, value) in client.headers().iter().filter(|(name, _)| *name != "authorization") {
        straight = straight.with(name.as_str(), value.to_str().expect("a text"));
    }
    let (through, straight) = (client.get(path).await, straight.get(path).await);
    assert_eq!(seen(&through), seen(&straight), "{path}: {}", through.cache_status());
    through
}

/// Follows the sources of documents for long enough.
async fn follow(proxy: &TestProxy) {
    // One request for a document starts no watch.
    for _ in 0..2 {
        proxy.client().get("/api").await;
    }
    pass(SETTLED).await;
}

#[tokio::test(start_paused = true)]
async fn unchanged_documents_are_served_from_memory_byte_for_byte() {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    for (path, accept) in DOCUMENTS {
        let client = accepting(&proxy.client(), accept);
        let first = same(&proxy, &client, path).await;
        assert_eq!(
            first.header("content-type"),
            same(&proxy, &client, path).await.header("content-type")
        );
        proxy.upstream.forget();
        for _ in 0..3 {
            let again = same(&proxy, &client, path).await;
            assert_eq!(again.cache_status(), MEMORY, "{path} {accept}");
            assert_ne!(again.header("audit-id"), first.header("audit-id"));
        }
        assert_eq!(proxy.upstream.all().len(), 0, "{path} {accept}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_is_confirmed_again_after_ten_seconds_and_then_not_sent_again() {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    let client = proxy.client();
    for (path, tagged) in [("/openapi/v2", true), ("/api/v1", false)] {
        assert_eq!(same(&proxy, &client, path).await.cache_status(), FETCHED);
        pass(Duration::from_millis(9_900)).await;
        assert_eq!(same(&proxy, &client, path).await.cache_status(), MEMORY);
        pass(Duration::from_millis(200)).await;
        let confirmed = same(&proxy, &client, path).await;
        assert_eq!(confirmed.cache_status(), if tagged { REVALIDATED } else { FETCHED }, "{path}");
        assert_eq!(same(&proxy, &client, path).await.cache_status(), MEMORY, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_with_a_current_document_gets_the_apiservers_304() {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    for (path, accept) in [("/apis", AGGREGATED), ("/openapi/v2", ""), ("/openapi/v3", "")] {
        let client = accepting(&proxy.client(), accept);
        let tag = client.get(path).await.header("etag").to_owned();
        let again = client.with("if-none-match", &tag);
        let told = same(&proxy, &again, path).await;
        assert_eq!((told.status, told.body.len()), (304, 0), "{path}");
        let from_memory = same(&proxy, &again, path).await;
        assert_eq!((from_memory.status, from_memory.cache_status()), (304, MEMORY), "{path}");
        let other = client.with("if-none-match", "\"ABC\"");
        assert_eq!(same(&proxy, &other, path).await.status, 200);
        for odd in ["*", "W/\"ABC\"", "\"A\", \"B\""] {
            let odd = client.with("if-none-match", odd).get(path).await;
            assert_eq!(odd.detail(), "non-resource", "{path}");
        }
    }
    // A document without a tag has no conditional requests.
    let client = proxy.client().with("if-none-match", "\"ABC\"");
    client.get("/api/v1").await;
    assert_eq!(same(&proxy, &client, "/api/v1").await.cache_status(), MEMORY);
}

#[tokio::test(start_paused = true)]
async fn a_document_requested_by_an_old_hash_is_redirected() {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    let client = proxy.client();
    let index = client.get("/openapi/v3").await.json();
    let entry = &index["paths"]["apis/x.io/v1"]["serverRelativeURL"];
    let path = entry.as_str().expect("a URL").to_owned();
    let first = same(&proxy, &client, &path).await;
    assert_eq!(first.header("cache-control"), "public, immutable");
    let again = same(&proxy, &client, &path).await;
    assert_eq!(again.cache_status(), MEMORY);
    assert_eq!(again.header("expires"), first.header("expires"));
    let stale = "/openapi/v3/apis/x.io/v1?hash=ABC";
    for _ in 0..2 {
        let moved = same(&proxy, &client, stale).await;
        assert_eq!((moved.status, moved.header("location")), (301, path.as_str()));
    }
}

#[tokio::test(start_paused = true)]
async fn unusual_requests_and_unwatched_documents_are_forwarded() {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    let client = proxy.client();
    for path in ["/version", "/api/", "/apis?pretty=true", "/apis/x.io/v1?timeout=abc", "/healthz"]
    {
        for _ in 0..3 {
            assert_eq!(same(&proxy, &client, path).await.detail(), "non-resource", "{path}");
        }
    }
    for (name, value) in [
        ("user-agent", "curl/8"),
        ("cache-control", "no-cache"),
        ("range", "bytes=0-9"),
        ("x-forwarded-for", "10.0.0.1"),
    ] {
        let odd = client.with(name, value);
        for _ in 0..3 {
            assert_eq!(same(&proxy, &odd, "/apis").await.detail(), "non-resource", "{name}");
        }
    }
    let head = client.send(Method::HEAD, "/apis", "").await;
    assert_eq!((head.detail(), head.body.len()), ("non-resource", 0));
}

#[tokio::test(start_paused = true)]
async fn many_concurrent_document_requests_cost_two() {
    let proxy = Setup::default().in_memory();
    let slow = Effect::Delay(Duration::from_secs(1));
    proxy.simulator.inject(Fault::always(slow, |asked| asked.path_and_query == "/openapi/v2"));
    let client = proxy.client();
    let asking = (0..20).map(|_| {
        let client = client.apart();
        async move { client.get("/openapi/v2").await }
    });
    let answers = futures_util::future::join_all(asking).await;
    let asked = proxy.upstream.all().into_iter();
    let asked = asked.filter(|seen| seen.asked.path_and_query == "/openapi/v2");
    assert_eq!(asked.count(), 2);
    let straight = proxy.straight().get("/openapi/v2").await;
    for answer in &answers {
        assert_eq!((answer.status, answer.text()), (200, straight.text()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_is_streamed_and_cached_only_when_complete() {
    const PATH: &str = "/openapi/v2";
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    let client = proxy.client();
    let fits = |asked: &Asked| asked.path_and_query == PATH;
    proxy.simulator.inject(Fault::next(1, Effect::StallAfter(10), fits));
    let asked = request(Method::GET, PATH, Body::empty());
    let mut body = client.apart().open(asked).await.into_body();
    let piece = body.frame().await.expect("a piece").expect("no error");
    assert_eq!(piece.into_data().expect("data").len(), 10);
    drop(body);
    proxy.simulator.inject(Fault::next(1, Effect::BreakAfter(10), fits));
    assert!(!client.apart().get(PATH).await.whole);
    settle().await;
    assert_eq!(same(&proxy, &client, PATH).await.cache_status(), FETCHED);
    assert_eq!(same(&proxy, &client, PATH).await.cache_status(), MEMORY);
}

#[tokio::test(start_paused = true)]
async fn errors_are_forwarded_and_not_cached() {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    let client = proxy.client();
    client.get("/openapi/v2").await;
    pass(SETTLED).await;
    for (code, times) in [(503, 2), (429, 1), (403, 1)] {
        let effect = Effect::Answer { code, retry_after_secs: Some(1) };
        let fits = |asked: &Asked| asked.path_and_query == "/openapi/v2";
        proxy.simulator.inject(Fault::next(times, effect, fits));
        for _ in 0..times {
            let refused = client.get("/openapi/v2").await;
            assert_eq!((refused.status, refused.cache_status()), (code, FETCHED));
        }
        // The document is still known, and need not be sent again.
        assert_eq!(same(&proxy, &client, "/openapi/v2").await.cache_status(), REVALIDATED);
        pass(SETTLED).await;
    }
    for path in ["/apis/none.io/v1", "/apis/none.io", "/openapi/v3/apis/none.io/v1"] {
        for _ in 0..3 {
            assert_eq!(same(&proxy, &client, path).await.status, 404, "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_document_is_cached_or_watched_where_the_configuration_disables_it() {
    let proxy = Setup::default().config("discovery: {cache: false}\n").in_memory();
    let client = proxy.client();
    for _ in 0..3 {
        assert_eq!(same(&proxy, &client, "/apis").await.detail(), "never-cached");
        pass(SETTLED).await;
    }
    let definitions = group_resource("customresourcedefinitions.apiextensions.k8s.io");
    let watched = proxy.upstream.all().into_iter();
    let watched = watched.filter(|seen| seen.asked.resource == *definitions.resource);
    assert_eq!(watched.count(), 0, "nothing is followed either");
}

#[tokio::test(start_paused = true)]
async fn observe_mode_forwards_documents_and_predicts_the_hits_of_enforce() {
    let enforcing = Setup::default().in_memory();
    follow(&enforcing).await;
    let mut given = 0;
    let observing = Setup::default().config("mode: observe\n").in_memory();
    follow(&observing).await;
    let foreseen = || observing.counted("listless_would_have_total", "would=\"discovery\"") as u32;
    for _ in 0..40 {
        let answer = enforcing.client().get("/apis").await;
        given += u32::from(answer.cache_status() == MEMORY);
        assert_eq!(same(&observing, &observing.client(), "/apis").await.detail(), "observe");
        assert_eq!(foreseen(), given);
        pass(Duration::from_secs(1)).await;
    }
    assert!((30..40).contains(&given), "{given}");
    let offered = observing.upstream.all().into_iter();
    let offered = offered.filter(|seen| seen.headers.contains_key("if-none-match"));
    assert_eq!(offered.count(), 0, "requests go on as they came");
}

#[tokio::test(start_paused = true)]
async fn the_discovery_setting_can_be_reloaded() {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    let client = proxy.client();
    client.get("/apis").await;
    assert_eq!(client.get("/apis").await.cache_status(), MEMORY);
    proxy.configure("discovery: {cache: false}\n");
    assert_eq!(client.get("/apis").await.detail(), "never-cached");
    proxy.configure("");
    assert_eq!(client.get("/apis").await.cache_status(), MEMORY);
}

/// A definition as the apiserver would store it.
fn definition(plural: &str) -> serde_json::Value {
    json!({
        "metadata": {"name": format!("{plural}.x.io")},
        "spec": {"group": "x.io", "names": {"plural": plural, "kind": "Thing"}},
    })
}

fn put(proxy: &TestProxy, resource: &str, object: serde_json::Value) {
    proxy.simulator.put(&group_resource(resource), object).expect("a served resource");
}

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const SERVICES: &str = "apiservices.apiregistration.k8s.io";

#[tokio::test(start_paused = true)]
async fn the_watches_of_idle_documents_end_and_start_again() {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    let watches = || {
        let all = proxy.upstream.all().into_iter();
        all.filter(|seen| seen.asked.path_and_query.contains("watch=true")).count()
    };
    assert_eq!(watches(), 2);
    pass(Duration::from_secs(1200)).await;
    let before = watches();
    pass(Duration::from_secs(3600)).await;
    assert_eq!(watches(), before, "nothing is followed");
    // Changes may have happened meanwhile without an event.
    put(&proxy, DEFINITIONS, definition("things"));
    assert_ne!(proxy.client().get("/api").await.cache_status(), MEMORY);
    settle().await;
    pass(Duration::from_secs(2)).await;
    assert_eq!(watches(), before + 2);
    assert_ne!(proxy.client().get("/api").await.cache_status(), MEMORY);
    pass(SETTLED).await;
    proxy.client().get("/api").await;
    assert_eq!(proxy.client().get("/api").await.cache_status(), MEMORY);
}
