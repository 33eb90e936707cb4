//! Faults of a sidecar, and their effect on its workload.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::kube::{LIMIT, container_status, until};
use crate::manifests::{SHOP, deployment, polling, template};
use crate::stage::{SEEN_PORT, Stage, kill};

/// The time that clients continue after a fault, to see all of it.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// A kubelet notices the end of a container within a second, and restarts it at once the first
/// time.
const AWAY_MAX: Duration = Duration::from_secs(5);
const BUNDLE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// Far less than the memory that a killed worker frees.
const STEP: u64 = 512 << 10;

/// A polling pod of this scenario's own.
async fn victim(stage: &Stage<'_>, app: &str, annotations: &Value) -> Result<String> {
    let spec = polling(&[("PERIOD_MILLIS", "50")]);
    stage.poller(&deployment(SHOP, app, 1, &template(app, annotations, &spec))).await
}

async fn away(stage: &Stage<'_>, app: &str) -> Result<()> {
    stage.kube.kubectl(&["delete", "deployment", app, "-n", SHOP]).await.map(drop)
}

/// The CA bundle of the workload.
pub async fn bundle(stage: &Stage<'_>, pod: &str) -> Result<String> {
    let path = format!("/file?path={BUNDLE}");
    let answer = stage.kube.ask(SHOP, pod, SEEN_PORT, &path).await?.successful()?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

async fn restarts(stage: &Stage<'_>, pod: &str) -> Result<u64> {
    let pod = stage.kube.get(&format!("/api/v1/namespaces/{SHOP}/pods/{pod}")).await?;
    let status = container_status(&pod, "listless-proxy").context("a status of the sidecar")?;
    status["restartCount"].as_u64().context("a number of restarts")
}

pub async fn a_killed_worker_costs_a_client_one_request_at_most(
    stage: &mut Stage<'_>,
) -> Result<()> {
    let pod = victim(stage, "killed", &json!({})).await?;
    let trusted = bundle(stage, &pod).await?;
    ensure!(trusted.matches("BEGIN CERTIFICATE").count() == 2, "{trusted}");
    let before = stage.sidecar(&pod)?;
    stage.reset(SHOP, &pod).await?;
    kill(before.worker)?;
    stage.next_worker(&pod, before.worker).await?;
    tokio::time::sleep(AFTERWARDS).await;
    let seen = stage.seen(SHOP, &pod).await?;
    seen.at_most_one_failure_each()?;
    ensure!(stage.sidecar(&pod)?.supervisor == before.supervisor, "another supervisor");
    ensure!(restarts(stage, &pod).await? == 0, "the container was started again");
    ensure!(bundle(stage, &pod).await? == trusted, "the workload trusts somebody else");
    stage.until_from_memory(SHOP, &pod).await?;
    stage.table.row(
        "worker killed under four clients, 20 lists a second each",
        format!("{} lists failed, the longest took {} ms", seen.failed(), seen.longest_millis),
    );
    away(stage, "killed").await
}

pub async fn a_worker_killed_for_want_of_memory_costs_a_client_one_request_at_most(
    stage: &mut Stage<'_>,
) -> Result<()> {
    let little =
        json!({"listless.dev/memory-limit": "64Mi", "listless.dev/memory-request": "32Mi"});
    let pod = victim(stage, "starved", &little).await?;
    let trusted = bundle(stage, &pod).await?;
    let before = stage.sidecar(&pod)?;
    let group = stage.memory_group(before.worker)?;
    // The kernel must kill the worker first, and after it the process that takes the memory. A
    // score of 1000 against one of 0 decides that, whatever each of them holds. A worker that is
    // started meanwhile inherits from its supervisor, and holds less.
    fs::write(format!("/proc/{}/oom_score_adj", before.worker), "1000")?;
    fs::write(format!("/proc/{}/oom_score_adj", before.supervisor), "0")?;
    stage.reset(SHOP, &pod).await?;
    starve(&group).await?;
    let next = stage.next_worker(&pod, before.worker).await?;
    tokio::time::sleep(AFTERWARDS).await;
    let seen = stage.seen(SHOP, &pod).await?;
    let after = stage.sidecar(&pod)?;
    ensure!(after.supervisor == before.supervisor, "another supervisor");
    ensure!(after.worker == next, "more than one worker was killed");
    seen.at_most_one_failure_each()?;
    ensure!(bundle(stage, &pod).await? == trusted, "the workload trusts somebody else");
    stage.until_from_memory(SHOP, &pod).await?;
    stage.table.row(
        "worker killed for want of memory, the same clients",
        format!("{} lists failed, the longest took {} ms", seen.failed(), seen.longest_millis),
    );
    away(stage, "starved").await
}

/// Takes the rest of a group's memory for a moment, each time a little more, until the kernel
/// kills.
///
/// The steps are small. The process is then done before the next worker needs the memory that the
/// last one freed.
async fn starve(group: &Path) -> Result<()> {
    let number = |names: [&str; 2]| {
        let text = names.iter().find_map(|name| fs::read_to_string(group.join(name)).ok());
        Ok::<_, anyhow::Error>(text.context("a number")?.trim().parse::<u64>()?)
    };
    let limit = number(["memory.limit_in_bytes", "memory.max"])?;
    let used = number(["memory.usage_in_bytes", "memory.current"])?;
    // The kernel may drop used pages of files without killing any process.
    for bytes in (limit.saturating_sub(used)..limit + STEP).step_by(usize::try_from(STEP)?) {
        let script = "echo 0 >/proc/self/oom_score_adj; echo $$ >\"$0\"/cgroup.procs
            exec dd if=/dev/zero of=/dev/null count=1 bs=\"$1\"";
        let mut command = tokio::process::Command::new("sh");
        command.args(["-c", script]).arg(group).arg(bytes.to_string());
        command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).status().await?;
        if killed(group)? > 0 {
            return Ok(());
        }
    }
    bail!("the kernel killed nobody for want of {limit} bytes")
}

/// The number of processes that the kernel killed for lack of memory.
fn killed(group: &Path) -> Result<u64> {
    let files = ["memory.oom_control", "memory.events"];
    let text = files.iter().find_map(|file| fs::read_to_string(group.join(file)).ok());
    let text = text.context("the group is gone")?;
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    Ok(count.context("a count of the killed")?.parse()?)
}

/// While the container is away nothing listens in the pod. Clients are refused until the kubelet
/// has restarted it.
pub async fn a_killed_sidecar_comes_back_and_is_still_trusted(stage: &mut Stage<'_>) -> Result<()> {
    let pod = victim(stage, "ended", &json!({})).await?;
    let trusted = bundle(stage, &pod).await?;
    let before = stage.sidecar(&pod)?;
    stage.reset(SHOP, &pod).await?;
    let began = SystemTime::now();
    kill(before.supervisor)?;
    let (failed, failing_for) = refusals(stage, &pod, began).await?;
    ensure!(stage.sidecar(&pod)?.supervisor != before.supervisor, "nothing was killed");
    let hits = stage.seen(SHOP, &pod).await?.hits;
    until(LIMIT, "an answer from memory", async || {
        Ok((stage.seen(SHOP, &pod).await?.hits > hits).then_some(()))
    })
    .await?;
    let from_memory = began.elapsed()?;
    tokio::time::sleep(AFTERWARDS).await;
    let seen = stage.seen(SHOP, &pod).await?;
    seen.refused_for_a_while(began, AWAY_MAX)?;
    stage.until_from_memory(SHOP, &pod).await?;
    ensure!(restarts(stage, &pod).await? == 1, "the container was not started again once");
    ensure!(bundle(stage, &pod).await? == trusted, "the workload trusts somebody else");
    stage.table.row(
        "sidecar killed, supervisor and all, the same clients",
        format!(
            "{} lists failed, the longest took {} ms; from memory again after {from_memory:.1?}",
            seen.failed(),
            seen.longest_millis
        ),
    );
    stage.table.row(
        "the same, a client that connects every 50 ms and tries nothing again",
        format!("{failed} times in vain, until {failing_for:.1?} after the kill, never later"),
    );
    away(stage, "ended").await
}

/// Connects repeatedly until a server answers again; returns the number of failures, and the time
/// of the success.
async fn refusals(stage: &Stage<'_>, pod: &str, since: SystemTime) -> Result<(u32, Duration)> {
    let path = "/reach?url=https://127.0.0.1:16443/version";
    let mut every = tokio::time::interval(Duration::from_millis(50));
    let (mut failed, mut failing_for) = (0, Duration::ZERO);
    let mut answered = 0;
    // Several answers are required, because one alone may come from the process that was just
    // killed.
    while answered < 20 {
        every.tick().await;
        let reached = stage.kube.ask(SHOP, pod, SEEN_PORT, path).await?.successful()?.json()?;
        let error = reached["error"].as_str().unwrap_or_default();
        if error.is_empty() {
            answered += 1;
            continue;
        }
        (answered, failed, failing_for) = (0, failed + 1, since.elapsed()?);
        ensure!(failing_for < AWAY_MAX, "in vain after {failing_for:?}: {error}");
    }
    Ok((failed, failing_for))
}

pub async fn a_worker_that_crashes_three_times_is_followed_by_safe_mode(
    stage: &mut Stage<'_>,
) -> Result<()> {
    let pod = victim(stage, "crashing", &json!({})).await?;
    let mut worker = stage.sidecar(&pod)?.worker;
    for _ in 0..3 {
        kill(worker)?;
        worker = stage.next_worker(&pod, worker).await?;
        // A worker that does not accept connections yet has not begun.
        until(LIMIT, "a worker that listens", async || {
            Ok(stage.kube.sidecar_metrics(SHOP, &pod).await.ok())
        })
        .await?;
    }
    let arguments = fs::read_to_string(format!("/proc/{worker}/cmdline"))?;
    ensure!(arguments.contains("--worker=safe"), "{arguments:?}");
    let metrics = stage.kube.sidecar_metrics(SHOP, &pod).await?;
    ensure!(metrics.sum("listless_safe_mode", &[]) == 1.0, "the metrics know of no safe mode");
    stage.reset(SHOP, &pod).await?;
    tokio::time::sleep(AFTERWARDS).await;
    let seen = stage.seen(SHOP, &pod).await?;
    seen.no_failure()?;
    ensure!(seen.lists > 0 && seen.hits == 0, "safe mode answers from memory: {seen:?}");
    away(stage, "crashing").await
}
