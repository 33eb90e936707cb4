//! Unmodified clients of six languages follow objects through Listless, through faults and all.
//!
//! Each program runs twice at a time, straight and through `listless local`, while objects change.
//! In the end every copy it keeps must equal the truth, and through Listless it may have complained
//! of nothing it did not complain of straight.

mod churn;
mod play;
mod program;
mod relay;
pub mod stage;

use play::Play;
use program::Program;
use stage::Fault;

use crate::clusters::skipped;
use crate::rig::artifact::{Built, Recipe, source_folder};
use crate::rig::control_plane::Version;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fabric8_7_follows_from_memory_through_a_cut_and_a_restart() {
    let Some(program) = fabric8("fabric8 7.8.0", "7.8.0") else { return };
    Play { version: Version::V1_36, namespace: "fabric8-7", faults: &[Fault::Cut, Fault::Restart] }
        .perform(&program)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fabric8_6_follows_from_memory_through_a_cut() {
    let Some(program) = fabric8("fabric8 6.14.0", "6.14.0") else { return };
    Play { version: Version::V1_30, namespace: "fabric8-6", faults: &[Fault::Cut] }
        .perform(&program)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_informers_with_streamed_lists_follow_from_memory_through_a_cut_and_a_restart() {
    let Some(program) = client_go("client-go WatchList", "informers", true) else { return };
    Play {
        version: Version::V1_36,
        namespace: "client-go-streamed",
        faults: &[Fault::Cut, Fault::Restart],
    }
    .perform(&program)
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_informers_with_plain_lists_follow_from_memory_through_a_cut() {
    let Some(program) = client_go("client-go", "informers", false) else { return };
    Play { version: Version::V1_36, namespace: "client-go-listed", faults: &[Fault::Cut] }
        .perform(&program)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_runtime_manager_follows_from_memory_through_a_cut_and_a_restart() {
    let Some(program) = client_go("controller-runtime", "manager", true) else { return };
    Play {
        version: Version::V1_36,
        namespace: "controller-runtime",
        faults: &[Fault::Cut, Fault::Restart],
    }
    .perform(&program)
    .await;
}

/// The Go program in one of its ways.
fn client_go(name: &'static str, way: &str, watch_list: bool) -> Option<Program> {
    let recipe = Recipe {
        name: "client-go-follower",
        tools: &[["go", "version"]],
        source: source_folder("clients/client-go-follower"),
        salt: String::new(),
        artifact: "follower",
        command: &|artifact| {
            let mut command = std::process::Command::new("go");
            command.env("CGO_ENABLED", "0").args(["build", "-trimpath", "-o"]);
            command.arg(artifact).arg(".");
            command
        },
    };
    let command = vec![built(&recipe)?.display().to_string(), way.to_owned()];
    let environment = vec![("KUBE_FEATURE_WatchListClient", watch_list.to_string())];
    Some(Program { name, command, environment })
}

/// The same source, compiled against a version of fabric8.
fn fabric8(name: &'static str, version: &'static str) -> Option<Program> {
    let recipe = Recipe {
        name: &name.replace(' ', "-"),
        tools: &[["mvn", "-version"], ["java", "--version"]],
        source: source_folder("clients/fabric8-follower"),
        salt: version.to_owned(),
        artifact: "output",
        command: &|artifact| {
            let mut command = std::process::Command::new("mvn");
            command.args(["-q", "-B", "package", &format!("-Dfabric8.version={version}")]);
            command.arg(format!("-Doutput={}", artifact.display()));
            command
        },
    };
    let output = built(&recipe)?;
    let path = format!("{0}/follower.jar:{0}/libraries/*", output.display());
    let command = ["java", "-Xmx512m", "-cp", &path, "dev.listless.follower.Main"];
    Some(Program { name, command: command.map(str::to_owned).into(), environment: Vec::new() })
}

fn built(recipe: &Recipe<'_>) -> Option<std::path::PathBuf> {
    match recipe.build().expect("a build that works") {
        Built::Here(path) => Some(path),
        Built::Impossible(reason) => {
            skipped(recipe.name, &reason);
            None
        }
    }
}
