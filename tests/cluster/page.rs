//! The page in a real browser: Chromium visits a `listless demo`, and a report of any size.
//!
//! `clients/page/visitor.js` contains the checks. This file starts the demo and prints the
//! findings. The screenshots stay for a review.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use crate::clusters::{Machine, skipped};
use crate::rig::artifact::{Built, Recipe, source_folder, work_folder};

/// The findings of the browser.
#[derive(Debug, Deserialize)]
struct Findings {
    checks: usize,
    failures: Vec<String>,
}

/// A demo that shows its page; killed when dropped.
struct Demo {
    _child: Child,
    url: String,
}

/// The least number of checks that the visitor makes; fewer means that it did not get to its end.
const CHECKS_MIN: usize = 90;

/// The time of a dozen visits, on a busy machine.
const VISIT_LIMIT: Duration = Duration::from_secs(900);

/// The time until the demo has started Listless.
const START_LIMIT: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_browser_finds_no_fault_of_the_page() {
    let Some(program) = visitor() else { return };
    let _machine = Machine::beside().await;
    let demo = Demo::start().await.expect("a demo");
    let folder = work_folder().join("page");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut command = tokio::process::Command::new("node");
    command.arg(program.join("visitor.js")).arg(&demo.url).arg(&folder);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(VISIT_LIMIT, command.output()).await.expect("an end").expect("node runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}{error}");
    let last = told.lines().last().unwrap_or_default();
    let findings: Findings = serde_json::from_str(last).expect("findings");
    eprintln!("{told}");
    assert!(findings.failures.is_empty(), "{}", findings.failures.join("\n"));
    assert!(findings.checks >= CHECKS_MIN, "only {} checks", findings.checks);
    eprintln!(
        "proof: page: {} checks in Chromium; screenshots: {}",
        findings.checks,
        folder.display()
    );
}

// === impl Demo ===

impl Demo {
    /// Starts it and waits until Listless has its page.
    async fn start() -> Result<Self> {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_listless"));
        command.args(["demo", "--seconds", "4", "--admin", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let announced = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(url) = line.strip_prefix("The page: ") {
                    return Ok(url.to_owned());
                }
            }
            bail!("the demo ended before it showed a page")
        };
        let url = timeout(START_LIMIT, announced).await.context("no page in time")??;
        // Without a reader the demo would end at its next line.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { _child: child, url })
    }
}

/// The programs that check the page, with their libraries, if this machine can have them.
pub fn visitor() -> Option<PathBuf> {
    let recipe = Recipe {
        name: "page-visitor",
        tools: &[["node", "--version"], ["npm", "--version"], ["chromium", "--version"]],
        source: source_folder("clients/page"),
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
    };
    match recipe.build().expect("a build that works") {
        Built::Here(path) => Some(path),
        Built::Impossible(reason) => {
            skipped(recipe.name, &reason);
            None
        }
    }
}
