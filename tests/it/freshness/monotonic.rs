//! Versions never go back for one session, whatever the source of earlier responses.

use std::time::Duration;

use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault},
};
use serde_json::json;

use super::{is_watch_of_replica, stalled};
use crate::harness::{
    Laggard, PROTOBUF, Setup, TABLE, TestClient, TestProxy, group_resource, pass, pod, populated,
    settle,
};

const PODS: &str = "/api/v1/pods";
const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const MAPS_ELSEWHERE: &str = "/api/v1/namespaces/b/configmaps";
const SELECTED: &str = "/api/v1/namespaces/a/pods?labelSelector=app%3Dweb";

#[tokio::test(start_paused = true)]
async fn an_older_replica_does_not_answer_after_a_newer_one() {
    let proxy = stalled(SELECTED).await;
    proxy.put_pod("web-9", "web");
    proxy.warm(PODS).await;
    let client = proxy.client();
    let wide = client.get(PODS).await;
    assert!(wide.is_hit());
    let narrow = client.get(SELECTED).await;
    assert!(narrow.version() >= wide.version(), "{}", narrow.summary());
    assert!(narrow.names().contains(&"a/web-9".to_owned()));
}

/// Nothing that the narrow query selects has changed between both versions.
#[tokio::test(start_paused = true)]
async fn two_queries_are_answered_at_different_versions_in_either_order() {
    let proxy = stalled(SELECTED).await;
    let client = proxy.client();
    let narrow = client.get(SELECTED).await;
    proxy.put_pod("db-9", "db");
    proxy.warm(PODS).await;
    let wide = client.get(PODS).await;
    let (again, wide_again) = (client.get(SELECTED).await, client.get(PODS).await);
    for answer in [&narrow, &wide, &again, &wide_again] {
        assert!(answer.is_hit(), "{}", answer.summary());
    }
    assert!(wide.names().contains(&"a/db-9".to_owned()), "{}", wide.summary());
    assert_eq!(again.names(), narrow.names());
    assert!(narrow.version() < wide.version() && narrow.version() <= again.version());
    assert!(wide_again.version() >= wide.version());
}

#[tokio::test(start_paused = true)]
async fn memory_is_not_older_than_what_the_apiserver_showed() {
    for forwarded in [
        "/api/v1/pods?limit=100",
        "/api/v1/namespaces/a/pods?shard=x",
        "/api/v1/namespaces/a/pods/web-9",
        "/api/v1/namespaces/a/pods/web-9/status",
        "/api/v1/pods?resourceVersion=0",
        "/api/v1/pods?fieldSelector=spec.nodeName=n1&limit=100",
    ] {
        let proxy = stalled(SELECTED).await;
        proxy.put_pod("web-9", "web");
        let client = proxy.client();
        let shown = client.get(forwarded).await;
        assert!(!shown.is_hit() && shown.status == 200, "{}", shown.summary());
        let listed = client.get(SELECTED).await;
        assert!(
            listed.names().contains(&"a/web-9".to_owned()),
            "{forwarded}: {}",
            listed.summary()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn memory_does_not_bring_back_objects_reported_deleted() {
    let proxy = stalled(SELECTED).await;
    proxy.remove_pod("web-0");
    let client = proxy.client();
    assert_eq!(client.get("/api/v1/namespaces/a/pods/web-0/status").await.status, 404);
    assert_eq!(client.get("/api/v1/namespaces/a/pods/web-0?resourceVersion=").await.status, 404);
    let listed = client.get(SELECTED).await;
    assert!(!listed.names().contains(&"a/web-0".to_owned()), "{}", listed.summary());
}

/// The object's version is below that of the list that it left.
#[tokio::test(start_paused = true)]
async fn lists_do_not_go_back_after_a_get_of_an_object_that_left_one() {
    let proxy = TestProxy::warmed(SELECTED).await;
    let client = proxy.client();
    let object = client.get("/api/v1/namespaces/a/pods/web-0/status").await;
    assert!(!object.is_hit() && object.status == 200, "{}", object.summary());
    let moved = proxy.put_pod("web-0", "db");
    settle().await;
    // No event of the replica has this version.
    let latest = proxy.put_pod("db-9", "db");
    let left = client.clone().with("accept", PROTOBUF).get(SELECTED).await;
    assert!(!left.is_hit() && left.status == 200, "{}", left.summary());
    pass(Duration::from_millis(1)).await;
    let object = client.get("/api/v1/namespaces/a/pods/web-0").await;
    assert!(!object.is_hit() && object.version() == moved, "{}", object.summary());
    let again = client.get(SELECTED).await;
    assert!(again.version() >= latest, "{}", again.summary());
}

/// The selection of the watch is unknown: the object has not gone because it left.
#[tokio::test(start_paused = true)]
async fn an_own_object_that_left_a_watch_with_an_unknown_parameter_is_shown() {
    let proxy = Setup::default().in_memory();
    let ours = |asked: &Asked| asked.user_agent.starts_with("listless/");
    proxy.simulator.inject(Fault::always(Effect::StallAfter(0), move |asked| {
        asked.verb == Verb::Watch && ours(asked)
    }));
    proxy.warm(PODS).await;
    let client = proxy.client();
    let version = client.get(PODS).await.version();
    let own = pod("a", "own", &[("app", "web")], "n1");
    assert_eq!(client.create("/api/v1/namespaces/a/pods", &own).await.status, 201);
    let path = format!("{SELECTED}&shard=x&watch=1&resourceVersion={version}");
    let mut watch = client.watch(&path).await;
    proxy.put_pod("own", "db");
    for expected in ["ADDED", "DELETED"] {
        let event = watch.next_line().await.expect("an event");
        let event = String::from_utf8_lossy(&event).into_owned();
        assert!(event.contains(expected) && event.contains("own"), "{event}");
    }
    settle().await;
    let listed = client.get(PODS).await;
    assert!(listed.names().contains(&"a/own".to_owned()), "{}", listed.summary());
}

/// `kubectl get pods -w` before a replica of Tables has started.
#[tokio::test(start_paused = true)]
async fn a_forwarded_watch_of_tables_keeps_no_other_read_from_memory() {
    let proxy = TestProxy::warmed(SELECTED).await;
    let table = proxy.client().with("accept", TABLE);
    let version = proxy.client().get(SELECTED).await.version();
    let path = format!("/api/v1/namespaces/a/pods?watch=1&resourceVersion={version}");
    let mut watch = table.watch(&path).await;
    proxy.put_pod("web-9", "web");
    let event = watch.next_line().await.expect("an event");
    let event = String::from_utf8_lossy(&event);
    assert!(event.contains("\"Table\"") && event.contains("web-9"), "{event}");
    settle().await;
    let listed = proxy.client().get(SELECTED).await;
    assert!(listed.is_hit(), "{}", listed.summary());
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn memory_is_not_older_than_what_a_watch_of_tables_showed() {
    let proxy = stalled(SELECTED).await;
    let client = proxy.client();
    let version = client.get(SELECTED).await.version();
    let path = format!("/api/v1/namespaces/a/pods?watch=1&resourceVersion={version}");
    let mut watch = client.clone().with("accept", TABLE).watch(&path).await;
    proxy.put_pod("web-9", "web");
    let event = watch.next_line().await.expect("an event");
    assert!(String::from_utf8_lossy(&event).contains("web-9"), "{event:?}");
    let listed = client.get(SELECTED).await;
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
}

#[tokio::test(start_paused = true)]
async fn memory_is_not_older_than_what_a_watch_showed() {
    let proxy = stalled(SELECTED).await;
    let client = proxy.client();
    let version = client.get(SELECTED).await.version();
    let path = format!("/api/v1/namespaces/a/pods?watch=1&resourceVersion={version}");
    let mut watch = client.watch(&path).await;
    proxy.put_pod("web-9", "web");
    assert_eq!(watch.next().await, Some(("ADDED".to_owned(), "web-9".to_owned())));
    let listed = client.get(SELECTED).await;
    assert!(listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
    proxy.remove_pod("web-9");
    assert_eq!(watch.next().await, Some(("DELETED".to_owned(), "web-9".to_owned())));
    let listed = client.get(SELECTED).await;
    assert!(!listed.names().contains(&"a/web-9".to_owned()), "{}", listed.summary());
    assert_eq!(client.get("/api/v1/namespaces/a/pods/web-9").await.status, 404);
}

/// A replica of [`MAPS`] that receives no events, of an apiserver whose caches lag.
async fn stalled_behind(laggard: impl FnOnce(Laggard) -> Laggard) -> TestProxy {
    let simulator = populated();
    let oldest = laggard(Laggard::new(simulator.clone(), |oldest, _| oldest));
    let proxy = Setup::of(simulator).upstream(oldest).in_memory();
    let stalled = Fault::always(Effect::StallAfter(0), |asked| asked.verb == Verb::Watch);
    proxy.simulator.inject(stalled);
    proxy.warm(MAPS).await;
    proxy
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_allowed_to_be_old_proves_nothing() {
    // The client reads it, and Listless reads it.
    for elsewhere in [format!("{MAPS_ELSEWHERE}?resourceVersion=0"), MAPS_ELSEWHERE.to_owned()] {
        let proxy = stalled_behind(|laggard| laggard).await;
        let client = proxy.client();
        let other = json!({"metadata": {"name": "other"}});
        assert_eq!(client.create(MAPS_ELSEWHERE, &other).await.status, 201);
        assert_eq!(client.delete(&format!("{MAPS}/c")).await.json()["kind"], "Status");
        // This list may have any age, and is from before the deletion.
        let elsewhere = client.get(&elsewhere).await;
        assert_eq!(elsewhere.status, 200, "{}", elsewhere.summary());
        assert!(elsewhere.version() < proxy.simulator.revision());
        let listed = client.get(MAPS).await;
        assert_eq!(listed.names(), Vec::<String>::new(), "{}", listed.summary());
    }
}

/// The replica's first list is on its way when the session reads one that is newer.
#[tokio::test(start_paused = true)]
async fn a_replica_that_comes_late_is_compared_with_the_list_shown_before() {
    for is_changed in [true, false] {
        let simulator = populated();
        // Longer than a read waits for a replica.
        let of_replica = |target: &str| Duration::from_secs(20 * u64::from(target == MAPS));
        let far = Laggard::new(simulator.clone(), |oldest, _| oldest).far(of_replica);
        let proxy = Setup::of(simulator).upstream(far).in_memory();
        proxy.simulator.inject(Fault::always(Effect::StallAfter(0), is_watch_of_replica));
        let (client, before) = (proxy.client(), proxy.simulator.revision());
        client.get(MAPS).await;
        // This one starts the replica.
        let repeated = tokio::spawn({
            let client = client.clone();
            async move { client.get(MAPS).await }
        });
        pass(Duration::from_millis(10)).await;
        if is_changed {
            let late = json!({"metadata": {"namespace": "a", "name": "late"}});
            proxy.simulator.put(&group_resource("configmaps"), late).expect("a served resource");
        } else {
            proxy.simulator.skip_revisions(5);
        }
        let newest = proxy.simulator.revision();
        let at = format!("{MAPS}?resourceVersion={newest}&resourceVersionMatch=NotOlderThan");
        let shown = client.get(&at).await;
        assert!(!shown.is_hit() && shown.version() == newest, "{}", shown.summary());
        repeated.await.expect("no panic");
        pass(Duration::from_secs(20)).await;
        let held = proxy.replicas()[0].version.as_ref().map(ToString::to_string);
        assert_eq!(held, Some(before.to_string()));
        // Its version may be older than that of a list of another query.
        let listed = client.get(&format!("{MAPS}?labelSelector=%21absent")).await;
        assert_eq!(listed.is_hit(), !is_changed, "{}", listed.summary());
        assert_eq!(listed.names(), shown.names(), "{}", listed.summary());
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_sent_before_a_write_does_not_prove_it() {
    let second = |target: &str| Duration::from_secs(u64::from(target == MAPS_ELSEWHERE));
    let proxy = stalled_behind(|laggard| laggard.far(second)).await;
    let (client, apart) = (proxy.client(), proxy.client());
    let elsewhere = tokio::spawn(async move { apart.get(MAPS_ELSEWHERE).await });
    pass(Duration::from_millis(500)).await;
    assert_eq!(client.delete(&format!("{MAPS}/c")).await.json()["kind"], "Status");
    let elsewhere = elsewhere.await.expect("no panic");
    assert_eq!(elsewhere.status, 200, "{}", elsewhere.summary());
    assert!(elsewhere.version() < proxy.simulator.revision());
    let listed = client.get(MAPS).await;
    assert_eq!(listed.names(), Vec::<String>::new(), "{}", listed.summary());
}

/// A proxy that holds all pods, and a client whose watch of them was just told 410.
async fn after_a_410() -> (TestProxy, TestClient) {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client();
    proxy.simulator.forget_history();
    // The version is older than Listless's window of events, so the read is forwarded.
    let mut watch = client.watch(&format!("{PODS}?watch=1&resourceVersion=1")).await;
    let (kind, message) = watch.next().await.expect("an event");
    assert_eq!(kind, "ERROR");
    assert!(message.contains("too old resource version"), "{message}");
    (proxy, client)
}

#[tokio::test(start_paused = true)]
async fn after_a_410_the_next_read_goes_upstream() {
    let (_proxy, client) = after_a_410().await;
    // Other reads of the session, and its watches at other versions, are none of that client's.
    let selected = client.get(SELECTED).await;
    assert!(selected.is_hit(), "{}", selected.summary());
    let at = selected.version();
    let other = client.watch(&format!("{PODS}?watch=1&resourceVersion={at}")).await;
    assert!(other.is_hit());
    let listed = client.get(PODS).await;
    assert_eq!(listed.detail(), "after-expiry");
    assert!(client.get(PODS).await.is_hit());
}

/// A Table has no items to compare, and a missing object has no version.
#[tokio::test(start_paused = true)]
async fn after_a_504_any_answer_of_the_apiserver_settles_it() {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client();
    for (path, accept, status) in [
        ("/api/v1/namespaces/a/pods/absent", "application/json", 404),
        ("/api/v1/namespaces/a/pods/web-0", TABLE, 200),
    ] {
        let future = client.get(&format!("{path}?resourceVersion=99999")).await;
        assert_eq!(future.status, 504, "{}", future.summary());
        let answered = client.with("accept", accept).get(path).await;
        assert!(!answered.is_hit() && answered.status == status, "{}", answered.summary());
        let again = client.get(path).await;
        assert_eq!(again.status, status, "{}", again.summary());
        assert_ne!(again.detail(), "after-expiry", "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_410_a_watch_that_lists_goes_upstream_and_settles_it() {
    let (_proxy, client) = after_a_410().await;
    let state =
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1";
    let listing = client.watch(&format!("{PODS}?{state}")).await;
    assert!(!listing.is_hit());
    let again = client.watch(&format!("{PODS}?{state}")).await;
    assert!(again.is_hit());
    assert!(client.get(PODS).await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_takes_the_apiserver_too_long_keeps_none_from_memory() {
    let proxy = TestProxy::warmed(SELECTED).await;
    let client = proxy.client();
    let slow = Effect::Answer { code: 504, retry_after_secs: None };
    proxy.simulator.inject(Fault::next(1, slow, |asked| asked.verb == Verb::List));
    assert_eq!(client.get(PODS).await.status, 504);
    let listed = client.get(SELECTED).await;
    assert!(listed.is_hit(), "{}", listed.summary());
    // A replica of all pods starts meanwhile, and nothing keeps the client from it.
    assert_eq!(client.get(PODS).await.detail(), "session");
}

#[tokio::test(start_paused = true)]
async fn versions_never_go_back_while_replicas_come_and_go() {
    let proxy = Setup::default().in_memory();
    let client = proxy.client();
    let mut highest = 0;
    for round in 0..60_u64 {
        proxy.put_pod(&format!("p-{}", round % 5), if round % 2 == 0 { "web" } else { "db" });
        match round % 9 {
            2 => proxy.simulator.end_watches(),
            4 => proxy.simulator.break_watches(),
            6 => proxy.simulator.forget_history(),
            8 => pass(Duration::from_secs(11 * 60)).await,
            _ => {}
        }
        for path in [PODS, SELECTED, "/api/v1/namespaces/a/pods", "/api/v1/pods?resourceVersion=0"]
        {
            let answer = client.get(path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.summary());
            let version = answer.version();
            assert!(version >= highest, "{path} in round {round}: {version} after {highest}");
            highest = version;
        }
        pass(Duration::from_millis(round * 7)).await;
    }
}
