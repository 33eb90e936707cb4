//! The apiserver stops serving a version of an API, as after an upgrade, and serves it again.

use std::time::{Duration, Instant};

use super::{COLLECTION, FEW, RECOVERY, from_memory, last_event, write};
use crate::clusters::{Machine, available};
use crate::rig::client::{Protocol, Request};
use crate::rig::control_plane::{Component, ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::{until, until_hit_at_last};

const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const DISCOVERY: &str = "/apis/batch/v1";
const WITHOUT: &[&str] =
    &["--disable-admission-plugins", "ServiceAccount", "--runtime-config", "batch/v1=false"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_no_longer_served_is_not_found_on_1_36() {
    is_no_longer_served(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_is_no_longer_served_is_not_found_on_1_30() {
    is_no_longer_served(Version::V1_30).await;
}

async fn is_no_longer_served(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", FEW).await.expect("writes");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, None).await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    let (_, shown) = from_memory(&through, FEW).await.expect("a list");
    until_hit_at_last(&through, &Request::get(CRON_JOBS), RECOVERY).await.expect("a hit");
    let watch = format!("{CRON_JOBS}?watch=true&timeoutSeconds=60&resourceVersion={shown}");
    let watch = through.open(Request::get(&watch)).await.expect("a watch");
    let told = tokio::spawn(last_event(watch.into_body()));

    plane.stop(Component::Apiserver).expect("an end");
    plane.start_apiserver_with(WITHOUT).expect("a start");
    plane.ready().await.expect("a ready apiserver");
    let begun = Instant::now();
    let refused = until_status(&proxy, 404).await;
    let direct = straight.get(CRON_JOBS).await.expect("an answer");
    let answer = through.get(CRON_JOBS).await.expect("an answer");
    assert_eq!((answer.status, &answer.body), (direct.status, &direct.body));
    from_memory(&through, FEW).await.expect("the other kind from memory");
    let told = tokio::time::timeout(RECOVERY.saturating_sub(begun.elapsed()), told).await;
    let told = told.expect("the watch ends").expect("no panic");
    let status = async |target| through.get(target).await.map(|answer| answer.status.as_u16());
    until("discovery follows", RECOVERY, async || Ok(status(DISCOVERY).await? == 404))
        .await
        .expect("no such version");

    plane.stop(Component::Apiserver).expect("an end");
    plane.start_again(Component::Apiserver).expect("a start");
    plane.ready().await.expect("a ready apiserver");
    let served = until_status(&proxy, 200).await;
    until_hit_at_last(&through, &Request::get(CRON_JOBS), RECOVERY).await.expect("a hit");
    eprintln!(
        "proof: a version that is no longer served on {}: 404 {refused:.1?} after the apiserver was ready, 200 \
         {served:.1?} after it served it again; the open watch was told {told:?}",
        version.name()
    );
}

/// Waits for a status of the collection; until then it is the status before, or that of an outage.
async fn until_status(proxy: &ProxyProcess, status: u16) -> Duration {
    let (through, begun) = (proxy.client(Protocol::Http2), Instant::now());
    let what = format!("{status} of {CRON_JOBS}");
    until(&what, RECOVERY, async || {
        let answer = through.get(CRON_JOBS).await?;
        assert!([200, 404, 503].contains(&answer.status.as_u16()), "{}", answer.excerpt());
        Ok(answer.status == status)
    })
    .await
    .unwrap_or_else(|error| panic!("{error:#}\n{COLLECTION}\n{}", proxy.log()));
    begun.elapsed()
}
