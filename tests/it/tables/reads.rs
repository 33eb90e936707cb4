//! LIST and GET.

use std::time::Duration;

use listless::api::Verb;
use serde_json::json;

use super::{INCLUDED, KUBECTL, tables, warm, with};
use crate::harness::{Setup, pass};

const WIDGETS: &str = "/apis/x.io/v1/widgets";

#[tokio::test(start_paused = true)]
async fn lists_and_objects_equal_the_apiservers_own() {
    let proxy = Setup::default().in_memory();
    let collections = [
        "/api/v1/pods",
        "/api/v1/nodes",
        "/apis/apps/v1/deployments",
        WIDGETS,
        "/apis/x.io/v1/gadgets",
    ];
    for collection in collections {
        warm(&proxy, collection).await;
    }
    pass(Duration::from_secs(7)).await;
    let straight = tables(&proxy.straight());
    for client in [proxy.client(), proxy.client().over_http2()] {
        let client = tables(&client);
        for path in [
            "/api/v1/pods",
            "/api/v1/pods?limit=500",
            "/api/v1/namespaces/a/pods",
            "/api/v1/namespaces/a/pods/web-0",
            "/api/v1/pods?labelSelector=app%3Dweb",
            "/api/v1/pods?labelSelector=app%3Dnobody",
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
            "/api/v1/pods?resourceVersion=0",
            "/api/v1/nodes",
            "/api/v1/nodes/n1",
            "/apis/apps/v1/namespaces/a/deployments",
            WIDGETS,
            "/apis/x.io/v1/namespaces/a/widgets/w1",
            "/apis/x.io/v1/gadgets/g",
        ] {
            for included in INCLUDED {
                let path = with(path, included);
                let answer = client.get(&path).await;
                assert!(answer.is_hit(), "{path}: {}", answer.cache_status());
                assert_eq!(answer.header("content-type"), "application/json");
                let expected = straight.get(&path).await;
                assert_eq!(answer.text(), expected.text(), "{path}");
            }
        }
    }
    let reads = |resource| {
        proxy.upstream.count(Verb::List, resource) + proxy.upstream.count(Verb::Get, resource)
    };
    assert_eq!(["pods", "nodes", "deployments", "widgets", "gadgets"].map(reads), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn both_versions_of_tables_are_answered() {
    let proxy = Setup::default().in_memory();
    warm(&proxy, "/api/v1/pods").await;
    warm(&proxy, WIDGETS).await;
    for version in ["v1", "v1beta1"] {
        let accept = format!("application/json;as=Table;g=meta.k8s.io;v={version}");
        for path in ["/api/v1/pods", WIDGETS] {
            let answer = proxy.client().with("accept", &accept).get(path).await;
            assert!(answer.is_hit(), "{version} {path}: {}", answer.cache_status());
            let expected = proxy.straight().with("accept", &accept).get(path).await;
            assert_eq!(answer.text(), expected.text());
            let api_version = format!("meta.k8s.io/{version}");
            assert_eq!(answer.json()["rows"][0]["object"]["apiVersion"], json!(api_version));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_collection_has_no_rows() {
    let proxy = Setup::default().in_memory();
    let path = "/api/v1/namespaces/none/services";
    warm(&proxy, path).await;
    let answer = tables(&proxy.client()).get(path).await;
    assert!(answer.is_hit() && answer.text().ends_with("\"rows\":[]}\n"), "{}", answer.text());
    assert_eq!(answer.text(), tables(&proxy.straight()).get(path).await.text());
}

#[tokio::test(start_paused = true)]
async fn tables_and_objects_are_not_confused() {
    let proxy = Setup::default().in_memory();
    let path = "/api/v1/namespaces/a/pods";
    warm(&proxy, path).await;
    let whole = proxy.client().get(path).await;
    assert!(!whole.is_hit(), "a Table is no list of objects");
    proxy.warm(path).await;
    for _ in 0..2 {
        let (whole, table) =
            (proxy.client().get(path).await, tables(&proxy.client()).get(path).await);
        assert!(whole.is_hit() && table.is_hit());
        assert_eq!(whole.text(), proxy.straight().get(path).await.text());
        assert_eq!(table.text(), tables(&proxy.straight()).get(path).await.text());
    }
}

#[tokio::test(start_paused = true)]
async fn other_forms_of_tables_are_forwarded() {
    let proxy = Setup::default().in_memory();
    warm(&proxy, "/api/v1/pods").await;
    let plain = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (accept, path, reason) in [
        (KUBECTL, "/api/v1/pods?includeObject=object", "bad-value"),
        (KUBECTL, "/api/v1/pods?pretty=true", "table"),
        (KUBECTL, "/api/v1/namespaces/a/pods/nobody", "table"),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", "/api/v1/pods", "table"),
        ("application/json;as=Table;v=v1;g=meta.k8s.io;x=y", "/api/v1/pods", "table"),
        (plain, "/api/v1/pods?limit=2", "limit"),
    ] {
        let answer = proxy.client().with("accept", accept).get(path).await;
        assert_eq!(answer.detail(), reason, "{accept} {path}");
        let expected = proxy.straight().with("accept", accept).get(path).await;
        assert_eq!((answer.status, answer.text()), (expected.status, expected.text()), "{path}");
    }
}
