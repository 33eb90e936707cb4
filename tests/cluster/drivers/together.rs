//! All drivers at once through one Listless: one report names them all, and the page and the
//! terminal show it. The pictures stay for a review.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::driver::{Driver, Programs};
use super::report::Report;
use super::run::Way;
use crate::page;
use crate::rig::artifact::work_folder;
use crate::rig::control_plane::{ControlPlane, User};
use crate::rig::proxy_process::ProxyProcess;

/// The time until all are named: five cold starts, and some rounds of each.
const NAMED_LIMIT: Duration = Duration::from_secs(300);
/// The interval between two reads of the report.
const LOOK: Duration = Duration::from_secs(3);
/// The time of a browser that draws two pages and some text.
const PICTURE_LIMIT: Duration = Duration::from_secs(120);

/// The printed outputs to review, by the name of their picture.
const VIEWS: [(&str, &[&str]); 2] =
    [("top", &["top", "--once"]), ("report", &["report", "--limit", "8"])];

/// Lets all of them drive, and returns the missing parts of the one report about them.
pub async fn all_at_once(plane: &ControlPlane, programs: &Programs) -> Result<Vec<String>> {
    let straight = plane.kubeconfig(User::Admin)?;
    let proxy = ProxyProcess::start(&straight, Way::Enforce.configuration().as_deref()).await?;
    let folder = plane.folder().join("together");
    let mut workloads = Vec::new();
    for driver in Driver::ALL {
        let folder = folder.join(format!("{driver:?}"));
        std::fs::create_dir_all(&folder)?;
        workloads.push(driver.start(programs, driver.period(), proxy.kubeconfig(), &folder)?);
    }
    let deadline = Instant::now() + NAMED_LIMIT;
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let missing = loop {
        looks.tick().await;
        let report = Report::read(&proxy).await?;
        let missing: Vec<String> =
            Driver::ALL.into_iter().flat_map(|driver| report.not_named(driver)).collect();
        if missing.is_empty() || Instant::now() > deadline {
            break missing;
        }
    };
    pictures(&proxy, &work_folder().join("drivers").join(plane.version().name())).await?;
    for (workload, driver) in workloads.iter_mut().zip(Driver::ALL) {
        let errors = workload.tally().await?.errors;
        ensure!(errors.is_empty(), "{} beside the others: {errors:?}", driver.name());
    }
    Ok(missing)
}

/// Draws the page and the terminal's views.
async fn pictures(proxy: &ProxyProcess, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for (name, arguments) in VIEWS {
        let text = view(proxy.admin_address(), arguments).await?;
        std::fs::write(folder.join(format!("{name}.txt")), text)?;
    }
    let Some(program) = page::visitor() else { return Ok(()) };
    draw(&program.join("picture.js"), &format!("http://{}/", proxy.admin_address()), folder).await
}

async fn view(admin: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_listless"));
    let told = command.args(arguments).args(["--admin", admin]).output().await?;
    ensure!(told.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&told.stderr));
    Ok(told.stdout)
}

async fn draw(program: &Path, url: &str, folder: &Path) -> Result<()> {
    let mut command = Command::new("node");
    command.arg(program).arg(url).arg(folder).kill_on_drop(true);
    let drawn = timeout(PICTURE_LIMIT, command.output()).await.context("no picture in time")??;
    let error = String::from_utf8_lossy(&drawn.stderr);
    ensure!(drawn.status.success(), "no picture: {error}");
    eprintln!("pictures of all drivers at once: {}", folder.display());
    Ok(())
}
