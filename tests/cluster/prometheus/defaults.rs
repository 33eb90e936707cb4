//! By default nothing is wrong: every role serves its clients for a quarter of an hour, and no alert
//! fires or is about to.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use super::server::Prometheus;
use super::{SCRAPED_WITHIN, scrape, shipped_rules, tools};
use crate::clusters::{Machine, available};
use crate::injector::replica::Replica;
use crate::injector::{self, Stage};
use crate::rig::client::{Client, Protocol};
use crate::rig::control_plane::{User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::sidecar::{self, Pod};

/// The configuration that the chart and every role have by default.
const DEFAULTS: &str = "config/default.yaml";
const PODS: &str = "/api/v1/namespaces/shop/pods";
/// The period of an unsafe poller.
const POLL_PERIOD: Duration = Duration::from_secs(3);
const QUIET_SECONDS: u64 = 900;
const QUIET_VARIABLE: &str = "LISTLESS_QUIET_SECONDS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_alert_fires_by_default_in_a_quarter_of_an_hour() {
    let version = Version::V1_36;
    if !tools() || !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let stage = Stage::set(version).await.expect("a stage");
    let defaults = Path::new(env!("CARGO_MANIFEST_DIR")).join(DEFAULTS);
    let defaults = std::fs::read_to_string(defaults).expect("the defaults");
    let kubeconfig = stage.plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let injector = Replica::start(&stage.plane, &stage.kubeconfig, &[]).await.expect("an injector");
    stage.point_at(&injector).await.expect("a webhook");
    stage.until_injected("shop").await;
    let local = ProxyProcess::start(&kubeconfig, Some(&defaults)).await.expect("a proxy");
    let gateway = ProxyProcess::gateway(&kubeconfig, Some(&defaults)).await.expect("a gateway");
    let pod = Pod::start(&stage.plane).await.expect("a sidecar");

    let scraped = [
        ("local", local.admin_address()),
        ("gateway", gateway.admin_address()),
        ("sidecar", pod.proxy.admin_address()),
        ("injector", injector.admin_address()),
    ];
    let scrapes = scraped.map(|(job, admin)| scrape(job, admin)).to_vec();
    let prometheus = Prometheus::start(scrapes, &shipped_rules()).await.expect("a Prometheus");
    let up = async || prometheus.query("up == 1").await.expect("an answer").len() == scraped.len();
    prometheus.until("all are scraped", SCRAPED_WITHIN, up).await;

    let token = User::Admin.token();
    let caller = Client::new(gateway.server(), Some(&token), Protocol::Http2);
    let account = pod.client(Some(&pod.mirrored("token")));
    let readers =
        [(local.client(Protocol::Http1), PODS), (caller, PODS), (account, sidecar::CONFIG_MAPS)];
    let seconds = std::env::var(QUIET_VARIABLE)
        .map_or(QUIET_SECONDS, |text| text.parse().expect("a number of seconds"));
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut fired, mut polls) = (BTreeSet::new(), 0);
    let mut period = tokio::time::interval(POLL_PERIOD);
    while Instant::now() < end {
        period.tick().await;
        for (client, path) in &readers {
            client.get(path).await.expect("an answer").successful().expect("objects");
            polls += 1;
        }
        stage.dry_run("shop", &injector::pod("web")).await.expect("a pod");
        fired.extend(prometheus.firing().await.expect("alerts"));
    }
    // Some alerts wait for an hour before they fire.
    fired.extend(prometheus.active().await.expect("alerts"));
    assert!(fired.is_empty(), "{fired:?}");
    eprintln!(
        "proof: no alert of {} rules in {seconds} s of four roles with their defaults; {polls} polls",
        prometheus.rules().await.expect("rules").len()
    );
}
