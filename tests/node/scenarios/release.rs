//! Removal: from one namespace, and from the whole cluster.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::install::{RELEASE_NAMESPACE, install_words, until_injecting};
use crate::kube::{LIMIT, is_injected, name, until};
use crate::manifests::{SHOP, labelled, namespace, pod, polling};
use crate::stage::{Stage, kill};

/// The time that pods are watched after the removal of the release.
const AFTERWARDS: Duration = Duration::from_secs(5);
const DEPLOYMENT: &str = "deployment/poller";

pub async fn pods_go_back_to_what_they_were_once_the_label_is_gone(
    stage: &mut Stage<'_>,
) -> Result<()> {
    stage.kube.kubectl(&["label", "namespace", SHOP, "listless.dev/injection-"]).await?;
    let pod = restarted(stage, false).await?;
    let mut object = stage.kube.get(&format!("/api/v1/namespaces/{SHOP}/pods/{pod}")).await?;
    // The node of this suite has the name in its own.
    object["spec"]["nodeName"].take();
    ensure!(!object.to_string().contains("listless"), "a trace: {object}");
    let seen = until(LIMIT, "lists without a sidecar", async || {
        let seen = stage.seen(SHOP, &pod).await?;
        Ok((seen.lists > 5).then_some(seen))
    })
    .await?;
    seen.no_failure()?;
    ensure!(seen.hits == 0, "{seen:?}");
    stage.kube.apply(&namespace(SHOP, &labelled())).await?;
    until_injecting(stage, SHOP).await?;
    let pod = restarted(stage, true).await?;
    stage.until_from_memory(SHOP, &pod).await
}

/// The pod that replaces the existing one.
async fn restarted(stage: &Stage<'_>, injected: bool) -> Result<String> {
    stage.kube.kubectl(&["rollout", "restart", DEPLOYMENT, "-n", SHOP]).await?;
    stage.kube.rolled_out(SHOP, "poller").await?;
    let pod = stage.kube.pod(SHOP, "poller").await?;
    ensure!(is_injected(&pod) == injected, "the sidecar of {}", name(&pod));
    Ok(name(&pod).to_owned())
}

pub async fn injected_pods_run_on_after_the_release_is_gone(stage: &mut Stage<'_>) -> Result<()> {
    let running = stage.kube.pod(SHOP, "poller").await?;
    let running = name(&running);
    stage.reset(SHOP, running).await?;
    stage.kube.helm(&["uninstall", "listless", "-n", RELEASE_NAMESPACE, "--wait"]).await?;
    nothing_left(stage).await?;
    stage.kube.apply(&pod(SHOP, "late", &polling(&[]))).await?;
    let late = stage.kube.pod(SHOP, "late").await?;
    ensure!(!is_injected(&late), "somebody injects still");
    tokio::time::sleep(AFTERWARDS).await;
    let seen = stage.seen(SHOP, running).await?;
    seen.no_failure()?;
    ensure!(seen.hits == seen.lists && seen.lists > 0, "{seen:?}");
    // A sidecar does not need the release to restart either.
    kill(stage.sidecar(running)?.supervisor)?;
    stage.until_from_memory(SHOP, running).await
}

/// Helm 3 waits in other ways and removes objects in another order.
pub async fn helm_3_brings_the_release_and_takes_it_away(stage: &mut Stage<'_>) -> Result<()> {
    let there = ["uninstall", "listless", "-n", RELEASE_NAMESPACE, "--wait"];
    stage.kube.helm(&[there.as_slice(), &["--ignore-not-found"]].concat()).await?;
    let words = install_words();
    stage.kube.helm_3(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    until_injecting(stage, SHOP).await?;
    stage.kube.helm_3(&["test", "listless", "-n", RELEASE_NAMESPACE]).await?;
    stage.kube.helm_3(&there).await?;
    nothing_left(stage).await
}

async fn nothing_left(stage: &Stage<'_>) -> Result<()> {
    let selector = "labelSelector=app.kubernetes.io%2Finstance%3Dlistless";
    let (core, rbac) = ("/api/v1", "/apis/rbac.authorization.k8s.io/v1");
    let place = format!("namespaces/{RELEASE_NAMESPACE}");
    let lists = [
        format!("{core}/{place}/pods"),
        format!("{core}/{place}/secrets"),
        format!("{core}/{place}/services"),
        format!("{core}/{place}/serviceaccounts"),
        format!("{rbac}/{place}/roles"),
        format!("{rbac}/clusterroles"),
        format!("{rbac}/clusterrolebindings"),
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations".to_owned(),
    ];
    for list in lists {
        until(LIMIT, &format!("the end of what {list} lists"), async || {
            Ok(stage.kube.list(&format!("{list}?{selector}")).await?.is_empty().then_some(()))
        })
        .await?;
    }
    Ok(())
}
