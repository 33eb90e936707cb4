//! kubectl, directly and through Listless: its output and its exit code, command by command.
//!
//! Both sides work in namespaces of their own and do the same. The comparison leaves out only the
//! parts that no two objects share: uids, versions, times and addresses.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStdout, Command};
use tokio::sync::watch;

use super::plain::plain;
use super::stage::{Fault, Scene};
use crate::rig::client::Request;

/// The time limit of every command of the script.
const LIMIT: Duration = Duration::from_secs(60);
/// A pod whose creation ends a churn: a watch shows it after all earlier events.
const MARKER: &str = "marker";
/// The pause before a change, so that a command is waiting for it; from where it starts, its output is
/// the same if it is not.
const PAUSE: Duration = Duration::from_millis(800);

/// One of the two sides.
#[derive(Debug)]
pub struct Side<'a> {
    scene: &'a Scene<'a>,
    program: &'a Path,
    namespace: &'static str,
    kubeconfig: PathBuf,
    /// The folder of its discovery cache and the manifests.
    home: PathBuf,
}

/// The changes while a command runs.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// Pod `one` becomes ready.
    Ready,
    /// Pod `two` is deleted.
    Deleted,
    /// The deployment's pods exist.
    RolledOut,
    /// Pods are created, changed and deleted once it shows the first; when it shows the last it is
    /// ended.
    Churn,
}

/// A command and its result.
#[derive(Debug)]
pub struct Said {
    /// The arguments.
    pub command: &'static str,
    /// The exit code and both outputs, without the parts that may differ.
    pub outcome: String,
}

/// It prints a line once it has found the pod, which it would not look for in vain.
const DELETE: &str = "wait pod/two --for=jsonpath={.metadata.name}=two --for=delete --timeout=30s";

/// The commands of the script; `MANIFEST` and `CHANGED` are files.
const SCRIPT: &[(&str, Meanwhile)] = &[
    ("version", Meanwhile::Nothing),
    ("api-resources --sort-by=name", Meanwhile::Nothing),
    ("api-versions", Meanwhile::Nothing),
    ("auth can-i list pods", Meanwhile::Nothing),
    ("auth can-i --list", Meanwhile::Nothing),
    ("auth whoami", Meanwhile::Nothing),
    ("explain pods.spec.containers", Meanwhile::Nothing),
    ("diff -f MANIFEST", Meanwhile::Nothing),
    ("apply -f MANIFEST", Meanwhile::Nothing),
    ("apply -f MANIFEST", Meanwhile::Nothing),
    ("get pods", Meanwhile::Nothing),
    ("get pods", Meanwhile::Nothing),
    ("get pods -o wide --show-labels", Meanwhile::Nothing),
    ("get pods -o json", Meanwhile::Nothing),
    ("get pods -o yaml", Meanwhile::Nothing),
    ("get pods -o name -l app=web", Meanwhile::Nothing),
    ("get pods -o name --field-selector metadata.name=two", Meanwhile::Nothing),
    ("get pods -o name --chunk-size=1", Meanwhile::Nothing),
    ("get pods -o json --chunk-size=0", Meanwhile::Nothing),
    ("get pod one -o jsonpath={.spec.containers[0].image}", Meanwhile::Nothing),
    ("get pod absent", Meanwhile::Nothing),
    ("get pod absent -o json --ignore-not-found", Meanwhile::Nothing),
    ("get nonsense", Meanwhile::Nothing),
    ("get all", Meanwhile::Nothing),
    ("get configmaps,deployments,services -o json", Meanwhile::Nothing),
    ("get configmap settings -o yaml --show-managed-fields", Meanwhile::Nothing),
    ("describe pod one", Meanwhile::Nothing),
    ("describe configmap settings", Meanwhile::Nothing),
    ("get pods -w -o name", Meanwhile::Churn),
    ("get pods -w -o json -l app=web", Meanwhile::Churn),
    // Tables are forwarded. A forwarded watch that is cut ends with a reset, which kubectl prints
    // as a row `Failure`. The direct one ends without output. Nothing is therefore cut here.
    ("get pods -w", Meanwhile::Churn),
    ("wait --for=condition=Ready pod/one --timeout=30s", Meanwhile::Ready),
    ("wait --for=condition=Ready pod/one --timeout=30s", Meanwhile::Nothing),
    ("wait --for=condition=Ready pod/two --timeout=1s", Meanwhile::Nothing),
    (DELETE, Meanwhile::Deleted),
    ("rollout status deployment/web --timeout=30s", Meanwhile::RolledOut),
    ("rollout history deployment/web", Meanwhile::Nothing),
    ("diff -f CHANGED", Meanwhile::Nothing),
    ("apply -f CHANGED", Meanwhile::Nothing),
    ("diff -f CHANGED", Meanwhile::Nothing),
    ("apply -f CHANGED --server-side --force-conflicts", Meanwhile::Nothing),
    ("get configmap settings -o jsonpath={.data}", Meanwhile::Nothing),
    ("label pod one tier=front", Meanwhile::Nothing),
    ("get pods -o name -l tier=front", Meanwhile::Nothing),
    ("annotate configmap settings note=here", Meanwhile::Nothing),
    ("scale deployment/web --replicas=3", Meanwhile::Nothing),
    ("get deployment web -o jsonpath={.spec.replicas}", Meanwhile::Nothing),
    ("create configmap made --from-literal=a=b", Meanwhile::Nothing),
    ("create configmap made --from-literal=a=b", Meanwhile::Nothing),
    ("get configmaps -o name", Meanwhile::Nothing),
    ("logs one", Meanwhile::Nothing),
    ("delete configmap made", Meanwhile::Nothing),
    ("get configmap made", Meanwhile::Nothing),
    ("delete pod one --grace-period=0 --force", Meanwhile::Nothing),
    ("delete -f MANIFEST --ignore-not-found", Meanwhile::Nothing),
    ("get pods,configmaps", Meanwhile::Nothing),
];

// === impl Side ===

impl<'a> Side<'a> {
    /// Prepares a home with the manifests; the namespace exists. The direct side also uses the
    /// relay, so that both can be cut off.
    pub fn new(
        scene: &'a Scene<'a>,
        program: &'a Path,
        namespace: &'static str,
        through: bool,
    ) -> Result<Self> {
        let written = scene.proxy.kubeconfig().to_owned();
        let kubeconfig = if through { written } else { scene.relayed.clone() };
        let home = scene.plane.folder().join(format!("{namespace}-home"));
        std::fs::create_dir_all(&home)?;
        for (file, value) in [("MANIFEST", "first"), ("CHANGED", "second")] {
            std::fs::write(home.join(file), manifest(value).to_string())?;
        }
        Ok(Self { scene, program, namespace, kubeconfig, home })
    }

    /// Runs the whole script.
    pub async fn play(&self) -> Result<Vec<Said>> {
        let mut said = Vec::new();
        for (number, (command, meanwhile)) in SCRIPT.iter().enumerate() {
            if number == SCRIPT.len() / 2 {
                self.scene.suffer(Fault::Cut).await?;
            }
            let outcome = tokio::time::timeout(LIMIT, self.run(command, *meanwhile)).await;
            let outcome = outcome.map_err(anyhow::Error::from).and_then(|outcome| outcome);
            said.push(Said { command, outcome: outcome.with_context(|| (*command).to_owned())? });
        }
        Ok(said)
    }

    async fn run(&self, arguments: &str, meanwhile: Meanwhile) -> Result<String> {
        let mut child = self.command(arguments).spawn()?;
        let id = child.id().context("it has just been started")?.to_string();
        let (printing, printed) = watch::channel(String::new());
        let read = read(child.stdout.take().context("a pipe")?, printing);
        let happen = async {
            match meanwhile {
                Meanwhile::Nothing => {}
                Meanwhile::Churn => shown(&printed, "one").await,
                Meanwhile::RolledOut => shown(&printed, "Waiting").await,
                Meanwhile::Deleted => {
                    shown(&printed, "condition met").await;
                    tokio::time::sleep(PAUSE).await;
                }
                Meanwhile::Ready => tokio::time::sleep(PAUSE).await,
            }
            self.happen(meanwhile).await?;
            if matches!(meanwhile, Meanwhile::Churn) {
                shown(&printed, MARKER).await;
                // It may have ended by itself.
                Command::new("kill").args(["-INT", &id]).stderr(Stdio::null()).status().await?;
            }
            anyhow::Ok(())
        };
        let (output, read, happened) = tokio::join!(child.wait_with_output(), read, happen);
        read.and(happened)?;
        if matches!(meanwhile, Meanwhile::Churn) {
            self.delete_pod(MARKER).await?;
            self.shows_no_marker().await?;
        }
        let output = output?;
        let (out, error) = (printed.borrow(), String::from_utf8_lossy(&output.stderr));
        let text =
            format!("{}\n{}\n{error}", output.status, *out).replace(self.namespace, "NAMESPACE");
        Ok(plain(&text))
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(self.program);
        command.args(["--namespace", self.namespace]).args(arguments.split(' '));
        command.current_dir(&self.home).env("HOME", &self.home).env("KUBECONFIG", &self.kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }

    /// Waits until lists lack the marker: nobody promised this side that a deletion by another
    /// client is shown at once, and the next command lists.
    async fn shows_no_marker(&self) -> Result<()> {
        let shows_it = async || -> Result<bool> {
            let listed = self.command("get pods -o name").output().await?;
            Ok(String::from_utf8_lossy(&listed.stdout).contains(MARKER))
        };
        while shows_it().await? {}
        Ok(())
    }

    async fn happen(&self, meanwhile: Meanwhile) -> Result<()> {
        match meanwhile {
            Meanwhile::Nothing => Ok(()),
            Meanwhile::Ready => self.patch("api/v1", "pods/one/status", &ready()).await,
            Meanwhile::Deleted => self.delete_pod("two").await,
            Meanwhile::RolledOut => {
                self.patch("apis/apps/v1", "deployments/web/status", &rolled_out()).await
            }
            Meanwhile::Churn => self.churn().await,
        }
    }

    async fn churn(&self) -> Result<()> {
        for round in 0..3 {
            self.create_pod("churned").await?;
            let note = json!({"metadata": {"annotations": {"round": round.to_string()}}});
            self.patch("api/v1", "pods/churned", &note).await?;
            let label = json!({"metadata": {"labels": {"app": "other"}}});
            self.patch("api/v1", "pods/churned", &label).await?;
            self.delete_pod("churned").await?;
        }
        self.create_pod(MARKER).await
    }

    async fn create_pod(&self, name: &str) -> Result<()> {
        let post = Request::new(Method::POST, &self.path("api/v1", "pods"));
        self.send(post.json(&pod(name, "web"))).await
    }

    async fn delete_pod(&self, name: &str) -> Result<()> {
        let path = self.path("api/v1", &format!("pods/{name}?gracePeriodSeconds=0"));
        self.send(Request::new(Method::DELETE, &path)).await
    }

    fn path(&self, group: &str, rest: &str) -> String {
        format!("/{group}/namespaces/{}/{rest}", self.namespace)
    }

    async fn patch(&self, group: &str, rest: &str, patch: &Value) -> Result<()> {
        let request = Request::new(Method::PATCH, &self.path(group, rest));
        self.send(request.body("application/merge-patch+json", patch.to_string())).await
    }

    async fn send(&self, request: Request) -> Result<()> {
        self.scene.straight.send(request).await?.successful().map(drop)
    }
}

/// Publishes the output of a command as it comes, until it ends.
async fn read(mut out: ChildStdout, printing: watch::Sender<String>) -> Result<()> {
    let mut printed = Vec::new();
    while out.read_buf(&mut printed).await? > 0 {
        printing.send_replace(String::from_utf8_lossy(&printed).into_owned());
    }
    Ok(())
}

/// Waits until a command has printed this and the rest of its line or object, or has ended.
async fn shown(printed: &watch::Receiver<String>, text: &str) {
    let is_whole = |printed: &String| {
        let end = if printed.starts_with('{') { "\n}\n" } else { "\n" };
        printed.split_once(text).is_some_and(|(_, rest)| rest.contains(end))
    };
    let mut printed = printed.clone();
    // The comparison finds out which.
    let _ended = printed.wait_for(is_whole).await;
}

/// Fails with every command whose outcomes differ.
pub fn compare(straight: &[Said], through: &[Said]) -> Result<()> {
    let pairs = straight.iter().zip(through);
    let differing = pairs.filter(|(straight, through)| straight.outcome != through.outcome);
    let told: Vec<String> = differing
        .map(|(straight, through)| {
            let lines = |said: &Said| said.outcome.lines().map(str::to_owned).collect::<Vec<_>>();
            let (straight_lines, through_lines) = (lines(straight), lines(through));
            let only = |all: &[String], other: &[String], sign| {
                let only = all.iter().filter(|line| !other.contains(line));
                only.map(|line| format!("{sign} {line}")).collect::<Vec<_>>().join("\n")
            };
            format!(
                "=== {} ({} and {} lines)\n{}\n{}",
                straight.command,
                straight_lines.len(),
                through_lines.len(),
                only(&straight_lines, &through_lines, "-"),
                only(&through_lines, &straight_lines, "+")
            )
        })
        .collect();
    ensure!(told.is_empty(), "{} commands differ:\n{}", told.len(), told.join("\n"));
    Ok(())
}

fn manifest(value: &str) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
    });
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    });
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
        "data": {"value": value, "text": "several\nlines <&>"},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    });
    let items = [settings, pod("one", "web"), pod("two", "web"), pod("three", "job"), web, service];
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn pod(name: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
    })
}

fn ready() -> Value {
    json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn rolled_out() -> Value {
    let all = 2;
    json!({"status": {
        "observedGeneration": 1, "replicas": all, "updatedReplicas": all, "readyReplicas": all,
        "availableReplicas": all,
    }})
}
