//! A sidecar whose state directory is lost, damaged or full: it serves with an authority that its workload's
//! files name.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use tempfile::TempDir;

use super::make_program;
use crate::clusters::{Machine, available};
use crate::rig::client::Request;
use crate::rig::control_plane::Version;
use crate::rig::proxy_process::PROGRAM;
use crate::rig::wait::until_hit_at_last;
use crate::sidecar::{CONFIG_MAPS, Pod};

/// The time in which a sidecar answers from memory after its start.
const STARTED: Duration = Duration::from_secs(20);

/// The damage of a state directory.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Lost,
    Emptied,
    Overwritten,
    /// No file can be created: `ENOSPC`.
    Full,
}

#[tokio::test]
async fn a_sidecar_serves_whatever_happens_to_its_state_directory_on_1_36() {
    let version = Version::V1_36;
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let (_plane, mut pod) = Pod::beside_a_config_map(version, "one").await;
    answers(&pod).await.expect("a hit");
    let without_space = WithoutSpace::new(&pod.state()).expect("a script");
    let mut told = Vec::new();
    for damage in [Damage::Lost, Damage::Emptied, Damage::Overwritten, Damage::Full] {
        let before = pod.mirrored("ca.crt");
        inflict(damage, &pod.state()).expect("a damaged directory");
        let program = match damage {
            Damage::Full => without_space.script.as_path(),
            Damage::Lost | Damage::Emptied | Damage::Overwritten => Path::new(PROGRAM),
        };
        let begun = Instant::now();
        pod.restart(program).await.unwrap_or_else(|error| panic!("{damage:?}: {error:#}"));
        answers(&pod).await.unwrap_or_else(|error| panic!("{damage:?}: {error:#}"));
        let log = pod.proxy.log();
        assert_ne!(pod.mirrored("ca.crt"), before, "{damage:?}: another authority\n{log}");
        let said = match damage {
            Damage::Lost => "",
            Damage::Emptied | Damage::Overwritten => "the stored authority is unusable",
            Damage::Full => "cannot store the authority",
        };
        assert!(log.contains(said), "{damage:?}\n{log}");
        told.push(format!("{damage:?} {:.1?}", begun.elapsed()));
    }
    eprintln!(
        "proof: a sidecar answers from memory after a damage of its state directory: {told:?}"
    );
}

/// Reads as the workload: with the token and the authorities of its files.
async fn answers(pod: &Pod) -> Result<()> {
    let client = pod.client(Some(&pod.mirrored("token")));
    until_hit_at_last(&client, &Request::get(CONFIG_MAPS), STARTED).await.map(drop)
}

fn inflict(damage: Damage, state: &Path) -> Result<()> {
    match damage {
        Damage::Lost | Damage::Full => fs::remove_dir_all(state)?,
        Damage::Emptied | Damage::Overwritten => {
            let content: &[u8] =
                if matches!(damage, Damage::Emptied) { b"" } else { b"\xff\x00 no PEM" };
            for file in fs::read_dir(state)? {
                fs::write(file?.path(), content)?;
            }
        }
    }
    Ok(())
}

/// Starts Listless where its state directory is a file system without room for a file.
struct WithoutSpace {
    script: PathBuf,
    _folder: TempDir,
}

// === impl WithoutSpace ===

impl WithoutSpace {
    fn new(state: &Path) -> Result<Self> {
        let folder = TempDir::with_prefix("listless-full-")?;
        let script = folder.path().join("listless");
        let state = state.display();
        let text = format!(
            "mkdir -p {state}\nexec unshare --map-root-user --mount sh -c \
             'mount -t tmpfs -o nr_inodes=1 none {state} && exec {PROGRAM} \"$@\"' sh \"$@\""
        );
        make_program(&script, &text)?;
        Ok(Self { script, _folder: folder })
    }
}
