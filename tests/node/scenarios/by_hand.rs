//! Sidecars added to manifests, without the webhook.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::process::Command;

use super::install::prepare_namespace;
use crate::artifacts::{REGISTRY, REPOSITORY, TAG, source};
use crate::kube::{LIMIT, feed, is_injected, name, until};
use crate::stage::Stage;

const PLACE: &str = "by-hand";
const APPLY: [&str; 5] = ["apply", "-n", PLACE, "-f", "-"];

/// The pipes of `docs/install.md`, in a namespace that the webhook does not know.
pub async fn a_manifest_is_injected_and_brought_back_by_hand(stage: &mut Stage<'_>) -> Result<()> {
    prepare_namespace(stage, PLACE, &json!({})).await?;
    let manifest = fs::read_to_string(source("manifests/shop.yaml"))?;
    let image = format!("{REGISTRY}/{REPOSITORY}:{TAG}");
    let injected = listless(&["inject", "-f", "-", "--image", &image], &manifest).await?;
    ensure!(injected.contains("listless-proxy"), "{injected}");
    ensure!(listless(&["uninject", "-f", "-"], &injected).await? == manifest, "{injected}");

    stage.kube.kubectl_with(&APPLY, &injected).await?;
    stage.kube.rolled_out(PLACE, "shop").await?;
    let pod = stage.kube.pod(PLACE, "shop").await?;
    ensure!(is_injected(&pod), "{pod}");
    stage.until_from_memory(PLACE, name(&pod)).await?;
    stage.seen(PLACE, name(&pod)).await?.no_failure()?;

    // The apiserver has added fields by now, so its object differs from the file.
    let stored = ["get", "deployment", "shop", "-n", PLACE, "-o", "yaml"];
    let stored = stage.kube.kubectl(&stored).await?;
    let plain = listless(&["uninject", "-f", "-"], &stored).await?;
    stage.kube.kubectl_with(&APPLY, &plain).await?;
    stage.kube.rolled_out(PLACE, "shop").await?;
    let pod = stage.kube.pod(PLACE, "shop").await?;
    ensure!(!is_injected(&pod), "{pod}");
    let path = format!("/apis/apps/v1/namespaces/{PLACE}/deployments/shop");
    let template = &stage.kube.get(&path).await?["spec"]["template"];
    ensure!(!template.to_string().contains("listless"), "a trace: {template}");
    let seen = until(LIMIT, "lists without a sidecar", async || {
        let seen = stage.seen(PLACE, name(&pod)).await?;
        Ok((seen.lists > 5).then_some(seen))
    })
    .await?;
    seen.no_failure()?;
    ensure!(seen.hits == 0, "{seen:?}");
    stage.kube.kubectl(&["delete", "namespace", PLACE, "--wait=false"]).await.map(drop)
}

/// The output of the command for a manifest.
async fn listless(words: &[&str], manifest: &str) -> Result<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_listless"));
    command.args(words).kill_on_drop(true);
    let what = format!("listless {}", words.join(" "));
    feed(&what, command, manifest).await.context("a pipe of docs/install.md")
}
