//! etcd restored from a backup: without new revisions, as `etcdutl snapshot restore` does by default, and with
//! them (`--bump-revision --mark-compacted`).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{
    COLLECTION, CONFIGURATION, FEW, MANY, POLL, RECOVERY, from_memory, last_event, names, write,
};
use crate::clusters::{Machine, available};
use crate::etcd::ask;
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{Component, ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;

/// The objects written before the backup and after it. After the restore few are written, then many: without
/// new revisions only these pass the versions that were lost, and a watch from one of those is accepted from then on.
const KEPT: usize = 5;
const LOST: usize = 300;
/// The revisions that are left out. They are more than were lost.
const BUMP: usize = 600;
/// The time between these steps. A backup is hours old, so that it takes longer in reality.
const PAUSE: Duration = Duration::from_secs(10);

/// The revisions of a restored etcd.
#[derive(Clone, Copy, Debug)]
enum Revisions {
    /// They go on where the backup was made: versions that clients have are used again.
    Repeated,
    /// They go on above all that were used, which count as compacted.
    New,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_restored_without_new_revisions_is_noticed_on_1_36() {
    restored(Version::V1_36, Revisions::Repeated).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_restored_without_new_revisions_is_noticed_on_1_30() {
    restored(Version::V1_30, Revisions::Repeated).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_restored_with_new_revisions_is_noticed_on_1_36() {
    restored(Version::V1_36, Revisions::New).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_restored_with_new_revisions_is_noticed_on_1_30() {
    restored(Version::V1_30, Revisions::New).await;
}

async fn restored(version: Version, revisions: Revisions) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", KEPT).await.expect("writes");
    back_up(&plane).await.expect("a backup");

    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    write(&straight, "lost", LOST).await.expect("writes");
    let (shown, version_shown) = from_memory(&through, LOST + KEPT).await.expect("a list");
    assert!(shown.contains("lost-0"), "{shown:?}");
    let target =
        format!("{COLLECTION}?watch=true&timeoutSeconds=90&resourceVersion={version_shown}");
    let watch = through.open(Request::get(&target)).await.expect("a watch");
    let told = tokio::spawn(told(through.clone(), target, watch.into_body()));

    restore(&plane, revisions).await.expect("a restored etcd");
    let begun = Instant::now();
    write(&straight, "few", FEW).await.expect("writes");
    tokio::time::sleep(PAUSE).await;
    write(&straight, "many", MANY).await.expect("writes");
    let expected = names(&straight.get(COLLECTION).await.expect("a list").json().expect("JSON"));
    let (mut wrong, mut right_since) = (0, None);
    while begun.elapsed() < RECOVERY {
        tokio::time::sleep(POLL).await;
        let answer = through.get(COLLECTION).await.expect("an answer");
        let right = names(&answer.json().expect("JSON")) == expected;
        wrong += usize::from(!right);
        right_since = right_since
            .filter(|_| right)
            .or_else(|| (right && answer.is_hit()).then(|| begun.elapsed()));
    }
    let told = told.await.expect("no panic");
    eprintln!(
        "proof: etcd restored from a backup on {}, revisions {revisions:?}: memory is right after {right_since:.1?}, \
         {wrong} wrong answers; the open watch was told {told:?}",
        version.name()
    );
    assert!(right_since.is_some() && wrong == 0, "{wrong} wrong answers\n{}", proxy.log());
    assert_eq!(told.as_deref(), Some("ERROR 410"), "{}", proxy.log());
}

/// Returns the last event of a watch. One that ends without an event, as it does when the apiserver is away for
/// longer than `maxStaleness`, is opened again from its version at once, as clients do.
async fn told(client: Client, target: String, watch: Incoming) -> Option<String> {
    let begun = Instant::now();
    let mut told = last_event(watch).await;
    while told.is_none() && begun.elapsed() < RECOVERY {
        tokio::time::sleep(POLL).await;
        if let Ok(again) = client.open(Request::get(&target)).await {
            told = last_event(again.into_body()).await;
        }
    }
    told
}

/// Copies etcd's data, which is what a snapshot holds.
async fn back_up(plane: &ControlPlane) -> Result<()> {
    plane.stop(Component::Apiserver)?;
    plane.stop(Component::Etcd)?;
    copy(&plane.folder().join("etcd"), &plane.folder().join("backup"))?;
    start(plane).await
}

/// Kills both processes and starts them on the copy.
async fn restore(plane: &ControlPlane, revisions: Revisions) -> Result<()> {
    plane.kill(Component::Apiserver)?;
    plane.kill(Component::Etcd)?;
    fs::remove_dir_all(plane.folder().join("etcd"))?;
    copy(&plane.folder().join("backup"), &plane.folder().join("etcd"))?;
    if matches!(revisions, Revisions::New) {
        plane.start_again(Component::Etcd)?;
        leave_revisions_out(plane).await?;
        plane.stop(Component::Etcd)?;
    }
    start(plane).await
}

async fn start(plane: &ControlPlane) -> Result<()> {
    plane.start_again(Component::Etcd)?;
    plane.start_again(Component::Apiserver)?;
    plane.ready().await
}

/// Makes the next revision of etcd greater by [`BUMP`], and compacts all before.
async fn leave_revisions_out(plane: &ControlPlane) -> Result<()> {
    let etcd = plane.etcd_address();
    let unused = json!({"key": "dW51c2Vk", "value": ""});
    let deadline = Instant::now() + RECOVERY;
    while ask(etcd, "/v3/kv/put", &unused).await.is_err() {
        ensure!(Instant::now() < deadline, "etcd does not answer");
        tokio::time::sleep(POLL).await;
    }
    for _ in 1..BUMP {
        ask(etcd, "/v3/kv/put", &unused).await?;
    }
    let removed = ask(etcd, "/v3/kv/deleterange", &json!({"key": "dW51c2Vk"})).await?;
    let removed = removed.into_body().collect().await?.to_bytes();
    let removed: Value = serde_json::from_slice(&removed)?;
    let revision = removed["header"]["revision"].as_str().context("a revision")?;
    ask(etcd, "/v3/kv/compaction", &json!({"revision": revision, "physical": true})).await?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-r").args([from, to]).status()?;
    ensure!(status.success(), "cp failed");
    Ok(())
}
