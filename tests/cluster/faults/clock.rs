//! A jump of the wall clock. Timers follow another clock, so no client may notice.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::{COLLECTION, CONFIGURATION, RECOVERY, added, from_memory, make_program, write};
use crate::clusters::{Machine, available};
use crate::rig::client::{Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::{PROGRAM, ProxyProcess};

const DAY: i64 = 24 * 3600;
/// The positions of the clock, in seconds from the right time: it is set forward, then back.
const JUMPS: [i64; 3] = [3 * DAY, -3 * DAY, 0];
/// The objects written before the first jump, and after each.
const BEFORE: usize = 5;
const AFTER: usize = 3;

/// A Listless whose clock can be set.
struct Clock {
    seconds: File,
    program: PathBuf,
    _folder: TempDir,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jump_of_the_clock_changes_no_answer_on_1_36() {
    if !available(Version::V1_36) {
        return;
    }
    let _machine = Machine::beside().await;
    let plane = ControlPlane::start(Version::V1_36).await.expect("a control plane");
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    write(&straight, "kept", BEFORE).await.expect("writes");

    let clock = Clock::new().expect("a clock");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let config = Some(CONFIGURATION);
    let proxy = ProxyProcess::start_program(&clock.program, "local", &kubeconfig, config);
    let proxy = proxy.await.expect("a proxy");
    let through = proxy.client(Protocol::Http2);
    let (_, version) = from_memory(&through, BEFORE).await.expect("a list");
    let target = format!("{COLLECTION}?watch=true&timeoutSeconds=300&resourceVersion={version}");
    let watch = through.open(Request::get(&target)).await.expect("a watch");
    let told = tokio::spawn(added(watch.into_body(), JUMPS.len() * AFTER));
    let before = requests_for_replica(&proxy).await.expect("metrics");

    let mut written = Vec::new();
    for (index, seconds) in JUMPS.into_iter().enumerate() {
        clock.set(seconds).expect("a jump");
        let prefix = format!("after-{index}");
        write(&straight, &prefix, AFTER).await.expect("writes");
        written.extend((0..AFTER).map(|number| format!("{prefix}-{number}")));
        // Each over a new connection: certificates are checked against the clock.
        let fresh = proxy.client(Protocol::Http1);
        let (names, _) = from_memory(&fresh, BEFORE + written.len()).await.expect("a list");
        assert!(written.iter().all(|name| names.contains(name)), "{names:?}\n{}", proxy.log());
        let answer = fresh.get(COLLECTION).await.expect("an answer");
        if seconds > 0 {
            let date = answer.header("date").expect("a date");
            let jumped = off_by(date).expect("a date");
            assert!((jumped.as_secs() - seconds).abs() < 60, "the clock did not jump: {date}");
        }
    }
    let told = tokio::time::timeout(RECOVERY, told).await.expect("events").expect("no panic");
    assert_eq!(told, written, "{}", proxy.log());
    let after = requests_for_replica(&proxy).await.expect("metrics");
    eprintln!(
        "proof: a clock that jumps by three days forward, six back and three forward: {} events in \
         order, {} requests for the replica",
        told.len(),
        after - before
    );
    assert_eq!(after, before, "{}", proxy.log());
}

async fn requests_for_replica(proxy: &ProxyProcess) -> Result<f64> {
    let metrics = proxy.metrics().await?;
    Ok(metrics.sum("listless_upstream_requests_total", &[("origin", "replica")]))
}

/// The time between now and a date of a response.
fn off_by(date: &str) -> Result<SignedDuration> {
    let date = DateTimeParser::new().parse_timestamp(date)?;
    Ok(date.duration_since(Timestamp::now()))
}

// === impl Clock ===

impl Clock {
    fn new() -> Result<Self> {
        let folder = TempDir::with_prefix("listless-clock-")?;
        let path = |name: &str| folder.path().join(name);
        let (library, offset, program) = (path("clock.so"), path("offset"), path("listless"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/faults/clock.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        ensure!(compiler.status().context("cc")?.success(), "the clock does not compile");
        let seconds = File::create(&offset)?;
        seconds.set_len(8)?;
        let script = format!(
            "CLOCK={} LD_PRELOAD={} exec {PROGRAM} \"$@\"",
            offset.display(),
            library.display()
        );
        make_program(&program, &script)?;
        Ok(Self { seconds, program, _folder: folder })
    }

    fn set(&self, seconds: i64) -> Result<()> {
        Ok(self.seconds.write_all_at(&seconds.to_ne_bytes(), 0)?)
    }
}
