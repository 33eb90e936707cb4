//! Readers that follow a replica's events while its reflector adds them.

use super::*;
use crate::{
    api::media::Representation,
    cache::{
        history::{Lost, TooOld},
        subscription::{Begin, Mark, Next, OpenError, Subscription},
    },
};

fn web(name: &str, version: u64) -> Pod {
    Pod { labels: vec![("app", "web")], ..pod(name, version) }
}

fn follow(scene: &Scene, labels: &str, begin: &Begin) -> Result<Subscription, OpenError> {
    let view = scene.view();
    let seen = view.snapshot.clone().expect("synced");
    Subscription::open(
        &scene.replica,
        &seen,
        view.epoch,
        query(Some("a"), labels, ""),
        Representation::Object,
        begin,
    )
}

/// Returns everything available, each as the line of a watch or as a word.
fn given(subscription: &mut Subscription) -> Vec<String> {
    let text = |line: bytes::Bytes| String::from_utf8(line.to_vec()).expect("UTF-8");
    let mut all = Vec::new();
    loop {
        all.push(match subscription.take() {
            Next::Object(line) | Next::Event { line, .. } => text(line),
            Next::InitialEnd(version) => format!("end@{version}"),
            Next::CaughtUp(version) => {
                all.push(format!("caught up@{version}"));
                return all;
            }
            Next::Lost(lost) => {
                all.push(format!("{lost:?}"));
                return all;
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn the_state_comes_first_and_then_each_event_once() {
    let other = Pod { namespace: "b", ..web("z", 4) };
    let (scene, watch) = Scene::watching(10, &[web("p", 5), pod("q", 6), other]).await;
    let mut all = follow(&scene, "", &Begin::State).expect("open");
    let mut some = follow(&scene, "app=web", &Begin::State).expect("open");
    assert_eq!(
        given(&mut all),
        [
            web("p", 5).event("ADDED"),
            pod("q", 6).event("ADDED"),
            "end@10".into(),
            "caught up@10".into()
        ]
    );
    // Before the reader continues, p leaves its selection and q enters it.
    watch.send(pod("p", 11).event("MODIFIED") + &web("q", 12).event("MODIFIED"));
    all.changed().await;
    watch.send(web("q", 13).event("DELETED") + &bookmark(20));
    scene.settle().await;
    assert_eq!(
        given(&mut all),
        [
            pod("p", 11).event("MODIFIED"),
            web("q", 12).event("MODIFIED"),
            web("q", 13).event("DELETED"),
            "caught up@20".into()
        ]
    );
    assert_eq!(
        given(&mut some),
        [
            web("p", 5).event("ADDED"),
            "end@10".into(),
            web("p", 11).event("DELETED"),
            web("q", 12).event("ADDED"),
            web("q", 13).event("DELETED"),
            "caught up@20".into()
        ]
    );
    assert_eq!(given(&mut all), ["caught up@20"]);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_starts_only_within_the_window() {
    let (scene, watch) = Scene::watching(10, &[]).await;
    watch.send(pod("p", 12).event("ADDED") + &pod("p", 14).event("MODIFIED"));
    scene.settle().await;
    let after = |at| follow(&scene, "", &Begin::After(version(at)));
    let last = [pod("p", 14).event("MODIFIED"), "caught up@14".into()];
    assert_eq!(given(&mut after(12).expect("open")), last);
    assert_eq!(given(&mut after(13).expect("open")), last);
    assert_eq!(given(&mut after(14).expect("open")), ["caught up@14"]);
    assert_eq!(given(&mut follow(&scene, "", &Begin::Now).expect("open")), ["caught up@14"]);
    assert_eq!(after(9).err(), Some(OpenError::Start(TooOld)));
}

#[tokio::test(start_paused = true)]
async fn a_reader_ahead_of_the_replica_gets_only_later_events() {
    let (scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    let mut ahead = follow(&scene, "app=web", &Begin::After(version(13))).expect("open");
    assert_eq!(given(&mut ahead), ["caught up@10"]);
    watch.send(pod("r", 11).event("ADDED") + &web("q", 12).event("ADDED"));
    scene.settle().await;
    assert_eq!(given(&mut ahead), ["caught up@12"]);
    watch.send(web("p", 13).event("MODIFIED") + &pod("q", 14).event("MODIFIED"));
    scene.settle().await;
    // q matches at 14; it appeared at 12, a version that the reader has already reached.
    assert_eq!(given(&mut ahead), [web("q", 14).event("DELETED"), "caught up@14".into()]);
}

#[tokio::test(start_paused = true)]
async fn a_relist_is_never_sent_as_events() {
    let (mut scene, watch) = Scene::watching(10, &[pod("p", 5)]).await;
    let mut following = follow(&scene, "", &Begin::Now).expect("open");
    let seen = scene.view();
    watch.send(error_event(410, "too old resource version"));
    let relist = scene.calls.next().await;
    relist.json(200, fixture::list(50, &[pod("q", 40)]));
    scene.calls.expect_watch(50).await.pipe();
    scene.settle().await;
    assert_eq!(given(&mut following), [format!("{:?}", Lost::Reset)]);
    let begin = Begin::After(version(10));
    assert_eq!(follow(&scene, "", &begin).err(), Some(OpenError::Start(TooOld)));
    // A snapshot of another epoch is no start either.
    let old = seen.snapshot.clone().expect("synced");
    let query = query(None, "", "");
    let shown = Representation::Object;
    let opened =
        Subscription::open(&scene.replica, &old, seen.epoch + 1, query, shown, &Begin::State);
    assert_eq!(opened.err(), Some(OpenError::Gone));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_loses_its_position() {
    let settings = Settings { history_events_max: 2, ..Settings::default() };
    let mut scene = Scene::with(query(None, "", ""), settings);
    scene.calls.expect(LIST).await.json(200, fixture::list(10, &[]));
    let watch = scene.calls.expect_watch(10).await.pipe();
    scene.settle().await;
    let mut slow = follow(&scene, "", &Begin::Now).expect("open");
    let mut fast = follow(&scene, "", &Begin::Now).expect("open");
    for at in 11..14 {
        watch.send(pod("p", at).event("MODIFIED"));
        scene.settle().await;
        assert_eq!(given(&mut fast).len(), 2);
    }
    assert_eq!(given(&mut slow), [format!("{:?}", Lost::Behind)]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_have_the_form_of_the_apiservers() {
    let (scene, watch) = Scene::watching(10, &[]).await;
    let mut following = follow(&scene, "", &Begin::Now).expect("open");
    let mut printed = |at| {
        let line = following.bookmark(&version(at), Mark::None).expect("printable");
        String::from_utf8(line.to_vec()).expect("UTF-8")
    };
    let short = bookmark(9).replace(r#","spec":{"containers":null},"status":{}"#, "");
    assert_eq!(printed(9), short);
    watch.send(bookmark(20));
    scene.settle().await;
    assert_eq!(printed(21), bookmark(21));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_followed_is_in_use() {
    let (scene, _watch) = Scene::watching(10, &[]).await;
    let following = follow(&scene, "", &Begin::Now).expect("open");
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(scene.replica.used_at(Instant::now()), Instant::now());
    drop(following);
    let left = Instant::now();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(scene.replica.used_at(Instant::now()), left);
}

/// Old releases read the objects of all namespaces for the same list without a namespace.
#[tokio::test(start_paused = true)]
async fn the_version_is_asked_for_in_one_namespace_where_that_is_allowed() {
    let (mut scene, _watch) = Scene::watching(10, &[pod("p", 5)]).await;
    scene.calls.expect(PROBE_WITHIN).await.json(200, fixture::list(10, &[]));
    let refusal = status(403, "only all namespaces", 0);
    scene.calls.expect(PROBE_WITHIN).await.json(403, refusal);
    scene.calls.expect(PROBE).await.json(200, fixture::list(10, &[]));
    scene.settle().await;
    assert_eq!(scene.counters.watches.get(), 1);
}
