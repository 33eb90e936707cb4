//! Tests on a real node: control plane, kubelet, containerd and the shipped image.
//!
//! One node is started in namespaces of its own, and all scenarios run on it in order. It is
//! stopped at every kind of end. No packet may leave it. A machine without root or without the
//! Debian packages gets a message; with `LISTLESS_REQUIRE_NODE=1` that is a failure. Words on the
//! command line select scenarios by parts of their names; `--build` builds their requirements and
//! ends.
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    unreachable_pub,
    reason = "what it prints is its output; modules are as in a library"
)]

mod artifacts;
mod kube;
mod machine;
mod manifests;
mod node;
#[expect(dead_code, reason = "shared with the cluster tests; used in part here")]
#[path = "../cluster/rig.rs"]
mod rig;
mod scenarios;
mod stage;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

use artifacts::Artifacts;
use node::Node;
use stage::Stage;
use table::Table;

/// Leaves the node up until the suite is interrupted, for an inspection.
const LEFT_UP: &str = "LISTLESS_NODE_STAYS";

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        scenarios::ALL.iter().for_each(|scenario| println!("{}: test", scenario.name));
        return ExitCode::SUCCESS;
    }
    if let Some(reason) = machine::lacks() {
        println!("the tests on a node do not run: {reason}");
        return if machine::is_required() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let is_build = std::env::args().any(|argument| argument == "--build");
    match if is_build { Artifacts::build().map(drop) } else { run() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("the tests on a node failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    // The suite uses one thread, which is this one: the node ends with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let artifacts = Artifacts::build()?;
        let began = Instant::now();
        let mut node = Node::prepare(&artifacts)?;
        let outcome = tokio::select! {
            outcome = play(&mut node, &artifacts) => outcome,
            interrupted = interruption() => interrupted,
        };
        let strays = node.strays();
        node.down().context("the node cannot be taken down")?;
        outcome?;
        let strays = strays?;
        if strays > 0 {
            bail!("{strays} packets wanted to leave the node");
        }
        println!("proof: node: no packet left it; all in {:.0?} after the builds", began.elapsed());
        Ok(())
    })
}

/// Starts the node and runs all selected scenarios.
async fn play(node: &mut Node, artifacts: &Artifacts) -> Result<()> {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let began = Instant::now();
    node.up().await.context("the node does not come up")?;
    let mut table = Table::default();
    table.row("node Ready after its first start", format!("{:.1?}", began.elapsed()));
    let mut stage = Stage::set(node, artifacts, table)?;
    stage.kube.serve_names().await.context("the cluster's DNS does not come up")?;
    let failed = scenarios::run(&mut stage, &wanted).await;
    println!("\n{}", stage.table);
    if std::env::var_os(LEFT_UP).is_some() {
        println!("the node stays up: KUBECONFIG={}", stage.kube.kubeconfig().display());
        std::future::pending::<()>().await;
    }
    match failed? {
        0 => Ok(()),
        failed => bail!("{failed} scenarios failed; logs are in {}", node.folder().display()),
    }
}

async fn interruption() -> Result<()> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupted.recv() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    }
}
