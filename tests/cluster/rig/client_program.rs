//! Real client programs in their own languages, unmodified libraries, run against any kubeconfig.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::artifact::{Built, Recipe, go_build, source_folder};

/// The programs under `clients/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientProgram {
    /// A typed client-go client that speaks protobuf.
    ClientGo,
    /// A fabric8 client as a Java service uses it.
    Fabric8,
}

// === impl ClientProgram ===

impl ClientProgram {
    /// Makes sure that the program is built.
    pub fn build(self) -> Result<Built> {
        let recipe = |name, tools, artifact, command| Recipe {
            name,
            tools,
            source: source_folder("clients").join(name),
            salt: String::new(),
            artifact,
            command,
        };
        match self {
            Self::ClientGo => {
                let build = |artifact: &Path| go_build(artifact, "-s -w", ".");
                recipe("client-go", &[["go", "version"]], "client-go", &build).build()
            }
            Self::Fabric8 => {
                let tools = &[["mvn", "-version"], ["java", "--version"]];
                recipe("fabric8", tools, "output", &maven_package).build()
            }
        }
    }

    /// Runs the built program with arguments and reads the line of JSON it prints.
    pub async fn run(
        self,
        built: &Path,
        kubeconfig: &Path,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) -> Result<Value> {
        let mut command = self.command(built, kubeconfig);
        command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null());
        let output = command.output().await?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr);
            bail!("{self:?} ended with {}: {text}{error}", output.status);
        }
        let line = text.lines().last().context("the program printed nothing")?;
        serde_json::from_str(line).with_context(|| format!("not a line of JSON: {line}"))
    }

    /// Starts the built program with arguments, for a dialogue through its standard streams; killed
    /// when dropped.
    pub fn start(
        self,
        built: &Path,
        kubeconfig: &Path,
        arguments: &[&str],
    ) -> Result<tokio::process::Child> {
        let mut command = self.command(built, kubeconfig);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(command.spawn()?)
    }

    fn command(self, built: &Path, kubeconfig: &Path) -> tokio::process::Command {
        let mut command = match self {
            Self::ClientGo => tokio::process::Command::new(built),
            Self::Fabric8 => {
                let mut command = tokio::process::Command::new("java");
                let path = format!("{0}/poller.jar:{0}/libraries/*", built.display());
                command.args(["-Xmx512m", "-cp", &path, "dev.listless.rig.Main"]);
                command
            }
        };
        // No setting of the machine may direct the program elsewhere.
        command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_MASTER");
        command.env("KUBECONFIG", kubeconfig).kill_on_drop(true);
        command
    }
}

fn maven_package(artifact: &Path) -> std::process::Command {
    let mut command = std::process::Command::new("mvn");
    command.args(["-q", "-B", "package"]).arg(format!("-Doutput={}", artifact.display()));
    command
}
