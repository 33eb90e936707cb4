//! Two hundred clients of every kind that come and go, fifty writes a second, an apiserver that is started
//! anew and a configuration that changes. Afterwards each response is checked against etcd's own history,
//! memory may not have grown, and the tables of Listless must be as empty as before.
//!
//! `LISTLESS_SOAK_SECONDS=3600` makes an hour of it instead of ten minutes, `LISTLESS_SOAK_CHART` names a file
//! for the chart of the memory, `LISTLESS_SEED` chooses the actions.

mod chart;
mod clients;
mod idle;
mod meter;
mod programs;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::join_all;
use tokio::runtime::Builder;

use self::meter::{Meter, Tables};
use crate::clusters::{Machine, available};
use crate::drivers::programs::Programs;
use crate::histories::actors::{self, Scope};
use crate::histories::dice::Dice;
use crate::histories::informer::Outcome;
use crate::histories::truth::{Timeline, Timelines};
use crate::histories::{World, checker, number};
use crate::rig::client::Protocol;
use crate::rig::control_plane::{Component, User, Version};
use crate::rig::load_data::LoadData;
use crate::rig::proxy_process::shipped;
use crate::rig::wait::until;

/// The duration of the load, and the shortest that shows anything.
const SECONDS: u64 = 600;
const SECONDS_VARIABLE: &str = "LISTLESS_SOAK_SECONDS";
const CHART_VARIABLE: &str = "LISTLESS_SOAK_CHART";
const SEED_VARIABLE: &str = "LISTLESS_SEED";
const CLIENTS: usize = 200;

/// The objects that change.
const SCOPE: Scope = Scope {
    namespaces: &[
        "soak-0", "soak-1", "soak-2", "soak-3", "soak-4", "soak-5", "soak-6", "soak-7", "soak-8",
        "soak-9",
    ],
    names: &["n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"],
};
/// The pods of each of these namespaces that never change.
const PODS: LoadData = LoadData { namespace: "", pods: 500, pollers: 10, apps: 40, nodes: 10 };
/// The clients outside of the session, and their longest pause in milliseconds. Nearly half of their
/// writes change nothing: what they create exists, what they delete does not.
const OUTSIDERS: usize = 8;
const PAUSE_OF_OUTSIDER: u64 = 130;
/// The changes that they make at least.
const CHANGES_PER_SECOND_MIN: f64 = 40.0;
/// Configurations that take turns. The last is not valid.
const CONFIGURATIONS: [&str; 3] = [
    "cache: {idleTimeout: 30s}\nrepeatPolls: {action: off}\n",
    "cache: {idleTimeout: 40s}\nrepeatPolls: {action: off}\nobserve: {checkShare: 0.02}\n",
    "cache: {idleTimeout: never}\n",
];
const CONFIGURED_EACH: Duration = Duration::from_secs(45);
/// The time between two starts of the apiserver. Growth is told from the levels between them; an hour with a
/// start each five minutes has too few.
const RESTARTED_EACH: Duration = Duration::from_secs(60);
/// The time after a start of the apiserver until the replicas are as before.
const CALM_AFTER: Duration = Duration::from_secs(20);
/// The time after the load in which everything ends that ends for want of use: compressed bodies after five
/// minutes.
const SETTLE_LIMIT: Duration = Duration::from_secs(420);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_load_leaves_neither_wrong_answers_nor_memory_behind() {
    if !available(Version::V1_36) {
        return;
    }
    let Some(programs) = Programs::build() else { return };
    let _machine = Machine::alone().await;
    let seed = number(SEED_VARIABLE).unwrap_or_else(|| u64::from(std::process::id()));
    let time = Duration::from_secs(number(SECONDS_VARIABLE).unwrap_or(SECONDS));
    assert!(time >= Duration::from_secs(SECONDS), "{SECONDS_VARIABLE} must be at least {SECONDS}");
    let mut dice = Dice::new(seed);
    let world = Arc::new(world().await.expect("a control plane and a proxy"));
    let before = Tables::read(&world.proxy).await.expect("metrics");

    let meter = Meter::start(Arc::clone(&world));
    let outcomes = Arc::<Mutex<Vec<Outcome>>>::default();
    let (began, mut tasks) = (Instant::now(), Vec::new());
    for number in 0..CLIENTS {
        let (world, dice, outcomes) = (Arc::clone(&world), dice.another(), Arc::clone(&outcomes));
        tasks.push(tokio::spawn(clients::client(world, dice, number, began, outcomes)));
    }
    let filled = changes(&world.truth.told().await.expect("all that happened"));
    let outsiders = write_outside(&world, &mut dice);
    let real = tokio::spawn(programs::run(programs, Arc::clone(&world)));
    let calm = disturb(&world, time).await.expect("an apiserver that starts again");
    world.over.store(true, Ordering::SeqCst);
    for task in tasks {
        task.await.expect("no panic");
    }
    tokio::task::spawn_blocking(|| outsiders.join()).await.expect("a thread").expect("no panic");
    let operations = real.await.expect("no panic").expect("programs that work");
    let course = meter.stop().await;
    let after = settled(&world, &before).await;

    let growth = course.growth(&calm);
    let timelines = world.truth.told().await.expect("all that happened");
    let changes_per_second = (changes(&timelines) - filled) as f64 / time.as_secs_f64();
    let mut violations = checker::violations(&timelines, &world.records);
    let outcomes = std::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    violations.extend(outcomes.iter().filter_map(|outcome| outcome.wrong(&timelines)));
    eprintln!(
        "proof: soak of {} s, seed {seed}: {changes_per_second:.0} changes a second, {}, {} informers, \
         {operations:?}; {} starts of the apiserver; no answer: {:?}",
        time.as_secs(),
        world.summary(),
        outcomes.len(),
        calm.len(),
        world.records.failures()
    );
    eprintln!("proof: soak: {course}, {growth}");
    eprintln!(
        "proof: soak: {} violations; tables before {before}; after {after}",
        violations.len()
    );
    if let Ok(file) = std::env::var(CHART_VARIABLE) {
        std::fs::write(file, chart::draw(&course)).expect("a file");
    }
    let shown = &violations[..violations.len().min(5)];
    assert!(violations.is_empty(), "seed {seed}: {shown:#?}\n{}", world.proxy.log());
    assert_eq!(after.above(&before), Vec::<String>::new(), "{}", world.proxy.log());
    assert!(changes_per_second >= CHANGES_PER_SECOND_MIN, "{changes_per_second} changes a second");
    assert_means_something(&world, time).await;
    assert!(!growth.is_too_much(), "memory grew by {growth}: {course}");
    assert!(operations.values().all(|done| *done > 0), "{operations:?}");
}

/// Starts the clients outside of the session, on a thread of their own: beside two hundred clients they
/// would wait too long for their turn.
fn write_outside(world: &Arc<World>, dice: &mut Dice) -> JoinHandle<()> {
    let all: Vec<_> = (0..OUTSIDERS)
        .map(|_| actors::outsider(Arc::clone(world), dice.another(), PAUSE_OF_OUTSIDER))
        .collect();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(join_all(all));
    })
}

fn changes(timelines: &Timelines) -> usize {
    timelines.values().map(Timeline::len).sum()
}

async fn world() -> Result<World> {
    let world = World::start(&shipped()?, Version::V1_36, SCOPE, &configuration(0)).await?;
    let client = world.plane.client(User::Admin, Protocol::Http1)?;
    for namespace in SCOPE.namespaces {
        LoadData { namespace, ..PODS }.load(&client).await?;
    }
    programs::DATA.load(&client).await?;
    Ok(world)
}

fn configuration(number: usize) -> String {
    let rest = CONFIGURATIONS[number % CONFIGURATIONS.len()];
    format!("apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\n{rest}")
}

/// Changes the configuration and starts the apiserver anew from time to time; returns the calm times after
/// each of its starts.
async fn disturb(world: &World, time: Duration) -> Result<Vec<Range<Duration>>> {
    let began = Instant::now();
    let (mut configured, mut calm) = (0_usize, Vec::<Range<Duration>>::new());
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = began.elapsed();
        if let Some(last) = calm.last_mut() {
            last.end = now;
        }
        if now > CONFIGURED_EACH * (configured + 1) as u32 {
            configured += 1;
            world.proxy.configure(&configuration(configured))?;
        }
        if now > RESTARTED_EACH * (calm.len() + 1) as u32 {
            if calm.len() % 2 == 1 {
                world.relay.cut(Duration::ZERO).await;
                world.plane.stop(Component::Apiserver)?;
            } else {
                world.plane.kill(Component::Apiserver)?;
            }
            world.plane.start_again(Component::Apiserver)?;
            world.plane.ready().await?;
            let start = began.elapsed() + CALM_AFTER;
            calm.push(start..start);
        }
    }
    world.proxy.configure(&configuration(0))?;
    Ok(calm)
}

/// Waits until no table holds more than before the load; returns what they hold in the end.
async fn settled(world: &World, before: &Tables) -> Tables {
    let mut last = None;
    let waited = until("tables as before", SETTLE_LIMIT, async || {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let tables = Tables::read(&world.proxy).await?;
        let is_settled = tables.above(before).is_empty();
        last = Some(tables);
        Ok(is_settled)
    });
    // The caller says what was left.
    let _ = waited.await;
    last.expect("metrics")
}

/// The checks prove nothing about a load that hardly happened.
async fn assert_means_something(world: &World, time: Duration) {
    let metrics = world.proxy.metrics().await.expect("metrics");
    let sum = |name: &str, labels: &[(&str, &str)]| metrics.sum(name, labels);
    let ended = |reason| sum("listless_replicas_ended_total", &[("reason", reason)]);
    let (idle, widened) = (ended("idle"), ended("widened"));
    eprintln!(
        "proof: soak: {idle} replicas ended because they were idle, {widened} for wider ones"
    );
    // One of each and more in a round, unless the apiserver is away just then.
    let half = (time.as_secs_f64() / clients::ROUND.as_secs_f64() / 2.0).floor().max(1.0);
    assert!(idle >= half && widened >= half, "{idle} and {widened}");
    assert!(sum("listless_config_reloads_total", &[("result", "success")]) >= 2.0, "reloads");
    assert!(
        sum("listless_config_reloads_total", &[("result", "failure")]) >= 1.0,
        "refused reloads"
    );
    let reads = world.records.reads();
    let hits = reads.iter().filter(|read| read.hit).count();
    assert!(hits * 2 > reads.len(), "{hits} of {} from memory", reads.len());
    assert!(world.records.writes().len() as f64 > 2.0 * time.as_secs_f64(), "too few writes");
}
