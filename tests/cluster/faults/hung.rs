//! A worker whose data path hangs: it is replaced, and its clients are answered from memory again.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::clusters::{Machine, available};
use crate::rig::client::Request;
use crate::rig::control_plane::Version;
use crate::rig::wait::{until, until_hit_at_last};
use crate::sidecar::{CONFIG_MAPS, Pod};

/// The time in which a worker that hangs is replaced, and has its replicas again.
const REPLACED: Duration = Duration::from_secs(90);
const STARTED: Duration = Duration::from_secs(20);

/// Stops one thread of another process, as a deadlock would, until that process ends.
const HANG: &str = "
import ctypes, os, sys
libc, thread = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
SEIZE, INTERRUPT, ALL = 0x4206, 0x4207, 0x40000000
for request in (SEIZE, INTERRUPT):
    if libc.ptrace(request, thread, None, None) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(thread, ALL)
print('stopped', flush=True)
os.waitpid(thread, ALL)
";

#[tokio::test]
async fn a_worker_that_hangs_is_replaced_on_1_36() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let (_plane, mut pod) = Pod::beside_a_config_map(version, "one").await;
    let client = pod.client(Some(&pod.mirrored("token")));
    let read = Request::get(CONFIG_MAPS);
    until_hit_at_last(&client, &read, STARTED).await.expect("a hit");
    let authorities = pod.mirrored("ca.crt");
    let worker = worker_of(pod.proxy.id()).expect("a worker");

    let begun = Instant::now();
    // A process without further threads for its data path uses its first one.
    let mut hang = tokio::process::Command::new("python3");
    hang.args(["-c", HANG, &worker.to_string()]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut hanging = hang.kill_on_drop(true).spawn().expect("a debugger");
    let mut said = BufReader::new(hanging.stdout.take().expect("its output")).lines();
    let said = said.next_line().await.expect("a line");
    assert_eq!(said.as_deref(), Some("stopped"), "the thread runs on");
    // The first worker takes its requests with it.
    let answered = async || Ok(client.send(read.clone()).await.is_ok_and(|it| it.is_hit()));
    until("memory to answer again", REPLACED, answered).await.expect("another worker");
    let (took, next) = (begun.elapsed(), worker_of(pod.proxy.id()).expect("a worker"));
    assert_ne!(worker, next, "{}", pod.proxy.log());
    assert!(hanging.wait().await.expect("an end").success(), "the thread was not stopped");
    assert!(pod.proxy.is_running() && pod.mirrored("ca.crt") == authorities);
    assert!(pod.proxy.log().contains("has run nothing for a minute"), "{}", pod.proxy.log());
    eprintln!("proof: a worker that hangs is replaced, and memory answers again, after {took:.1?}");
}

/// Returns the only child of a supervisor.
fn worker_of(supervisor: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"))?;
    let mut children = children.split_whitespace();
    let worker = children.next().context("a child")?.parse()?;
    ensure!(children.next().is_none(), "several workers");
    Ok(worker)
}
