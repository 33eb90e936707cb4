//! Unmodified clients of six languages follow objects through Listless, through faults and all.
//!
//! Each program runs twice at a time, straight and through `listless local`, while objects change.
//! In the end every copy it keeps must equal the truth, and through Listless it may have complained
//! of nothing it did not complain of straight.

mod churn;
mod kubectl;
mod plain;
mod play;
mod program;
mod relay;
pub mod stage;

use std::path::PathBuf;

use kubectl::Side;
use play::{Play, Served};
use program::Program;
use stage::{Fault, Stage};

use crate::clusters::skipped;
use crate::rig::artifact::{Built, Recipe, source_folder};
use crate::rig::control_plane::{Version, linker_flags};

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_says_through_listless_what_it_says_straight() {
    let Some(program) = kubectl() else { return };
    let Some(stage) = Stage::take(Version::V1_36).await else { return };
    let scene = stage.scene("kubectl-b").await.expect("a scene");
    stage.namespace("kubectl-a").await.expect("a namespace");
    let straight = Side::new(&scene, &program, "kubectl-a", false).expect("a side");
    let through = Side::new(&scene, &program, "kubectl-b", true).expect("a side");
    let before = scene.proxy.metrics().await.expect("metrics");
    let straight = straight.play().await.expect("a whole script");
    let through = through.play().await.expect("a whole script");
    let served = Served::between(&before, &scene.proxy.metrics().await.expect("metrics"));
    eprintln!("kubectl on {}: {} commands; {served}", Version::V1_36.name(), through.len());
    kubectl::compare(&straight, &through).expect("the same words");
}

/// kubectl of the control plane's version.
fn kubectl() -> Option<PathBuf> {
    let flags = linker_flags(Version::V1_36);
    built(&Recipe {
        name: "kubectl",
        tools: &[["go", "version"], ["diff", "--version"]],
        source: source_folder("clients/kubectl"),
        salt: flags.clone(),
        artifact: "kubectl",
        command: &|artifact| {
            let mut command = std::process::Command::new("go");
            command.env("CGO_ENABLED", "0").args(["build", "-trimpath", "-ldflags", &flags, "-o"]);
            command.arg(artifact).arg(".");
            command
        },
    })
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

fn built(recipe: &Recipe<'_>) -> Option<PathBuf> {
    match recipe.build().expect("a build that works") {
        Built::Here(path) => Some(path),
        Built::Impossible(reason) => {
            skipped(recipe.name, &reason);
            None
        }
    }
}
