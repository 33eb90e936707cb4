//! Workloads of several kinds beside their sidecars.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::install::prepare_namespace;
use crate::kube::{LIMIT, container_status, is_injected, name, until};
use crate::manifests::{SHOP, container, deployment, job, labelled, pod, polling, template};
use crate::stage::{Seen, Stage};

/// A CronJob starts at the full minute.
const MINUTE_LIMIT: Duration = Duration::from_secs(100);
/// The apiserver's name for pods that use the cluster's DNS.
const APISERVER: &str = "kubernetes.default.svc";
const FORWARD: &str = "127.0.0.1:18480";

pub async fn a_job_completes_beside_its_sidecar(stage: &mut Stage<'_>) -> Result<()> {
    stage.kube.apply(&job(SHOP, "batch", &once())).await?;
    completed(stage, "batch").await
}

pub async fn a_cron_job_runs_to_its_end(stage: &mut Stage<'_>) -> Result<()> {
    let template = job(SHOP, "cron", &once());
    let cron = json!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "cron", "namespace": SHOP},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": template["spec"]}},
    });
    stage.kube.apply(&cron).await?;
    let jobs = format!("/apis/batch/v1/namespaces/{SHOP}/jobs");
    let begun = until(MINUTE_LIMIT, "a job of the CronJob", async || {
        let jobs = stage.kube.list(&jobs).await?;
        let begun = jobs.iter().find(|job| job["metadata"]["ownerReferences"][0]["name"] == "cron");
        Ok(begun.map(|job| name(job).to_owned()))
    })
    .await?;
    stage
        .kube
        .kubectl(&["patch", "cronjob", "cron", "-n", SHOP, "-p", r#"{"spec":{"suspend":true}}"#])
        .await?;
    completed(stage, &begun).await?;
    stage.kube.kubectl(&["delete", "cronjob", "cron", "-n", SHOP]).await.map(drop)
}

/// Lists for a while and ends.
fn once() -> Value {
    json!({"restartPolicy": "Never", "containers": [container("app", "once", &[("LISTS", "30")])]})
}

/// Waits for the end of a Job, and checks the results of its pod.
async fn completed(stage: &Stage<'_>, job: &str) -> Result<()> {
    let path = format!("/apis/batch/v1/namespaces/{SHOP}/jobs/{job}");
    until(LIMIT, &format!("the end of job {job}"), async || {
        let status = &stage.kube.get(&path).await?["status"];
        ensure!(status["failed"].is_null(), "job {job}: {status}");
        Ok((status["succeeded"] == 1).then_some(()))
    })
    .await?;
    let pods = format!("/api/v1/namespaces/{SHOP}/pods?labelSelector=job-name%3D{job}");
    let pods = stage.kube.list(&pods).await?;
    let pod = pods.first().context("a pod of the job")?;
    ensure!(is_injected(pod), "{job} has no sidecar");
    let sidecar = container_status(pod, "listless-proxy").context("a status of the sidecar")?;
    ensure!(sidecar["state"]["terminated"]["exitCode"] == 0, "{sidecar}");
    let told = stage.kube.kubectl(&["logs", name(pod), "-n", SHOP, "-c", "app"]).await?;
    from_memory(&told)
}

/// Most lists of a program that has just started must come from memory.
fn from_memory(told: &str) -> Result<()> {
    let seen: Seen = serde_json::from_str(told.trim()).with_context(|| told.to_owned())?;
    seen.no_failure()?;
    ensure!(seen.hits * 2 > seen.lists, "{} of {} from memory", seen.hits, seen.lists);
    Ok(())
}

pub async fn init_containers_are_served_too(stage: &mut Stage<'_>) -> Result<()> {
    let spec = json!({
        "initContainers": [container("first", "once", &[("LISTS", "30")])],
        "containers": [container("app", "stand", &[])],
        "terminationGracePeriodSeconds": 1,
    });
    stage.kube.apply(&pod(SHOP, "prepared", &spec)).await?;
    stage.kube.pod(SHOP, "prepared").await?;
    let told = stage.kube.kubectl(&["logs", "prepared", "-n", SHOP, "-c", "first"]).await?;
    from_memory(&told)?;
    stage.kube.kubectl(&["delete", "pod", "prepared", "-n", SHOP]).await.map(drop)
}

/// A program that is configured with the apiserver's name: its sidecar takes that over, and looks
/// it up.
pub async fn a_sidecar_finds_the_apiserver_by_its_name(stage: &mut Stage<'_>) -> Result<()> {
    let spec = polling(&[("KUBERNETES_SERVICE_HOST", APISERVER)]);
    let made = deployment(SHOP, "named", 1, &template("named", &json!({}), &spec));
    let pod = stage.poller(&made).await?;
    stage.seen(SHOP, &pod).await?.no_failure()?;
    let pod = stage.kube.get(&format!("/api/v1/namespaces/{SHOP}/pods/{pod}")).await?;
    let environment = &pod["spec"]["initContainers"][0]["env"];
    let told = environment.as_array().context("variables")?.iter();
    let mut told = told.filter(|one| one["name"] == "KUBERNETES_SERVICE_HOST");
    ensure!(told.any(|one| one["value"] == APISERVER), "the sidecar has {environment}");
    stage.kube.kubectl(&["delete", "deployment", "named", "-n", SHOP]).await.map(drop)
}

pub async fn a_restricted_namespace_takes_injected_pods(stage: &mut Stage<'_>) -> Result<()> {
    let place = "restricted";
    let mut labels = labelled();
    labels["pod-security.kubernetes.io/enforce"] = "restricted".into();
    prepare_namespace(stage, place, &labels).await?;
    let plain = stage.kube.apply(&pod(place, "plain", &polling(&[]))).await;
    let refusal = plain.err().context("a pod was taken that is not restricted")?;
    ensure!(refusal.to_string().contains("violates PodSecurity"), "{refusal}");
    let mut spec = polling(&[]);
    spec["securityContext"] =
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    spec["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let poller = deployment(place, "poller", 1, &template("poller", &json!({}), &spec));
    stage.poller(&poller).await?;
    stage.kube.kubectl(&["delete", "namespace", place, "--wait=false"]).await.map(drop)
}

pub async fn exec_logs_and_port_forward_reach_an_injected_pod(stage: &mut Stage<'_>) -> Result<()> {
    let pod = stage.kube.pod(SHOP, "poller").await?;
    let pod = name(&pod);
    let told = stage
        .kube
        .kubectl(&["exec", pod, "-n", SHOP, "-c", "app", "--", "/workload", "once"])
        .await?;
    from_memory(&told)?;
    let version = ["exec", pod, "-n", SHOP, "-c", "listless-proxy", "--", "/listless", "--version"];
    ensure!(stage.kube.kubectl(&version).await?.starts_with("listless "), "no version");
    let log = stage.kube.kubectl(&["logs", pod, "-n", SHOP, "-c", "listless-proxy"]).await?;
    ensure!(!log.trim().is_empty(), "the sidecar says nothing");
    let (_, port) = FORWARD.split_once(':').context("a port")?;
    let ports = format!("{port}:16021");
    let mut forward = stage.kube.kubectl_command(&["port-forward", pod, "-n", SHOP, &ports]);
    let _forward = forward.stdout(std::process::Stdio::null()).spawn()?;
    let page =
        until(LIMIT, "the sidecar's page", async || Ok(plain_get(FORWARD, "/").await.ok())).await?;
    ensure!(page.contains("200 OK") && page.contains("Listless"), "{page:.300}");
    Ok(())
}

/// A GET without TLS; returns the whole response with its headers.
async fn plain_get(address: &str, path: &str) -> Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    ensure!(!answer.is_empty(), "no answer");
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

pub async fn a_rolling_restart_disturbs_nobody(stage: &mut Stage<'_>) -> Result<()> {
    let app = "rolling";
    let made = deployment(SHOP, app, 2, &template(app, &json!({}), &polling(&[])));
    stage.kube.apply(&made).await?;
    stage.kube.rolled_out(SHOP, app).await?;
    let before = names(&stage.kube.pods(SHOP, app).await?);
    stage.kube.kubectl(&["rollout", "restart", &format!("deployment/{app}"), "-n", SHOP]).await?;
    stage.kube.rolled_out(SHOP, app).await?;
    let pods = stage.kube.pods(SHOP, app).await?;
    ensure!(pods.len() == 2 && pods.iter().all(is_injected), "{:?}", names(&pods));
    for pod in names(&pods) {
        ensure!(!before.contains(&pod), "{pod} is an old one");
        stage.until_from_memory(SHOP, &pod).await?;
        stage.seen(SHOP, &pod).await?.no_failure()?;
    }
    stage.kube.kubectl(&["delete", "deployment", app, "-n", SHOP]).await.map(drop)
}

fn names(pods: &[Value]) -> Vec<String> {
    pods.iter().map(|pod| name(pod).to_owned()).collect()
}
