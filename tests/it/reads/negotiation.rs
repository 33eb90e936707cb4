//! Representations: requested by header, and the subset that memory can give.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::json;

use crate::harness::{Answer, Setup, TestProxy, group_resource, pod};

const WIDGETS: &str = "/apis/x.io/v1/namespaces/a/widgets";

/// Accept headers, and the reason of their forward; `None` when memory answers.
const ACCEPTED: &[(&str, &str)] = &[
    ("application/json", ""),
    ("*/*", ""),
    ("application/json;q=0.5", ""),
    ("application/json, */*", ""),
    ("text/html, application/json;q=0.9", ""),
    ("application/json;charset=utf-8", ""),
    ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", "table"),
    ("application/json;as=PartialObjectMetadataList;v=v2;g=meta.k8s.io", "partial-object-metadata"),
    ("application/yaml", "yaml"),
    ("application/cbor", "other"),
    ("application/json;drop=metadata.managedFields", "other"),
    ("APPLICATION/JSON", "other"),
    ("application/*", "other"),
    ("text/html", "other"),
    ("nonsense", "other"),
];

/// One hundred pods of 2 kB: more than the limit below which nothing is compressed.
async fn large() -> TestProxy {
    let proxy = Setup::default().in_memory();
    for number in 0..100 {
        let mut large = pod("large", &format!("p-{number}"), &[("app", "large")], "n1");
        large["metadata"]["annotations"] = json!({"padding": format!("{number}").repeat(1000)});
        proxy.simulator.put(&group_resource("pods"), large).expect("a served resource");
    }
    proxy.warm("/api/v1/pods").await;
    proxy
}

/// Decodes one gzip member, and requires that no byte follows it.
fn unzipped(answer: &Answer) -> String {
    let mut decoder = GzDecoder::new(&answer.body[..]);
    let mut text = String::new();
    decoder.read_to_string(&mut text).expect("a gzip member");
    assert!(decoder.into_inner().is_empty(), "more than one member");
    text
}

#[tokio::test(start_paused = true)]
async fn only_exact_representations_are_answered_from_memory() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    for (accept, reason) in ACCEPTED {
        for path in ["/api/v1/pods", "/api/v1/namespaces/a/pods/web-0"] {
            let answer = proxy.client().with("accept", accept).get(path).await;
            if reason.is_empty() {
                assert!(answer.is_hit(), "{accept}: {}", answer.cache_status());
                assert_eq!(answer.header("content-type"), "application/json");
            } else {
                assert_eq!(answer.detail(), *reason, "{accept}");
                let straight = proxy.straight().with("accept", accept).get(path).await;
                assert_eq!(answer.status, straight.status, "{accept}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn partial_metadata_equals_the_apiservers_own() {
    let proxy = Setup::default().in_memory();
    let collections = ["/api/v1/namespaces/a/pods", WIDGETS];
    for collection in collections {
        proxy.warm(collection).await;
    }
    let straight = |accept: &str| proxy.straight().with("accept", accept);
    for version in ["v1", "v1beta1"] {
        let list =
            format!("application/json;as=PartialObjectMetadataList;v={version};g=meta.k8s.io");
        let one = list.replace("List", "");
        for collection in collections {
            let name = proxy.client().get(collection).await.json()["items"][0]["metadata"]["name"]
                .as_str()
                .expect("a name")
                .to_owned();
            let object = format!("{collection}/{name}");
            let none = format!("{collection}?labelSelector=app%3Dnobody");
            for (accept, path) in [(&list, collection), (&list, &*none), (&one, &*object)] {
                for _ in 0..2 {
                    let answer = proxy.client().with("accept", accept).get(path).await;
                    assert!(answer.is_hit(), "{accept} {path}: {}", answer.cache_status());
                    let json = accept.rsplit(',').next().expect("a clause");
                    let expected = straight(json).get(path).await;
                    assert_eq!(answer.text(), expected.text(), "{accept} {path}");
                }
                // The same path as a whole is not confused with it.
                let whole = proxy.client().get(path).await;
                assert!(whole.is_hit());
                assert_eq!(whole.text(), proxy.straight().get(path).await.text());
            }
            // The apiserver lays out errors and refused conversions.
            let missing = format!("{collection}/nobody");
            for (accept, path) in [(&one, &*missing), (&one, collection), (&list, &*object)] {
                let answer = proxy.client().with("accept", accept).get(path).await;
                assert_eq!(answer.detail(), "partial-object-metadata", "{accept} {path}");
                let expected = straight(accept).get(path).await;
                assert_eq!((answer.status, answer.text()), (expected.status, expected.text()));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn browsers_and_curl_get_the_apiservers_indentation() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let client = proxy.client();
    for query in ["pretty=true", "pretty=1"] {
        assert_eq!(client.get(&format!("/api/v1/pods?{query}")).await.detail(), "pretty");
    }
    let curl = client.with("user-agent", "curl/8.5.0");
    assert_eq!(curl.get("/api/v1/pods").await.detail(), "pretty");
    assert!(curl.get("/api/v1/pods?pretty=0").await.is_hit());
    let kubectl = client.with("user-agent", "kubectl/v1.36.3");
    assert!(kubectl.get("/api/v1/pods").await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn a_large_list_is_one_gzip_member_for_clients_that_accept_gzip() {
    let proxy = large().await;
    let plain = proxy.client().get("/api/v1/pods").await;
    assert!(plain.is_hit() && plain.body.len() > 128 * 1024);
    for accepted in ["gzip", "gzip, deflate", "deflate,gzip"] {
        // The second response reuses the bytes compressed for the first.
        for _ in 0..2 {
            let client = proxy.client().with("accept-encoding", accepted);
            let answer = client.get("/api/v1/pods").await;
            assert!(answer.is_hit(), "{accepted}: {}", answer.cache_status());
            assert_eq!(answer.header("content-encoding"), "gzip", "{accepted}");
            assert_eq!(answer.header("vary"), "Accept-Encoding", "{accepted}");
            assert_eq!(answer.header("content-length"), answer.body.len().to_string());
            assert_eq!(unzipped(&answer), plain.text(), "{accepted}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gzip_is_sent_only_to_clients_that_accept_it() {
    let proxy = large().await;
    let asked = ["", "identity", "*", "gzip;q=1.0", "GZIP", "x-gzip", "deflate, br"];
    for accepted in asked {
        let mut clients = [proxy.client(), proxy.straight()];
        if !accepted.is_empty() {
            clients = clients.map(|client| client.with("accept-encoding", accepted));
        }
        for client in clients {
            let answer = client.get("/api/v1/pods").await;
            assert_eq!(answer.header("content-encoding"), "", "{accepted}");
            assert!(answer.text().starts_with("{\"kind\":\"PodList\""), "{accepted}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn small_answers_are_never_compressed() {
    let proxy = large().await;
    for client in [proxy.client(), proxy.straight()] {
        let client = client.with("accept-encoding", "gzip");
        for path in ["/api/v1/namespaces/a/pods", "/api/v1/namespaces/large/pods/p-1"] {
            assert_eq!(client.get(path).await.header("content-encoding"), "", "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn answers_from_memory_carry_the_headers_of_the_apiserver() {
    let proxy = TestProxy::warmed("/api/v1/pods").await;
    let client = proxy.client();
    let (first, second) = (client.get("/api/v1/pods").await, client.get("/api/v1/pods").await);
    assert_eq!(first.header("cache-control"), "no-cache, private");
    assert_eq!(first.header("content-type"), "application/json");
    assert_eq!(first.header("content-length"), first.body.len().to_string());
    assert!(!first.header("date").is_empty());
    assert_ne!(first.header("audit-id"), second.header("audit-id"));
    let joined = client.with("audit-id", "me-1").get("/api/v1/pods").await;
    assert_eq!(joined.header("audit-id"), "me-1");
}
