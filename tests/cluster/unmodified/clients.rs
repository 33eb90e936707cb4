//! The client programs: the build and the start of each.
//!
//! The downloads of a recipe are pinned beside its source and kept under `target/`. A missing tool
//! is printed, and fails the test where it is required.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::{Follower, Program};
use crate::clusters::skipped;
use crate::rig::artifact::{Built, Recipe, go_build, source_folder};
use crate::rig::control_plane::Version;

/// kubectl of the control plane's version.
pub fn kubectl() -> Option<PathBuf> {
    let flags = Version::V1_36.linker_flags();
    built(&Recipe {
        name: "kubectl",
        tools: &[["go", "version"], ["diff", "--version"]],
        source: source_folder("clients/kubectl"),
        salt: flags.clone(),
        artifact: "kubectl",
        command: &|artifact| go_build(artifact, &flags, "."),
    })
}

/// The Go program in one of its ways.
pub fn client_go(name: &'static str, way: &str, watch_list: bool) -> Option<Follower> {
    let command = vec![follower()?.display().to_string(), way.to_owned()];
    let environment = vec![("KUBE_FEATURE_WatchListClient", watch_list.to_string())];
    Some(Follower::Program(Program { name, command, environment }))
}

/// The Go program itself.
pub fn follower() -> Option<PathBuf> {
    built(&Recipe {
        name: "client-go-follower",
        tools: &[["go", "version"]],
        source: source_folder("clients/client-go-follower"),
        salt: String::new(),
        artifact: "follower",
        command: &|artifact| go_build(artifact, "-s -w", "."),
    })
}

/// The same source, compiled against a version of fabric8.
pub fn fabric8(name: &'static str, version: &str) -> Option<Follower> {
    let output = maven("fabric8-follower", &name.replace(' ', "-"), version)?;
    Some(jvm(name, &output))
}

/// The official Java client.
pub fn java() -> Option<Follower> {
    let output = maven("java", "java-follower", "27.0.0")?;
    Some(jvm("client-java 27", &output))
}

/// The official Python client.
pub fn python() -> Option<Follower> {
    let libraries = python_libraries()?;
    let program = source_folder("clients/python").join("follower.py");
    let command = vec!["python3".to_owned(), program.display().to_string()];
    let environment = vec![("PYTHONPATH", libraries.display().to_string())];
    Some(Follower::Program(Program { name: "python 37", command, environment }))
}

/// The folder with its libraries.
pub fn python_libraries() -> Option<PathBuf> {
    let source = source_folder("clients/python");
    built(&Recipe {
        name: "python-follower",
        tools: &[["python3", "--version"], ["pip3", "--version"]],
        source,
        salt: String::new(),
        artifact: "libraries",
        command: &|artifact| {
            let mut command = Command::new("python3");
            command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            command.args(["--no-deps", "--requirement", "requirements.txt", "--target"]);
            command.arg(artifact);
            command
        },
    })
}

/// The official JavaScript client.
pub fn node() -> Option<Follower> {
    let folder = built(&Recipe {
        name: "node-follower",
        tools: &[["node", "--version"], ["npm", "--version"]],
        source: source_folder("clients/node"),
        salt: String::new(),
        artifact: "program",
        command: &|artifact| {
            let mut command = Command::new("sh");
            // A module is looked for beside the file that imports it.
            let install = "mkdir -p \"$0\" && cp ./*.js ./*.json \"$0\" && cd \"$0\" \
                           && npm ci --ignore-scripts --no-audit --no-fund";
            command.args(["-ec", install]).arg(artifact);
            command
        },
    })?;
    let command = vec!["node".to_owned(), folder.join("follower.js").display().to_string()];
    let name = "client-node 1.4";
    Some(Follower::Program(Program { name, command, environment: Vec::new() }))
}

/// The result of Maven for a folder of `clients/`.
fn maven(source: &str, name: &str, version: &str) -> Option<PathBuf> {
    built(&Recipe {
        name,
        tools: &[["mvn", "-version"], ["java", "--version"]],
        source: source_folder("clients").join(source),
        salt: version.to_owned(),
        artifact: "output",
        command: &|artifact| {
            let mut command = Command::new("mvn");
            command.args(["-q", "-B", "package", &format!("-Dfabric8.version={version}")]);
            command.arg(format!("-Doutput={}", artifact.display()));
            command
        },
    })
}

fn jvm(name: &'static str, output: &Path) -> Follower {
    let path = format!("{0}/follower.jar:{0}/libraries/*", output.display());
    let command = ["java", "-Xmx512m", "-cp", &path, "dev.listless.follower.Main"];
    let command = command.map(str::to_owned).into();
    Follower::Program(Program { name, command, environment: Vec::new() })
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
