//! Watches whose replica is replaced by a wider one: they continue, and deliver the apiserver's
//! events.

use std::time::Duration;

use listless::api::ObjectKey;

use super::comparable;
use crate::harness::{
    Setup, TestProxy, Watch, fractions, group_resource, pass, pod, populated, settle,
};

/// Selectors of one namespace that do not cover each other: more than the limit on replicas.
const SELECTORS: [&str; 6] = ["app=web", "app=db", "!app", "tier=front", "tier=back", "!tier"];

fn path(selector: &str) -> String {
    format!("/api/v1/namespaces/a/pods?labelSelector={selector}")
}

/// One random change: pods are created, move from one selection to another, and are deleted.
fn churn(proxy: &TestProxy, dice: &dyn Fn() -> f64) {
    let pick = |sides: f64| (dice() * sides) as usize;
    let name = format!("p-{}", pick(8.0));
    let pods = group_resource("pods");
    // A missing object cannot be deleted.
    let _ = match pick(5.0) {
        0 => proxy.simulator.remove(&pods, &ObjectKey::new(Some("a"), &name)),
        _ => {
            let (app, tier) = (["web", "db", ""][pick(3.0)], ["front", "back", ""][pick(3.0)]);
            proxy.simulator.put(&pods, pod("a", &name, &[("app", app), ("tier", tier)], "n1"))
        }
    };
}

/// Every event that has arrived by now, and whether the watch has ended.
async fn lines(watch: &mut Watch) -> (Vec<String>, bool) {
    let mut lines = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_millis(50), watch.next_line()).await {
            Ok(Some(line)) => lines.push(comparable(line)),
            Ok(None) => return (lines, true),
            Err(_) => return (lines, false),
        }
    }
}

/// Opens a watch of each selector through the proxy and directly, while its replica is narrow.
async fn followed(proxy: &TestProxy, selectors: &[&str]) -> Vec<(Watch, Watch)> {
    let mut pairs = Vec::new();
    for selector in selectors {
        proxy.warm(&path(selector)).await;
        let version = proxy.client().get(&path(selector)).await.version();
        let target = format!("{}&watch=1&resourceVersion={version}", path(selector));
        let watch = proxy.client().watch(&target).await;
        let served = watch.head.headers["cache-status"].to_str().expect("a text");
        assert!(served.starts_with("listless; hit;"), "{selector}: {served}");
        pairs.push((watch, proxy.straight().watch(&target).await));
    }
    pairs
}

#[tokio::test(start_paused = true)]
async fn watches_continue_without_a_gap_when_their_replica_is_widened() {
    for seed in 1..=6 {
        let proxy = Setup::of(populated()).seed(seed).in_memory();
        let dice = fractions(seed);
        let mut pairs = followed(&proxy, &SELECTORS[..4]).await;
        assert_eq!(proxy.replicas().len(), 4);
        (0..10).for_each(|_| churn(&proxy, &*dice));
        pairs.extend(followed(&proxy, &SELECTORS[4..]).await);
        // Changes continue before, during and after the switch to the wider replica.
        for _ in 0..60 {
            (0..2).for_each(|_| churn(&proxy, &*dice));
            pass(Duration::from_millis(250)).await;
        }
        pass(Duration::from_secs(60)).await;
        let replicas = proxy.replicas();
        assert_eq!(replicas.len(), 1, "{replicas:?}");
        assert!(replicas[0].query.selects_all());
        (0..20).for_each(|_| churn(&proxy, &*dice));
        settle().await;
        for ((watch, straight), selector) in pairs.iter_mut().zip(SELECTORS) {
            let (told, ended) = lines(watch).await;
            assert!(!ended, "{selector}: ended after {} events", told.len());
            assert_eq!(told, lines(straight).await.0, "{selector}, seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_continues_once_its_replica_reaches_the_wider_one() {
    let proxy = Setup::default().in_memory();
    let (quiet, busy) = ("app=none", ["app=web", "app=db", "!app", "tier=front"]);
    let mut pairs = followed(&proxy, &[quiet]).await;
    for selector in busy {
        // Each list is at a later version than the quiet replica has received.
        proxy.put_pod("p-0", "web");
        proxy.warm(&path(selector)).await;
    }
    pass(Duration::from_secs(90)).await;
    let replicas = proxy.replicas();
    assert_eq!(replicas.len(), 1, "{replicas:?}");
    proxy.put_pod("late", "none");
    settle().await;
    let (watch, straight) = &mut pairs[0];
    let told = lines(watch).await;
    assert_eq!(told.0.len(), 1);
    assert_eq!(told, lines(straight).await);
}

#[tokio::test(start_paused = true)]
async fn a_slow_watch_finishes_its_window_before_it_switches() {
    let proxy = Setup::default().in_memory();
    let mut pairs = followed(&proxy, &["app=web"]).await;
    for number in 0..25 {
        // This is more than the buffers on the way hold.
        let mut large = pod("a", &format!("p-{number}"), &[("app", "web")], "n1");
        large["metadata"]["annotations"] = serde_json::json!({"a": "x".repeat(60_000)});
        proxy.simulator.put(&group_resource("pods"), large).expect("a served resource");
        settle().await;
    }
    for selector in ["app=db", "!app", "tier=front", "tier=back"] {
        proxy.warm(&path(selector)).await;
    }
    let (watch, straight) = &mut pairs[0];
    let mut told = Vec::new();
    for _ in 0..8 {
        pass(Duration::from_secs(1)).await;
        told.push(comparable(watch.next_line().await.expect("an event")));
    }
    assert_eq!(proxy.replicas().len(), 1);
    // The wider replica advances before the watch has reached the end of the narrow one.
    for number in 0..5 {
        proxy.put_pod(&format!("late-{number}"), "web");
    }
    settle().await;
    let (rest, ended) = lines(watch).await;
    told.extend(rest);
    assert!(!ended, "ended after {} events", told.len());
    assert_eq!(told, lines(straight).await.0);
}
