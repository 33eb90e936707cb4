//! Every read of the table, straight and through `listless local`.

use crate::clusters::Cluster;
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

#[tokio::test]
async fn every_read_through_listless_equals_the_apiservers_on_1_36() {
    every_read_equals_the_apiservers(Version::V1_36).await;
}

#[tokio::test]
async fn every_read_through_listless_equals_the_apiservers_on_1_30() {
    every_read_equals_the_apiservers(Version::V1_30).await;
}

async fn every_read_equals_the_apiservers(version: Version) {
    let Some(cluster) = Cluster::take(version).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let token = proxy.token().expect("a token in the written kubeconfig");
    let target = Target::new(proxy.server(), token, Kind::Listless, Protocol::Http2);
    let suite = Suite::new(cluster.plane(), cluster.dataset(), target).expect("a suite");
    let report = suite.run(&cases::all()).await.expect("a whole run");
    eprintln!("through Listless on {}: {report}", version.name());
    assert!(report.differences.is_empty(), "{report}\n{}", proxy.log());
    assert!(report.cold.is_empty(), "{report}\n{}", proxy.log());
    // Forwarded reads raise the session's floor above what a quiet replica can prove for a while.
    assert!(report.behind * 2 < report.wanted, "{report}");
}
