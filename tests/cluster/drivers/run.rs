//! One driver in one way: started, warmed, measured over whole rounds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::driver::{Driver, Programs};
use super::field;
use super::meter::{Cpu, Requests};
use super::moment::Moment;
use super::report::Report;
use super::tally::Tally;
use super::together;
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;

/// The time limit for a cold JVM on a busy machine, and for a round that takes too long.
const COLD_LIMIT: Duration = Duration::from_secs(90);

/// The number of times that a driver gets twice the time for a round. It gets more if it ends long
/// after the next round was due. Requests at every moment of a round have no period to detect.
const SLOWER_MAX: u32 = 2;

const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
mode: MODE
cache:
  rules:
    - {resources: [secrets, leases.coordination.k8s.io], start: never}
    - {resources: [events, events.events.k8s.io], start: never}
    - {resources: ['*'], start: onDemand}
";

/// The driver's way to the apiserver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Directly.
    Straight,
    /// Through Listless, which forwards all requests and predicts its savings.
    Observe,
    /// Through Listless in enforce mode.
    Enforce,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The control plane.
    pub version: Version,
    /// The driver.
    pub driver: Driver,
    /// The way.
    pub way: Way,
    /// The duration of the measurement.
    pub window: Duration,
    /// The driver's work in that time.
    pub operations: u64,
    /// The driver's total work after that.
    pub tally: Tally,
    /// The requests that reached the apiserver meanwhile.
    pub requests: Requests,
    /// Their cost.
    pub cpu: Cpu,
    /// Processor time of Listless.
    pub listless: f64,
    /// The median duration of an operation, if the driver measures it.
    pub p50_millis: Option<f64>,
    /// Requests of the driver that Listless saved the apiserver, by its own report.
    pub saved: u64,
    /// Requests that it reports it would have saved.
    pub would_save: u64,
    /// The reasons of all forwards since Listless started, and their numbers.
    pub forwarded: BTreeMap<String, f64>,
    /// The errors of the driver or of the report about it.
    pub wrong: Vec<String>,
}

/// Runs every driver every way, one after the other, and then all of them at once.
pub async fn all_drivers(version: Version, programs: &Programs) -> Result<Vec<Run>> {
    let plane = field::start(version).await?;
    let mut runs = Vec::new();
    for driver in Driver::in_turn(version) {
        let every_way = every_way(&plane, programs, driver).await;
        runs.extend(every_way.with_context(|| driver.name().to_owned())?);
    }
    let missing = together::all_at_once(&plane, programs).await.context("all at once")?;
    ensure!(missing.is_empty(), "all at once: {}", missing.join("\n"));
    runs.sort_by_key(|run| Driver::ALL.iter().position(|driver| *driver == run.driver));
    Ok(runs)
}

/// All ways with the same time between two rounds: the driver's, or on a slow machine longer.
async fn every_way(plane: &ControlPlane, programs: &Programs, driver: Driver) -> Result<Vec<Run>> {
    let (mut period, mut slower) = (driver.period(), 0);
    let mut runs = Vec::new();
    while let Some(&way) = Way::ALL.get(runs.len()) {
        let run = run(plane, programs, driver, period, way).await.with_context(|| way.name())?;
        let (who, done, why) = (run.who(), run.operations, &run.forwarded);
        eprintln!("ran: {who}: {done} operations, {:?} {why:?}", run.requests);
        let is_void = !run.wrong.is_empty() && !run.tally.keeps(period);
        if is_void && slower < SLOWER_MAX {
            let wrong = run.wrong.join("; ");
            eprintln!("void: {who}: not every {period:?}: {:?}, so that {wrong}", run.tally);
            (period, slower) = (period * 2, slower + 1);
            runs.clear();
        } else {
            runs.push(run);
        }
    }
    Ok(runs)
}

async fn run(
    plane: &ControlPlane,
    programs: &Programs,
    driver: Driver,
    period: Duration,
    way: Way,
) -> Result<Run> {
    let straight = plane.kubeconfig(User::Admin)?;
    let proxy = match way.configuration() {
        Some(configuration) => Some(ProxyProcess::start(&straight, Some(&configuration)).await?),
        None => None,
    };
    let kubeconfig = proxy.as_ref().map_or(straight.as_path(), ProxyProcess::kubeconfig);
    let folder = plane.folder().join(format!("{driver:?}-{way:?}"));
    std::fs::create_dir_all(&folder)?;
    let mut informer = programs.informer(kubeconfig, folder.join("informer.log"))?;
    let mut workload = driver.start(programs, period, kubeconfig, &folder)?;
    let rounds = driver.rounds_before();
    workload.begun(rounds, COLD_LIMIT + period * rounds).await?;
    // Least is in progress between two rounds. This sleep and the one over the rounds are the
    // measurement itself. Nothing is awaited in them.
    tokio::time::sleep(period / 2).await;

    let listless = || proxy.as_ref().map_or(Ok(0.0), ProxyProcess::cpu_seconds);
    let before = Moment::take(plane, proxy.as_ref(), &mut workload).await?;
    let (began, cpu, listless_before) = (Instant::now(), Cpu::used(plane)?, listless()?);
    tokio::time::sleep(period * driver.rounds()).await;
    let (window, cpu) = (began.elapsed(), Cpu::used(plane)?.since(cpu));
    let listless = listless()? - listless_before;
    let after = Moment::take(plane, proxy.as_ref(), &mut workload).await?;

    // The last count of the earlier moment came after the counters it contains, and so on up to the
    // later one's.
    let requests = Requests::between(&before.counts, &after.counts, after.attempts);
    let operations = after.tally.operations - before.tally.operations;
    let user_agent = driver.culprit().user_agent;
    let grown = |of: &dyn Fn(&Report) -> u64| match (&before.report, &after.report) {
        (Some(before), Some(after)) => of(after).saturating_sub(of(before)),
        _ => 0,
    };
    let (saved, would_save) =
        (grown(&|it| it.saved(user_agent)), grown(&|it| it.would_save(user_agent)));
    let mut wrong = after.tally.errors.clone();
    if !informer.is_synced().await? {
        wrong.push("the informer beside it does not follow".to_owned());
    }
    if let Some(report) = &after.report {
        wrong.extend(report.wrong(driver, &after.tally));
    }
    let forwarded = match &proxy {
        Some(proxy) => proxy.metrics().await?.sums("listless_forwarded_total", &[], "reason"),
        None => BTreeMap::new(),
    };
    Ok(Run {
        version: plane.version(),
        driver,
        way,
        window,
        operations,
        p50_millis: after.tally.p50_millis(&before.tally),
        tally: after.tally,
        requests,
        cpu,
        listless,
        saved,
        would_save,
        forwarded,
        wrong,
    })
}

// === impl Way ===

impl Way {
    /// All ways, in the order of the runs.
    pub const ALL: [Self; 3] = [Self::Straight, Self::Observe, Self::Enforce];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Straight => "straight",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }

    /// The defaults, but for the mode.
    pub fn configuration(self) -> Option<String> {
        (self != Self::Straight).then(|| CONFIGURATION.replace("MODE", self.name()))
    }
}

// === impl Run ===

impl Run {
    /// The name of the run, in messages.
    pub fn who(&self) -> String {
        format!("{} on {}, {}", self.driver.name(), self.version.name(), self.way.name())
    }

    /// A number of this run for each operation of the driver.
    pub fn per_operation(&self, number: u64) -> f64 {
        number as f64 / self.operations.max(1) as f64
    }
}
