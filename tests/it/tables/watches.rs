//! WATCH: Tables of one row, the first with the columns.

use std::time::Duration;

use serde_json::json;

use super::{INCLUDED, tables, warm};
use crate::harness::{Setup, group_resource, pass};

#[tokio::test(start_paused = true)]
async fn events_equal_the_apiservers_own() {
    let proxy = Setup::default().in_memory();
    warm(&proxy, "/api/v1/pods").await;
    pass(Duration::from_secs(3)).await;
    for included in INCLUDED {
        for selector in ["", "labelSelector=app%3Dweb", "fieldSelector=spec.nodeName%3Dn1"] {
            for client in [proxy.client(), proxy.client().over_http2()] {
                let version = proxy.simulator.revision();
                let path = format!(
                    "/api/v1/namespaces/a/pods?watch=1&resourceVersion={version}&{included}&{selector}"
                );
                let mut local = tables(&client).watch(&path).await;
                let mut straight = tables(&proxy.straight()).watch(&path).await;
                assert_eq!(local.head.headers["content-type"], "application/json");
                let mut has_columns = false;
                for app in ["web", "web", "db", "web", ""] {
                    pass(Duration::from_millis(1300)).await;
                    if app.is_empty() {
                        proxy.remove_pod("new");
                    } else {
                        proxy.put_pod("new", app);
                    }
                    let (line, expected) = (local.next_line().await, straight.next_line().await);
                    assert_eq!(line, expected, "{path} {app}");
                    let text = String::from_utf8(line.expect("an event").to_vec()).expect("UTF-8");
                    assert_eq!(text.contains(r#""columnDefinitions":null"#), has_columns, "{text}");
                    has_columns = true;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_comes_as_tables() {
    let proxy = Setup::default().in_memory();
    warm(&proxy, "/apis/x.io/v1/widgets").await;
    pass(Duration::from_secs(100)).await;
    for path in ["/apis/x.io/v1/widgets?watch=1", "/apis/x.io/v1/widgets?watch=1&resourceVersion=0"]
    {
        let mut local = tables(&proxy.client()).watch(path).await;
        let mut straight = tables(&proxy.straight()).watch(path).await;
        for _ in 0..2 {
            assert_eq!(local.next_line().await, straight.next_line().await, "{path}");
        }
    }
    let answer =
        tables(&proxy.client()).get("/apis/x.io/v1/widgets?watch=1&timeoutSeconds=1").await;
    assert!(answer.is_hit(), "{}", answer.cache_status());
}

#[tokio::test(start_paused = true)]
async fn bookmarks_are_tables_of_the_form_that_the_apiserver_showed() {
    let proxy = Setup::default().in_memory();
    let collection = "/api/v1/pods";
    warm(&proxy, collection).await;
    let initial = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&\
        allowWatchBookmarks=true&timeoutSeconds=1";
    let path = format!("{collection}?{initial}");
    for _ in 0..3 {
        proxy.put_pod("other", "web");
        pass(Duration::from_secs(61)).await;
    }
    // Without an object, newer apiservers show the mark in another form than older ones. The session
    // cannot follow such a watch: it comes last.
    let mut included = INCLUDED;
    included.sort_unstable_by_key(|included| included.ends_with("None"));
    for included in included {
        let path = format!("{path}&{included}");
        // A watch takes a second, which its ages show.
        let (client, straight) = (tables(&proxy.client()), tables(&proxy.straight()));
        let (answer, expected) = tokio::join!(client.get(&path), straight.get(&path));
        let (hit, has_object) = (answer.is_hit(), !included.ends_with("None"));
        assert_eq!(hit, has_object, "{path}: {}", answer.cache_status());
        assert_eq!(answer.text(), expected.text(), "{path}");
        assert_eq!(answer.text().contains("initial-events-end"), has_object);
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_of_an_unknown_form_are_left_to_the_apiserver() {
    let proxy = Setup::default().in_memory();
    warm(&proxy, "/api/v1/pods").await;
    let path = "/api/v1/pods?watch=1&allowWatchBookmarks=true&timeoutSeconds=1";
    let early = tables(&proxy.client()).get(path).await;
    assert_eq!(early.detail(), "table");
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_at_a_row_that_is_not_proven() {
    let proxy = Setup::default().in_memory();
    let collection = "/apis/x.io/v1/gadgets";
    warm(&proxy, collection).await;
    let version = proxy.simulator.revision();
    let path = format!("{collection}?watch=1&resourceVersion={version}");
    let mut watch = tables(&proxy.client()).watch(&path).await;
    let spec = json!({"due": "2025-12-31T12:00:00Z", "begun": "2025-12-31T11:59:50Z"});
    let vague = json!({"metadata": {"name": "vague"}, "spec": spec});
    proxy.simulator.put(&group_resource("gadgets.x.io"), vague).expect("a served resource");
    assert_eq!(watch.next_line().await, None);
    let again = tables(&proxy.client()).get(&format!("{path}&timeoutSeconds=1")).await;
    assert_eq!(again.detail(), "table");
    assert!(again.text().contains("vague"));
}

#[tokio::test(start_paused = true)]
async fn a_replica_lists_again_when_the_columns_change() {
    let proxy = Setup::default().in_memory();
    let path = "/apis/x.io/v1/widgets";
    warm(&proxy, path).await;
    // The first event of a new watch has columns.
    proxy.simulator.break_watches();
    pass(Duration::from_secs(5)).await;
    let answer = tables(&proxy.client()).get(path).await;
    assert!(answer.is_hit(), "{}", answer.cache_status());
    assert_eq!(answer.text(), tables(&proxy.straight()).get(path).await.text());
}
