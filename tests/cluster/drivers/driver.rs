//! The five drivers: the start command of each, and the expected report about it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use tokio::process::Command;

use super::field::{FLEET, RINGS, SETS};
use super::report::{Culprit, Pattern};
use super::workload::Workload;
use crate::clusters::skipped;
use crate::rig::artifact::Built;
use crate::rig::client_program::ClientProgram;
use crate::rig::control_plane::Version;
use crate::unmodified::clients;

/// Seconds between two resyncs of the stateful sets, where time is short.
const RESYNC_VARIABLE: &str = "LISTLESS_RESYNC_SECONDS";
/// The same as in production.
const RESYNC_PERIOD: Duration = Duration::from_secs(30);
const FABRIC8_THREADS: &str = "20";
const KUBECTL: &[&str] = &["--namespace", RINGS, "get", "pods", "--output", "name"];

const FABRIC8: &[Pattern] =
    &[Pattern { id: "quorum-list-polling", of: ("list", "pods"), fix: ".inform(" }];
const STORM: &[Pattern] =
    &[Pattern { id: "resync-storm", of: ("list", "pods"), fix: "SyncPeriod" }];
const RESYNC: &[Pattern] = &[
    Pattern { id: "resync-storm", of: ("get", "statefulsets.apps"), fix: "Lister" },
    Pattern { id: "no-op-writes", of: ("update", "statefulsets.apps/status"), fix: "DeepEqual" },
];
const AGENTS: &[Pattern] =
    &[Pattern { id: "quorum-list-polling", of: ("list", "pods"), fix: "SharedInformerFactory" }];
const DISCOVERY: &[Pattern] =
    &[Pattern { id: "discovery-refetch", of: ("get", "/api"), fix: "cache" }];

/// The programs, built.
#[derive(Debug)]
pub struct Programs {
    fabric8: PathBuf,
    client_go: PathBuf,
    follower: PathBuf,
    kubectl: PathBuf,
}

/// One driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// fabric8: 20 threads list the same pods by label every 3 s.
    Polls,
    /// A controller-runtime manager whose short SyncPeriod reconciles 2 000 config maps, each with
    /// a LIST by label.
    Storm,
    /// A controller that resyncs 500 stateful sets: reads each, and writes its status unchanged.
    Resync,
    /// 50 agents list the pods of their node every 4 s.
    Agents,
    /// kubectl with an empty discovery cache.
    Kubectl,
}

// === impl Programs ===

impl Programs {
    /// Builds the programs that are missing; `None` if the machine cannot, with the reason printed.
    pub fn build() -> Option<Self> {
        Some(Self {
            fabric8: here("the fabric8 program", ClientProgram::Fabric8)?,
            client_go: here("the client-go program", ClientProgram::ClientGo)?,
            follower: clients::follower()?,
            kubectl: clients::kubectl()?,
        })
    }

    /// An informer of pods without any fault; it is killed when dropped.
    pub fn informer(&self, kubeconfig: &Path, log: PathBuf) -> Result<Workload> {
        let mut command = Command::new(&self.client_go);
        command.args(["-namespace", FLEET.namespace, "-informers", "1"]);
        Workload::program(command, kubeconfig, log)
    }
}

fn here(what: &str, program: ClientProgram) -> Option<PathBuf> {
    match program.build().expect("a build that works") {
        Built::Here(path) => Some(path),
        Built::Impossible(reason) => {
            skipped(what, &reason);
            None
        }
    }
}

fn resync() -> Duration {
    let asked = std::env::var(RESYNC_VARIABLE).ok();
    asked.map_or(RESYNC_PERIOD, |text| {
        Duration::from_secs(text.parse().expect("a number of seconds"))
    })
}

// === impl Driver ===

impl Driver {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Polls, Self::Storm, Self::Resync, Self::Agents, Self::Kubectl];

    /// All of them, in an order in which no two control planes have the busiest at once.
    pub fn in_turn(version: Version) -> [Self; 5] {
        match version {
            Version::V1_36 => [Self::Storm, Self::Resync, Self::Polls, Self::Agents, Self::Kubectl],
            Version::V1_30 => [Self::Polls, Self::Agents, Self::Kubectl, Self::Storm, Self::Resync],
        }
    }

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Polls => "fabric8 polls",
            Self::Storm => "controller-runtime storm",
            Self::Resync => "resync, no-op writes",
            Self::Agents => "node agents",
            Self::Kubectl => "kubectl, empty cache",
        }
    }

    /// The time between two rounds, where the machine is fast enough.
    pub fn period(self) -> Duration {
        match self {
            Self::Polls => Duration::from_secs(3),
            // A manager begins each round up to a tenth early or late, and rounds last some
            // seconds.
            Self::Storm => Duration::from_secs(30),
            Self::Resync => resync(),
            Self::Agents => Duration::from_secs(4),
            Self::Kubectl => Duration::from_secs(1),
        }
    }

    /// The number of measured rounds.
    pub fn rounds(self) -> u32 {
        match self {
            Self::Polls => 4,
            Self::Storm | Self::Resync => 2,
            Self::Agents => 3,
            // The number of confirmations of documents varies in a shorter time.
            Self::Kubectl => 30,
        }
    }

    /// The number of rounds before the measurement; memory has then learned the queries.
    pub fn rounds_before(self) -> u32 {
        match self {
            // A handler that was added after the informer began misses the first resync.
            Self::Storm | Self::Resync => 2,
            Self::Polls | Self::Agents => 3,
            // Documents come from memory ten seconds after they are followed.
            Self::Kubectl => 14,
        }
    }

    /// The expected report about it.
    pub fn culprit(self) -> Culprit {
        let (user_agent, library, findings) = match self {
            Self::Polls => ("fabric8-kubernetes-client/", "fabric8", FABRIC8),
            Self::Storm => ("ring-operator/", "controller-runtime", STORM),
            Self::Resync => ("set-controller/", "client-go", RESYNC),
            Self::Agents => ("node-agent/", "client-go", AGENTS),
            Self::Kubectl => ("kubectl/", "kubectl", DISCOVERY),
        };
        Culprit { user_agent, library, findings }
    }

    /// Starts it with this much time between two rounds; its output goes into the folder.
    pub fn start(
        self,
        programs: &Programs,
        period: Duration,
        kubeconfig: &Path,
        folder: &Path,
    ) -> Result<Workload> {
        let milliseconds = period.as_millis().to_string();
        let log = folder.join("driver.log");
        let go = |name: &str, way: &str, namespace: &str| {
            let mut command = std::process::Command::new(&programs.follower);
            // Go programs derive their user agent from the name they are started by.
            command.arg0(name).args([way, namespace, &format!("{milliseconds}ms")]);
            Workload::program(command.into(), kubeconfig, log.clone())
        };
        match self {
            Self::Polls => {
                let path = format!("{0}/poller.jar:{0}/libraries/*", programs.fabric8.display());
                let mut command = Command::new("java");
                command.args(["-Xmx512m", "-cp", &path, "dev.listless.rig.Main", "drive"]);
                command.args([FLEET.namespace, FABRIC8_THREADS, &milliseconds]);
                Workload::program(command, kubeconfig, log)
            }
            Self::Storm => go("ring-operator", "storm", RINGS),
            Self::Resync => go("set-controller", "resync", SETS),
            Self::Agents => go("node-agent", "agents", ""),
            Self::Kubectl => {
                let program = &programs.kubectl;
                let homes = folder.join("homes");
                Ok(Workload::kubectl(program, KUBECTL, kubeconfig, homes, period))
            }
        }
    }
}
