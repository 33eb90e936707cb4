//! The services that a pod depends on, and its behaviour without them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;

use super::install::{RELEASE_NAMESPACE, until_injecting};
use crate::kube::{LIMIT, container_status, is_injected, until};
use crate::manifests::{SHOP, deployment, pod, polling, template};
use crate::node::Component;
use crate::rig::client::Request;
use crate::stage::{SEEN_PORT, Seen, Stage, kill};

const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// The minimum lifetime of a token.
const SHORT_LIFE: u32 = 600;
/// A kubelet checks volumes again after a minute or so.
const ROTATION_LIMIT: Duration = Duration::from_secs(200);
const INJECTOR: &str = "deployment/listless-injector";

/// A kubelet keeps tokens in its memory: one that has just started requests new ones.
pub async fn a_token_the_kubelet_replaces_is_followed(stage: &mut Stage<'_>) -> Result<()> {
    let mut spec = polling(&[]);
    let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": SHORT_LIFE}});
    let items = json!([{"key": "ca.crt", "path": "ca.crt"}]);
    let authority = json!({"configMap": {"name": "kube-root-ca.crt", "items": items}});
    let place = json!({"downwardAPI": {"items": [
        {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}});
    spec["volumes"] =
        json!([{"name": "short", "projected": {"sources": [token, authority, place]}}]);
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "short", "mountPath": TOKEN.trim_end_matches("/token"), "readOnly": true}]);
    let poller = deployment(SHOP, "rotated", 1, &template("rotated", &json!({}), &spec));
    let pod = stage.poller(&poller).await?;
    let first = token_of(stage, &pod).await?;
    stage.reset(SHOP, &pod).await?;
    stage.node.kill(Component::Kubelet)?;
    stage.node.start(Component::Kubelet)?;
    let second = until(ROTATION_LIMIT, "another token", async || {
        let token = token_of(stage, &pod).await?;
        Ok((token != first).then_some(token))
    })
    .await?;
    let seen = stage.seen(SHOP, &pod).await?;
    seen.no_failure()?;
    ensure!(seen.hits == seen.lists, "{} of {} from memory", seen.hits, seen.lists);
    // A program that starts now reads the new one.
    let told = ["exec", &pod, "-n", SHOP, "-c", "app", "--", "/workload", "once"];
    let told: Seen = serde_json::from_str(stage.kube.kubectl(&told).await?.trim())?;
    told.no_failure()?;
    ensure!(told.hits * 2 > told.lists, "the new token is not known: {told:?}");
    ensure!(first.matches('.').count() == 2 && second.matches('.').count() == 2, "no tokens");
    stage.kube.kubectl(&["delete", "deployment", "rotated", "-n", SHOP]).await.map(drop)
}

async fn token_of(stage: &Stage<'_>, pod: &str) -> Result<String> {
    let answer = stage.kube.ask(SHOP, pod, SEEN_PORT, &format!("/file?path={TOKEN}")).await?;
    Ok(String::from_utf8_lossy(&answer.successful()?.body).into_owned())
}

/// A pod's whole sandbox ends during an outage of the apiserver; its node restarts all of it.
pub async fn a_pod_starts_again_while_the_apiserver_is_down(stage: &mut Stage<'_>) -> Result<()> {
    let poller = template("alone", &json!({}), &polling(&[]));
    let pod = stage.poller(&deployment(SHOP, "alone", 1, &poller)).await?;
    let before = stage.seen(SHOP, &pod).await?.began;
    let sidecar = stage.sidecar(&pod)?;
    let group = stage.memory_group(sidecar.worker)?;
    let whole = group.parent().context("the group of the pod")?;
    let processes = processes_below(whole)?;
    stage.node.kill(Component::Apiserver)?;
    for process in processes {
        // One may have ended with another.
        let _ = kill(process);
    }
    let again = until(LIMIT, "the sidecar's second start without an apiserver", async || {
        Ok(stage.sidecar(&pod).ok().filter(|again| again.supervisor != sidecar.supervisor))
    })
    .await?;
    let started = until(LIMIT, "the workload's second start without an apiserver", async || {
        let all = processes_below(whole)?;
        let is_workload = |process: &u32| {
            let path = std::fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
            path.ends_with("workload")
        };
        Ok(all.into_iter().find(is_workload))
    })
    .await;
    stage.node.start(Component::Apiserver)?;
    stage.node.ready().await?;
    started?;
    stage.until_from_memory(SHOP, &pod).await?;
    ensure!(stage.seen(SHOP, &pod).await?.began != before, "the workload is the one before");
    ensure!(
        stage.sidecar(&pod)?.supervisor == again.supervisor,
        "the sidecar was started once more"
    );
    let path = format!("/api/v1/namespaces/{SHOP}/pods/{pod}");
    let object = stage.kube.get(&path).await?;
    ensure!(container_status(&object, "app").is_some(), "no status of the workload");
    stage.kube.kubectl(&["delete", "deployment", "alone", "-n", SHOP]).await.map(drop)
}

fn processes_below(group: &std::path::Path) -> Result<Vec<u32>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir(group)?.flatten().filter(|entry| entry.path().is_dir()) {
        let listed = std::fs::read_to_string(entry.path().join("cgroup.procs")).unwrap_or_default();
        processes.extend(listed.lines().filter_map(|line| line.parse::<u32>().ok()));
    }
    Ok(processes)
}

pub async fn a_pod_starts_without_a_sidecar_while_no_injector_answers(
    stage: &mut Stage<'_>,
) -> Result<()> {
    let place = ["-n", RELEASE_NAMESPACE];
    stage
        .kube
        .kubectl(&[["scale", INJECTOR].as_slice(), &place, &["--replicas=0"]].concat())
        .await?;
    let pods = format!("/api/v1/namespaces/{RELEASE_NAMESPACE}/pods");
    until(LIMIT, "the end of the injector", async || {
        Ok(stage.kube.list(&pods).await?.is_empty().then_some(()))
    })
    .await?;
    let made = Request::new(Method::POST, &format!("/api/v1/namespaces/{SHOP}/pods")).json(&pod(
        SHOP,
        "without",
        &polling(&[]),
    ));
    let made = stage.kube.client().send(made).await?.successful()?.json()?;
    ensure!(!is_injected(&made), "somebody injected it");
    stage.kube.pod(SHOP, "without").await?;
    let seen = until(LIMIT, "lists without a sidecar", async || {
        let seen = stage.seen(SHOP, "without").await?;
        Ok((seen.lists > 5).then_some(seen))
    })
    .await?;
    seen.no_failure()?;
    ensure!(seen.hits == 0, "{seen:?}");
    stage.kube.kubectl(&["delete", "pod", "without", "-n", SHOP]).await?;
    stage
        .kube
        .kubectl(&[["scale", INJECTOR].as_slice(), &place, &["--replicas=1"]].concat())
        .await?;
    stage.kube.rolled_out(RELEASE_NAMESPACE, "listless-injector").await?;
    until_injecting(stage, SHOP).await
}
