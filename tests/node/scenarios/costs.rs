//! The cost of a sidecar for its pod.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::install::load;
use crate::kube::{LIMIT, is_injected, until};
use crate::manifests::{SHOP, container, deployment, pod, polling, template};
use crate::rig::client::Request;
use crate::rig::process::resident_bytes;
use crate::stage::Stage;

const CROWD: &str = "crowd";
const MANY_PODS: u32 = 5000;
/// Pods started with and without a sidecar, in turns, before they are compared.
const STARTS: usize = 11;
/// The maximum number, if the machine was busy with other work meanwhile.
const STARTS_MAX: usize = 33;
/// The time after which a process has released the memory that only its start needed.
const SETTLED: Duration = Duration::from_secs(10);
/// The allowed delay of a pod's start beside Listless, by the medians.
const DELAY_MAX: Duration = Duration::from_millis(300);
/// The allowed delay beyond that of an idle sidecar, where that one takes longer by itself.
const BEYOND_ANY_MAX: Duration = Duration::from_millis(100);

pub async fn a_sidecar_costs_little(stage: &mut Stage<'_>) -> Result<()> {
    start_up(stage).await?;
    idle(stage).await?;
    with_many_pods(stage).await
}

/// The containers of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The program alone.
    Alone,
    /// The program and an idle sidecar, without a startup probe.
    BesideNothing,
    /// The program and the sidecar of Listless.
    BesideListless,
}

/// The time from a pod's creation to the begin of its program, with and without a sidecar.
async fn start_up(stage: &mut Stage<'_>) -> Result<()> {
    let kinds = [Start::Alone, Start::BesideNothing, Start::BesideListless];
    let mut durations: [Vec<Duration>; 3] = Default::default();
    let mut started = 0;
    let [alone, nothing, ours] = loop {
        // The kinds take turns, so that other work of the machine affects all of them.
        for (kind, durations) in kinds.into_iter().zip(&mut durations) {
            durations.push(start(stage, kind).await?);
        }
        started += 1;
        let medians = durations.each_ref().map(|durations| median(durations.clone()));
        let is_fine = is_soon(medians);
        if started == STARTS_MAX || (started % STARTS == 0 && is_fine) {
            break medians;
        }
    };
    stage.table.row(
        format!("from a pod's creation to its program's begin, median of {started}"),
        format!("{alone:.2?}; beside any sidecar {nothing:.2?}; beside Listless {ours:.2?}"),
    );
    ensure!(is_soon([alone, nothing, ours]), "a pod starts too late: {durations:.0?}");
    Ok(())
}

/// Reports whether a pod starts soon enough beside Listless.
///
/// A busy machine may miss the bound even with an idle sidecar. Listless is then compared with
/// that.
fn is_soon([alone, nothing, ours]: [Duration; 3]) -> bool {
    let any = nothing.saturating_sub(alone);
    let bound = if any > DELAY_MAX { any + BEYOND_ANY_MAX } else { DELAY_MAX };
    ours.saturating_sub(alone) <= bound
}

async fn start(stage: &Stage<'_>, kind: Start) -> Result<Duration> {
    let mut spec = quiet();
    if kind == Start::BesideNothing {
        let mut sidecar = container("nothing", "stand", &[("PORT", "8090")]);
        sidecar["restartPolicy"] = "Always".into();
        spec["initContainers"] = json!([sidecar]);
    }
    let injected = kind == Start::BesideListless;
    let mut pod = pod(SHOP, "starting", &spec);
    pod["metadata"]["labels"]["listless.dev/inject"] = injected.to_string().into();
    let pods = format!("/api/v1/namespaces/{SHOP}/pods");
    let began = SystemTime::now();
    let made = stage.kube.client().send(Request::new(Method::POST, &pods).json(&pod)).await?;
    let made = made.successful()?.json()?;
    ensure!(is_injected(&made) == injected, "the pod is not as it was to be");
    stage.kube.pod(SHOP, "starting").await?;
    // It has begun, and need not listen yet.
    let seen = until(LIMIT, "an answer of the program", async || {
        stage.seen(SHOP, "starting").await.map(Some)
    });
    let seen = seen.await?;
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

/// A pod without work.
fn quiet() -> Value {
    let app = container("app", "stand", &[]);
    json!({"containers": [app], "terminationGracePeriodSeconds": 0})
}

fn median(mut durations: Vec<Duration>) -> Duration {
    durations.sort();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

async fn idle(stage: &mut Stage<'_>) -> Result<()> {
    stage.kube.apply(&pod(SHOP, "idle", &quiet())).await?;
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

/// The memory of both processes; shared pages are counted twice.
fn memory(stage: &Stage<'_>, pod: &str) -> Result<String> {
    let sidecar = stage.sidecar(pod)?;
    let [worker, supervisor] = [sidecar.worker, sidecar.supervisor].map(resident_bytes);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (worker, supervisor) = (mebibytes(worker?), mebibytes(supervisor?));
    Ok(format!("worker {worker:.1} MiB, supervisor {supervisor:.1} MiB"))
}
