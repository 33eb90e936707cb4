//! Client programs that follow objects until they receive `settle`.
//!
//! Each is an unmodified library, in its own language, configured from KUBECONFIG alone, with a
//! namespace and its own name. It prints `{"ready": true}` once it follows. After the line `settle`
//! on its standard input, it waits until all its copies hold the object `marker`. Then it prints
//! the copies.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::reflectors::Reflectors;

/// A cold start of a JVM on a busy machine, and the programs' own limit of 40 s for settling.
const LINE_LIMIT: Duration = Duration::from_secs(180);

/// The kind of follower.
#[derive(Clone, Debug)]
pub enum Follower {
    /// A program of its own.
    Program(Program),
    /// kube-rs, in this process.
    KubeRs,
}

/// A running follower.
pub enum Following {
    /// A program.
    Program(Box<Running>),
    /// Reflectors.
    Reflectors(Reflectors),
}

/// The start command of a program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name in messages.
    pub name: &'static str,
    /// The command and its first arguments.
    pub command: Vec<String>,
    /// Further variables of its environment.
    pub environment: Vec<(&'static str, String)>,
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

/// The result of a program.
#[derive(Debug, serde::Deserialize)]
pub struct Finding {
    /// The resourceVersion of each object in each of its copies, by name.
    pub caches: BTreeMap<String, BTreeMap<String, String>>,
    /// The number of each kind of event.
    pub counts: BTreeMap<String, u64>,
    /// The errors that it reported.
    pub errors: Vec<String>,
}

// === impl Follower ===

impl Follower {
    /// Its name in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Program(program) => program.name,
            Self::KubeRs => "kube-rs 5",
        }
    }

    /// Starts it and waits until it follows.
    pub async fn start(
        &self,
        kubeconfig: &Path,
        folder: &Path,
        namespace: &str,
        instance: &str,
    ) -> Result<Following> {
        match self {
            Self::Program(program) => {
                let running = program.start(kubeconfig, folder, namespace, instance).await?;
                Ok(Following::Program(Box::new(running)))
            }
            Self::KubeRs => {
                Ok(Following::Reflectors(Reflectors::start(kubeconfig, namespace).await?))
            }
        }
    }
}

// === impl Following ===

impl Following {
    /// Lets it catch up, and reads its result.
    pub async fn settle(self) -> Result<Finding> {
        match self {
            Self::Program(running) => running.settle().await,
            Self::Reflectors(reflectors) => Ok(reflectors.settle().await),
        }
    }
}

// === impl Program ===

impl Program {
    /// Starts it and waits until it follows.
    async fn start(
        &self,
        kubeconfig: &Path,
        folder: &Path,
        namespace: &str,
        instance: &str,
    ) -> Result<Running> {
        let (first, rest) = self.command.split_first().context("no command")?;
        let name = format!("{} {instance}", self.name);
        let log = folder.join(format!("{}.log", name.replace(' ', "-")));
        let mut command = Command::new(first);
        command.args(rest).args([namespace, instance]).env("KUBECONFIG", kubeconfig);
        // No setting of the machine may direct the program elsewhere.
        command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_MASTER");
        command.envs(self.environment.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log)?);
        let mut child = command.kill_on_drop(true).spawn().with_context(|| name.clone())?;
        let input = child.stdin.take().context("no standard input")?;
        let output = child.stdout.take().context("no standard output")?;
        let lines = BufReader::new(output).lines();
        let mut running = Running { name, child, input, lines, log };
        let line = running.line().await?;
        anyhow::ensure!(line["ready"] == true, "{}: {line}", running.name);
        Ok(running)
    }
}

// === impl Running ===

impl Running {
    async fn settle(mut self) -> Result<Finding> {
        self.input.write_all(b"settle\n").await?;
        let line = self.line().await?;
        let finding = serde_json::from_value(line).context(self.name.clone())?;
        // Its result is known. Its exit code does not matter.
        let _ = self.child.start_kill();
        Ok(finding)
    }

    /// The last lines of its error output.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// The next line of JSON; other lines, which libraries print themselves, are skipped.
    async fn line(&mut self) -> Result<Value> {
        let next = async {
            while let Some(line) = self.lines.next_line().await? {
                if let Ok(value @ Value::Object(_)) = serde_json::from_str(&line) {
                    return Ok(value);
                }
            }
            bail!("ended without a word")
        };
        let line = tokio::time::timeout(LINE_LIMIT, next).await;
        let line = line.map_err(anyhow::Error::from).and_then(|line| line);
        line.with_context(|| format!("{}: {}", self.name, self.log()))
    }
}
