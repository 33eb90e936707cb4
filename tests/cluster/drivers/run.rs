//! One driver in one way: started, warmed, measured over whole rounds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::driver::{Driver, Programs};
use super::field;
use super::meter::{Reading, Used};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;

/// A cold JVM on a busy machine, and rounds that take longer than they should.
const WARM_LIMIT: Duration = Duration::from_secs(120);

/// How a driver reaches the apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Straight.
    Straight,
    /// Through Listless, which forwards all and accounts for what it would do.
    Observe,
    /// Through Listless as it is by default.
    Enforce,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which control plane.
    pub version: Version,
    /// Who drove.
    pub driver: Driver,
    /// How.
    pub way: Way,
    /// How long was measured.
    pub window: Duration,
    /// What the driver did in that time.
    pub operations: u64,
    /// What it cost.
    pub used: Used,
    /// Processor time of Listless, unoptimised.
    pub listless_seconds: f64,
    /// What went wrong in the driver's eyes.
    pub errors: Vec<String>,
}

/// Runs every driver every way, one after the other.
pub async fn all_drivers(version: Version, programs: &Programs) -> Result<Vec<Run>> {
    let plane = field::start(version).await?;
    let mut runs = Vec::new();
    for driver in Driver::ALL {
        for way in Way::ALL {
            let run = run(&plane, programs, driver, way).await;
            runs.push(run.with_context(|| format!("{} {way:?}", driver.name()))?);
        }
    }
    Ok(runs)
}

async fn run(plane: &ControlPlane, programs: &Programs, driver: Driver, way: Way) -> Result<Run> {
    let straight = plane.kubeconfig(User::Admin)?;
    let proxy = match way.configuration() {
        Some(configuration) => Some(ProxyProcess::start(&straight, Some(&configuration)).await?),
        None => None,
    };
    let kubeconfig = proxy.as_ref().map_or(straight.as_path(), ProxyProcess::kubeconfig);
    let folder = plane.folder().join(format!("{driver:?}-{way:?}"));
    let log = folder.join("informer.log");
    let mut workload = driver.start(programs, kubeconfig, folder)?;
    let _informer = programs.informer(kubeconfig, log)?;
    workload.begun(driver.rounds_before(), WARM_LIMIT).await?;
    // Between two rounds nothing is under way. The sleep to there and that over the rounds measured
    // wait for nothing that could be asked for.
    tokio::time::sleep(driver.period() / 2).await;

    let listless = || proxy.as_ref().map_or(Ok(0.0), ProxyProcess::cpu_seconds);
    let (began, before, done) =
        (Instant::now(), Reading::take(plane).await?, workload.tally().await?);
    let listless_before = listless()?;
    tokio::time::sleep(driver.period() * driver.rounds()).await;
    let (after, tally) = (Reading::take(plane).await?, workload.tally().await?);
    Ok(Run {
        version: plane.version(),
        driver,
        way,
        window: began.elapsed(),
        operations: tally.operations - done.operations,
        used: after.since(&before),
        listless_seconds: listless()? - listless_before,
        errors: tally.errors,
    })
}

// === impl Way ===

impl Way {
    /// In the order they are run.
    pub const ALL: [Self; 3] = [Self::Straight, Self::Observe, Self::Enforce];

    /// What it is called in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Straight => "straight",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }

    /// The defaults, but for the mode.
    fn configuration(self) -> Option<String> {
        let kind = "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration";
        (self != Self::Straight).then(|| format!("{kind}\nmode: {}\n", self.name()))
    }
}
