//! The installation of a release, and its effect for clients that list too often.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use crate::artifacts::{FABRIC8, REGISTRY, REPOSITORY, TAG};
use crate::kube::{LIMIT, is_injected, name, until};
use crate::machine::is_required;
use crate::manifests::{
    FLEET, SHOP, deployment, labelled, namespace, pod, polling, template, viewer,
};
use crate::rig::client::Request;
use crate::rig::load_data::LoadData;
use crate::stage::Stage;

/// The namespace of the release.
pub const RELEASE_NAMESPACE: &str = "listless-system";
const FEW_PODS: u32 = 20;
const WRITES_AT_ONCE: usize = 16;
/// The duration of the count of lists.
const COUNTED: Duration = Duration::from_secs(20);

/// The settings that make a release use the image under test.
pub fn image_settings() -> [String; 3] {
    [
        format!("image.registry={REGISTRY}"),
        format!("image.repository={REPOSITORY}"),
        format!("image.tag={TAG}"),
    ]
}

/// The folder of the chart.
pub fn chart() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/charts/listless")
}

pub async fn the_chart_is_installed_and_a_pod_is_answered_from_memory(
    stage: &mut Stage<'_>,
) -> Result<()> {
    load(stage, FLEET, FEW_PODS).await?;
    let bytes = stage.artifacts.image_bytes as f64 / 1e6;
    stage.table.row("image, compressed", format!("{bytes:.1} MB"));

    let began = Instant::now();
    let words = install_words();
    stage.kube.helm(&words.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let installed = began.elapsed();
    prepare_namespace(stage, SHOP, &labelled()).await?;
    let poller = deployment(SHOP, "poller", 1, &template("poller", &json!({}), &polling(&[])));
    let pod = stage.poller(&poller).await?;
    let answered = began.elapsed();
    let seen = stage.seen(SHOP, &pod).await?;
    ensure!(seen.items == u64::from(FEW_PODS), "{seen:?}");
    seen.no_failure()?;
    stage.table.row("helm install --wait", format!("{installed:.1?}"));
    stage.table.row("helm install to an answer from memory in a pod", format!("{answered:.1?}"));
    Ok(())
}

/// The command that installs the chart and waits until its pods are Ready.
pub fn install_words() -> Vec<String> {
    let words = ["install", "listless", chart(), "--namespace", RELEASE_NAMESPACE];
    let words = words.into_iter().chain(["--create-namespace", "--wait"]).map(str::to_owned);
    let settings = image_settings().into_iter();
    words.chain(settings.flat_map(|setting| ["--set".to_owned(), setting])).collect()
}

/// The chart's own test, in a pod: the webhook is also called at its Service's address.
pub async fn the_release_is_checked_from_a_pod_by_helm_test(stage: &mut Stage<'_>) -> Result<()> {
    let words = ["test", "listless", "--namespace", RELEASE_NAMESPACE, "--logs"];
    let told = stage.kube.helm(&words).await?;
    for row in
        ["version", "webhook", "certificate", "injection", "injector", "injector-permissions"]
    {
        let passed = told.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some("pass") && words.next() == Some(row)
        });
        ensure!(passed, "{row} did not pass: {told}");
    }
    // From elsewhere only the content of the Secret could be checked.
    ensure!(told.contains("the certificate shown is trusted"), "nobody asked the webhook: {told}");
    Ok(())
}

/// Creates a namespace whose pods may read; waits until its pods get a sidecar, if they should.
pub async fn prepare_namespace(stage: &Stage<'_>, name: &str, labels: &Value) -> Result<()> {
    stage.kube.apply(&namespace(name, labels)).await?;
    stage.kube.apply(&viewer(name)).await?;
    let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    until(LIMIT, "a service account", async || Ok(stage.kube.get(&account).await.ok())).await?;
    if labels["listless.dev/injection"] == "enabled" {
        until_injecting(stage, name).await?;
    }
    Ok(())
}

/// kube-proxy takes a second until it routes to an injector that has just become ready.
pub async fn until_injecting(stage: &Stage<'_>, namespace: &str) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let mut tried = pod(namespace, "tried", &polling(&[]));
    tried["spec"]["securityContext"] =
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    tried["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    until(LIMIT, "pods that get a sidecar", async || {
        let request = Request::new(Method::POST, &path).json(&tried);
        let made = stage.kube.client().send(request).await?.successful()?.json()?;
        Ok(is_injected(&made).then_some(()))
    })
    .await
}

/// Creates pods that no node runs.
pub async fn load(stage: &Stage<'_>, place: &'static str, pods: u32) -> Result<()> {
    prepare_namespace(stage, place, &json!({})).await?;
    let data = LoadData { namespace: place, pods, pollers: 4, apps: 5, nodes: 0 };
    let (data, collection) = (&data, &data.collection());
    let create = |number: u32| async move {
        let mut pod = data.pod(number);
        pod["spec"]["schedulerName"] = "nobody".into();
        let post = Request::new(Method::POST, collection).json(&pod);
        stage.kube.client().send(post).await?.successful().map(drop)
    };
    stream::iter(0..pods).map(create).buffer_unordered(WRITES_AT_ONCE).try_collect().await
}

pub async fn a_fabric8_poller_costs_the_apiserver_no_lists_once_its_namespace_is_labelled(
    stage: &mut Stage<'_>,
) -> Result<()> {
    if !stage.artifacts.has_fabric8 {
        ensure!(!is_required(), "no image with fabric8 can be made without a JDK and Maven");
        println!("  left out: no image with fabric8 can be made without a JDK and Maven");
        return Ok(());
    }
    let place = "java";
    prepare_namespace(stage, place, &json!({})).await?;
    let container = json!({
        "name": "app",
        "image": FABRIC8,
        "args": ["repeat", FLEET, "250"],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    });
    let spec = json!({"containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}],
                      "terminationGracePeriodSeconds": 1});
    let deployed = deployment(place, "service", 1, &template("service", &json!({}), &spec));
    stage.kube.apply(&deployed).await?;
    let before = lists_of_service(stage, place, false).await?;

    stage.kube.apply(&namespace(place, &labelled())).await?;
    until_injecting(stage, place).await?;
    stage.kube.kubectl(&["rollout", "restart", "deployment/service", "-n", place]).await?;
    let after = lists_of_service(stage, place, true).await?;
    let seconds = COUNTED.as_secs();
    stage.table.row(
        format!(
            "LISTs of a fabric8 poller at the apiserver in {seconds} s, before and with its sidecar"
        ),
        format!("{} and {} (it made {} and {})", before.0, after.0, before.1, after.1),
    );
    ensure!(before.0 >= before.1.saturating_sub(2), "it was not counted: {before:?}");
    ensure!(after.1 >= before.1 / 2, "it made fewer lists: {before:?}, {after:?}");
    ensure!(after.0 == 0, "{after:?} reached the apiserver");
    stage.kube.kubectl(&["delete", "deployment", "service", "-n", place]).await?;
    Ok(())
}

/// The requests that reached the apiserver and the lists of the program, for a while.
async fn lists_of_service(stage: &Stage<'_>, place: &str, injected: bool) -> Result<(u64, u64)> {
    stage.kube.rolled_out(place, "service").await?;
    let pod = stage.kube.pod(place, "service").await?;
    ensure!(is_injected(&pod) == injected, "the sidecar of {}", name(&pod));
    until(LIMIT, "lists of a fabric8 program", async || {
        let made = made(stage, place, name(&pod)).await?;
        Ok((made.0 >= 8 && made.1 >= 1).then_some(()))
    })
    .await?;
    let counted = async || -> Result<u64> {
        let labels = [("verb", "LIST"), ("resource", "pods"), ("scope", "namespace")];
        Ok(stage.kube.counts().await?.sum("apiserver_request_total", &labels) as u64)
    };
    // The program's own count lies within the apiserver's, however long the requests take. Memory
    // answers the poller of the scenario before, but that poller might be restarted.
    let (reached, own) = (counted().await?, made(stage, place, name(&pod)).await?);
    tokio::time::sleep(COUNTED).await;
    let now = made(stage, place, name(&pod)).await?;
    let then = counted().await?;
    ensure!(now.2 == own.2, "{} lists failed", now.2 - own.2);
    Ok((then - reached, now.0 - own.0))
}

/// Lists, objects in the last one and failures, from the program's log.
async fn made(stage: &Stage<'_>, place: &str, pod: &str) -> Result<(u64, u64, u64)> {
    let line = stage.kube.kubectl(&["logs", pod, "-n", place, "-c", "app", "--tail=1"]).await?;
    let told: Value = serde_json::from_str(line.trim()).with_context(|| line.clone())?;
    let number = |field: &str| told[field].as_u64().context("a number");
    Ok((number("lists")?, number("items")?, number("failures")?))
}
