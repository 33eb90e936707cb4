//! Every read of the table, directly and through `listless local` and `listless gateway`.

use std::time::{Duration, Instant};

use crate::clusters::Cluster;
use crate::differential::case::{Caller, Case, Memory};
use crate::differential::target::{Kind, Target};
use crate::differential::{Suite, cases};
use crate::rig::client::Protocol;
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::ProxyProcess;

/// Every collection of the table is read in its own right, so many queries are alive at once.
const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
repeatPolls: {action: off}
";

/// The time after the first request for a document in which Listless trusts no document.
const SETTLING: Duration = Duration::from_secs(12);
/// A check may wait 90 seconds for its replica to reach the response, and eight run at once.
const COMPARED_LIMIT: Duration = Duration::from_secs(120);
/// The minimum number of comparisons for a result.
const COMPARED_MIN: f64 = 20.0;
/// Everything is forwarded, and compared with the answer that memory would have given.
const OBSERVING: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
mode: observe
observe: {checkShare: 1}
";

#[tokio::test]
async fn every_read_through_listless_equals_the_apiservers_on_1_36() {
    every_read_equals_the_apiservers(Version::V1_36).await;
}

#[tokio::test]
async fn every_read_through_listless_equals_the_apiservers_on_1_30() {
    every_read_equals_the_apiservers(Version::V1_30).await;
}

#[tokio::test]
async fn every_read_of_every_user_through_a_gateway_equals_the_apiservers() {
    let Some(cluster) = Cluster::take(Version::V1_36).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::gateway(&kubeconfig, Some(CONFIGURATION)).await.expect("a gateway");
    let cases: Vec<_> = cases::all().into_iter().map(of_a_gateway).collect();
    compare(&cluster, &proxy, &cases).await;
}

#[tokio::test]
async fn observe_mode_changes_no_response_and_finds_no_difference_on_1_36() {
    observe_mode_changes_no_response(Version::V1_36).await;
}

#[tokio::test]
async fn observe_mode_changes_no_response_and_finds_no_difference_on_1_30() {
    observe_mode_changes_no_response(Version::V1_30).await;
}

async fn observe_mode_changes_no_response(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(OBSERVING)).await.expect("a proxy");
    let mut cases = cases::all();
    cases.iter_mut().for_each(|case| case.memory = Memory::Never);
    let token = proxy.token().expect("a token in the written kubeconfig");
    let target = Target::new(proxy.server(), token, Kind::Listless, Protocol::Http2);
    let suite = Suite::new(cluster.plane(), cluster.dataset(), target).expect("a suite");
    let report = suite.run(&cases).await.expect("a whole run");
    eprintln!("proof: observing on {}: {report}", cluster.plane().version().name());
    assert!(report.differences.is_empty(), "{report}\n{}", proxy.log());
    compared(&proxy).await;
    assert!(!proxy.log().contains("differently than the apiserver"), "{}", proxy.log());
}

/// Waits until responses were really compared with memory; none may differ.
async fn compared(proxy: &ProxyProcess) {
    let deadline = Instant::now() + COMPARED_LIMIT;
    loop {
        let metrics = proxy.metrics().await.expect("metrics");
        let checks = metrics.sums("listless_shadow_checks_total", &[], "result");
        let of = |result: &str| checks.get(result).copied().unwrap_or(0.0);
        assert_eq!(of("different"), 0.0, "{checks:?}\n{}", proxy.log());
        if of("equal") >= COMPARED_MIN {
            eprintln!("proof: compared with memory: {checks:?}");
            return;
        }
        assert!(Instant::now() < deadline, "too few were compared: {checks:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn every_read_equals_the_apiservers(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    compare(&cluster, &proxy, &cases::all()).await;
}

/// Memory may answer any caller with one good token there.
fn of_a_gateway(mut case: Case) -> Case {
    let is_known = |value: &str| value.eq_ignore_ascii_case("bearer reader-token");
    let impersonates = case.headers.iter().any(|(name, _)| name.starts_with("Impersonate-"));
    let bears = match case.caller {
        Caller::User(user) => user != User::Admin,
        Caller::Anonymous => case.headers.iter().any(|(_, value)| is_known(value)),
        Caller::UnknownToken => false,
    };
    if bears && !impersonates {
        case.memory = Memory::Free;
    }
    case
}

async fn compare(cluster: &Cluster, proxy: &ProxyProcess, cases: &[Case]) {
    let token = proxy.token().expect("a token in the written kubeconfig");
    // The second request for a document opens the watches that keep it.
    for _ in 0..2 {
        let followed = proxy.client(Protocol::Http1).get("/api").await.expect("an answer");
        assert_eq!(followed.status, 200);
    }
    tokio::time::sleep(SETTLING).await;
    let target = Target::new(proxy.server(), token, Kind::Listless, Protocol::Http2);
    let suite = Suite::new(cluster.plane(), cluster.dataset(), target).expect("a suite");
    let report = suite.run(cases).await.expect("a whole run");
    eprintln!("proof: through Listless on {}: {report}", cluster.plane().version().name());
    assert!(report.differences.is_empty(), "{report}\n{}", proxy.log());
    assert!(report.cold.is_empty(), "{report}\n{}", proxy.log());
    // Forwarded reads raise the session's floor above the version that a quiet replica can prove
    // for a while.
    assert!(report.behind * 2 < report.wanted, "{report}");
}
