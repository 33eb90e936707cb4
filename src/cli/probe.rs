//! `listless probe`: what a kubelet runs in the container to learn how Listless fares.
//!
//! It asks the health address and nothing else. An apiserver that does not answer, or replicas that
//! are not there yet, are no reason to keep a pod from starting or to end it.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Args;
use tokio::time::Instant;

use super::reachable;
use crate::config::Span;

/// What to ask, and where.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    question: Question,
    /// The --health address of the Listless that is asked.
    #[arg(long, value_name = "ADDRESS", value_parser = super::options::address)]
    #[arg(default_value = "127.0.0.1:7445")]
    health: SocketAddr,
    /// How long to go on asking until the answer is good: a kubelet asks but once a second.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    within: Span,
}

#[derive(Clone, Copy, Debug, Args)]
#[group(required = true, multiple = false)]
struct Question {
    /// Whether its certificates and files are made, and clients are listened to.
    #[arg(long)]
    started: bool,
    /// Whether it still moves.
    #[arg(long)]
    live: bool,
}

/// How long each step of asking may take; kubelets give a second by default, and more when told.
const PATIENCE: Duration = Duration::from_secs(5);

/// More of an answer is not looked at.
const ANSWER_BYTES_MAX: u64 = 4096;

/// How long after an answer that is not good it asks again.
const AGAIN: Duration = Duration::from_millis(5);

/// Asks, and fails unless the answer is good in time.
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
