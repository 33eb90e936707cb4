//! `listless probe`: the command of a kubelet's exec probe.
//!
//! It reads the health address only. An unreachable apiserver or missing replicas neither delay a
//! pod's start nor end the pod.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use tokio::time::Instant;

use crate::{
    app::{options::address, reachable},
    config::Span,
};

/// The options of `listless probe`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    question: Question,
    /// The --health address of the Listless to probe.
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    #[arg(default_value = "127.0.0.1:7445")]
    health: SocketAddr,
    /// The time during which the probe is retried until it succeeds; a kubelet runs it only once a
    /// second.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    within: Span,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
struct Question {
    /// Check that its certificates and files are written, and that it listens for clients.
    #[arg(long)]
    started: bool,
    /// Check that it is alive.
    #[arg(long)]
    live: bool,
}

/// The timeout of each step. Kubelets allow one second by default, and more if configured.
const PATIENCE: Duration = Duration::from_secs(5);

/// The maximum size of a response.
const ANSWER_BYTES_MAX: u64 = 4096;

/// The pause before a retry.
const AGAIN: Duration = Duration::from_millis(5);

/// Runs the probe, and fails unless it succeeds in time.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let deadline = Instant::now() + arguments.within.0;
        loop {
            match once(arguments) {
                Err(_) if Instant::now() < deadline => tokio::time::sleep(AGAIN).await,
                outcome => return outcome,
            }
        }
    })
}

fn once(arguments: &Arguments) -> anyhow::Result<()> {
    let path = if arguments.question.started { "/readyz" } else { "/livez" };
    let address = reachable(arguments.health);
    let answer = ask(address, path).with_context(|| format!("http://{address}{path}"))?;
    let status = answer.split(' ').nth(1).unwrap_or("nothing");
    if status != "200" {
        let reason = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
        bail!("http://{address}{path} says {status}: {}", reason.trim().replace('\n', ", "));
    }
    Ok(())
}

fn ask(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
