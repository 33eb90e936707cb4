//! The cluster as its users see it: the API, kubectl and helm.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::artifacts::{Artifacts, source};
use crate::node::Node;
use crate::rig::client::{Answer, Client};
use crate::rig::control_plane::RequestCounts;

const POLL: Duration = Duration::from_millis(100);
/// The default limit on every wait.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The user with all rights.
#[derive(Debug)]
pub struct Kube {
    kubeconfig: PathBuf,
    kubernetes: PathBuf,
    helm: PathBuf,
    helm_3: PathBuf,
    home: PathBuf,
    client: Client,
}

/// Repeats a request until it has a result.
pub async fn until<T>(
    limit: Duration,
    what: &str,
    mut ask: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + limit;
    let mut polls = tokio::time::interval(POLL);
    loop {
        polls.tick().await;
        let outcome = ask().await;
        match outcome {
            Ok(Some(found)) => return Ok(found),
            Ok(None) if Instant::now() > deadline => bail!("no sign of {what} after {limit:?}"),
            Err(error) if Instant::now() > deadline => {
                return Err(error.context(format!("no sign of {what} after {limit:?}")));
            }
            _ => {}
        }
    }
}

// === impl Kube ===

impl Kube {
    /// Speaks to the node's apiserver.
    pub fn new(node: &Node, artifacts: &Artifacts) -> Result<Self> {
        Ok(Self {
            kubeconfig: node.kubeconfig()?,
            kubernetes: node.kubernetes().to_owned(),
            helm: artifacts.helm.clone(),
            helm_3: artifacts.helm_3.clone(),
            home: node.folder().join("home"),
            client: node.admin()?,
        })
    }

    /// The kubeconfig of the user with all rights.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client of the API.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Reads an object.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.client.get(path).await?.successful()?.json()
    }

    /// Reads a path with any response.
    pub async fn answer(&self, path: &str) -> Result<Answer> {
        self.client.get(path).await
    }

    /// The objects of a list.
    pub async fn list(&self, path: &str) -> Result<Vec<Value>> {
        let list = self.get(path).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The apiserver's own counts.
    pub async fn counts(&self) -> Result<RequestCounts> {
        let answer = self.client.get("/metrics").await?.successful()?;
        Ok(RequestCounts::parse(&String::from_utf8_lossy(&answer.body)))
    }

    /// kubectl, ready to run.
    pub fn kubectl_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.kubernetes);
        command.arg("kubectl").args(words).env("KUBECONFIG", &self.kubeconfig);
        command.env("HOME", &self.home).kill_on_drop(true).stdin(Stdio::null());
        command
    }

    /// Runs kubectl and returns its output.
    pub async fn kubectl(&self, words: &[&str]) -> Result<String> {
        let output = self.kubectl_command(words).output().await?;
        said(&format!("kubectl {}", words.join(" ")), &output)
    }

    /// Runs kubectl with text on its standard input.
    pub async fn kubectl_with(&self, words: &[&str], input: &str) -> Result<String> {
        feed(&format!("kubectl {}", words.join(" ")), self.kubectl_command(words), input).await
    }

    /// Creates or changes an object.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        self.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.map(drop)
    }

    /// Runs Helm 4 and returns its output.
    pub async fn helm(&self, words: &[&str]) -> Result<String> {
        self.run_helm(&self.helm, words).await
    }

    /// Runs Helm 3 and returns its output.
    pub async fn helm_3(&self, words: &[&str]) -> Result<String> {
        self.run_helm(&self.helm_3, words).await
    }

    async fn run_helm(&self, helm: &Path, words: &[&str]) -> Result<String> {
        let mut command = Command::new(helm);
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "HOME"] {
            command.env(variable, &self.home);
        }
        command.env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true).stdin(Stdio::null());
        let output = command.args(words).output().await?;
        said(&format!("helm {}", words.join(" ")), &output)
    }

    /// Gives Services names, and waits until they can be looked up.
    pub async fn serve_names(&self) -> Result<()> {
        let manifests = source("manifests/dns.yaml");
        self.kubectl(&["apply", "-f", manifests.to_str().context("a path that is text")?]).await?;
        self.rolled_out("kube-system", "coredns").await
    }

    /// Waits until all pods of a Deployment are of its present template, and Ready.
    pub async fn rolled_out(&self, namespace: &str, name: &str) -> Result<()> {
        let deployment = format!("deployment/{name}");
        let status = ["rollout", "status", &deployment, "--namespace", namespace];
        self.kubectl(&[status.as_slice(), &["--timeout=120s"]].concat()).await.map(drop)
    }

    /// The pods that carry a label `app`, without those that are being deleted.
    pub async fn pods(&self, namespace: &str, app: &str) -> Result<Vec<Value>> {
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{app}");
        let mut pods = self.list(&path).await?;
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(pods)
    }

    /// The only pod that carries a label `app`, once it is Ready.
    pub async fn pod(&self, namespace: &str, app: &str) -> Result<Value> {
        until(LIMIT, &format!("one pod {app} that is Ready"), async || {
            let mut pods = self.pods(namespace, app).await?;
            let pod = pods.pop().filter(|_| pods.is_empty());
            Ok(pod.filter(is_ready))
        })
        .await
    }

    /// The output of a program in a pod at a port, through the apiserver.
    pub async fn ask(&self, namespace: &str, pod: &str, port: u16, path: &str) -> Result<Answer> {
        let proxy = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}");
        self.client.get(&proxy).await
    }

    /// The metrics of a pod's sidecar.
    pub async fn sidecar_metrics(&self, namespace: &str, pod: &str) -> Result<RequestCounts> {
        let answer = self.ask(namespace, pod, 16020, "/metrics").await?.successful()?;
        Ok(RequestCounts::parse(&String::from_utf8_lossy(&answer.body)))
    }
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Reports whether a pod is Ready.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// Reports whether a pod has the sidecar.
pub fn is_injected(pod: &Value) -> bool {
    let containers = pod["spec"]["initContainers"].as_array();
    containers.is_some_and(|all| all.iter().any(|one| one["name"] == "listless-proxy"))
}

/// The status of a container of a pod.
pub fn container_status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let all = lists.iter().filter_map(|list| pod["status"][list].as_array()).flatten();
    all.into_iter().find(|status| status["name"] == container)
}

/// Runs a command with text on its standard input, and returns its output.
pub async fn feed(what: &str, mut command: Command, input: &str) -> Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut pipe = child.stdin.take().context("a pipe")?;
    pipe.write_all(input.as_bytes()).await?;
    drop(pipe);
    said(what, &child.wait_with_output().await?)
}

fn said(what: &str, output: &Output) -> Result<String> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what}: {said}{complained}");
    Ok(said)
}
