//! Helm, built with Go once per version, each run with a home of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Result, bail};
use tempfile::TempDir;

use crate::clusters::skipped;
use crate::rig::artifact::{Built, Recipe, go_build, source_folder};

/// The major versions of Helm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Major {
    /// 3.22.
    Three,
    /// 4.3.
    Four,
}

/// One Helm, ready to run.
#[derive(Debug)]
pub struct Helm {
    binary: PathBuf,
    home: TempDir,
    kubeconfig: Option<PathBuf>,
}

// === impl Major ===

impl Major {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Three, Self::Four];

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Three => ("helm-3", "helm.sh/helm/v3/cmd/helm"),
            Self::Four => ("helm-4", "helm.sh/helm/v4/cmd/helm"),
        }
    }

    fn build(self) -> Result<Built> {
        let (name, package) = self.names();
        built_with_go(name, package)
    }
}

// === impl Helm ===

impl Helm {
    /// `None` means that it cannot be built here; the reason was printed.
    pub fn get(major: Major, kubeconfig: Option<&Path>) -> Option<Self> {
        match major.build().expect("a build that works") {
            Built::Here(binary) => Some(Self {
                binary,
                home: TempDir::new().expect("a folder"),
                kubeconfig: kubeconfig.map(Path::to_owned),
            }),
            Built::Impossible(reason) => {
                skipped("the tests of the chart", &reason);
                None
            }
        }
    }

    /// Runs it and returns the result, success or not.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(&self.binary);
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, self.home.path());
        }
        // Without a cluster it must not find one that the machine knows.
        let none = self.home.path().join("no-kubeconfig");
        command.env("KUBECONFIG", self.kubeconfig.as_ref().unwrap_or(&none));
        Ok(command.args(arguments).output()?)
    }

    /// Runs it and returns its output.
    pub fn output(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        if !output.status.success() {
            bail!("helm {arguments:?}: {}", told(&output));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs it and returns the reason for its refusal.
    pub fn refusal(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run(arguments)?;
        if output.status.success() {
            bail!("helm {arguments:?} succeeded");
        }
        Ok(told(&output))
    }
}

/// The program of a package, at the versions in the folder of this name among the tools.
pub fn built_with_go(name: &str, package: &str) -> Result<Built> {
    let recipe = Recipe {
        name,
        tools: &[["go", "version"]],
        source: source_folder("tools").join(name),
        salt: String::new(),
        artifact: package.rsplit('/').next().unwrap_or(name),
        command: &|artifact| go_build(artifact, "-s -w", package),
    };
    recipe.build()
}

/// The definitions of kinds that are not Kubernetes' own, as their projects publish them.
pub fn custom_resources() -> Result<Built> {
    let script = r#"
        set -eu
        at() { go mod download -json "$1" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'; }
        mkdir -p "$0"
        monitoring=$(at github.com/prometheus-operator/prometheus-operator)
        certificates=$(at github.com/cert-manager/cert-manager)
        for kind in podmonitors servicemonitors prometheusrules; do
            cp "$monitoring"/example/prometheus-operator-crd/*_$kind.yaml "$0"
        done
        cp "$certificates/deploy/crds/cert-manager.io_certificates.yaml" "$0"
        chmod -R u+w "$0""#;
    let recipe = Recipe {
        name: "custom-resources",
        tools: &[["go", "version"]],
        source: source_folder("tools/custom-resources"),
        salt: script.to_owned(),
        artifact: "definitions",
        command: &|artifact| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).arg(artifact);
            command
        },
    };
    recipe.build()
}

fn told(output: &Output) -> String {
    let text = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&text).into_owned()
}
