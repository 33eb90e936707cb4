//! Builds the control plane's binary with Go, once per version and source.
//!
//! A stamp beside the binary names what it was built from; a file lock keeps two test processes
//! from building at once. Go absent is a value, not an error: the caller decides what it means.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::Version;

/// The outcome of asking for a binary.
#[derive(Debug)]
pub enum Built {
    /// The program, ready to run.
    Binary(PathBuf),
    /// It cannot be built on this machine, for the reason given.
    Impossible(String),
}

/// Where binaries and the data of runs go: `cluster` inside cargo's target folder.
pub fn work_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("cluster")
}

/// Makes sure that the binary of a version is there and up to date.
pub fn build(version: Version) -> Result<Built> {
    let Some(go) = go_version() else {
        return Ok(Built::Impossible("the `go` command is not on the PATH".to_owned()));
    };
    let folder = work_folder().join(version.name());
    fs::create_dir_all(&folder)?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("cannot lock the control plane's folder")?;

    let binary = folder.join("controlplane");
    let stamp = folder.join("stamp");
    let wanted = fingerprint(version, &go)?;
    if binary.exists() && fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Built::Binary(binary));
    }
    compile(version, &binary)?;
    fs::write(&stamp, wanted)?;
    Ok(Built::Binary(binary))
}

fn go_version() -> Option<String> {
    let output = Command::new("go").arg("version").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn source_folder(version: Version) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/controlplane").join(version.name())
}

fn fingerprint(version: Version, go: &str) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    (go, version.release(), linker_flags(version)).hash(&mut hasher);
    for file in ["go.mod", "go.sum", "main.go"] {
        let path = source_folder(version).join(file);
        fs::read(&path)
            .with_context(|| format!("cannot read {}", path.display()))?
            .hash(&mut hasher);
    }
    Ok(format!("{:016x}\n", hasher.finish()))
}

fn linker_flags(version: Version) -> String {
    let minor = version.name().trim_start_matches("v1.");
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    [
        set("gitVersion", version.release()),
        set("gitMajor", "1"),
        set("gitMinor", minor),
        set("gitTreeState", "clean"),
        "-s -w".to_owned(),
    ]
    .join(" ")
}

fn compile(version: Version, binary: &Path) -> Result<()> {
    eprintln!(
        "building kube-apiserver {} and etcd: some minutes the first time",
        version.release()
    );
    let began = Instant::now();
    // Written aside and renamed: a binary cut off half-way must never look finished.
    let aside = binary.with_extension("new");
    let output = Command::new("go")
        .current_dir(source_folder(version))
        .env("CGO_ENABLED", "0")
        .args(["build", "-trimpath", "-ldflags", &linker_flags(version), "-o"])
        .arg(&aside)
        .arg(".")
        .output()?;
    if !output.status.success() {
        bail!("go build failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    fs::rename(&aside, binary)?;
    eprintln!("built kube-apiserver {} in {:.0?}", version.release(), began.elapsed());
    Ok(())
}
