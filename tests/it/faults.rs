//! A faulty apiserver or connection: client errors, hits that continue, and the cost.

mod restore;

use std::time::Duration;

use http::Method;
use listless::{
    api::Verb,
    simulator::{Asked, Effect, Fault},
};

use crate::harness::{
    Laggard, Setup, TestProxy, group_resource, is_check, pass, pod, populated, settle,
};

const PODS: &str = "/api/v1/pods";

/// Reports whether a request comes from a replica.
fn of_replicas(asked: &Asked) -> bool {
    asked.user_agent.starts_with("listless/")
}

fn replicas_list(asked: &Asked) -> bool {
    of_replicas(asked) && asked.verb == Verb::List && !is_check(asked)
}

fn replicas_watch(asked: &Asked) -> bool {
    of_replicas(asked) && asked.verb == Verb::Watch
}

fn put(proxy: &TestProxy, name: &str) {
    proxy.simulator.put(&group_resource("pods"), pod("a", name, &[], "n1")).expect("served");
}

/// Polls until memory answers, within this time; every response must be right.
async fn recovers(proxy: &TestProxy, within: Duration) {
    let client = proxy.client();
    let deadline = tokio::time::Instant::now() + within;
    loop {
        let (answer, straight) = (client.get(PODS).await, proxy.straight().get(PODS).await);
        assert_eq!(answer.names(), straight.names(), "{}", answer.summary());
        if answer.is_hit() {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "still {}", answer.cache_status());
        pass(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn during_an_outage_reads_get_a_retry_after_and_writes_do_not() {
    let proxy = Setup::default().in_memory();
    proxy.simulator.stop();
    let client = proxy.client();
    for (method, path) in [
        ("GET", "/api/v1/pods"),
        ("GET", "/api/v1/namespaces/a/pods/web-0"),
        ("GET", "/api/v1/pods?watch=1"),
        ("GET", "/api/v1/pods?limit=1"),
        ("POST", "/api/v1/namespaces/a/pods"),
        ("PUT", "/api/v1/namespaces/a/pods/web-0"),
        ("PATCH", "/api/v1/namespaces/a/pods/web-0"),
        ("DELETE", "/api/v1/namespaces/a/pods/web-0"),
        ("DELETE", "/api/v1/namespaces/a/pods"),
    ] {
        let parsed = Method::from_bytes(method.as_bytes()).expect("a method");
        let answer = client.send(parsed, path, "").await;
        assert_eq!(answer.status, 503, "{method} {path}");
        assert_eq!(answer.header("content-type"), "application/json");
        let status = answer.json();
        assert_eq!((&status["kind"], &status["apiVersion"]), (&"Status".into(), &"v1".into()));
        assert_eq!((&status["status"], &status["code"]), (&"Failure".into(), &503.into()));
        let read = method == "GET";
        assert_eq!(answer.header("retry-after"), if read { "1" } else { "" }, "{method} {path}");
        let seconds = status["details"]["retryAfterSeconds"].as_u64();
        assert_eq!(seconds, read.then_some(1), "{method} {path}");
        assert!(answer.cache_status().starts_with("listless; fwd="), "{}", answer.cache_status());
    }
}

#[tokio::test(start_paused = true)]
async fn memory_answers_for_five_seconds_of_an_outage_then_returns_503() {
    let proxy = TestProxy::warmed(PODS).await;
    let client = proxy.client();
    let paths = [PODS, "/api/v1/namespaces/a/pods/web-0", "/api/v1/pods?resourceVersion=0"];
    for path in paths {
        assert!(client.get(path).await.is_hit());
    }
    proxy.simulator.stop();
    for second in 0..12 {
        for path in paths {
            let answer = client.get(path).await;
            if second < 5 {
                assert!(answer.is_hit(), "{second} s, {path}: {}", answer.summary());
            } else if second > 5 {
                assert_eq!(answer.status, 503, "{second} s, {path}");
                assert_eq!(answer.header("retry-after"), "1");
            }
        }
        pass(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn how_long_memory_bridges_an_outage_is_configured() {
    let rules = "cache:\n  rules:\n  - {resources: [pods], maxStaleness: 8s}\n  - {resources: ['*'], maxStaleness: 0s}\n";
    let proxy = Setup::default().config(rules).in_memory();
    proxy.warm(PODS).await;
    proxy.warm("/api/v1/nodes").await;
    proxy.simulator.stop();
    pass(Duration::from_secs(1)).await;
    assert_eq!(proxy.client().get("/api/v1/nodes").await.status, 503);
    pass(Duration::from_secs(6)).await;
    assert!(proxy.client().get(PODS).await.is_hit());
    pass(Duration::from_secs(2)).await;
    assert_eq!(proxy.client().get(PODS).await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_the_replica_continues_without_a_relist() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.simulator.stop();
    pass(Duration::from_secs(30)).await;
    proxy.upstream.forget();
    proxy.simulator.start();
    put(&proxy, "meanwhile");
    pass(Duration::from_secs(31)).await;
    let answer = proxy.client().get(PODS).await;
    assert!(answer.is_hit(), "{}", answer.summary());
    assert!(answer.names().contains(&"a/meanwhile".to_owned()));
    assert_eq!(proxy.replicas()[0].relists, 0);
    // It is asked once for the newest version: the storage may have been restored meanwhile.
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_the_history_costs_one_relist() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.simulator.stop();
    pass(Duration::from_secs(30)).await;
    put(&proxy, "meanwhile");
    proxy.simulator.forget_history();
    proxy.simulator.start();
    let before = proxy.client().get(PODS).await;
    assert!(!before.is_hit() && before.names().contains(&"a/meanwhile".to_owned()));
    pass(Duration::from_secs(70)).await;
    proxy.upstream.forget();
    let answer = proxy.client().get(PODS).await;
    assert!(answer.is_hit(), "{}", answer.summary());
    assert_eq!(answer.names(), proxy.straight().get(PODS).await.names());
    assert_eq!(proxy.replicas()[0].relists, 1);
}

#[tokio::test(start_paused = true)]
async fn attempts_during_an_outage_are_few_and_spread() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.simulator.stop();
    pass(Duration::from_secs(600)).await;
    // After an outage the newest version is asked for before the watch is opened again.
    let attempts =
        proxy.upstream.count(Verb::List, "pods") + proxy.upstream.count(Verb::Watch, "pods");
    assert!((20..=80).contains(&attempts), "{attempts} attempts in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_broken_first_list_is_discarded_and_the_read_is_forwarded() {
    for effect in [
        Effect::BreakAfter(0),
        Effect::BreakAfter(500),
        Effect::EndAfter(0),
        Effect::EndAfter(500),
        Effect::EndAfter(2500),
        Effect::Garbage,
        Effect::Close,
        Effect::Expired,
        Effect::Answer { code: 500, retry_after_secs: None },
        Effect::Answer { code: 429, retry_after_secs: Some(2) },
    ] {
        let proxy = Setup::default().in_memory();
        proxy.simulator.inject(Fault::next(1, effect, replicas_list));
        let client = proxy.client();
        for _ in 0..3 {
            let (answer, straight) = (client.get(PODS).await, proxy.straight().get(PODS).await);
            assert_eq!(answer.names(), straight.names(), "{effect:?}: {}", answer.summary());
        }
        recovers(&proxy, Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_first_list_is_not_awaited() {
    for effect in [Effect::Delay(Duration::from_secs(40)), Effect::StallAfter(700)] {
        let proxy = Setup::default().in_memory();
        proxy.simulator.inject(Fault::next(1, effect, replicas_list));
        let client = proxy.client();
        client.get(PODS).await;
        let started = tokio::time::Instant::now();
        let answer = client.get(PODS).await;
        assert_eq!(answer.detail(), "not-synced", "{effect:?}");
        assert_eq!(answer.names(), proxy.straight().get(PODS).await.names());
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        recovers(&proxy, Duration::from_secs(120)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_bad_watch_is_ever_shown() {
    for effect in [
        Effect::Garbage,
        Effect::BreakAfter(100),
        Effect::EndAfter(100),
        Effect::EndAfter(0),
        Effect::Expired,
        Effect::Close,
        Effect::Answer { code: 500, retry_after_secs: None },
        Effect::Answer { code: 429, retry_after_secs: Some(1) },
        Effect::Answer { code: 504, retry_after_secs: Some(1) },
    ] {
        let proxy = TestProxy::warmed(PODS).await;
        proxy.simulator.inject(Fault::next(3, effect, replicas_watch));
        proxy.simulator.end_watches();
        for number in 0..6 {
            put(&proxy, &format!("p-{number}"));
            let answer = proxy.client().get(PODS).await;
            assert_eq!(answer.status, 200, "{effect:?}: {}", answer.summary());
            let names = answer.names();
            let shown = (0..6).filter(|n| names.contains(&format!("a/p-{n}"))).count();
            assert_eq!(names.len(), 6 + shown, "{effect:?}: something else is shown: {names:?}");
            pass(Duration::from_millis(700)).await;
        }
        pass(Duration::from_secs(90)).await;
        recovers(&proxy, Duration::from_secs(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_proves_nothing_after_ninety_seconds_and_is_replaced() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.simulator.inject(Fault::next(1, Effect::StallAfter(0), replicas_watch));
    proxy.simulator.end_watches();
    settle().await;
    put(&proxy, "unheard");
    let client = proxy.client();
    for second in 0..300 {
        let answer = client.get(PODS).await;
        assert!(
            !answer.is_hit() || second <= 90 || answer.names().contains(&"a/unheard".to_owned())
        );
        pass(Duration::from_secs(1)).await;
    }
    recovers(&proxy, Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_late_event_does_not_prove_memory_fresh() {
    let proxy = TestProxy::warmed(PODS).await;
    // Nothing broke: the replica does not ask for the current version before it watches again.
    let busy = Effect::Answer { code: 429, retry_after_secs: Some(1) };
    proxy.simulator.inject(Fault::always(busy, replicas_watch));
    proxy.simulator.end_watches();
    pass(Duration::from_secs(15)).await;
    for (name, letters) in [("first", 10_000), ("second", 20_000)] {
        let mut large = pod("a", name, &[], "n1");
        large["metadata"]["annotations"] = serde_json::json!({"a": "x".repeat(letters)});
        proxy.simulator.put(&group_resource("pods"), large).expect("served");
    }
    // Only the first of the two arrives.
    proxy.simulator.clear_faults();
    proxy.simulator.inject(Fault::always(Effect::StallAfter(15_000), replicas_watch));
    pass(Duration::from_secs(76)).await;
    let version = proxy.replicas()[0].version.as_ref().map(ToString::to_string);
    assert_eq!(version, Some((proxy.simulator.revision() - 1).to_string()));
    let answer = proxy.client().get(PODS).await;
    assert!(answer.names().contains(&"a/second".to_owned()), "{}", answer.summary());
}

#[tokio::test(start_paused = true)]
async fn a_stale_relist_does_not_prove_memory_fresh() {
    for second in [92, 100, 110, 120, 130, 140, 150] {
        let simulator = populated();
        let oldest = Laggard::new(simulator.clone(), |oldest, _| oldest);
        let proxy = Setup::of(simulator).upstream(oldest).in_memory();
        proxy.warm(PODS).await;
        proxy.simulator.inject(Fault::always(Effect::Expired, replicas_watch));
        proxy.simulator.end_watches();
        put(&proxy, "unheard");
        pass(Duration::from_secs(second)).await;
        assert!(proxy.replicas()[0].relists > 0);
        let answer = proxy.client().get(PODS).await;
        assert!(answer.names().contains(&"a/unheard".to_owned()), "{}", answer.summary());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reopened_quiet_watch_is_proven_in_time() {
    let proxy = TestProxy::warmed(PODS).await;
    // Nothing changes, so no bookmark comes. After a period of silence the replica requests proof.
    // A watch that is opened again must not restart that period.
    for _ in 0..3 {
        pass(Duration::from_secs(60)).await;
        proxy.simulator.break_watches();
        for _ in 0..10 {
            pass(Duration::from_secs(3)).await;
            let answer = proxy.client().get("/api/v1/pods").await;
            assert!(answer.is_hit(), "{}", answer.cache_status());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_410_costs_one_list_each_and_ends_correctly() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.simulator.inject(Fault::next(20, Effect::Expired, replicas_watch));
    proxy.simulator.end_watches();
    for number in 0..60 {
        put(&proxy, &format!("p-{}", number % 9));
        let answer = proxy.client().get(PODS).await;
        assert_eq!(answer.status, 200, "{}", answer.summary());
        pass(Duration::from_secs(10)).await;
    }
    recovers(&proxy, Duration::from_secs(60)).await;
    let relists = proxy.replicas()[0].relists;
    assert!(relists <= 20, "{relists} lists for 20 refused watches");
    proxy.upstream.forget();
    pass(Duration::from_secs(120)).await;
    assert_eq!(proxy.upstream.count(Verb::List, "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_expired_relist_version_leads_to_a_consistent_list() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.simulator.inject(Fault::next(1, Effect::Expired, replicas_watch));
    proxy.simulator.inject(Fault::next(1, Effect::Expired, replicas_list));
    proxy.simulator.end_watches();
    put(&proxy, "new");
    pass(Duration::from_secs(30)).await;
    recovers(&proxy, Duration::from_secs(1)).await;
    let lists = proxy.upstream.targets(Verb::List, "pods");
    let relist = lists.iter().find(|target| target.contains("NotOlderThan"));
    assert!(relist.is_some() && lists.iter().any(|target| target == PODS), "{lists:?}");
}

#[tokio::test(start_paused = true)]
async fn a_429_is_forwarded_with_its_retry_after() {
    let proxy = TestProxy::warmed(PODS).await;
    let too_many = Effect::Answer { code: 429, retry_after_secs: Some(7) };
    proxy.simulator.inject(Fault::always(too_many, |_| true));
    for (method, path) in [
        ("GET", "/api/v1/nodes"),
        ("GET", "/api/v1/pods?limit=1"),
        ("GET", "/version"),
        ("POST", "/api/v1/namespaces/a/pods"),
    ] {
        let parsed = Method::from_bytes(method.as_bytes()).expect("a method");
        let answer = proxy.client().send(parsed, path, "").await;
        assert_eq!((answer.status, answer.header("retry-after")), (429, "7"), "{method} {path}");
        assert_eq!(answer.json()["details"]["retryAfterSeconds"], 7);
    }
    assert!(proxy.client().get(PODS).await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn a_replica_honours_retry_after() {
    let proxy = Setup::default().in_memory();
    let too_many = Effect::Answer { code: 429, retry_after_secs: Some(30) };
    proxy.simulator.inject(Fault::next(1, too_many, replicas_list));
    let client = proxy.client();
    client.get(PODS).await;
    client.get(PODS).await;
    proxy.upstream.forget();
    pass(Duration::from_secs(29)).await;
    assert!(proxy.upstream.all().is_empty());
    pass(Duration::from_secs(2)).await;
    recovers(&proxy, Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_body_is_forwarded_unchanged_and_not_cached() {
    let proxy = TestProxy::warmed(PODS).await;
    proxy.simulator.inject(Fault::next(2, Effect::Garbage, |asked| !of_replicas(asked)));
    let client = proxy.client();
    let answer = client.get("/api/v1/pods?limit=1").await;
    assert_eq!((answer.status, answer.text()), (200, "\u{0}{not json"));
    let written = client.delete("/api/v1/namespaces/a/pods/web-0").await;
    assert_eq!((written.status, written.text()), (200, "\u{0}{not json"));
    // The result of that write is unknown, so the next read is consistent.
    assert_eq!(client.get(PODS).await.detail(), "barred");
    assert!(client.get(PODS).await.is_hit());
}

#[tokio::test(start_paused = true)]
async fn a_slow_apiserver_delays_only_forwarded_requests() {
    let proxy = TestProxy::warmed(PODS).await;
    let slow = Effect::Delay(Duration::from_secs(30));
    proxy.simulator.inject(Fault::always(slow, |asked| !of_replicas(asked)));
    let slowed = proxy.client();
    let asking = tokio::spawn(async move { slowed.get("/api/v1/nodes").await });
    let started = tokio::time::Instant::now();
    for _ in 0..50 {
        assert!(proxy.client().get(PODS).await.is_hit());
    }
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert_eq!(asking.await.expect("no panic").status, 200);
}
