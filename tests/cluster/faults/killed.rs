//! A process that is killed, and started again a second later as a kubelet does: clients with their usual retries.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;
use tokio::time::sleep;

use super::RECOVERY;
use crate::clusters::{Machine, available, skipped};
use crate::drivers::workload::Workload;
use crate::rig::artifact::{Built, source_folder};
use crate::rig::client::Protocol;
use crate::rig::client_program::ClientProgram;
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::load_data::LoadData;
use crate::rig::process::Process;
use crate::rig::proxy_process::{PROGRAM, answering};
use crate::rig::wait::until;
use crate::unmodified::clients;

const SHOP: LoadData = LoadData { namespace: "shop", pods: 100, pollers: 4, apps: 4, nodes: 5 };
const KILLS: usize = 5;
/// The time in which nobody listens: a kubelet starts a sidecar's container again about a second after its end.
const DOWN: Duration = Duration::from_secs(1);
/// The time between two kills, and before the first.
const BETWEEN: Duration = Duration::from_secs(8);

/// A Listless that keeps its address and authority when it is started again.
struct Restartable {
    folder: TempDir,
    port: u16,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_retries_notices_nothing_of_a_killed_process_on_1_36() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let fabric8 = match ClientProgram::Fabric8.build().expect("a build that works") {
        Built::Here(path) => path,
        Built::Impossible(reason) => return skipped("the fabric8 program", &reason),
    };
    let (Some(follower), Some(python)) = (clients::follower(), clients::python_libraries()) else {
        return;
    };
    let _machine = Machine::alone().await;
    let plane = ControlPlane::start(version).await.expect("a control plane");
    SHOP.load(&plane.client(User::Admin, Protocol::Http1).expect("a client")).await.expect("pods");
    let straight = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let listless = Restartable::new().expect("a free port");
    let mut process = listless.start(&straight).await.expect("a start");

    let log = |name: &str| plane.folder().join(format!("killed-{name}.log"));
    let start = |name: &'static str, command| {
        let program = Workload::program(command, &listless.kubeconfig(), log(name));
        (name, program.expect("a program"))
    };
    let classes = format!("{0}/poller.jar:{0}/libraries/*", fabric8.display());
    let mut java = tokio::process::Command::new("java");
    java.args(["-Xmx256m", "-cp", &classes, "dev.listless.rig.Main", "drive"]);
    java.args([SHOP.namespace, "2", "300"]);
    let mut poller = tokio::process::Command::new("python3");
    poller.arg(source_folder("clients/python").join("poller.py")).env("PYTHONPATH", &python);
    poller.args([SHOP.namespace, &SHOP.name(5), "0.3"]);
    let mut agents = tokio::process::Command::new(&follower);
    agents.args(["agents", SHOP.namespace, "300ms"]);
    let mut programs =
        [start("fabric8", java), start("python", poller), start("client-go", agents)];
    for _ in 0..KILLS {
        sleep(BETWEEN).await;
        process.kill().expect("killed");
        sleep(DOWN).await;
        process = listless.start(&straight).await.expect("a start");
    }
    sleep(BETWEEN).await;
    let mut said = Vec::new();
    for (name, program) in &mut programs {
        let tally = program.tally().await.expect("a tally");
        assert!(tally.operations > 0, "{name} did nothing");
        said.push((*name, tally.operations, tally.errors.len()));
        if *name == "fabric8" {
            assert!(tally.errors.is_empty(), "{:?}", tally.errors);
        }
    }
    eprintln!(
        "proof: {KILLS} kills, {DOWN:?} each without a listener: client, calls, failed calls: {said:?}"
    );
    assert!(process.is_running());
}

// === impl Restartable ===

impl Restartable {
    fn new() -> Result<Self> {
        let free = std::net::TcpListener::bind("127.0.0.1:0")?;
        let port = free.local_addr()?.port();
        Ok(Self { folder: TempDir::with_prefix("listless-killed-")?, port })
    }

    fn kubeconfig(&self) -> std::path::PathBuf {
        self.folder.path().join("kubeconfig")
    }

    async fn start(&self, straight: &Path) -> Result<Process> {
        let mut command = Command::new(PROGRAM);
        command.args(["local", "--context", "cluster", "--kubeconfig"]).arg(straight);
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        command.args(["--admin", "127.0.0.1:0", "--health", "127.0.0.1:0"]);
        command.arg("--write-kubeconfig").arg(self.kubeconfig());
        command.arg("--state").arg(self.folder.path().join("state"));
        let process = Process::start("listless", command, &self.folder.path().join("log"))?;
        let written = self.kubeconfig();
        until("it answers", RECOVERY, async || Ok(answering(&written).await.is_some())).await?;
        Ok(process)
    }
}
