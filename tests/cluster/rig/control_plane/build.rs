//! The control plane's binary: etcd and kube-apiserver of one version, built with Go.

use anyhow::Result;

use super::super::artifact::{Built, Recipe, go_build, source_folder};
use super::Version;

/// Makes sure that the binary of a version is there and up to date.
pub fn build(version: Version) -> Result<Built> {
    let flags = version.linker_flags();
    let recipe = Recipe {
        name: version.name(),
        tools: &[["go", "version"]],
        source: source_folder("controlplane").join(version.name()),
        salt: flags.clone(),
        artifact: "controlplane",
        command: &|artifact| go_build(artifact, &flags, "."),
    };
    recipe.build()
}

// === impl Version ===

impl Version {
    /// The linker flags that stamp the version into a binary of the Kubernetes project.
    pub fn linker_flags(self) -> String {
        let minor = self.name().trim_start_matches("v1.");
        let set =
            |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
        [
            set("gitVersion", self.release()),
            set("gitMajor", "1"),
            set("gitMinor", minor),
            set("gitTreeState", "clean"),
            "-s -w".to_owned(),
        ]
        .join(" ")
    }
}
