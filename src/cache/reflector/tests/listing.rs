use super::*;
use crate::body::Body;

fn header(call: &Call, name: &str) -> String {
    call.headers[name].to_str().expect("text").to_owned()
}

#[tokio::test(start_paused = true)]
async fn the_first_list_is_consistent_complete_and_json() {
    let mut scene = Scene::new();
    let call = scene.calls.expect(LIST).await;
    assert_eq!(call.lane, crate::upstream::Lane::Short);
    assert_eq!(header(&call, "accept"), "application/json");
    assert_eq!(header(&call, "user-agent"), format!("listless/{}", env!("CARGO_PKG_VERSION")));
    assert!(!call.headers.contains_key("authorization"));
    assert_eq!(scene.view().state, SyncState::Starting);
    call.json(200, fixture::list(10, &[pod("p", 5), pod("q", 7)]));
    let watch = scene.calls.expect_watch(10).await;
    assert_eq!(watch.lane, crate::upstream::Lane::Long);
    assert!(watch.uri.ends_with("timeoutSeconds=450"), "{}", watch.uri);
    assert_eq!((scene.view().state, scene.shown()), (SyncState::Synced, Some(10)));
    assert_eq!(scene.objects(), ["a/p@5", "a/q@7"]);
}

#[tokio::test(start_paused = true)]
async fn selectors_and_scope_are_part_of_every_request() {
    let query = query(Some("a"), "app=web,tier in (x,y)", "spec.nodeName=one");
    let mut scene = Scene::with(query, Settings::default());
    let selectors =
        "labelSelector=app%3Dweb%2Ctier%20in%20%28x%2Cy%29&fieldSelector=spec.nodeName%3Done";
    let list = format!("/api/v1/namespaces/a/pods?{selectors}");
    scene.calls.expect(&list).await.json(200, fixture::list(10, &[]));
    let watch = scene.calls.expect_watch(10).await;
    assert!(watch.uri.starts_with(&list), "{}", watch.uri);
}

#[tokio::test(start_paused = true)]
async fn a_list_may_arrive_in_any_chunks() {
    let mut scene = Scene::new();
    let pipe = scene.calls.next().await.pipe();
    let body = fixture::list(10, &[pod("p", 5), pod("q", 7)]);
    for piece in body.as_bytes().chunks(11) {
        pipe.send(piece.to_vec());
        scene.settle().await;
        assert!(scene.view().snapshot.is_none());
    }
    drop(pipe);
    scene.calls.expect_watch(10).await;
    assert_eq!(scene.objects(), ["a/p@5", "a/q@7"]);
}

#[tokio::test(start_paused = true)]
async fn a_bad_list_is_dropped_and_retried() {
    let good = fixture::list(10, &[pod("p", 5), pod("q", 7)]);
    let bad = [
        good.replace(r#""uid":"uid-q","#, ""),
        good.replace(r#""uid":"uid-q""#, r#""uid":"""#),
        good.replace(r#""name":"q","#, ""),
        good.replace(r#""resourceVersion":"7""#, r#""resourceVersion":"x""#),
        good.replace(r#""name":"q""#, r#""name":"p""#),
        good.replace(r#"{"nodeName":""}}]"#, r#"{"nodeName":""]"#),
        good.replace(r#"{"nodeName":""}}]"#, r#"{"nodeName":x}}]"#),
        good.replace("]}\n", ""),
        good.replace("]}\n", "]"),
        format!("{good}{good}"),
        good[..good.len() / 2].to_owned(),
        "<html>busy</html>".to_owned(),
        String::new(),
    ];
    for body in bad {
        let mut scene = Scene::new();
        scene.calls.expect(LIST).await.json(200, body.clone());
        scene.settle().await;
        assert_eq!((scene.view().state, scene.objects()), (SyncState::Failing, vec![]), "{body}");
        assert!(!scene.last_error().is_empty());
        scene.calls.expect(LIST).await.json(200, good.clone());
        scene.calls.expect_watch(10).await;
        assert_eq!(scene.objects(), ["a/p@5", "a/q@7"]);
    }
    let mut scene = Scene::new();
    scene.calls.expect(LIST).await.with(200, "text/html", &[], Body::full(good.clone()));
    scene.settle().await;
    assert_eq!(scene.last_error(), r#"the response is not JSON but "text/html""#);
    scene.calls.expect(LIST).await;
}

#[tokio::test(start_paused = true)]
async fn lists_that_are_always_bad_are_not_replicable() {
    // As from an aggregated API without storage: no versions, no uids.
    let body = r#"{"kind":"PodMetricsList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"p","namespace":"a"}}]}"#;
    let mut scene = Scene::new();
    for _ in 0..5 {
        scene.calls.expect(LIST).await.json(200, body);
    }
    assert_eq!(scene.ended().await, Ended::NotReplicable);
}

#[tokio::test(start_paused = true)]
async fn a_bad_relist_keeps_the_old_state() {
    let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    let bytes = scene.replica.bytes();
    watch.send(error_event(410, "too old"));
    let relist = format!("{LIST}?resourceVersion=10&resourceVersionMatch=NotOlderThan");
    let pipe = scene.calls.expect(&relist).await.pipe();
    let large = |n: u64| Pod { padding: 100_000, ..pod(&format!("q{n}"), 15) };
    let pods: Vec<_> = (10..40).map(large).collect();
    pipe.send(fixture::list(20, &pods).replace("]}\n", ""));
    scene.settle().await;
    assert!(scene.replica.bytes() > bytes + 2_900_000);
    pipe.fail();
    let call = scene.calls.expect(&relist).await;
    // Except for some buffers that are kept for reuse.
    assert!(scene.replica.bytes() < bytes + 1_100_000);
    assert_eq!((scene.objects(), scene.shown()), (vec!["a/p@5".to_owned()], Some(10)));
    assert_eq!(scene.view().state, SyncState::Synced);
    call.json(200, fixture::list(20, &[pod("q", 15)]));
    scene.calls.expect_watch(20).await;
    assert_eq!(scene.objects(), ["a/q@15"]);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_printed_form_is_not_replicable() {
    let good = fixture::list(10, &[pod("p", 5)]);
    for body in [
        good.replace("]}\n", "]}"),
        good.replace("PodList", "Pods"),
        good.replace(r#""v1""#, r#""v2""#),
        good.replace(r#"[{"metadata""#, r#"[{"kind":"Pod","apiVersion":"v1","metadata""#),
        good.replace(r#""resourceVersion":"10""#, r#""resourceVersion":"10","continue":"x""#),
    ] {
        let mut scene = Scene::new();
        scene.calls.expect(LIST).await.json(200, body.clone());
        assert_eq!(scene.ended().await, Ended::NotReplicable, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn custom_resources_keep_their_bytes() {
    let mut query = query(Some("a"), "", "");
    query.resource = crate::api::GroupVersionResource::new("x.io", "v1", "things");
    let mut scene = Scene::with(query.clone(), Settings::default());
    let item = |version: u64| {
        format!(
            r#"{{"apiVersion":"x.io/v1","kind":"Thing","metadata":{{"name":"t","namespace":"a","resourceVersion":"{version}","uid":"u"}},"spec":{{"n":1.10}}}}"#
        )
    };
    let list = |at: u64, item: &str| {
        format!(
            "{{\"apiVersion\":\"x.io/v1\",\"items\":[{item}],\"kind\":\"CatalogList\",\"metadata\":{{\"continue\":\"\",\"resourceVersion\":\"{at}\"}}}}\n"
        )
    };
    scene.calls.expect("/apis/x.io/v1/namespaces/a/things").await.json(200, list(10, &item(5)));
    let watch = scene.calls.expect_watch(10).await.pipe();
    watch.send(format!("{{\"type\":\"MODIFIED\",\"object\":{}}}\n", item(12)));
    scene.settle().await;
    let snapshot = scene.view().snapshot.clone().expect("synced");
    assert_eq!(fixture::text(snapshot.list_body(&query).chunks), list(12, &item(12)));
    // The definition may name its lists as it likes.
    assert_eq!(snapshot.envelope().kind(), Some("Thing"));
    let object = snapshot.select(&query).iter().next().expect("the thing");
    assert_eq!(fixture::text(snapshot.object_body(object)), item(12) + "\n");
    let bare = item(13).replace(r#""apiVersion":"x.io/v1","kind":"Thing","#, "");
    watch.send(format!("{{\"type\":\"MODIFIED\",\"object\":{bare}}}\n"));
    assert_eq!(scene.ended().await, Ended::NotReplicable);
}

#[tokio::test(start_paused = true)]
async fn an_object_outside_of_the_namespace_is_refused() {
    let mut scene = Scene::with(query(Some("b"), "", ""), Settings::default());
    scene.calls.next().await.json(200, fixture::list(10, &[pod("p", 5)]));
    scene.settle().await;
    assert!(scene.last_error().contains("out of scope"), "{}", scene.last_error());
}

#[tokio::test(start_paused = true)]
async fn refusals_end_the_reflector() {
    for code in [400, 401, 403, 404, 405, 406] {
        let mut scene = Scene::new();
        scene.calls.next().await.json(code, status(code, "no", 0));
        assert_eq!(scene.ended().await, Ended::Refused { code });
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_beyond_the_memory_limit_ends_the_reflector() {
    let settings = Settings { memory_limit_bytes: 20_000, ..Settings::default() };
    let mut scene = Scene::with(query(None, "", ""), settings);
    let pods: Vec<_> = (0..9).map(|n| Pod { padding: 3_000, ..pod(&format!("p{n}"), 5) }).collect();
    scene.calls.next().await.json(200, fixture::list(10, &pods));
    assert_eq!(scene.ended().await, Ended::OutOfMemory);
}

#[tokio::test(start_paused = true)]
async fn a_selector_too_long_for_a_request_ends_the_reflector() {
    // An escaped comma takes three characters.
    let values: Vec<_> = (1000..10_000).map(|number| number.to_string()).collect();
    let long = format!("app in ({}),b in ({})", values.join(","), values[..2400].join(","));
    assert!(long.len() < 58_000, "{}", long.len());
    let scene = Scene::with(query(None, &long, ""), Settings::default());
    assert_eq!(scene.ended().await, Ended::NotReplicable);
}

#[tokio::test(start_paused = true)]
async fn an_overload_is_waited_out_as_long_as_requested() {
    let mut scene = Scene::new();
    let started = Instant::now();
    scene.calls.next().await.json(429, status(429, "later", 7));
    let retry_after = [("retry-after", "11")];
    let call = scene.calls.expect(LIST).await;
    assert!(started.elapsed() >= Duration::from_secs(7));
    call.with(503, "text/plain", &retry_after, Body::full("busy"));
    scene.calls.expect(LIST).await;
    assert!(started.elapsed() >= Duration::from_secs(18));
    assert!(started.elapsed() <= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_nudge_does_not_shorten_the_requested_delay() {
    let mut scene = Scene::new();
    scene.calls.next().await.json(429, status(429, "later", 30));
    let refused_at = Instant::now();
    let retrying = scene.replica.clone();
    tokio::spawn(async move {
        loop {
            // Far more often than a failed reflector would retry.
            sleep(Duration::from_millis(500)).await;
            retrying.retry_now();
        }
    });
    scene.calls.expect(LIST).await;
    let waited = refused_at.elapsed();
    assert!((30..33).contains(&waited.as_secs()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_after_an_older_server_is_consistent() {
    let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    watch.send(error_event(410, "too old"));
    let relist = format!("{LIST}?resourceVersion=10&resourceVersionMatch=NotOlderThan");
    let text = "Timeout: Too large resource version: 10, current: 8";
    scene.calls.expect(&relist).await.json(504, status(504, text, 1));
    scene.calls.expect(LIST).await.json(200, fixture::list(12, &[pod("q", 11)]));
    scene.calls.expect_watch(12).await;
    assert_eq!((scene.objects(), scene.view().epoch), (vec!["a/q@11".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn an_older_list_is_rejected_and_repeated_consistently() {
    let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    watch.send(error_event(410, "too old"));
    scene.calls.next().await.json(200, fixture::list(9, &[]));
    let call = scene.calls.expect(LIST).await;
    assert_eq!((scene.objects(), scene.shown()), (vec!["a/p@5".to_owned()], Some(10)));
    call.json(200, fixture::list(11, &[]));
    scene.calls.expect_watch(11).await;
    assert_eq!((scene.shown(), scene.view().epoch), (Some(11), 0));
}

#[tokio::test(start_paused = true)]
async fn restored_storage_starts_an_epoch_and_shares_nothing() {
    let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    watch.send(error_event(410, "too old"));
    scene.calls.next().await.json(200, fixture::list(9, &[]));
    scene.calls.expect(LIST).await.json(200, fixture::list(9, &[]));
    let call = scene.calls.expect(LIST).await;
    assert_eq!((scene.view().state, scene.view().epoch), (SyncState::Starting, 1));
    assert!(scene.view().snapshot.is_none());
    // The same uid and version as before, with other content.
    let other = Pod { node: "other", ..pod("p", 5) };
    call.json(200, fixture::list(9, std::slice::from_ref(&other)));
    scene.calls.expect_watch(9).await;
    let body = scene.view().snapshot.clone().expect("synced").list_body(&query(None, "", ""));
    assert_eq!(fixture::text(body.chunks), fixture::list(9, &[other]));
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_few_requests() {
    let mut scene = Scene::new();
    let started = Instant::now();
    let mut requests = 0;
    while started.elapsed() < Duration::from_secs(3600) {
        drop(scene.calls.next().await);
        requests += 1;
    }
    // The jitter is a half: 15 s each once the waits have reached their limit.
    assert!((200..260).contains(&requests), "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_response_is_abandoned() {
    let mut scene = Scene::new();
    let call = scene.calls.expect(LIST).await;
    let pipe = scene.calls.expect(LIST).await.pipe();
    drop(call);
    pipe.send("{");
    scene.calls.expect(LIST).await;
    assert!(scene.last_error().starts_with("the apiserver sent nothing for 60s"));
    assert!(pipe.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_asked_for_before_a_suspension_proves_nothing() {
    let mut scene = Scene::new();
    let call = scene.calls.next().await;
    scene.replica.doubt();
    call.json(200, fixture::list(10, &[pod("p", 5)]));
    scene.settle().await;
    assert_eq!((scene.shown(), scene.view().proven_at), (Some(10), None));
}
