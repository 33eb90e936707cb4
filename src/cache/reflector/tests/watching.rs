use super::*;
use crate::metrics::ReplicaWatchEnd;

fn changes(scene: &Scene, after: u64) -> Vec<(Change, String, u64)> {
    let history = scene.replica.history();
    let cursor = history.start_at(&version(after)).expect("in the window");
    let events = history.after(cursor).expect("just made");
    events
        .map(|event| {
            let version = event.version.as_str().parse().expect("a number");
            (event.change, event.key().as_str().to_owned(), version)
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn events_and_bookmarks_move_the_state() {
    let (scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    assert_eq!(scene.view().link, Link::Up);
    watch.send(pod("q", 11).event("ADDED"));
    scene.settle().await;
    assert_eq!(scene.objects(), ["a/p@5", "a/q@11"]);
    watch.send(pod("p", 12).event("MODIFIED") + &pod("q", 13).event("DELETED"));
    scene.settle().await;
    assert_eq!((scene.objects(), scene.shown()), (vec!["a/p@12".to_owned()], Some(13)));
    tokio::time::advance(Duration::from_secs(30)).await;
    watch.send(bookmark(20));
    scene.settle().await;
    assert_eq!((scene.objects(), scene.shown()), (vec!["a/p@12".to_owned()], Some(20)));
    assert_eq!(scene.view().proven_at, Some(Instant::now()));
    assert_eq!(
        changes(&scene, 10),
        [
            (Change::Added, "a/q".to_owned(), 11),
            (Change::Modified, "a/p".to_owned(), 12),
            (Change::Deleted, "a/q".to_owned(), 13),
        ]
    );
    assert_eq!((scene.counters.events.get(), scene.counters.bookmarks.get()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_rendered_as_the_list_would_be() {
    let (scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    let pods = [Pod { labels: vec![("app", "web")], node: "one", ..pod("p", 11) }, pod("q", 12)];
    watch.send(pods[0].event("MODIFIED") + &pods[1].event("ADDED"));
    scene.settle().await;
    let snapshot = scene.view().snapshot.clone().expect("synced");
    let body = snapshot.list_body(&query(None, "", ""));
    assert_eq!(fixture::text(body.chunks), fixture::list(12, &pods));
    let selected = snapshot.list_body(&query(None, "app=web", "spec.nodeName=one"));
    assert_eq!(fixture::text(selected.chunks), fixture::list(12, &pods[..1]));
}

#[tokio::test(start_paused = true)]
async fn replaced_snapshots_are_released() {
    let (scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    let first = Arc::downgrade(&scene.view().snapshot.clone().expect("synced"));
    watch.send(pod("p", 11).event("MODIFIED"));
    scene.settle().await;
    assert!(first.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_next_watch_after_a_clean_end_starts_at_the_last_version() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    watch.send(bookmark(15));
    scene.settle().await;
    drop(watch);
    let before = Instant::now();
    let call = scene.calls.expect_watch(15).await;
    assert_eq!(before, Instant::now());
    assert!(matches!(scene.view().link, Link::Lost { .. }));
    let _watch = call.pipe();
    scene.settle().await;
    assert_eq!(scene.view().link, Link::Up);
    let status = scene.replica.status(Instant::now());
    assert_eq!((status.watch_restarts, status.relists), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn watches_that_end_at_once_back_off() {
    let mut scene = Scene::new();
    scene.calls.next().await.json(200, fixture::list(10, &[]));
    let started = Instant::now();
    for _ in 0..10 {
        drop(scene.calls.expect_watch(10).await.pipe());
    }
    scene.calls.expect_watch(10).await;
    assert!(started.elapsed() > Duration::from_secs(60), "{:?}", started.elapsed());
    assert_eq!(scene.last_error(), "the watch ended at once");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_opens_late_and_ends_as_planned_has_not_failed() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    sleep(Duration::from_secs(30)).await;
    drop(watch);
    let call = scene.calls.expect_watch(10).await;
    sleep(Duration::from_secs(2)).await;
    let late = call.pipe();
    sleep(Duration::from_secs(1)).await;
    drop(late);
    let ended = Instant::now();
    scene.calls.expect_watch(10).await;
    assert_eq!(ended, Instant::now(), "{}", scene.last_error());
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_relist_not_older_than_shown() {
    let relist = format!("{LIST}?resourceVersion=12&resourceVersionMatch=NotOlderThan");
    for in_stream in [true, false] {
        let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
        watch.send(pod("q", 12).event("ADDED"));
        scene.settle().await;
        if in_stream {
            watch.send(error_event(410, "too old resource version: 12 (50)"));
        } else {
            drop(watch);
            scene.calls.expect_watch(12).await.json(410, status(410, "too old", 0));
        }
        let pods = [pod("q", 12), pod("r", 40)];
        scene.calls.expect(&relist).await.json(200, fixture::list(50, &pods));
        scene.calls.expect_watch(50).await;
        assert_eq!(scene.objects(), ["a/q@12", "a/r@40"]);
        // The changes in between are not sent as events (S-WATCH-25).
        let history = scene.replica.history();
        assert!(history.start_at(&version(12)).is_err() && history.start_at(&version(50)).is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_waits_for_an_overloaded_apiserver_without_a_relist() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    drop(watch);
    let call = scene.calls.expect_watch(10).await;
    let asked = Instant::now();
    call.json(429, status(429, "storage is (re)initializing", 9));
    scene.calls.expect_watch(10).await;
    assert!(asked.elapsed() >= Duration::from_secs(9));
    assert_eq!(scene.counters.lists.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn withdrawn_permissions_end_the_reflector() {
    for code in [401, 403, 404] {
        let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
        watch.send(bookmark(11));
        scene.settle().await;
        drop(watch);
        scene.calls.expect_watch(11).await.json(code, status(code, "no", 0));
        assert_eq!(scene.ended().await, Ended::Refused { code });
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_resumes_after_a_wait() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    watch.send(pod("p", 11).event("ADDED"));
    let half = pod("q", 12).event("ADDED");
    watch.send(half[..half.len() / 2].to_owned());
    scene.settle().await;
    watch.fail();
    scene.settle().await;
    assert!(matches!(scene.view().link, Link::Lost { .. }));
    let watch = scene.calls.expect_watch_after_break(11).await.pipe();
    watch.send(half.clone());
    scene.settle().await;
    assert_eq!(scene.objects(), ["a/p@11", "a/q@12"]);
}

#[tokio::test(start_paused = true)]
async fn only_the_events_before_a_malformed_one_are_applied() {
    for bad in [
        "nonsense\n",
        "{\"type\":\"ADDED\"}\n",
        "{\"type\":\"HELLO\",\"object\":{}}\n",
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"\"}}}\n",
        "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{}}}\n",
        "\u{0}\n",
        "\n",
    ] {
        let (mut scene, watch) = Scene::watching(10, &[]).await;
        watch.send(pod("p", 11).event("ADDED") + bad + &pod("q", 12).event("ADDED"));
        scene.calls.expect_watch(11).await;
        assert_eq!(
            (scene.objects(), scene.shown()),
            (vec!["a/p@11".to_owned()], Some(11)),
            "{bad}"
        );
        assert_eq!(scene.counters.lists.get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_goes_back_is_relisted() {
    let relist = format!("{LIST}?resourceVersion=20&resourceVersionMatch=NotOlderThan");
    for back in [pod("p", 15).event("MODIFIED"), bookmark(19), pod("p", 9).event("DELETED")] {
        let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
        watch.send(bookmark(20) + &back);
        let call = scene.calls.expect(&relist).await;
        assert_eq!((scene.objects(), scene.shown()), (vec!["a/p@5".to_owned()], Some(20)));
        drop(call);
    }
}

#[tokio::test(start_paused = true)]
async fn the_held_state_distinguishes_additions_from_changes() {
    let (scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    watch.send(pod("p", 11).event("ADDED"));
    watch.send(pod("q", 12).event("MODIFIED"));
    watch.send(pod("unknown", 13).event("DELETED"));
    scene.settle().await;
    assert_eq!(
        changes(&scene, 10),
        [(Change::Modified, "a/p".to_owned(), 11), (Change::Added, "a/q".to_owned(), 12)]
    );
    assert_eq!(scene.shown(), Some(13));
    assert_eq!(changes(&scene, 13), []);
}

#[tokio::test(start_paused = true)]
async fn an_object_in_an_unknown_form_is_not_replicable() {
    let (scene, watch) = Scene::watching(10, &[]).await;
    watch.send(pod("p", 11).event("ADDED").replace(r#""kind":"Pod""#, r#""kind":"Pot""#));
    assert_eq!(scene.ended().await, Ended::NotReplicable);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_proven_by_a_probe() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    for _ in 0..5 {
        let probe = scene.calls.expect(PROBE).await;
        let asked = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        probe.json(200, fixture::list(10, &[]));
        scene.settle().await;
        assert_eq!(scene.view().proven_at, Some(asked));
    }
    // No other request was sent in all that time.
    assert_eq!((scene.counters.probes.get(), scene.counters.watches.get()), (5, 1));
    watch.send(bookmark(11));
    scene.settle().await;
    assert_eq!(scene.shown(), Some(11));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_misses_events_is_reopened() {
    let (mut scene, _watch) = Scene::watching(10, &[]).await;
    let proven_at = scene.view().proven_at;
    let silent_since = Instant::now();
    scene.calls.expect(PROBE).await.json(200, fixture::list(12, &[]));
    scene.calls.expect(PROBE).await.json(200, fixture::list(14, &[]));
    scene.calls.expect_watch_after_break(10).await;
    assert_eq!(scene.view().proven_at, proven_at);
    assert!(silent_since.elapsed() < Duration::from_secs(240), "{:?}", silent_since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn missed_events_prove_nothing_before_the_apiservers_version() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    let listed_at = scene.view().proven_at;
    tokio::time::advance(Duration::from_secs(30)).await;
    watch.fail();
    let check = scene.calls.expect(PROBE).await;
    let asked_at = Instant::now();
    tokio::time::advance(Duration::from_secs(5)).await;
    check.json(200, fixture::list(13, &[]));
    let watch = scene.calls.expect_watch(10).await.pipe();
    watch.send(pod("p", 11).event("ADDED"));
    scene.settle().await;
    assert_eq!((scene.shown(), scene.view().proven_at), (Some(11), listed_at));
    watch.send(pod("p", 14).event("MODIFIED"));
    scene.settle().await;
    assert_eq!((scene.view().proven_at, scene.view().link), (Some(asked_at), Link::Up));
    watch.send(pod("p", 15).event("MODIFIED"));
    scene.settle().await;
    assert_eq!(scene.view().proven_at, Some(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_after_a_gap_is_proven_by_a_later_check() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    watch.fail();
    scene.calls.expect(PROBE).await.json(200, fixture::list(13, &[]));
    let watch = scene.calls.expect_watch(10).await.pipe();
    let probe = scene.calls.expect(PROBE).await;
    let asked_at = Instant::now();
    probe.json(200, fixture::list(14, &[]));
    watch.send(pod("p", 14).event("ADDED"));
    scene.settle().await;
    assert_eq!((scene.view().proven_at, scene.view().link), (Some(asked_at), Link::Up));
}

#[tokio::test(start_paused = true)]
async fn a_list_not_older_than_shown_proves_nothing() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    let listed_at = scene.view().proven_at;
    tokio::time::advance(Duration::from_secs(30)).await;
    watch.send(error_event(410, "too old resource version: 10 (50)"));
    scene.calls.next().await.json(200, fixture::list(10, &[]));
    let watch = scene.calls.expect_watch(10).await.pipe();
    scene.settle().await;
    assert_eq!(scene.view().proven_at, listed_at);
    watch.send(bookmark(50));
    scene.settle().await;
    assert_eq!(scene.view().proven_at, Some(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_watch_after_a_gap_is_short() {
    for (gap, length) in [(15, "timeoutSeconds=450"), (25, "timeoutSeconds=3")] {
        let (mut scene, watch) = Scene::watching(10, &[]).await;
        tokio::time::advance(Duration::from_secs(gap)).await;
        watch.fail();
        let call = scene.calls.expect_watch_after_break(10).await;
        assert!(call.uri.ends_with(length), "after {gap} s: {}", call.uri);
        call.pipe().send(bookmark(20));
        scene.settle().await;
        assert_eq!(scene.view().proven_at, Some(Instant::now()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stalled_connection_is_abandoned() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    let silent_since = Instant::now();
    let _never_answered = scene.calls.expect(PROBE).await;
    scene.calls.expect_watch_after_break(10).await;
    assert!(watch.is_closed());
    assert!(silent_since.elapsed() < Duration::from_secs(90), "{:?}", silent_since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_throttled_probe_keeps_the_watch() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    scene.calls.expect(PROBE).await.json(429, status(429, "later", 100));
    let refused_at = Instant::now();
    scene.calls.expect(PROBE).await.json(200, fixture::list(10, &[]));
    let waited = refused_at.elapsed();
    assert!((100..105).contains(&waited.as_secs()), "{waited:?}");
    scene.settle().await;
    assert!(!watch.is_closed());
    assert_eq!(scene.counters.watches.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_probe_below_the_published_version_starts_an_epoch() {
    let (mut scene, _watch) = Scene::watching(10, &[pod("p", 5)]).await;
    scene.calls.expect(PROBE_WITHIN).await.json(200, fixture::list(8, &[]));
    scene.calls.expect(LIST).await.json(200, fixture::list(8, &[]));
    scene.calls.expect_watch(8).await;
    assert_eq!((scene.shown(), scene.view().epoch), (Some(8), 1));
}

#[tokio::test(start_paused = true)]
async fn a_storage_restored_in_a_break_starts_an_epoch_before_its_versions_are_used_twice() {
    let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    watch.fail();
    // No watch is open yet: it would be accepted, and the events up to 10 would be missing.
    drop(scene.calls.expect(PROBE_WITHIN).await);
    scene.calls.expect(PROBE_WITHIN).await.json(200, fixture::list(8, &[]));
    scene.calls.expect(LIST).await.json(200, fixture::list(9, &[pod("q", 9)]));
    scene.calls.expect_watch(9).await;
    assert_eq!((scene.objects(), scene.view().epoch), (vec!["a/q@9".to_owned()], 1));
}

/// The machine was suspended: what arrived before says nothing about now.
#[tokio::test(start_paused = true)]
async fn a_doubted_state_is_proven_anew_by_another_connection() {
    let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    assert!(scene.view().proven_at.is_some());
    watch.send(bookmark(12));
    scene.replica.doubt();
    assert_eq!(scene.view().proven_at, None);
    // The event that had arrived is not read.
    scene.calls.expect(PROBE_WITHIN).await.json(200, fixture::list(30, &[]));
    let watch = scene.calls.expect_watch(10).await.pipe();
    assert_eq!(scene.view().proven_at, None);
    watch.send(bookmark(31));
    scene.settle().await;
    assert!(scene.view().proven_at.is_some());
    let ended = scene.counters.watches_ended.get();
    assert!(ended.contains(&(ReplicaWatchEnd::Suspended, 1)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_readers_are_woken() {
    let mut scene = Scene::new();
    let deadline = Instant::now() + Duration::from_secs(100);
    let wait = |reach: Reach| {
        let replica = scene.replica.clone();
        tokio::spawn(async move { replica.reach(&reach, deadline).await })
    };
    let (synced, reached, never) =
        (wait(Reach::Synced), wait(Reach::Version(version(13))), wait(Reach::Version(version(99))));
    scene.calls.next().await.json(200, fixture::list(10, &[]));
    let watch = scene.calls.expect_watch(10).await.pipe();
    assert_eq!(synced.await.expect("a view").state, SyncState::Synced);
    watch.send(bookmark(11));
    scene.settle().await;
    assert!(!reached.is_finished());
    watch.send(bookmark(13));
    let view = reached.await.expect("a view");
    assert_eq!(view.snapshot.clone().expect("synced").version(), &version(13));
    assert!(Instant::now() < deadline);
    let view = never.await.expect("a view");
    assert_eq!(
        (view.snapshot.clone().expect("synced").version(), Instant::now()),
        (&version(13), deadline)
    );
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_failing_replica_stop_waiting() {
    let mut scene = Scene::new();
    let replica = scene.replica.clone();
    let deadline = Instant::now() + Duration::from_secs(100);
    let waiting = tokio::spawn(async move { replica.reach(&Reach::Synced, deadline).await });
    scene.settle().await;
    drop(scene.calls.next().await);
    assert_eq!(waiting.await.expect("a view").state, SyncState::Failing);
    assert!(Instant::now() < deadline);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_reflector_closes_its_watch() {
    let (scene, watch) = Scene::watching(10, &[]).await;
    scene.stop.cancel();
    assert_eq!(scene.ended().await, Ended::Stopped);
    assert!(watch.is_closed());
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_watchs_end_is_counted() {
    let (mut scene, watch) = Scene::watching(10, &[]).await;
    watch.send(bookmark(11));
    scene.settle().await;
    drop(watch);
    let watch = scene.calls.expect_watch(11).await.pipe();
    watch.fail();
    scene.calls.expect_watch_after_break(11).await.json(500, status(500, "not now", 0));
    drop(scene.calls.expect_watch_after_break(11).await);
    // The requested length of a watch, with jitter, is 450 seconds.
    let watch = scene.calls.expect_watch_after_break(11).await.pipe();
    for version in (12..).take(45) {
        tokio::time::advance(Duration::from_secs(10)).await;
        watch.send(bookmark(version));
        scene.settle().await;
    }
    drop(watch);
    let watch = scene.calls.expect_watch(56).await.pipe();
    watch.send(error_event(410, "too old resource version: 10 (50)"));
    scene.calls.next().await.json(200, fixture::list(60, &[]));
    let watch = scene.calls.expect_watch(60).await.pipe();
    watch.send("nonsense\n");
    scene.calls.expect_watch(60).await.json(403, status(403, "no", 0));
    let counters = scene.counters.clone();
    scene.ended().await;
    for (end, count) in counters.watches_ended.get() {
        let never = matches!(
            end,
            ReplicaWatchEnd::Lagging
                | ReplicaWatchEnd::Redefined
                | ReplicaWatchEnd::Suspended
                | ReplicaWatchEnd::Inconsistent
                | ReplicaWatchEnd::Silent
                | ReplicaWatchEnd::Backwards
        );
        assert_eq!(count, u64::from(!never), "{end:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_wrong_is_shown_no_more_whatever_the_reflector_does() {
    let (mut scene, mut watch) = Scene::watching(10, &[pod("p", 5)]).await;
    for (round, interrupted) in [(1, false), (2, true)] {
        if interrupted {
            // It rests after the failure, and readers still see the state.
            watch.fail();
            scene.settle().await;
        }
        assert_eq!(scene.objects(), ["a/p@5"]);
        scene.replica.distrust();
        scene.settle().await;
        let view = scene.view();
        assert_eq!((view.state, view.epoch), (SyncState::Failing, round));
        assert!(view.snapshot.is_none());
        scene.calls.expect(LIST).await.json(200, fixture::list(10, &[pod("p", 5)]));
        watch = scene.calls.expect_watch(10).await.pipe();
        scene.settle().await;
        assert_eq!(scene.view().state, SyncState::Synced);
    }
    let ended = scene.counters.watches_ended.get();
    let inconsistent = ended.iter().find(|(end, _)| *end == ReplicaWatchEnd::Inconsistent);
    assert_eq!(inconsistent.map(|(_, count)| *count), Some(1));
}
