//! The tools of the scenarios: the node, the cluster, and the processes of injected pods.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::artifacts::Artifacts;
use crate::kube::{Kube, LIMIT, name, until};
use crate::node::Node;
use crate::table::Table;

/// The port where the workload reports its results.
pub const SEEN_PORT: u16 = 8080;
/// The error text of Go for a connection to a port where nothing listens.
const REFUSED: &str = "connection refused";

/// Everything that a scenario uses.
pub struct Stage<'a> {
    /// The node.
    pub node: &'a Node,
    /// The cluster.
    pub kube: Kube,
    /// The built programs and images.
    pub artifacts: &'a Artifacts,
    /// The figures.
    pub table: Table,
}

/// The results of a workload's clients.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seen {
    /// The start time of the program.
    pub began: String,
    /// Lists that were answered.
    pub lists: u64,
    /// Objects in the last.
    pub items: u64,
    /// Answers from memory.
    pub hits: u64,
    /// Lists that failed.
    pub failures: Option<Vec<FailedList>>,
    /// Failed connections.
    pub failed_dials: u64,
    /// The longest duration of a list.
    pub longest_millis: u64,
}

/// A list that failed.
#[derive(Clone, Debug, Deserialize)]
pub struct FailedList {
    /// The client.
    pub client: u32,
    /// The time.
    pub when: jiff::Timestamp,
    /// The reason.
    pub error: String,
}

/// The processes of one sidecar.
#[derive(Clone, Debug)]
pub struct Sidecar {
    /// The first process.
    pub supervisor: u32,
    /// The one that serves.
    pub worker: u32,
}

// === impl Stage ===

impl<'a> Stage<'a> {
    /// Creates it with a node that is up.
    pub fn set(node: &'a Node, artifacts: &'a Artifacts, table: Table) -> Result<Self> {
        Ok(Self { node, kube: Kube::new(node, artifacts)?, artifacts, table })
    }

    /// Returns the results of a polling pod so far.
    pub async fn seen(&self, namespace: &str, pod: &str) -> Result<Seen> {
        self.read_seen(namespace, pod, "/seen").await
    }

    /// The same, and resets the counts.
    pub async fn reset(&self, namespace: &str, pod: &str) -> Result<Seen> {
        self.read_seen(namespace, pod, "/reset").await
    }

    async fn read_seen(&self, namespace: &str, pod: &str, path: &str) -> Result<Seen> {
        let answer = self.kube.ask(namespace, pod, SEEN_PORT, path).await?.successful()?;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Waits until memory answers a polling pod, all of the time for a while.
    pub async fn until_from_memory(&self, namespace: &str, pod: &str) -> Result<()> {
        let what = format!("answers from memory in {pod}");
        until(LIMIT, &what, async || {
            self.reset(namespace, pod).await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
            let seen = self.seen(namespace, pod).await?;
            Ok((seen.lists > 0 && seen.hits == seen.lists).then_some(()))
        })
        .await
    }

    /// Creates a polling Deployment of one pod and waits until memory answers it.
    pub async fn poller(&self, deployment: &Value) -> Result<String> {
        let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default();
        self.kube.apply(deployment).await?;
        self.kube.rolled_out(namespace, name(deployment)).await?;
        let pod = self.kube.pod(namespace, name(deployment)).await?;
        self.until_from_memory(namespace, name(&pod)).await?;
        Ok(name(&pod).to_owned())
    }

    /// The processes of a pod's sidecar.
    pub fn sidecar(&self, pod: &str) -> Result<Sidecar> {
        let marker = format!("POD_NAME={pod}");
        let (mut supervisor, mut worker) = (None, None);
        for process in processes()? {
            let arguments = words_of(process, "cmdline");
            if arguments
                .first()
                .is_none_or(|first| !first.ends_with("/listless") && first != "/proc/self/exe")
                || arguments.get(1).is_none_or(|second| second != "sidecar")
                || !words_of(process, "environ").contains(&marker)
            {
                continue;
            }
            let is_worker = arguments.iter().any(|argument| argument.starts_with("--worker"));
            *(if is_worker { &mut worker } else { &mut supervisor }) = Some(process);
        }
        Ok(Sidecar {
            supervisor: supervisor.with_context(|| format!("no supervisor in {pod}"))?,
            worker: worker.with_context(|| format!("no worker in {pod}"))?,
        })
    }

    /// Waits for another worker than this one.
    pub async fn next_worker(&self, pod: &str, before: u32) -> Result<u32> {
        until(LIMIT, "another worker", async || {
            let worker = self.sidecar(pod).ok().map(|sidecar| sidecar.worker);
            Ok(worker.filter(|worker| *worker != before))
        })
        .await
    }

    /// The memory group of a process.
    pub fn memory_group(&self, process: u32) -> Result<PathBuf> {
        let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
        let of = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let root = match controllers {
                "memory" => Path::new("/sys/fs/cgroup/memory"),
                "" => Path::new("/sys/fs/cgroup"),
                _ => return None,
            };
            Some(root.join(path.trim_start_matches('/')))
        };
        let groups: Vec<_> = groups.lines().filter_map(of).collect();
        let named = |group: &&PathBuf| group.to_string_lossy().contains("kubepods");
        groups.iter().find(named).cloned().context("no memory group of a pod")
    }
}

// === impl Seen ===

impl Seen {
    /// Fails if a client saw more than one list fail, or a connection was refused.
    pub fn at_most_one_failure_each(&self) -> Result<()> {
        let failures = self.failures.as_deref().unwrap_or_default();
        ensure!(self.failed_dials == 0, "{} connections were refused", self.failed_dials);
        for failure in failures {
            let same = failures.iter().filter(|other| other.client == failure.client);
            ensure!(same.count() <= 1, "client {} failed twice: {failures:?}", failure.client);
        }
        Ok(())
    }

    /// Fails if a client saw more than one list fail for a reason other than a closed port. Also
    /// fails if any failed later than a limit after a moment.
    pub fn refused_for_a_while(&self, since: SystemTime, limit: Duration) -> Result<()> {
        let failures = self.failures.as_deref().unwrap_or_default();
        let cut: Vec<_> = failures.iter().filter(|one| !one.error.contains(REFUSED)).collect();
        for failure in &cut {
            let same = cut.iter().filter(|other| other.client == failure.client);
            ensure!(same.count() <= 1, "client {} was cut off twice: {cut:?}", failure.client);
        }
        let late = failures.iter().find(|one| SystemTime::from(one.when) > since + limit);
        ensure!(late.is_none(), "more than {limit:?} afterwards: {late:?}");
        Ok(())
    }

    /// Fails if any list did.
    pub fn no_failure(&self) -> Result<()> {
        let first = self.failures.iter().flatten().next();
        ensure!(
            first.is_none(),
            "{} lists failed, the first: {}",
            self.failed(),
            first.map_or("", |failure| &failure.error)
        );
        Ok(())
    }

    /// The number of failed lists.
    pub fn failed(&self) -> usize {
        self.failures.as_ref().map_or(0, Vec::len)
    }
}

fn processes() -> Result<Vec<u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Words that end with a zero; none of a process that has ended.
fn words_of(process: u32, file: &str) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Ends a process at once.
pub fn kill(process: u32) -> Result<()> {
    let output = std::process::Command::new("kill").args(["-9", &process.to_string()]).output()?;
    ensure!(output.status.success(), "process {process} cannot be killed");
    Ok(())
}
