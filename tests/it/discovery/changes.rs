//! Changes appear through the proxy as soon as directly. Unproven documents are forwarded.

use std::time::Duration;

use http::Method;
use listless::simulator::{Asked, Effect, Fault, ResourceType};
use serde_json::{Value, json};

use super::{
    AGGREGATED, DEFINITIONS, FETCHED, MEMORY, REVALIDATED, SERVICES, SETTLED, accepting,
    definition, follow, put, same,
};
use crate::harness::{Setup, TestProxy, pass, settle};

const DOCUMENTS: [(&str, &str); 5] = [
    ("/apis", AGGREGATED),
    ("/apis", ""),
    ("/apis/x.io/v1", ""),
    ("/openapi/v2", ""),
    ("/openapi/v3", ""),
];

/// The interval of the polls through the proxy and directly.
const STEP: Duration = Duration::from_millis(300);

fn things() -> ResourceType {
    ResourceType::custom("x.io", &["v1"], "things", "Thing")
}

/// Everything is in memory and proven.
async fn warmed() -> TestProxy {
    let proxy = Setup::default().in_memory();
    follow(&proxy).await;
    warm(&proxy).await;
    proxy
}

async fn warm(proxy: &TestProxy) {
    for (path, accept) in DOCUMENTS {
        let client = accepting(&proxy.client(), accept);
        client.get(path).await;
        assert_eq!(client.get(path).await.cache_status(), MEMORY, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_definition_is_seen_as_soon_as_directly_even_from_a_slow_apiserver() {
    for lag in [Duration::ZERO, Duration::from_millis(300), Duration::from_secs(6)] {
        let proxy = warmed().await;
        put(&proxy, DEFINITIONS, definition("things"));
        settle().await;
        let mut waited = Duration::ZERO;
        while waited <= lag + SETTLED {
            if waited >= lag && waited < lag + STEP {
                proxy.simulator.register(things());
            }
            for (path, accept) in DOCUMENTS {
                same(&proxy, &accepting(&proxy.client(), accept), path).await;
            }
            pass(STEP).await;
            waited += STEP;
        }
        warm(&proxy).await;
        let shown = proxy.client().get("/apis/x.io/v1").await;
        assert_eq!(shown.cache_status(), MEMORY);
        assert!(shown.text().contains("things"), "{lag:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_definition_written_through_the_proxy_is_refetched_at_once() {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let proxy = warmed().await;
    // The watch delivers nothing: it is stalled.
    proxy.simulator.hold_caches();
    let created = proxy.client().create(path, &definition("things")).await;
    assert_eq!(created.status, 201, "{}", created.summary());
    for (path, accept) in DOCUMENTS {
        let client = accepting(&proxy.client(), accept);
        assert_ne!(same(&proxy, &client, path).await.cache_status(), MEMORY, "{path}");
    }
    proxy.simulator.release_caches();
    let deleted = proxy.client().send(Method::DELETE, &format!("{path}/things.x.io"), "").await;
    assert_eq!(deleted.status, 200);
    assert_ne!(same(&proxy, &proxy.client(), "/apis").await.cache_status(), MEMORY);
}

#[tokio::test(start_paused = true)]
async fn reads_of_definitions_change_nothing() {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let proxy = warmed().await;
    proxy.client().get(path).await;
    assert_eq!(proxy.client().get("/openapi/v2").await.cache_status(), MEMORY);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_proves_nothing_and_the_next_one_only_later() {
    for end in
        [listless::simulator::Simulator::break_watches, listless::simulator::Simulator::end_watches]
    {
        let proxy = warmed().await;
        end(&proxy.simulator);
        settle().await;
        let client = proxy.client();
        for _ in 0..4 {
            assert_eq!(same(&proxy, &client, "/openapi/v2").await.cache_status(), REVALIDATED);
            assert_eq!(same(&proxy, &client, "/apis/x.io/v1").await.cache_status(), FETCHED);
            pass(Duration::from_secs(2)).await;
        }
        pass(SETTLED).await;
        warm(&proxy).await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_every_use_is_confirmed() {
    let proxy = Setup::default().in_memory();
    let refused = Effect::Answer { code: 403, retry_after_secs: None };
    let fits = |asked: &Asked| asked.resource == "customresourcedefinitions";
    proxy.simulator.inject(Fault::always(refused, fits));
    let client = proxy.client();
    client.get("/openapi/v2").await;
    for _ in 0..20 {
        pass(Duration::from_secs(3)).await;
        assert_eq!(same(&proxy, &client, "/openapi/v2").await.cache_status(), REVALIDATED);
        assert_eq!(same(&proxy, &client, "/apis").await.cache_status(), FETCHED);
    }
    // It is tried again, but not with every use.
    let tries = proxy.upstream.all().into_iter();
    let tries = tries.filter(|seen| seen.asked.resource == "customresourcedefinitions").count();
    assert!((1..=3).contains(&tries), "{tries}");
}

#[tokio::test(start_paused = true)]
async fn watches_are_opened_again_without_a_gap() {
    let proxy = warmed().await;
    let client = proxy.client();
    let mut asked = 0;
    for _ in 0..600 {
        pass(Duration::from_secs(2)).await;
        let answer = same(&proxy, &client, "/openapi/v2").await;
        asked += usize::from(answer.cache_status() != MEMORY);
    }
    // The rate is once in ten seconds, and a little more while a watch is being opened.
    assert!((100..=180).contains(&asked), "{asked}");
}

fn service(name: &str, server: &Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"group": "m.io", "service": server}})
}

#[tokio::test(start_paused = true)]
async fn documents_of_aggregated_servers_are_confirmed_each_time() {
    let proxy = warmed().await;
    let server = json!({"name": "s", "namespace": "a"});
    put(&proxy, SERVICES, service("v1.x.io", &server));
    pass(SETTLED).await;
    let told = [("/apis", AGGREGATED), ("/apis/x.io/v1", ""), ("/openapi/v2", "")];
    let known = [("/apis", ""), ("/apis/x.io", ""), ("/api/v1", ""), ("/apis/x.io/v1beta1", "")];
    for ((path, accept), expected) in
        told.map(|row| (row, false)).into_iter().chain(known.map(|row| (row, true)))
    {
        let client = accepting(&proxy.client(), accept);
        client.get(path).await;
        let answer = same(&proxy, &client, path).await;
        assert_eq!(answer.cache_status() == MEMORY, expected, "{path} {accept}");
    }
    // The apiserver now serves it itself.
    put(&proxy, SERVICES, service("v1.x.io", &Value::Null));
    pass(SETTLED).await;
    warm(&proxy).await;
}
