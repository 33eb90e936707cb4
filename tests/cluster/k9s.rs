//! k9s in a terminal of its own, straight and through Listless: its screens, and the work that it
//! makes for the apiserver.
//!
//! The screens stay for a review, as text and with their colours.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::chart::helm::built_with_go;
use crate::clusters::{Cluster, skipped};
use crate::forms::EXPECTED;
use crate::kubectl::Requests;
use crate::rig::artifact::{Built, work_folder};
use crate::rig::control_plane::{Component, User, Version};
use crate::rig::proxy_process::ProxyProcess;

const CONFIGURATION: &str = include_str!("../../config/examples/workstation.yaml");

/// The commands of the walk; each shows a kind of object in all namespaces.
const VIEWS: [&str; 6] = ["pods", "deployments", "widgets", "clocks", "cronjobs", "nodes"];
/// The seconds of the whole walk.
const SECONDS: &str = "LISTLESS_K9S_SECONDS";
const SECONDS_DEFAULT: u64 = 60;
const START: Duration = Duration::from_secs(6);
const KEY: Duration = Duration::from_millis(400);
/// The size of the terminal.
const SIZE: [&str; 4] = ["-x", "150", "-y", "60"];

/// A terminal in which k9s runs; it ends when this is dropped.
struct Terminal {
    socket: String,
    _home: TempDir,
}

/// A walk through all views and its price.
struct Walk {
    /// The objects that each view showed: namespace and name.
    rows: Vec<BTreeSet<String>>,
    requests: Requests,
    cpu_seconds: f64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k9s_shows_the_same_objects_through_listless() {
    let Some(program) = k9s() else { return };
    let Some(cluster) = Cluster::take_aged(Version::V1_36).await else { return };
    let kubeconfig = cluster.plane().kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy");
    let straight = walk(&cluster, &program, &kubeconfig, "straight").await.expect("a walk");
    // The first walk through Listless starts the replicas.
    for name in ["warming", "through"] {
        let through = walk(&cluster, &program, proxy.kubeconfig(), name).await.expect("a walk");
        eprintln!("proof: k9s {name}: {through}; straight: {straight}");
        for (view, (expected, given)) in VIEWS.iter().zip(straight.rows.iter().zip(&through.rows)) {
            assert!(!expected.is_empty(), "{view} shows nothing");
            assert_eq!(expected, given, "{view}");
        }
        if name == "through" {
            let saved = 100.0 - through.requests.lists * 100.0 / straight.requests.lists;
            assert!(saved >= EXPECTED.k9s_lists_saved, "{saved:.0} % of the LISTs are saved");
        }
    }
}

async fn walk(cluster: &Cluster, program: &Path, kubeconfig: &Path, name: &str) -> Result<Walk> {
    let plane = cluster.plane();
    let folder = work_folder().join("k9s-screens");
    fs::create_dir_all(&folder)?;
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok());
    let stay = Duration::from_secs(seconds.unwrap_or(SECONDS_DEFAULT)) / VIEWS.len() as u32;
    let before = Requests::at(plane).await?;
    let used = plane.cpu_seconds(Component::Apiserver)?;
    let terminal = Terminal::open(program, kubeconfig, name)?;
    tokio::time::sleep(START).await;
    let mut rows = Vec::new();
    for view in VIEWS {
        for keys in [":", view, "Enter"] {
            terminal.tmux(&["send-keys", keys])?;
            tokio::time::sleep(KEY).await;
        }
        tokio::time::sleep(stay.saturating_sub(3 * KEY)).await;
        let screen = terminal.screen(&[])?;
        fs::write(folder.join(format!("{name}-{view}.txt")), &screen)?;
        fs::write(folder.join(format!("{name}-{view}.ansi")), terminal.screen(&["-e"])?)?;
        rows.push(shown(&screen));
    }
    drop(terminal);
    let cpu_seconds = plane.cpu_seconds(Component::Apiserver)? - used;
    Ok(Walk { rows, requests: Requests::at(plane).await?.since(before), cpu_seconds })
}

/// The first two words of each row in the frame.
fn shown(screen: &str) -> BTreeSet<String> {
    let rows = screen.lines().filter_map(|line| line.trim().strip_prefix('│'));
    let words = rows.map(|row| row.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
    words.filter(|row| row.contains(' ') && !row.starts_with(char::is_uppercase)).collect()
}

/// k9s, if this machine can build it and has a terminal for it.
fn k9s() -> Option<PathBuf> {
    if Command::new("tmux").arg("-V").output().is_err() {
        skipped("k9s", "the `tmux` command is not on the PATH");
        return None;
    }
    match built_with_go("k9s", "github.com/derailed/k9s").expect("a build that works") {
        Built::Here(path) => Some(path),
        Built::Impossible(reason) => {
            skipped("k9s", &reason);
            None
        }
    }
}

// === impl Terminal ===

impl Terminal {
    fn open(program: &Path, kubeconfig: &Path, name: &str) -> Result<Self> {
        let home = TempDir::with_prefix("k9s-")?;
        let socket = format!("listless-{}-{name}", std::process::id());
        let home_path = home.path().display();
        let command = format!(
            "env HOME={home_path} XDG_CONFIG_HOME={home_path} XDG_DATA_HOME={home_path} \
             XDG_STATE_HOME={home_path} XDG_CACHE_HOME={home_path} K9S_CONFIG_DIR={home_path}/k9s \
             TERM=xterm-256color {} --kubeconfig {} --all-namespaces --readonly --splashless",
            program.display(),
            kubeconfig.display()
        );
        let terminal = Self { socket, _home: home };
        let start = ["-f", "/dev/null", "new-session", "-d", "-s", "k9s"];
        terminal.tmux(&[&start[..], &SIZE, &[&command]].concat())?;
        Ok(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<Output> {
        let output = Command::new("tmux").args(["-L", &self.socket]).args(arguments).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "tmux {arguments:?}: {error}");
        Ok(output)
    }

    fn screen(&self, flags: &[&str]) -> Result<String> {
        let output = self.tmux(&[&["capture-pane", "-p"], flags].concat())?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already if k9s has.
        let _ended = self.tmux(&["kill-server"]);
    }
}

// === impl Walk ===

impl std::fmt::Display for Walk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Requests { all, lists } = self.requests;
        write!(out, "{all} requests, {lists} LISTs, {:.2} s of the apiserver", self.cpu_seconds)
    }
}
