//! A running driver: a program that answers each line with its tally, or kubectl in a loop.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::tally::{Tally, median};

/// A cold start of a JVM on a busy machine.
const LINE_LIMIT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A driver that runs until it is dropped.
pub enum Workload {
    /// A program.
    Program(Box<Program>),
    /// kubectl, started again every period.
    Kubectl(Kubectl),
}

/// A running program.
pub struct Program {
    // Dropped first: killed.
    _child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

/// kubectl in a loop.
pub struct Kubectl {
    runs: Arc<Mutex<Runs>>,
    task: JoinHandle<()>,
}

/// The results of its runs.
#[derive(Debug, Default)]
struct Runs {
    tally: Tally,
    begun_at: Option<Instant>,
    gaps: Vec<Duration>,
}

// === impl Workload ===

impl Workload {
    /// Starts a program that reports its tally.
    pub fn program(mut command: Command, kubeconfig: &Path, log: PathBuf) -> Result<Self> {
        let errors = std::fs::File::create(&log)?;
        // No setting of the machine may direct the program elsewhere.
        command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_MASTER");
        command.env("KUBECONFIG", kubeconfig).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn()?;
        let ask = child.stdin.take().context("no standard input")?;
        let answers = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        Ok(Self::Program(Box::new(Program { _child: child, ask, answers, log })))
    }

    /// Starts a command every period, each time with an empty home.
    pub fn kubectl(
        program: &Path,
        arguments: &'static [&'static str],
        kubeconfig: &Path,
        homes: PathBuf,
        period: Duration,
    ) -> Self {
        let runs = Arc::<Mutex<Runs>>::default();
        let (program, kubeconfig) = (program.to_owned(), kubeconfig.to_owned());
        let told = Arc::clone(&runs);
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for number in 0_u32.. {
                ticks.tick().await;
                locked(&told).begin(Instant::now());
                let home = homes.join(number.to_string());
                let mut command = Command::new(&program);
                command.args(arguments).env("KUBECONFIG", &kubeconfig).env("HOME", &home);
                command.stdin(Stdio::null()).kill_on_drop(true);
                let outcome = command.output().await;
                locked(&told).end(outcome);
            }
        });
        Self::Kubectl(Kubectl { runs, task })
    }

    /// Its work so far.
    pub async fn tally(&mut self) -> Result<Tally> {
        match self {
            Self::Program(program) => Ok(serde_json::from_value(program.asked().await?)?),
            Self::Kubectl(kubectl) => Ok(locked(&kubectl.runs).tally()),
        }
    }

    /// Reports whether the informers of a program hold the real state.
    pub async fn is_synced(&mut self) -> Result<bool> {
        let Self::Program(program) = self else { bail!("kubectl has no informer") };
        Ok(program.asked().await?["synced"] == 1)
    }

    /// Waits until it has begun this many rounds.
    pub async fn begun(&mut self, cycles: u32, limit: Duration) -> Result<Tally> {
        let deadline = Instant::now() + limit;
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let tally = self.tally().await?;
            if tally.cycles >= u64::from(cycles) {
                return Ok(tally);
            }
            ensure!(Instant::now() < deadline, "not {cycles} rounds in {limit:?}: {tally:?}");
        }
    }
}

// === impl Program ===

impl Program {
    async fn asked(&mut self) -> Result<Value> {
        self.ask.write_all(b"\n").await?;
        self.ask.flush().await?;
        let line = tokio::time::timeout(LINE_LIMIT, self.answers.next_line()).await;
        match line.map_err(anyhow::Error::from).and_then(|line| Ok(line?)) {
            Ok(Some(line)) => serde_json::from_str(&line).with_context(|| line),
            other => bail!("{other:?}: {}", std::fs::read_to_string(&self.log)?),
        }
    }
}

// === impl Kubectl ===

impl Drop for Kubectl {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Runs ===

impl Runs {
    fn begin(&mut self, now: Instant) {
        self.tally.cycles += 1;
        self.gaps.extend(self.begun_at.map(|last| now - last));
        self.begun_at = Some(now);
    }

    fn end(&mut self, outcome: std::io::Result<std::process::Output>) {
        let tally = &mut self.tally;
        match outcome {
            Ok(output) if output.status.success() && !output.stdout.is_empty() => {
                tally.operations += 1;
            }
            Ok(output) => tally.errors.push(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => tally.errors.push(error.to_string()),
        }
    }

    fn tally(&self) -> Tally {
        let gaps: Vec<f64> = self.gaps.iter().map(Duration::as_secs_f64).collect();
        let period_seconds = median(gaps.clone()).unwrap_or_default();
        let distances = gaps.iter().map(|gap| (gap / period_seconds - 1.0).abs()).collect();
        let jitter = median(distances).unwrap_or_default();
        Tally { period_seconds, jitter, ..self.tally.clone() }
    }
}

fn locked(runs: &Mutex<Runs>) -> std::sync::MutexGuard<'_, Runs> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}
