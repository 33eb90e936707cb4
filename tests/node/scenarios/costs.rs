//! What a sidecar costs its pod.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::json;

use super::install::load;
use crate::kube::{LIMIT, container_status, is_injected, until};
use crate::manifests::{SHOP, container, deployment, pod, polling, template};
use crate::rig::client::Request;
use crate::stage::{Stage, resident_bytes};

const CROWD: &str = "crowd";
const MANY_PODS: u32 = 5000;
/// Pods started with and without a sidecar, in turns.
const STARTS: usize = 7;
/// By then a process has thrown away what it only needed to start.
const SETTLED: Duration = Duration::from_secs(10);
/// Beyond it something is wrong; the figure itself is in the table.
const DELAY_MAX: Duration = Duration::from_secs(5);

pub async fn a_sidecar_costs_little(stage: &mut Stage<'_>) -> Result<()> {
    start_up(stage).await?;
    idle(stage).await?;
    with_many_pods(stage).await
}

/// The time from a pod's creation to the begin of its program, with and without a sidecar.
async fn start_up(stage: &mut Stage<'_>) -> Result<()> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        with.push(start(stage, true).await?);
        without.push(start(stage, false).await?);
    }
    let delays = with.iter().zip(&without).map(|(with, without)| with.saturating_sub(*without));
    let delay = median(delays.collect());
    let (with, without) = (median(with), median(without));
    stage.table.row(
        format!("from a pod's creation to its program's begin, median of {STARTS}"),
        format!("{with:.2?}, without sidecar {without:.2?}: {delay:.2?} later"),
    );
    ensure!(delay < DELAY_MAX, "a pod starts {delay:?} later");
    Ok(())
}

async fn start(stage: &Stage<'_>, injected: bool) -> Result<Duration> {
    let spec =
        json!({"containers": [container("app", "stand", &[])], "terminationGracePeriodSeconds": 0});
    let mut pod = pod(SHOP, "starting", &spec);
    pod["metadata"]["labels"]["listless.dev/inject"] = injected.to_string().into();
    let pods = format!("/api/v1/namespaces/{SHOP}/pods");
    let began = SystemTime::now();
    let made = stage.kube.client().send(Request::new(Method::POST, &pods).json(&pod)).await?;
    ensure!(is_injected(&made.successful()?.json()?) == injected, "the pod is not as it was to be");
    let ready = stage.kube.pod(SHOP, "starting").await?;
    ensure!(container_status(&ready, "app").is_some(), "no status of the program");
    let seen = stage.seen(SHOP, "starting").await?;
    let program: jiff::Timestamp = seen.began.parse()?;
    let path = format!("{pods}/starting?gracePeriodSeconds=0");
    stage.kube.client().send(Request::new(Method::DELETE, &path)).await?.successful()?;
    until(LIMIT, "the end of a pod", async || {
        let answer = stage.kube.answer(&format!("{pods}/starting")).await?;
        Ok((answer.status == 404).then_some(()))
    })
    .await?;
    Ok(SystemTime::from(program).duration_since(began)?)
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

async fn idle(stage: &mut Stage<'_>) -> Result<()> {
    let spec =
        json!({"containers": [container("app", "stand", &[])], "terminationGracePeriodSeconds": 0});
    stage.kube.apply(&pod(SHOP, "idle", &spec)).await?;
    stage.kube.pod(SHOP, "idle").await?;
    tokio::time::sleep(SETTLED).await;
    let told = memory(stage, "idle")?;
    stage.table.row("resident memory of a sidecar, idle", told);
    stage.kube.kubectl(&["delete", "pod", "idle", "-n", SHOP]).await.map(drop)
}

async fn with_many_pods(stage: &mut Stage<'_>) -> Result<()> {
    load(stage, CROWD, MANY_PODS).await?;
    let environment = [("LISTED", CROWD), ("CLIENTS", "1"), ("PERIOD_MILLIS", "2000")];
    let template = template("crowded", &json!({}), &polling(&environment));
    stage.kube.apply(&deployment(SHOP, "crowded", 1, &template)).await?;
    let pod = stage.kube.pod(SHOP, "crowded").await?;
    let pod = pod["metadata"]["name"].as_str().context("a name")?;
    until(LIMIT, "lists of many pods from memory", async || {
        let seen = stage.seen(SHOP, pod).await?;
        Ok((seen.hits >= 3 && seen.items == u64::from(MANY_PODS)).then_some(()))
    })
    .await?;
    tokio::time::sleep(SETTLED).await;
    stage.seen(SHOP, pod).await?.no_failure()?;
    let told = memory(stage, pod)?;
    stage.table.row(
        format!("resident memory of a sidecar, {MANY_PODS} pods of 9 kB cached and polled"),
        told,
    );
    stage.kube.kubectl(&["delete", "deployment", "crowded", "-n", SHOP]).await?;
    stage.kube.kubectl(&["delete", "namespace", CROWD, "--wait=false"]).await.map(drop)
}

/// Of both processes; what they share is counted twice.
fn memory(stage: &Stage<'_>, pod: &str) -> Result<String> {
    let sidecar = stage.sidecar(pod)?;
    let [worker, supervisor] = [sidecar.worker, sidecar.supervisor].map(resident_bytes);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (worker, supervisor) = (mebibytes(worker?), mebibytes(supervisor?));
    Ok(format!("worker {worker:.1} MiB, supervisor {supervisor:.1} MiB"))
}
