//! State that a session was shown sets a floor for each object in older replicas, and for nothing
//! else.

use std::time::Duration;

use listless::{
    api::{ObjectKey, Verb},
    simulator::{Asked, Effect, Fault},
};

use super::{is_watch_of_replica, stalled};
use crate::harness::{Setup, TABLE, TestProxy, group_resource, pass, populated, settle};

const SELECTED: &str = "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb";
const STREAMED: &str = "/api/v1/pods?watch=1&sendInitialEvents=true\
                        &resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
const MAPS: &str = "/api/v1/namespaces/a/configmaps";

fn remove(proxy: &TestProxy, resource: &str, name: &str) {
    let key = ObjectKey::new(Some("a"), name);
    proxy.simulator.remove(&group_resource(resource), &key).expect("an object");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_left_a_selection_is_not_shown_in_it() {
    let proxy = stalled(SELECTED).await;
    proxy.put_pod("web-0", "db");
    let client = proxy.client();
    let moved = client.get("/api/v1/namespaces/a/pods/web-0").await;
    assert_eq!(moved.json()["metadata"]["labels"]["app"], "db");
    let listed = client.get(SELECTED).await;
    assert!(!listed.names().contains(&"a/web-0".to_owned()), "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn an_object_missing_from_a_list_is_not_shown_again() {
    for list in ["/api/v1/pods?limit=100", "/api/v1/pods?limit=2"] {
        for accept in ["application/json", TABLE] {
            let proxy = stalled(SELECTED).await;
            remove(&proxy, "pods", "web-0");
            let client = proxy.client();
            let reader = client.clone().with("accept", accept);
            let mut page = reader.get(list).await;
            assert!(page.status == 200 && !page.is_hit(), "{}", page.summary());
            while let Some(token) = page.json()["metadata"]["continue"].as_str() {
                page = reader.get(&format!("{list}&continue={token}")).await;
            }
            let names = client.get(SELECTED).await.names();
            assert!(!names.contains(&"a/web-0".to_owned()), "{accept}: {names:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_missing_from_a_streamed_list_is_not_shown_again() {
    for accept in ["application/json", TABLE] {
        let proxy = stalled(SELECTED).await;
        remove(&proxy, "pods", "web-0");
        let client = proxy.client();
        let mut watch = client.clone().with("accept", accept).watch(STREAMED).await;
        assert!(!watch.is_hit());
        while watch.next().await.expect("an event").0 != "BOOKMARK" {}
        let names = client.get(SELECTED).await.names();
        assert!(!names.contains(&"a/web-0".to_owned()), "{accept}: {names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_does_not_bring_back_its_predecessor() {
    let proxy = stalled(MAPS).await;
    remove(&proxy, "configmaps", "c");
    let again = serde_json::json!({"metadata": {"namespace": "a", "name": "c"}, "data": {}});
    proxy.simulator.put(&group_resource("configmaps"), again).expect("a served resource");
    let client = proxy.client();
    assert_eq!(client.delete(&format!("{MAPS}/c")).await.json()["kind"], "Status");
    let listed = client.get(MAPS).await;
    assert!(!listed.names().contains(&"a/c".to_owned()), "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn an_unparsable_list_sets_a_floor_for_its_scope() {
    let proxy = stalled(SELECTED).await;
    proxy.put_pod("web-9", "web");
    let client = proxy.client();
    let table = client.clone().with("accept", TABLE);
    // The response has rows without metadata, and a form that Listless does not parse.
    let rows = table.get("/api/v1/namespaces/a/pods?includeObject=None").await;
    assert!(rows.json()["rows"][0]["object"].is_null(), "{}", rows.summary());
    let listed = client.get(SELECTED).await;
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn a_truncated_list_sets_a_floor_for_its_scope() {
    let proxy = stalled(SELECTED).await;
    proxy.put_pod("web-9", "web");
    let lists = |asked: &Asked| asked.verb == Verb::List && asked.path_and_query.contains("limit");
    proxy.simulator.inject(Fault::next(1, Effect::BreakAfter(600), lists));
    let client = proxy.client();
    let broken = client.get("/api/v1/pods?limit=100").await;
    assert!(!broken.whole, "{}", broken.summary());
    let listed = client.get(SELECTED).await;
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn a_list_in_yaml_or_cbor_bars_memory_only_in_its_scope_and_until_the_next_list() {
    const ELSEWHERE: &str = "/api/v1/namespaces/b/configmaps";
    for media in ["application/yaml", "application/cbor"] {
        let proxy = TestProxy::warmed(MAPS).await;
        proxy.warm(ELSEWHERE).await;
        let reads_it = |asked: &Asked| asked.verb == Verb::List && asked.namespace == "a";
        proxy.simulator.inject(Fault::next(1, Effect::Garbage, reads_it));
        let client = proxy.client();
        let read = client.clone().with("accept", media).get(MAPS).await;
        assert!(read.status == 200 && !read.is_hit(), "{}", read.summary());
        assert!(client.get(ELSEWHERE).await.is_hit(), "{media}");
        assert!(!client.get(MAPS).await.is_hit(), "{media}");
        assert!(client.get(MAPS).await.is_hit(), "{media}");
    }
}

/// A replica that receives only the first of two events.
#[tokio::test(start_paused = true)]
async fn an_intermediate_list_is_not_served_as_the_later_one() {
    let simulator = populated();
    let proxy = Setup::of(simulator).in_memory();
    let client = proxy.client();
    // The size of an event in bytes.
    let version = proxy.put_pod("web-9", "web");
    let path = format!("/api/v1/namespaces/a/pods?watch=1&resourceVersion={}", version - 1);
    let line = proxy.straight().watch(&path).await.next_line().await.expect("an event");
    remove(&proxy, "pods", "web-9");
    proxy.simulator.inject(Fault::always(Effect::StallAfter(line.len() + 1), is_watch_of_replica));
    proxy.warm(SELECTED).await;
    proxy.put_pod("web-9", "web");
    remove(&proxy, "pods", "web-9");
    settle().await;
    // Only the form causes the forward. It is a list of the same query.
    let table = client.clone().with("accept", TABLE).get(SELECTED).await;
    let listed = client.get(SELECTED).await;
    assert!(listed.version() >= table.version(), "{}", listed.summary());
    assert!(!listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn a_read_waits_briefly_for_a_differing_object() {
    let proxy = Setup::default().in_memory();
    let late = Effect::Delay(Duration::from_millis(400));
    proxy.warm(SELECTED).await;
    proxy.simulator.inject(Fault::always(late, is_watch_of_replica));
    proxy.simulator.break_watches();
    settle().await;
    proxy.put_pod("web-9", "web");
    let client = proxy.client();
    client.clone().with("accept", TABLE).get("/api/v1/pods?limit=100").await;
    // Its event comes once the watch is open again.
    pass(Duration::from_millis(300)).await;
    let listed = client.get(SELECTED).await;
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
    pass(Duration::from_secs(2)).await;
    assert!(client.get(SELECTED).await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn state_shown_by_one_replica_is_shown_by_others() {
    let proxy = Setup::default().in_memory();
    let narrow = |asked: &Asked| {
        is_watch_of_replica(asked) && asked.path_and_query.contains("labelSelector")
    };
    proxy.simulator.inject(Fault::always(Effect::StallAfter(0), narrow));
    proxy.warm(SELECTED).await;
    proxy.warm("/api/v1/pods").await;
    proxy.put_pod("web-9", "web");
    settle().await;
    // No list of the apiserver shows it. Only the wider replica received the event.
    let client = proxy.client();
    let wide = client.get("/api/v1/pods").await;
    assert!(wide.is_hit() && wide.names().contains(&"a/web-9".to_owned()), "{}", wide.summary());
    let listed = client.get(SELECTED).await;
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_moved_between_selections_does_not_age() {
    const OTHERS: &str = "/api/v1/namespaces/a/pods?labelSelector=app%3Ddb";
    let proxy = Setup::default().in_memory();
    let others =
        |asked: &Asked| is_watch_of_replica(asked) && asked.path_and_query.contains("app%3Ddb");
    proxy.simulator.inject(Fault::always(Effect::StallAfter(0), others));
    proxy.put_pod("x", "db");
    proxy.warm(OTHERS).await;
    proxy.warm(SELECTED).await;
    proxy.put_pod("web-9", "web");
    settle().await;
    let client = proxy.client();
    let web = client.get(SELECTED).await;
    assert!(web.is_hit() && web.names().contains(&"a/web-9".to_owned()), "{}", web.summary());
    let db = client.get(OTHERS).await;
    assert!(db.is_hit() && db.names().contains(&"a/x".to_owned()), "{}", db.summary());
    proxy.put_pod("x", "web");
    settle().await;
    let web = client.get(SELECTED).await;
    assert!(web.is_hit() && web.names().contains(&"a/x".to_owned()), "{}", web.summary());
    for version in ["&resourceVersion=0", ""] {
        let db = client.get(&format!("{OTHERS}{version}")).await;
        assert!(!db.names().contains(&"a/x".to_owned()), "{}", db.summary());
    }
}
