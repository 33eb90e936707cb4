//! Watches from memory. With any start and any selector they deliver the apiserver's events, at no
//! cost to it. They end where it would end them.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use listless::{
    api::{ObjectKey, Verb},
    body::Body,
    simulator::{Features, ResourceType, Rule, Settings, Simulator, User},
};
use tokio::time::{Instant, timeout};

use super::comparable;
use crate::harness::{
    OWN_TOKEN, Setup, TestProxy, Watch, fractions, group_resource, incompressible, pass, pod,
    request, settle, widget,
};

const PODS: &str = "/api/v1/pods";

const WIDGETS: &str = "/apis/x.io/v1/widgets";

/// Follows all pods at a version.
fn following(version: u64) -> String {
    format!("{PODS}?watch=1&resourceVersion={version}")
}

fn is_local(watch: &Watch) -> bool {
    let status = watch.head.headers["cache-status"].to_str().expect("a text");
    status.starts_with("listless; hit;")
}

/// Every event that has arrived by now.
async fn lines(watch: &mut Watch) -> Vec<String> {
    let mut lines = Vec::new();
    while let Ok(Some(line)) = timeout(Duration::from_millis(50), watch.next_line()).await {
        lines.push(comparable(line));
    }
    lines
}

/// A pod of 60 kB.
pub(super) fn put_large(proxy: &TestProxy, number: usize) {
    let mut large = pod("a", &format!("large-{number}"), &[], "n1");
    large["metadata"]["annotations"] = serde_json::json!({"a": incompressible(number, 60_000)});
    proxy.simulator.put(&group_resource("pods"), large).expect("a served resource");
}

/// Returns how long a watch lasts from now on, and whether it delivered anything; a broken end is a
/// failure.
async fn lasts(watch: &mut Watch) -> (Duration, Vec<String>) {
    let (started, mut told) = (Instant::now(), Vec::new());
    while let Some(line) = watch.next_line().await {
        told.push(comparable(line));
    }
    (started.elapsed(), told)
}

/// One random change: pods and widgets are created, change fields that selectors use, and are
/// deleted.
fn churn(proxy: &TestProxy, dice: &dyn Fn() -> f64) {
    let pick = |sides: f64| (dice() * sides) as usize;
    let (namespace, number) = (["a", "b"][pick(2.0)], pick(6.0));
    let name = format!("p-{number}");
    let key = ObjectKey::new(Some(namespace), &name);
    let (pods, widgets) = (group_resource("pods"), group_resource("widgets.x.io"));
    // Deleting a missing object fails, and that is fine.
    let _ = match pick(8.0) {
        0 => proxy.simulator.remove(&pods, &key),
        1 => proxy.simulator.remove(&widgets, &key),
        2 | 3 => {
            let colour = ["red", "green", "blue"][pick(3.0)];
            proxy.simulator.put(&widgets, widget(namespace, &name, colour))
        }
        _ => {
            let (app, node) = (["web", "db", ""][pick(3.0)], ["n1", "n2", ""][pick(3.0)]);
            proxy.simulator.put(&pods, pod(namespace, &name, &[("app", app)], node))
        }
    };
}

const SELECTIONS: &[&str] = &[
    "/api/v1/pods?watch=1",
    "/api/v1/namespaces/a/pods?watch=1",
    "/api/v1/pods?watch=1&labelSelector=app%3Dweb",
    "/api/v1/pods?watch=1&labelSelector=app!%3Dweb",
    "/api/v1/pods?watch=1&labelSelector=app+in+(web,db)",
    "/api/v1/namespaces/b/pods?watch=1&labelSelector=!app",
    "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1",
    "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3D",
    "/api/v1/pods?watch=1&fieldSelector=status.phase!%3DPending&labelSelector=app",
    "/api/v1/pods?watch=1&fieldSelector=metadata.namespace%3Da",
    "/api/v1/namespaces/a/pods?watch=1&fieldSelector=metadata.name%3Dp-1",
    "/apis/x.io/v1/widgets?watch=1",
    "/apis/x.io/v1/namespaces/b/widgets?watch=1&labelSelector=colour%3Dred",
    "/apis/x.io/v1/widgets?watch=1&labelSelector=colour+notin+(red,green)",
];

/// Whole objects, and metadata alone in both of its versions.
const REPRESENTATIONS: [&str; 3] = [
    "application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
];

const STARTS: &[&str] = &[
    "",
    "&allowWatchBookmarks=true",
    "&resourceVersion=0",
    "&resourceVersion={v}",
    "&resourceVersion={v}&allowWatchBookmarks=1",
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={v}",
    "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan",
];

#[tokio::test(start_paused = true)]
async fn every_selection_from_every_start_gets_the_apiservers_events() {
    for seed in 1..=3 {
        let proxy = TestProxy::warmed(PODS).await;
        proxy.warm(WIDGETS).await;
        let (dice, client) = (fractions(seed), proxy.client());
        let since = [client.get(PODS).await.version(), client.get(WIDGETS).await.version()];
        let mut pairs = Vec::new();
        for round in 0..STARTS.len() {
            // An informer has the version of a list.
            let now = [client.get(PODS).await.version(), client.get(WIDGETS).await.version()];
            for (index, selection) in SELECTIONS.iter().enumerate() {
                let start = STARTS[(index + round) % STARTS.len()];
                let versions = if round % 2 == 0 { since } else { now };
                let version = versions[usize::from(selection.starts_with("/apis/x.io"))];
                let path = format!("{selection}{start}").replace("{v}", &version.to_string());
                let accept = REPRESENTATIONS[(index + round + seed as usize) % 3];
                let client = proxy.client().with("accept", accept);
                let client = if index % 2 == 0 { client } else { client.over_http2() };
                let watch = client.watch(&path).await;
                assert!(is_local(&watch), "{path}: {:?}", watch.head.headers);
                let straight = proxy.straight().with("accept", accept).watch(&path).await;
                pairs.push((format!("{path} as {accept}"), watch, straight));
            }
            (0..40).for_each(|_| churn(&proxy, &*dice));
            settle().await;
        }
        let mut told = 0;
        for (path, watch, straight) in &mut pairs {
            let (lines, expected) = (lines(watch).await, lines(straight).await);
            assert_eq!(lines, expected, "{path}");
            told += lines.len();
        }
        assert!(told > 3000, "{told} events are too few");
        let watches =
            ["pods", "widgets"].map(|resource| proxy.upstream.count(Verb::Watch, resource));
        assert_eq!(watches, [0, 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_whose_list_came_from_memory_watches_from_memory() {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client();
    let listed = client.get("/api/v1/pods?limit=500&resourceVersion=0").await;
    assert!(listed.is_hit());
    let path = format!(
        "{PODS}?allowWatchBookmarks=true&resourceVersion={}&timeout=7m5s&timeoutSeconds=425&watch=true",
        listed.version()
    );
    let mut watch = client.with("user-agent", "curl/8.0").watch(&path).await;
    assert!(is_local(&watch), "{:?}", watch.head.headers);
    proxy.put_pod("web-9", "web");
    assert_eq!(watch.next().await, Some(("ADDED".to_owned(), "web-9".to_owned())));
    assert_eq!(proxy.upstream.count(Verb::Watch, "pods"), 0);
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_reaches_all_watchers_before_the_next_one_happens() {
    let proxy = TestProxy::warmed(PODS).await;
    let shared = proxy.client().over_http2();
    let path = following(proxy.simulator.revision());
    let mut watches = Vec::new();
    for number in 0..200 {
        let client = if number % 2 == 0 { shared.clone() } else { proxy.client() };
        watches.push(client.watch(&path).await);
    }
    for number in 0..5 {
        let name = format!("p-{number}");
        proxy.put_pod(&name, "web");
        for watch in &mut watches {
            let event = timeout(Duration::from_millis(10), watch.next()).await.expect("at once");
            assert_eq!(event, Some(("ADDED".to_owned(), name.clone())));
        }
        pass(Duration::from_secs(20)).await;
    }
    assert_eq!(proxy.upstream.count(Verb::Watch, "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_after_many_unselected_ones_is_sent_at_once() {
    let proxy = TestProxy::warmed(PODS).await;
    let version = proxy.simulator.revision();
    let path = format!("{PODS}?watch=1&resourceVersion={version}&labelSelector=app%3Dweb");
    let mut watch = proxy.client().watch(&path).await;
    assert!(is_local(&watch));
    for number in 0..600 {
        proxy.put_pod(&format!("db-{number}"), "db");
    }
    proxy.put_pod("web-9", "web");
    let told = timeout(Duration::from_secs(1), watch.next()).await.expect("at once");
    assert_eq!(told, Some(("ADDED".to_owned(), "web-9".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_before_the_end() {
    let proxy = TestProxy::warmed(PODS).await;
    let old = proxy.simulator.revision();
    proxy.put_pod("web-9", "web");
    settle().await;
    let start = "allowWatchBookmarks=true&timeoutSeconds=150";
    let path = format!("{PODS}?watch=1&resourceVersion={old}&{start}");
    let client = proxy.client();
    let (mut watch, mut plain) =
        (client.watch(&path).await, client.watch(&path.replace("true", "false")).await);
    assert!(is_local(&watch) && is_local(&plain));
    let mut at = Vec::new();
    let started = Instant::now();
    let mut last = None;
    while let Some(line) = watch.next_line().await {
        if line.starts_with(b"{\"type\":\"BOOKMARK\"") {
            at.push(started.elapsed().as_secs());
            last = Some(line);
        }
    }
    assert_eq!(started.elapsed().as_secs(), 150);
    assert_eq!(at, [60, 120, 148]);
    // By now the replica has received one of the apiserver's.
    let mut straight = proxy.straight().watch(&path.replace("150", "62")).await;
    let mut expected = straight.next_line().await;
    while !expected.as_ref().expect("a bookmark").starts_with(b"{\"type\":\"BOOKMARK\"") {
        expected = straight.next_line().await;
    }
    assert_eq!(last, expected);
    let (_, told) = lasts(&mut plain).await;
    assert!(told.iter().all(|line| !line.starts_with("bookmark")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_events_ends_in_time_without_a_bookmark() {
    let proxy = TestProxy::warmed(PODS).await;
    let version = proxy.simulator.revision();
    for (seconds, start) in [(1, ""), (30, "&allowWatchBookmarks=true")] {
        let path = format!("{}&timeoutSeconds={seconds}{start}", following(version));
        let mut watch = proxy.client().watch(&path).await;
        assert!(is_local(&watch));
        let (lasted, told) = lasts(&mut watch).await;
        assert_eq!((lasted.as_secs(), told), (seconds, vec![]), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn initial_events_and_their_bookmark_work_with_an_old_apiserver() {
    let features = Features { watch_list: false, ..Settings::default().features };
    let simulator = Simulator::new(Settings { features, ..Settings::default() });
    simulator.register(ResourceType::custom("x.io", &["v1"], "widgets", "Widget"));
    simulator.put(&group_resource("widgets.x.io"), widget("a", "w1", "red"));
    let proxy = Setup::of(simulator).in_memory();
    let widgets = "/apis/x.io/v1/widgets";
    proxy.warm(widgets).await;
    let path = format!(
        "{widgets}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    assert_eq!(proxy.straight().get(&path).await.status, 422);
    let mut watch = proxy.client().watch(&path).await;
    assert_eq!(watch.next().await, Some(("ADDED".to_owned(), "w1".to_owned())));
    let version = proxy.simulator.revision();
    let mark = format!(
        r#"{{"type":"BOOKMARK","object":{{"apiVersion":"x.io/v1","kind":"Widget","metadata":{{"annotations":{{"k8s.io/initial-events-end":"true"}},"resourceVersion":"{version}"}}}}}}"#
    );
    assert_eq!(watch.next_line().await.expect("a mark"), format!("{mark}\n"));
}

#[tokio::test(start_paused = true)]
async fn a_relist_ends_a_watch_and_the_next_one_is_forwarded() {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client();
    let version = proxy.simulator.revision();
    let mut silent = client.watch(&following(version)).await;
    let mut spoken = client.watch(&following(version)).await;
    proxy.put_pod("web-8", "web");
    assert_eq!(spoken.next().await.expect("an event").1, "web-8");
    let mut selective =
        client.watch(&format!("{}&labelSelector=none", following(version + 1))).await;
    assert!(is_local(&silent) && is_local(&spoken) && is_local(&selective));
    proxy.simulator.hold_caches();
    proxy.simulator.end_watches();
    proxy.put_pod("web-9", "web");
    proxy.simulator.forget_history();
    proxy.simulator.release_caches();
    let (lasted, told) = lasts(&mut spoken).await;
    assert_eq!(told, Vec::<String>::new());
    assert!(lasted < Duration::from_secs(60), "{lasted:?}");
    // No client without events lost its watch within two seconds.
    let (_, told) = lasts(&mut silent).await;
    assert_eq!(told.len(), 1, "{told:?}");
    lasts(&mut selective).await;
    let again = client.watch(&following(version + 1)).await;
    assert!(!is_local(&again), "{:?}", again.head.headers);
}

#[tokio::test(start_paused = true)]
async fn a_watch_survives_a_short_outage_and_ends_in_a_long_one() {
    let proxy = TestProxy::warmed(PODS).await;
    let path = following(proxy.simulator.revision());
    let mut watch = proxy.client().watch(&path).await;
    proxy.simulator.stop();
    pass(Duration::from_secs(3)).await;
    proxy.simulator.start();
    proxy.put_pod("web-8", "web");
    assert_eq!(watch.next().await, Some(("ADDED".to_owned(), "web-8".to_owned())));
    proxy.simulator.stop();
    let (lasted, told) = lasts(&mut watch).await;
    assert_eq!(told, Vec::<String>::new());
    assert!((4..=6).contains(&lasted.as_secs()), "{lasted:?}");
    assert_eq!(proxy.client().get(&path).await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn a_watch_keeps_its_replica_and_ends_with_it() {
    let proxy = TestProxy::warmed(PODS).await;
    let version = proxy.simulator.revision();
    let mut watch = proxy.client().watch(&following(version)).await;
    pass(Duration::from_secs(25 * 60)).await;
    assert_eq!(proxy.replicas().len(), 1);
    assert!(proxy.client().get(PODS).await.is_hit());
    // This is more than the whole memory limit: the replica is dropped.
    proxy.configure("cache: {memoryLimit: 1Mi}\n");
    for number in 0..30 {
        put_large(&proxy, number);
        assert_eq!(watch.next().await.expect("an event").1, format!("large-{number}"));
    }
    let (lasted, _) = lasts(&mut watch).await;
    assert!(lasted < Duration::from_secs(5), "{lasted:?}");
    assert_eq!(proxy.replicas().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn without_watchers_a_replica_is_idle() {
    let proxy = TestProxy::warmed(PODS).await;
    let watch = proxy.client().watch(&following(proxy.simulator.revision())).await;
    pass(Duration::from_secs(11 * 60)).await;
    assert_eq!(proxy.replicas().len(), 1);
    drop(watch);
    pass(Duration::from_secs(9 * 60)).await;
    assert_eq!(proxy.replicas().len(), 1);
    pass(Duration::from_secs(2 * 60)).await;
    assert_eq!(proxy.replicas().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn withdrawn_watch_rights_end_the_events() {
    let allow = |proxy: &TestProxy, verbs: &[&str]| {
        let rules = vec![Rule::new(verbs, &["pods"])];
        proxy.simulator.admit(OWN_TOKEN, User::with_rules("own", rules));
    };
    let proxy = TestProxy::warmed(PODS).await;
    let path = following(proxy.simulator.revision());
    let mut watch = proxy.client().watch(&path).await;
    assert!(is_local(&watch));
    pass(Duration::from_secs(70)).await;
    allow(&proxy, &["get", "list"]);
    let (lasted, told) = lasts(&mut watch).await;
    assert_eq!(told, Vec::<String>::new());
    assert!(lasted < Duration::from_secs(61), "{lasted:?}");
    let refused = proxy.client().get(&path).await;
    assert_eq!((refused.status, refused.detail()), (403, "not-authorized"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_watcher_is_ended_cleanly_and_resumes_at_the_apiserver() {
    let proxy = TestProxy::warmed(PODS).await;
    let version = proxy.simulator.revision();
    let client = proxy.client();
    let path = following(version);
    let slow = client.open(request(Method::GET, &path, Body::empty())).await;
    for number in 0..100 {
        put_large(&proxy, number);
        settle().await;
    }
    let mut body = slow.into_body();
    let mut told = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.expect("a clean end");
        told.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    assert!(told.ends_with(b"}\n"));
    let events = told.iter().filter(|byte| **byte == b'\n').count();
    assert!((1..100).contains(&events), "{events} events");
    let mut again = client.watch(&following(version + events as u64)).await;
    assert!(!is_local(&again));
    assert_eq!(again.next().await.expect("an event").1, format!("large-{events}"));
}

#[tokio::test(start_paused = true)]
async fn no_later_read_is_older_than_the_events_of_a_watch() {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client();
    let mut watch = client.watch(&following(proxy.simulator.revision())).await;
    proxy.put_pod("web-9", "web");
    let version = proxy.simulator.revision();
    assert_eq!(watch.next().await.expect("an event").1, "web-9");
    // Memory cannot print this one. It is forwarded, and is not older than the state shown before.
    let yaml = client.with("accept", "application/yaml");
    yaml.get(PODS).await;
    let target = format!("{PODS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan");
    assert_eq!(proxy.upstream.last().asked.path_and_query, target);
    proxy.remove_pod("web-9");
    assert_eq!(watch.next().await.expect("an event").0, "DELETED");
    assert!(!client.get(PODS).await.names().contains(&"a/web-9".to_owned()));
    assert_eq!(client.get("/api/v1/namespaces/a/pods/web-9").await.status, 404);
}

#[tokio::test]
async fn listless_ends_its_watches_before_it_exits() {
    let proxy = Setup::default().on_loopback().await;
    proxy.client().get(PODS).await;
    assert!(proxy.client().get(PODS).await.is_hit());
    let path = following(proxy.simulator.revision());
    let mut watches = Vec::new();
    for client in [proxy.client(), proxy.client().over_http2()] {
        watches.push(client.watch(&path).await);
    }
    proxy.put_pod("web-9", "web");
    for watch in &mut watches {
        assert!(is_local(watch));
        assert_eq!(watch.next().await, Some(("ADDED".to_owned(), "web-9".to_owned())));
    }
    let started = Instant::now();
    proxy.drain().await;
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    for watch in &mut watches {
        assert_eq!(watch.next().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_that_memory_cannot_print_ends_a_watch_and_the_next_is_forwarded() {
    let proxy = Setup::default().in_memory();
    let mut odd = widget("a", "odd", "red");
    odd["metadata"]["finalizers"] = serde_json::json!([]);
    proxy.simulator.put(&group_resource("widgets.x.io"), odd).expect("a served resource");
    proxy.warm(WIDGETS).await;
    let client = proxy.client().with("accept", REPRESENTATIONS[1]);
    let path = format!("{WIDGETS}?watch=1&timeoutSeconds=5");
    let (lasted, told) = lasts(&mut client.watch(&path).await).await;
    assert!(lasted < Duration::from_secs(5) && !told.iter().any(|line| line.contains("odd")));
    let mut watch = client.watch(&path).await;
    let status = watch.head.headers["cache-status"].to_str().expect("a text");
    assert_eq!(status, "listless; fwd=vary-miss; detail=partial-object-metadata");
    assert!(lasts(&mut watch).await.1.iter().any(|line| line.contains("\"odd\"")));
    // Watches of whole objects are unaffected.
    assert!(is_local(&proxy.client().watch(&path).await));
}

#[tokio::test(start_paused = true)]
async fn a_forwarded_watch_returns_to_memory_within_a_minute() {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client();
    let path = format!("{PODS}?resourceVersion=1010&watch=1&allowWatchBookmarks=true");
    let begun = Instant::now();
    let mut watch = client.watch(&format!("{path}&timeoutSeconds=400")).await;
    let status = watch.head.headers["cache-status"].to_str().expect("a text");
    assert_eq!(status, "listless; fwd=stale; detail=before-window");
    assert!(proxy.upstream.last().asked.path_and_query.contains("?timeoutSeconds=60&"));
    proxy.put_pod("web-9", "web");
    let mut version = String::new();
    while let Some(line) = watch.next_line().await {
        let event: serde_json::Value = serde_json::from_slice(&line).expect("an event");
        let at = event["object"]["metadata"]["resourceVersion"].as_str().expect("a version");
        version = at.to_owned();
    }
    assert_eq!(begun.elapsed().as_secs(), 60);
    assert!(is_local(&client.watch(&path.replace("1010", &version)).await));
    // A watch that sets its own short timeout, or could not continue afterwards, is forwarded
    // unchanged.
    let plain = format!("{PODS}?resourceVersion=1010&watch=1&timeoutSeconds=400");
    for path in [format!("{path}&timeoutSeconds=9"), plain] {
        client.watch(&path).await;
        assert_eq!(proxy.upstream.last().asked.path_and_query, path);
    }
}
