//! Two gateways behind one name: the guarantees for a caller that reaches both of them.

use super::{ANN, BOB, EVE, IN_A, IN_B, PODS, admitted, warm};
use crate::harness::{Setup, TestProxy, pod, populated, settle};

/// Two gateways in front of one apiserver; both hold all pods.
async fn both() -> (TestProxy, TestProxy) {
    let simulator = populated();
    let gateway = || admitted(Setup::of(simulator.clone())).in_memory();
    let (one, other) = (gateway(), gateway());
    warm(&one).await;
    warm(&other).await;
    (one, other)
}

#[tokio::test(start_paused = true)]
async fn rights_apply_at_both_instances() {
    for gateway in <[TestProxy; 2]>::from(both().await) {
        assert!(gateway.bearer(BOB).get(IN_A).await.is_hit());
        for (token, path) in [(BOB, IN_B), (BOB, PODS), (EVE, IN_A)] {
            assert_eq!(gateway.bearer(token).get(path).await.status, 403);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_stays_with_one_instance_reads_its_own_writes() {
    let (one, other) = both().await;
    for (number, gateway) in [&one, &other].into_iter().cycle().take(20).enumerate() {
        let ann = gateway.bearer(ANN);
        let name = format!("p-{number}");
        assert_eq!(ann.create(IN_A, &pod("a", &name, &[], "n1")).await.status, 201);
        let read = ann.get(IN_A).await;
        assert!(read.is_hit() && read.names().contains(&format!("a/{name}")), "{}", read.summary());
    }
}

/// Shows that [`a_caller_that_stays_with_one_instance_reads_its_own_writes`] does not hold across two
/// gateways.
#[tokio::test(start_paused = true)]
async fn a_write_through_one_instance_may_be_missing_at_a_lagging_one() {
    let (one, other) = both().await;
    one.simulator.hold_caches();
    let ann = one.bearer(ANN);
    assert_eq!(ann.create(IN_A, &pod("a", "new", &[], "n1")).await.status, 201);
    assert!(ann.get(IN_A).await.names().contains(&"a/new".to_owned()), "here it is");
    let there = other.bearer(ANN).get(IN_A).await;
    assert!(there.is_hit() && !there.names().contains(&"a/new".to_owned()), "{}", there.summary());

    one.simulator.release_caches();
    settle().await;
    let there = other.bearer(ANN).get(IN_A).await;
    assert!(there.names().contains(&"a/new".to_owned()), "{}", there.summary());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_names_its_version_gets_nothing_older_from_either_instance() {
    let (one, other) = both().await;
    one.simulator.hold_caches();
    let created = one.bearer(ANN).create(IN_A, &pod("a", "new", &[], "n1")).await;
    let path = format!("{IN_A}?resourceVersion={}", created.version());
    let waiting = tokio::spawn(async move { other.bearer(ANN).get(&path).await });
    settle().await;
    one.simulator.release_caches();
    let there = waiting.await.expect("no panic");
    assert!(there.names().contains(&"a/new".to_owned()), "{}", there.summary());
}
