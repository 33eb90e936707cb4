//! The parts of the node and its programs, built once per source and kept in `target/node`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::machine::is_there;
use crate::rig::artifact::{Built, Recipe, go_build, source_folder};
use crate::rig::client_program::ClientProgram;
use crate::rig::control_plane::Version;

/// The image pods have for their namespaces; never looked for in any registry.
pub const PAUSE: &str = "registry.k8s.io/pause:3.10";
/// The image of the workload, which does not belong to Listless.
pub const WORKLOAD: &str = "example.test/workload:1";
/// The image of a Java service with fabric8.
pub const FABRIC8: &str = "example.test/fabric8:1";
/// The image of the cluster's DNS, as `manifests/dns.yaml` names it.
const DNS: &str = "registry.k8s.io/coredns/coredns:v1.14.7";
const HELM: &str = "helm.sh/helm/v4/cmd/helm";
const HELM_3: &str = "helm.sh/helm/v3/cmd/helm";
/// The registry of the image under test.
pub const REGISTRY: &str = "example.test";
/// Its name there.
pub const REPOSITORY: &str = "listless";
/// Its tag; a fixed one, so that nothing else is ever meant.
pub const TAG: &str = "tested";

/// Programs and images.
#[derive(Debug)]
pub struct Artifacts {
    /// The programs of a control plane and a node, in one file.
    pub kubernetes: PathBuf,
    /// Helm 4.
    pub helm: PathBuf,
    /// Helm 3.
    pub helm_3: PathBuf,
    /// OCI archives.
    pub images: Vec<PathBuf>,
    /// The size of the compressed image under test.
    pub image_bytes: u64,
    /// `true` if there is an image with fabric8.
    pub has_fabric8: bool,
}

/// The folder of all this, and of the data of the run.
pub fn work_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("node")
}

/// A file of this suite.
pub fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node").join(path)
}

// === impl Artifacts ===

impl Artifacts {
    /// Builds the missing parts.
    pub fn build() -> Result<Self> {
        fs::create_dir_all(work_folder())?;
        let kubernetes = kubernetes()?;
        let helm = go_program("helm", source_folder("tools/helm-4"), "-s -w", HELM)?;
        let helm_3 = go_program("helm-3", source_folder("tools/helm-3"), "-s -w", HELM_3)?;
        let (pause, dns, workload, fabric8) = (pause()?, dns()?, workload()?, fabric8()?);
        let (listless, image_bytes) = listless()?;
        let mut images = vec![pause, dns, workload, listless];
        let has_fabric8 = fabric8.is_some();
        images.extend(fabric8);
        Ok(Self { kubernetes, helm, helm_3, images, image_bytes, has_fabric8 })
    }
}

fn kubernetes() -> Result<PathBuf> {
    let client = "k8s.io/client-go/pkg/version.gitVersion";
    // The names that they send in `User-Agent`.
    let flags =
        format!("{} -X {client}={}", Version::V1_36.linker_flags(), Version::V1_36.release());
    go_program("kubernetes", source("kubernetes"), &flags, ".")
}

fn go_program(name: &str, source: PathBuf, flags: &str, package: &str) -> Result<PathBuf> {
    let recipe = Recipe {
        name: &format!("../node/{name}"),
        tools: &[["go", "version"]],
        source,
        salt: flags.to_owned(),
        artifact: name,
        command: &|artifact| go_build(artifact, flags, package),
    };
    here(recipe.build()?)
}

fn here(built: Built) -> Result<PathBuf> {
    match built {
        Built::Here(path) => Ok(path),
        Built::Impossible(reason) => bail!(reason),
    }
}

/// Names an existing image, to test another one than the shipped one.
const OTHER_IMAGE: &str = "LISTLESS_NODE_IMAGE";

/// Builds the image as it is shipped.
fn listless() -> Result<(PathBuf, u64)> {
    let image = work_folder().join("listless.tar");
    if let Some(other) = std::env::var_os(OTHER_IMAGE).map(PathBuf::from) {
        let bytes = fs::metadata(&other)?.len();
        return Ok((other, bytes));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let reference = format!("{REGISTRY}/{REPOSITORY}:{TAG}");
    println!("building the image: some minutes the first time");
    let told = run(Command::new(root.join("image/build.sh")).arg(&image).arg(reference))?;
    let bytes = told.lines().find_map(|line| {
        let (bytes, _) = line.strip_prefix("proof: image: ")?.split_once(' ')?;
        bytes.parse().ok()
    });
    Ok((image, bytes.context("image/build.sh does not tell the size")?))
}

fn pause() -> Result<PathBuf> {
    let program = source("scripts/pause.c");
    image("pause.tar", PAUSE, "65535:65535", &["/pause"], &[&program], |folder| {
        let mut compile = Command::new("gcc");
        compile.args(["-Os", "-static", "-s", "-o"]).arg(folder.join("pause"));
        run(compile.arg(&program)).map(drop)
    })
}

fn dns() -> Result<PathBuf> {
    let program = go_program("coredns", source("coredns"), "-s -w", ".")?;
    image("dns.tar", DNS, "65534:65534", &["/coredns"], &[&program], |folder| {
        Ok(fs::copy(&program, folder.join("coredns")).map(drop)?)
    })
}

fn workload() -> Result<PathBuf> {
    let program = go_program("workload", source("workload"), "-s -w", ".")?;
    image("workload.tar", WORKLOAD, "65534:65534", &["/workload"], &[&program], |folder| {
        Ok(fs::copy(&program, folder.join("workload")).map(drop)?)
    })
}

/// A Java service, if this machine has the parts for it.
fn fabric8() -> Result<Option<PathBuf>> {
    if !is_there("javac") {
        return Ok(None);
    }
    let Built::Here(program) = ClientProgram::Fabric8.build()? else { return Ok(None) };
    let script = source("scripts/java.sh");
    let classes = "/app/poller.jar:/app/libraries/*";
    let entrypoint = ["/java/bin/java", "-Xmx96m", "-cp", classes, "dev.listless.rig.Main"];
    let jar = program.join("poller.jar");
    let make = |folder: &Path| run(Command::new(&script).arg(folder).arg(&program)).map(drop);
    image("fabric8.tar", FABRIC8, "65534:65534", &entrypoint, &[&script, &jar], make).map(Some)
}

/// Makes an image of a folder that `fill` fills, unless one exists that is newer than the inputs.
fn image(
    file: &str,
    name: &str,
    user: &str,
    entrypoint: &[&str],
    inputs: &[&Path],
    fill: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let out = work_folder().join(file);
    let script = source("scripts/image.sh");
    let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let made = changed(&out);
    if made.is_some() && inputs.iter().chain([&script.as_path()]).all(|one| changed(one) < made) {
        return Ok(out);
    }
    let folder = out.with_extension("root");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    fill(&folder)?;
    run(Command::new(script).arg(&folder).arg(&out).args([name, user]).args(entrypoint))?;
    Ok(out)
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}\n{said}{complained}", output.status);
    Ok(said)
}
