//! One child process with its log: started, signalled, measured, and never left behind.
//!
//! Dropping a [`Process`] ends it with SIGTERM, then SIGKILL. The child's standard input is a pipe
//! held here. A program that ends with its standard input therefore also ends when this one
//! crashes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, kill_process};

/// The time a process may take to end after SIGTERM before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// Linux counts process time in hundredths of a second on every platform we run on.
const TICKS_PER_SEC: f64 = 100.0;

/// The signals the tests send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Asks the process to end cleanly.
    Terminate,
    /// Stops it from running, as a stalled machine would.
    Pause,
    /// Lets it run on.
    Continue,
}

/// A running child process and the file its output goes to.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

// === impl Signal ===

impl Signal {
    fn of_system(self) -> rustix::process::Signal {
        match self {
            Self::Terminate => rustix::process::Signal::TERM,
            Self::Pause => rustix::process::Signal::STOP,
            Self::Continue => rustix::process::Signal::CONT,
        }
    }
}

// === impl Process ===

impl Process {
    /// Starts `command`, its output appended to `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reports whether the process has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = Pid::from_child(&self.child);
        kill_process(id, signal.of_system())
            .with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Ends the process with SIGTERM and returns its end; kills it when it takes too long.
    #[expect(clippy::disallowed_methods, reason = "also called from drop, where nothing can await")]
    pub fn stop(&mut self) -> Result<Stopped> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(Stopped::Already(status.code()));
        }
        // A paused process cannot act on SIGTERM.
        self.signal(Signal::Continue)?;
        self.signal(Signal::Terminate)?;
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Stopped::Cleanly(status.code()));
            }
            std::thread::sleep(POLL);
        }
        self.kill()?;
        Ok(Stopped::Killed)
    }

    /// Ends the process with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Processor time used so far, user and system.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let [own, _] = cpu_seconds(&self.id().to_string())?;
        Ok(own)
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.id())
    }

    /// The last lines of the log, for messages about failures.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let all: Vec<&str> = text.lines().collect();
        let tail = all[all.len().saturating_sub(lines)..].join("\n");
        format!("--- end of {}'s log ---\n{tail}\n---", self.name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.stop().is_err() {
            // A destructor can do nothing more. The kill is best effort.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The end of a process that was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It had ended before, with this code.
    Already(Option<i32>),
    /// It ended by itself after SIGTERM, with this code.
    Cleanly(Option<i32>),
    /// It did not end in time and was killed.
    Killed,
}

/// The processor time of all programs that this process started and that have ended.
pub fn ended_cpu_seconds() -> Result<f64> {
    let [_, ended] = cpu_seconds("self")?;
    Ok(ended)
}

/// The processor time of a process, user and system, and that of its ended children.
fn cpu_seconds(process: &str) -> Result<[f64; 2]> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The second field is the name in parentheses and may hold spaces. Fields are counted after it.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> =
        after.split_whitespace().skip(11).map_while(|field| field.parse().ok()).collect();
    match ticks[..] {
        [user, system, ended_user, ended_system, ..] => {
            Ok([user + system, ended_user + ended_system].map(|ticks| ticks / TICKS_PER_SEC))
        }
        _ => bail!("unexpected /proc/{process}/stat: {stat}"),
    }
}

/// The resident memory of any process.
pub fn resident_bytes(process: u32) -> Result<u64> {
    memory_bytes(process, "status", "VmRSS:")
}

/// The memory that a line of a process's file in `/proc` tells in kB, in bytes.
pub fn memory_bytes(process: u32, file: &str, name: &'static str) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/{file}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("no {name} in /proc/{process}/{file}"))? * 1024)
}
