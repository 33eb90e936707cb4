//! Unmodified programs in four languages, each with its command.

use std::path::PathBuf;

use tokio::process::Command;

use crate::clusters::skipped;
use crate::rig::artifact::{Built, source_folder};
use crate::rig::client_program::ClientProgram;
use crate::unmodified::clients;

/// The programs, built.
pub struct Programs {
    fabric8: PathBuf,
    follower: PathBuf,
    python: PathBuf,
    /// kubectl itself.
    pub kubectl: PathBuf,
}

// === impl Programs ===

impl Programs {
    /// Builds the missing programs; `None` if the machine cannot, with the reason printed.
    pub fn build() -> Option<Self> {
        let fabric8 = match ClientProgram::Fabric8.build().expect("a build that works") {
            Built::Here(path) => path,
            Built::Impossible(reason) => {
                skipped("the fabric8 program", &reason);
                return None;
            }
        };
        let (follower, kubectl) = (clients::follower()?, clients::kubectl()?);
        Some(Self { fabric8, follower, python: clients::python_libraries()?, kubectl })
    }

    /// Threads that list the pods of a namespace, each by a label, every three seconds.
    pub fn fabric8(&self, namespace: &str, threads: u32) -> Command {
        let classes = format!("{0}/poller.jar:{0}/libraries/*", self.fabric8.display());
        let mut command = Command::new("java");
        command.args(["-Xmx256m", "-cp", &classes, "dev.listless.rig.Main", "drive"]);
        command.args([namespace, &threads.to_string(), "3000"]);
        command
    }

    /// Reads a pod and lists its namespace every three seconds.
    pub fn python(&self, namespace: &str, pod: &str) -> Command {
        let mut command = Command::new("python3");
        command.arg(source_folder("clients/python").join("poller.py"));
        command.env("PYTHONPATH", &self.python).args([namespace, pod, "3"]);
        command
    }

    /// Agents that list the pods of their node every four seconds, in one namespace or, if it is
    /// empty, in all.
    pub fn agents(&self, namespace: &str) -> Command {
        let mut command = Command::new(&self.follower);
        command.args(["agents", namespace, "4000ms"]);
        command
    }
}
