//! Programs that tools of other languages build for the tests, once per source.
//!
//! A stamp beside the artifact names its source; a file lock keeps two test processes from building
//! at once. A missing tool is a value, not an error: the caller decides.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The result of a request for an artifact.
#[derive(Debug)]
pub enum Built {
    /// It is here, up to date.
    Here(PathBuf),
    /// It cannot be built on this machine, for the reason given.
    Impossible(String),
}

/// The artifact to build, its source, and the command.
pub struct Recipe<'a> {
    /// The folder inside [`work_folder`] and the name in messages.
    pub name: &'a str,
    /// Commands that print versions; each must be there.
    pub tools: &'a [[&'a str; 2]],
    /// The folder of the source, all of whose files count.
    pub source: PathBuf,
    /// Anything else the artifact depends on.
    pub salt: String,
    /// The file or folder the command makes.
    pub artifact: &'a str,
    /// The command that makes it at the path it is given; it runs in the source folder.
    pub command: &'a dyn Fn(&Path) -> Command,
}

/// The folder for artifacts and the data of runs: `cluster` inside cargo's target folder.
pub fn work_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("cluster")
}

/// The command that builds a Go package. All programs are built alike: Go then compiles the packages that
/// they share once.
pub fn go_build(artifact: &Path, linker_flags: &str, package: &str) -> Command {
    let mut command = Command::new("go");
    // The compiler runs once for each package, and ends before its garbage matters.
    command.env("CGO_ENABLED", "0").env("GOGC", "400");
    command.args(["build", "-trimpath", "-ldflags", linker_flags, "-o"]).arg(artifact).arg(package);
    command
}

/// A folder of this test's sources.
pub fn source_folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster").join(path)
}

// === impl Recipe ===

impl Recipe<'_> {
    /// Makes sure that the artifact is there and up to date.
    pub fn build(&self) -> Result<Built> {
        let mut hasher = DefaultHasher::new();
        self.salt.hash(&mut hasher);
        for [tool, flag] in self.tools {
            let Some(version) = tool_version(tool, flag) else {
                return Ok(Built::Impossible(format!("the `{tool}` command is not on the PATH")));
            };
            version.hash(&mut hasher);
        }
        hash_files(&self.source, &mut hasher)?;
        let wanted = format!("{:016x}\n", hasher.finish());

        let folder = work_folder().join(self.name);
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("cannot lock the folder of the artifact")?;
        let (artifact, stamp) = (folder.join(self.artifact), folder.join("stamp"));
        if !artifact.exists() || fs::read_to_string(&stamp).ok().as_deref() != Some(&wanted) {
            self.make(&artifact)?;
            fs::write(&stamp, wanted)?;
        }
        Ok(Built::Here(artifact))
    }

    fn make(&self, artifact: &Path) -> Result<()> {
        eprintln!("building {}: up to some minutes the first time", self.name);
        let began = Instant::now();
        // The file is written under another name and renamed. An interrupted build must never look
        // finished.
        let aside = artifact.with_extension("new");
        let output = (self.command)(&aside).current_dir(&self.source).output()?;
        if !output.status.success() {
            let (out, error) = (&output.stdout, &output.stderr);
            let text = [out.as_slice(), error.as_slice()].concat();
            bail!("building {} failed: {}", self.name, String::from_utf8_lossy(&text));
        }
        if artifact.is_dir() {
            fs::remove_dir_all(artifact)?;
        }
        fs::rename(&aside, artifact)?;
        eprintln!("built {} in {:.0?}", self.name, began.elapsed());
        Ok(())
    }
}

fn tool_version(tool: &str, flag: &str) -> Option<String> {
    let output = Command::new(tool).arg(flag).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn hash_files(folder: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            hash_files(&path, hasher)?;
        } else {
            path.file_name().hash(hasher);
            fs::read(&path)?.hash(hasher);
        }
    }
    Ok(())
}
