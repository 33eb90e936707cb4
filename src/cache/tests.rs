//! The set of replicas against a fake apiserver, in virtual time.

use super::{
    fake::{Call, Calls, Pipe, fake},
    fixture::{self, Pod, query},
    *,
};

mod compress;
mod ends;

struct Scene {
    cache: Cache,
    calls: Calls,
    settings: watch::Sender<Settings>,
}

impl Scene {
    fn new(settings: Settings) -> Self {
        Self::suspended(settings, Suspension::of_machine())
    }

    fn suspended(mut settings: Settings, suspension: Suspension) -> Self {
        // Their requests are not what these tests are about.
        settings.consistency.period = None;
        let (client, calls) = fake();
        let (sender, receiver) = watch::channel(settings);
        let cache = Cache::new(client, receiver, Arc::new(|| 0.5), Clock::system(), suspension);
        Self { cache, calls, settings: sender }
    }

    fn read(&self, query: &Query) -> Result<View, Absence> {
        match self.cache.lookup(query, Form::Json, Demand::Count) {
            Lookup::Found(view) => Ok(view),
            Lookup::Absent(absence) => Err(absence),
        }
    }

    /// Reads often enough to start a replica, and answers its list and watch.
    async fn synced(&mut self, query: &Query, at: u64, pods: &[Pod]) -> Pipe {
        assert_eq!(self.read(query).err(), Some(Absence::NotDemanded));
        assert_eq!(self.read(query).expect("started").state, SyncState::Starting);
        self.serve(at, pods).await
    }

    /// Answers the next list and the watch after it.
    async fn serve(&mut self, at: u64, pods: &[Pod]) -> Pipe {
        let list = self.calls.next().await;
        assert!(!list.uri.contains("watch"), "{}", list.uri);
        list.json(200, fixture::list(at, pods));
        let watch = self.calls.expect_watch(at).await.pipe();
        settle().await;
        watch
    }

    async fn refuse(&mut self, uri: &str) {
        self.calls.expect(uri).await.json(403, r#"{"code":403,"message":"no"}"#);
        settle().await;
    }

    /// Returns the queries of all replicas, as text.
    fn held(&self) -> Vec<String> {
        let mut held: Vec<_> =
            self.cache.replicas().iter().map(|status| shown(&status.query)).collect();
        held.sort();
        held
    }
}

fn shown(query: &Query) -> String {
    let scope = query.scope.namespace().unwrap_or("*");
    format!("{scope} {}{}", query.labels, query.fields)
}

/// Moves off the whole seconds, at which the cache checks its replicas.
async fn between_ticks() {
    crate::testing::pass(Duration::from_millis(500)).await;
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn pass(seconds: u64) {
    crate::testing::pass(Duration::from_secs(seconds)).await;
}

fn everything() -> Query {
    query(None, "", "")
}

fn job(name: &str) -> Query {
    query(Some("a"), &format!("job={name}"), "")
}

fn uris(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.uri.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn twenty_first_readers_cost_one_list_and_one_watch() {
    let mut scene = Scene::new(Settings::default());
    let deadline = Instant::now() + Duration::from_secs(10);
    let readers: Vec<_> = (0..20)
        .map(|_| {
            let cache = scene.cache.clone();
            tokio::spawn(async move {
                match cache.lookup(&everything(), Form::Json, Demand::Count) {
                    Lookup::Found(view) => Some(view.replica.reach(&Reach::Synced, deadline).await),
                    Lookup::Absent(_) => None,
                }
            })
        })
        .collect();
    let _watch = scene.serve(10, &[Pod::new("a", "p", 5)]).await;
    let mut synced = 0;
    for reader in readers {
        synced += reader
            .await
            .expect("no panic")
            .map_or(0, |view| view.snapshot.clone().expect("synced").len());
    }
    // The first read came before its query was in demand.
    assert_eq!(synced, 19);
    scene.calls.expect_none(Duration::from_secs(60)).await;
    let counters = scene.cache.counters();
    assert_eq!((counters.lists.get(), counters.watches.get(), counters.started.get()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn only_repeated_unsafe_reads_start_a_replica() {
    let scene = Scene::new(Settings::default());
    for _ in 0..3 {
        for _ in 0..3 {
            let ignored = scene.cache.lookup(&everything(), Form::Json, Demand::Ignore);
            assert!(matches!(ignored, Lookup::Absent(Absence::NotDemanded)));
        }
        assert_eq!(scene.read(&everything()).err(), Some(Absence::NotDemanded));
        pass(61).await;
    }
    assert!(scene.read(&everything()).is_err());
    // Another query, however similar, is not the same.
    assert!(scene.read(&job("1")).is_err());
    pass(59).await;
    assert!(scene.read(&everything()).is_ok());
    assert_eq!(scene.held(), ["* "]);
}

#[tokio::test(start_paused = true)]
async fn the_smallest_replica_that_covers_and_can_answer_is_found() {
    let mut scene = Scene::new(Settings::default());
    let (web, pods) = (query(None, "app=web", ""), [Pod::new("a", "p", 5), Pod::new("b", "q", 6)]);
    let _narrow = scene.synced(&web, 20, &pods[..1]).await;
    scene.cache.start(everything(), Form::Json);
    assert_eq!(scene.read(&query(Some("a"), "", "")).expect("covered").state, SyncState::Starting);
    assert_eq!(
        scene.read(&query(Some("a"), "app=web", "")).expect("covered").state,
        SyncState::Synced
    );
    let list = scene.calls.expect("/api/v1/pods").await;
    list.json(200, fixture::list(10, &pods));
    let wide = scene.calls.expect_watch(10).await.pipe();
    settle().await;
    let found = |asked: &Query| shown(scene.read(asked).expect("covered").replica.query());
    assert_eq!(found(&query(Some("b"), "", "")), "* ");
    assert_eq!(found(&query(Some("b"), "app=web,x=y", "metadata.name=q")), "* app=web");
    // The wider one does not replace it before it is as new.
    pass(2).await;
    assert_eq!(scene.held(), ["* ", "* app=web"]);
    wide.send(Pod::new("a", "p", 21).event("MODIFIED"));
    pass(2).await;
    assert_eq!(scene.held(), ["* "]);
}

#[tokio::test(start_paused = true)]
async fn replicas_of_two_queries_do_not_mix() {
    let mut scene = Scene::new(Settings::default());
    let (a, b) = (query(Some("a"), "", ""), query(Some("b"), "", ""));
    let watch_a = scene.synced(&a, 10, &[Pod::new("a", "p", 5)]).await;
    let _watch_b = scene.synced(&b, 11, &[]).await;
    watch_a.send(Pod::new("a", "q", 12).event("ADDED"));
    settle().await;
    let count =
        |asked: &Query| scene.read(asked).expect("covered").snapshot.clone().expect("synced").len();
    assert_eq!((count(&a), count(&b)), (2, 0));
    assert!(scene.read(&everything()).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_remembered_for_a_while() {
    let mut scene = Scene::new(Settings::default());
    assert!(scene.read(&everything()).is_err());
    let view = scene.read(&everything()).expect("started");
    scene.refuse("/api/v1/pods").await;
    assert_eq!(view.replica.view().state, SyncState::Failing);
    assert_eq!(scene.read(&everything()).err(), Some(Absence::Refused { code: 403 }));
    assert_eq!(scene.cache.counters().refused.get(), 1);
    scene.calls.expect_none(Duration::from_secs(50)).await;
    pass(11).await;
    assert_eq!(scene.read(&everything()).err(), Some(Absence::NotDemanded));
    assert!(scene.read(&everything()).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_replica_without_permissions_stops_answering() {
    let mut scene = Scene::new(Settings::default());
    let watch = scene.synced(&everything(), 10, &[Pod::new("a", "p", 5)]).await;
    let view = scene.read(&everything()).expect("synced");
    pass(5).await;
    drop(watch);
    scene.calls.expect_watch(10).await.json(403, r#"{"code":403}"#);
    settle().await;
    assert!(view.replica.view().snapshot.is_none());
    assert_eq!(scene.read(&everything()).err(), Some(Absence::Refused { code: 403 }));
    assert!(scene.held().is_empty());
}

#[tokio::test(start_paused = true)]
async fn too_many_selectors_in_a_scope_become_one_replica() {
    let mut scene = Scene::new(Settings::default());
    let mut watches = Vec::new();
    between_ticks().await;
    for name in ["1", "2", "3", "4"] {
        watches.push(scene.synced(&job(name), 10, &[]).await);
    }
    scene.calls.expect_none(Duration::from_secs(5)).await;
    watches.push(scene.synced(&job("5"), 10, &[]).await);
    let wide = scene.calls.expect("/api/v1/namespaces/a/pods").await;
    assert_eq!(scene.held().len(), 6);
    wide.json(200, fixture::list(10, &[]));
    let wide = scene.calls.expect_watch(10).await;
    pass(2).await;
    // It does not replace it before its watch is open.
    assert_eq!(scene.held().len(), 6);
    let _wide = wide.pipe();
    pass(2).await;
    assert_eq!(scene.held(), ["a "]);
    assert!(watches.iter().all(Pipe::is_closed));
    assert_eq!(scene.cache.counters().stopped_widened.get(), 5);
    assert_eq!(scene.read(&job("6")).expect("covered").state, SyncState::Synced);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_different_lists_becomes_one_replica() {
    let mut scene = Scene::new(Settings::default());
    for name in ["1", "2", "3", "4"] {
        assert_eq!(scene.read(&job(name)).err(), Some(Absence::NotDemanded));
    }
    assert_eq!(scene.read(&job("5")).expect("started").state, SyncState::Starting);
    assert_eq!(scene.read(&job("6")).expect("covered").state, SyncState::Starting);
    assert_eq!(scene.held(), ["a "]);
    let _watch = scene.serve(10, &[]).await;
    assert_eq!(scene.read(&job("7")).expect("covered").state, SyncState::Synced);
}

#[tokio::test(start_paused = true)]
async fn reads_of_a_storm_that_is_over_do_not_count() {
    let scene = Scene::new(Settings::default());
    for name in ["1", "2", "3", "4"] {
        assert_eq!(scene.read(&job(name)).err(), Some(Absence::NotDemanded));
    }
    pass(60).await;
    assert_eq!(scene.read(&job("5")).err(), Some(Absence::NotDemanded));
}

#[tokio::test(start_paused = true)]
async fn only_very_many_gets_of_different_objects_become_one_replica() {
    let scene = Scene::new(Settings::default());
    let get = |number: usize| query(Some("a"), "", &format!("metadata.name=pod-{number}"));
    let many = Settings::default().storm_gets_max;
    for number in 0..many {
        assert_eq!(scene.read(&get(number)).err(), Some(Absence::NotDemanded));
    }
    assert_eq!(scene.read(&get(many)).expect("started").state, SyncState::Starting);
    assert_eq!(scene.held(), ["a "]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_widening_keeps_the_narrow_replicas_and_is_not_repeated_soon() {
    let mut scene = Scene::new(Settings::default());
    let mut watches = Vec::new();
    between_ticks().await;
    for name in ["1", "2", "3", "4", "5"] {
        watches.push(scene.synced(&job(name), 10, &[]).await);
    }
    scene.refuse("/api/v1/namespaces/a/pods").await;
    let mut calls = Vec::new();
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(500) {
        for name in ["1", "2", "3", "4", "5"] {
            assert_eq!(scene.read(&job(name)).expect("kept").state, SyncState::Synced);
        }
        for watch in &watches {
            watch.send(
                "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"10\"}}}\n",
            );
        }
        if let Ok(call) = tokio::time::timeout(Duration::from_secs(30), scene.calls.next()).await {
            calls.push(call);
        }
    }
    assert_eq!(uris(&calls), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn too_many_namespaces_become_one_replica_with_the_same_selector() {
    let mut scene = Scene::new(Settings::default());
    let mut watches = Vec::new();
    between_ticks().await;
    for namespace in ["a", "b", "c", "d", "e"] {
        watches.push(scene.synced(&query(Some(namespace), "app=web", ""), 10, &[]).await);
    }
    scene.calls.expect("/api/v1/pods?labelSelector=app%3Dweb").await;
    let mut scene = Scene::new(Settings::default());
    for namespace in ["a", "b", "c", "d", "e"] {
        let query = query(Some(namespace), &format!("app={namespace}"), "");
        watches.push(scene.synced(&query, 10, &[]).await);
    }
    scene.calls.expect("/api/v1/pods").await;
}

#[tokio::test(start_paused = true)]
async fn idle_replicas_stop_unless_they_are_configured() {
    let mut scene =
        Scene::new(Settings { quiet_after: Duration::from_secs(10_000), ..Settings::default() });
    scene.cache.start(query(Some("b"), "", ""), Form::Json);
    let _eager = scene.serve(10, &[]).await;
    let watch = scene.synced(&everything(), 10, &[]).await;
    pass(590).await;
    assert!(scene.read(&everything()).is_ok());
    pass(590).await;
    assert_eq!(scene.held(), ["* ", "b "]);
    pass(20).await;
    assert_eq!(scene.held(), ["b "]);
    assert!(watch.is_closed());
    assert_eq!(scene.cache.counters().stopped_idle.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_configured_later_is_kept() {
    let quiet_after = Duration::from_secs(10_000);
    let mut scene = Scene::new(Settings { quiet_after, ..Settings::default() });
    let _watch = scene.synced(&everything(), 10, &[]).await;
    scene.cache.start(everything(), Form::Json);
    scene.calls.expect_none(Duration::from_secs(1000)).await;
    assert_eq!(scene.held(), ["* "]);
}

#[tokio::test(start_paused = true)]
async fn a_query_that_does_not_fit_alone_stays_away_for_longer() {
    let mut scene = Scene::new(Settings { memory_limit_bytes: 5_000, ..Settings::default() });
    let large = fixture::list(10, &[Pod { padding: 6_000, ..Pod::new("a", "p", 5) }]);
    scene.cache.start(job("1"), Form::Json);
    scene.calls.next().await.json(200, large);
    pass(5 * Settings::default().refusal_ttl.as_secs()).await;
    assert_eq!(scene.read(&job("1")).err(), Some(Absence::OutOfMemory));
}

#[tokio::test(start_paused = true)]
async fn the_least_recently_used_replica_is_dropped_above_the_memory_limit() {
    let mut scene = Scene::new(Settings { memory_limit_bytes: 24_500, ..Settings::default() });
    let large = [Pod { padding: 3_500, ..Pod::new("a", "p", 5) }]; // too small to be compressed
    scene.cache.start(job("configured"), Form::Json);
    let mut watches = vec![scene.serve(10, &large).await];
    for name in ["1", "2"] {
        watches.push(scene.synced(&job(name), 10, &large).await);
        pass(2).await;
    }
    assert!(scene.read(&job("1")).is_ok());
    watches.push(scene.synced(&job("3"), 10, &large).await);
    pass(2).await;
    assert_eq!(scene.held(), ["a job=1", "a job=3", "a job=configured"]);
    assert_eq!(scene.read(&job("2")).err(), Some(Absence::OutOfMemory));
    assert_eq!(scene.cache.counters().dropped_for_memory.get(), 1);
    scene.settings.send_modify(|settings| settings.memory_limit_bytes = 10);
    pass(2).await;
    assert!(scene.held().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_configured_replica_is_retried_after_a_refusal() {
    let mut scene = Scene::new(Settings::default());
    scene.cache.start(everything(), Form::Json);
    scene.cache.start(everything(), Form::Json);
    scene.refuse("/api/v1/pods").await;
    scene.calls.expect_none(Duration::from_secs(55)).await;
    let _watch = scene.serve(10, &[]).await;
    assert_eq!(scene.cache.replicas()[0].start, Start::Eager);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_replicas_is_limited() {
    let mut scene = Scene::new(Settings { replicas_max: 1, ..Settings::default() });
    let _watch = scene.synced(&job("1"), 10, &[]).await;
    assert!(scene.read(&job("2")).is_err());
    assert_eq!(scene.read(&job("2")).err(), Some(Absence::TooMany));
}

#[tokio::test(start_paused = true)]
async fn a_replica_can_follow_a_single_object() {
    let mut scene = Scene::new(Settings::default());
    let named = query(Some("a"), "", "metadata.name=p");
    assert!(scene.read(&named).is_err() && scene.read(&named).is_ok());
    let list =
        scene.calls.expect("/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp").await;
    list.json(200, fixture::list(10, &[Pod::new("a", "p", 5)]));
    let _watch = scene.calls.expect_watch(10).await.pipe();
    settle().await;
    assert_eq!(scene.read(&named).expect("covered").snapshot.clone().expect("synced").len(), 1);
    // Labels might hide the object: a replica with labels never covers it.
    let _labelled = scene.synced(&query(Some("b"), "app=web", ""), 10, &[]).await;
    assert!(scene.read(&query(Some("b"), "", "metadata.name=p")).is_err());
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_every_watch() {
    let mut scene = Scene::new(Settings::default());
    let watch = scene.synced(&everything(), 10, &[]).await;
    let view = scene.read(&everything()).expect("synced");
    scene.cache.shutdown().await;
    assert!(watch.is_closed());
    assert_eq!(view.replica.view().state, SyncState::Failing);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_cache_stops_its_replicas() {
    let mut scene = Scene::new(Settings::default());
    let watch = scene.synced(&everything(), 10, &[]).await;
    drop(scene.cache);
    settle().await;
    assert!(watch.is_closed());
}

/// A client with a bug.
struct Panicking;

impl upstream::Client for Panicking {
    fn send(
        &self,
        _: http::Request<crate::body::Body>,
        _: upstream::Lane,
    ) -> futures_util::future::BoxFuture<
        'static,
        Result<http::Response<crate::body::Body>, upstream::Error>,
    > {
        panic!("a bug on purpose")
    }

    fn upgrade(
        &self,
        request: http::Request<crate::body::Body>,
    ) -> futures_util::future::BoxFuture<
        'static,
        Result<http::Response<crate::body::Body>, upstream::Error>,
    > {
        self.send(request, upstream::Lane::Long)
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_task_panics_is_forgotten_at_once() {
    let (_settings, settings) = watch::channel(Settings::default());
    let cache = Cache::new(
        Arc::new(Panicking),
        settings,
        Arc::new(|| 0.5),
        Clock::system(),
        Suspension::of_machine(),
    );
    cache.lookup(&everything(), Form::Json, Demand::Count);
    let Lookup::Found(view) = cache.lookup(&everything(), Form::Json, Demand::Count) else {
        panic!("the second read starts a replica")
    };
    let begun = Instant::now();
    let waited = view.replica.reach(&Reach::Synced, begun + Duration::from_secs(5)).await;
    assert_eq!((waited.state, begun.elapsed()), (SyncState::Failing, Duration::ZERO));
    let again = cache.lookup(&everything(), Form::Json, Demand::Count);
    assert!(matches!(again, Lookup::Absent(Absence::NotReplicable)));
}

#[tokio::test(start_paused = true)]
async fn concurrent_lists_share_the_memory_limit() {
    let settings = Settings { memory_limit_bytes: 100_000, ..Settings::default() };
    let mut scene = Scene::new(settings);
    let mut pipes = Vec::new();
    for namespace in ["a", "b"] {
        scene.cache.start(query(Some(namespace), "", ""), Form::Json);
        let pipe = scene.calls.next().await.pipe();
        let mut large = Pod::new(namespace, "p", 5);
        large.padding = 60_000;
        pipe.send(format!("{}{}", fixture::list_header(10), large.item()));
        settle().await;
        pipes.push(pipe);
    }
    // Each fits alone: the second one ends, and the first continues.
    assert_eq!(pipes.iter().map(Pipe::is_closed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(scene.held(), ["a "]);
}
