//! Twenty pollers on five thousand pods: the requests to the apiserver, and the behaviour without
//! it.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::clusters::skipped;
use crate::differential::judge::Served;
use crate::load::history::History;
use crate::load::pollers::{Observation, Outcome, Pollers, Refusal};
use crate::load::verdict::{Outage, steps_across, wrong_answers, wrong_in_outage};
use crate::load::{DATA, Fleet, POLLERS};
use crate::rig::artifact::Built;
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::client_program::ClientProgram;
use crate::rig::control_plane::{Component, RequestCounts, User, Version};

/// The duration of the pollers; shorter for a quick run.
const SECONDS: u64 = 120;
const SECONDS_VARIABLE: &str = "LISTLESS_LOAD_SECONDS";
/// The duration of the direct pollers, which show that the meter works.
const SECONDS_STRAIGHT: u64 = 10;
const FABRIC8_PERIOD_MILLIS: u64 = 3000;
const WRITE_EVERY_ROUNDS: u64 = 3;

const OUTAGE_SECONDS: u64 = 30;
const OUTAGE_VARIABLE: &str = "LISTLESS_OUTAGE_SECONDS";
const POLL_PERIOD: Duration = Duration::from_millis(1000);
const WRITE_PERIOD: Duration = Duration::from_millis(50);
const WRITE_TIME: Duration = Duration::from_secs(5);
const CATCH_UP_LIMIT: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fabric8_pollers_cost_one_list_and_one_watch_on_1_36() {
    fabric8_pollers(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fabric8_pollers_cost_one_list_and_one_watch_on_1_30() {
    fabric8_pollers(Version::V1_30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_brings_no_wrong_answer_and_at_most_one_relist_on_1_36() {
    outage(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_brings_no_wrong_answer_and_at_most_one_relist_on_1_30() {
    outage(Version::V1_30).await;
}

fn seconds(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number of seconds"))
}

async fn fabric8_pollers(version: Version) {
    let program = match ClientProgram::Fabric8.build().expect("a build that works") {
        Built::Here(program) => program,
        Built::Impossible(reason) => return skipped("the fabric8 program", &reason),
    };
    let Some(fleet) = Fleet::take(version).await else { return };
    let plane = fleet.plane();

    let straight = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let before = Meter::read(&fleet).await;
    let result = run_fabric8(&program, &straight, SECONDS_STRAIGHT).await;
    let used = Meter::read(&fleet).await.since(&before);
    eprintln!("proof: fabric8 directly on {}: {used:?}", version.name());
    // An old apiserver may be too slow for some of them. Only the meter is tested here.
    assert!(
        used.lists > 0 && used.lists >= result["polls"].as_u64().expect("a count"),
        "{used:?}: {result}"
    );

    let before = Meter::read(&fleet).await;
    let proxy = fleet.proxy().await.expect("a proxy");
    let time = seconds(SECONDS_VARIABLE, SECONDS);
    let result = run_fabric8(&program, proxy.kubeconfig(), time).await;
    let used = Meter::read(&fleet).await.since(&before);
    let cpu_seconds = proxy.cpu_seconds().expect("a time");
    let mebibytes = proxy.resident_bytes().expect("a size") >> 20;
    eprintln!(
        "proof: fabric8 through Listless on {}: {} polls, {used:?}; Listless used {cpu_seconds} s of \
         processor time and {mebibytes} MiB",
        version.name(),
        result["polls"]
    );
    check(&result, time);
    assert!(used.lists <= 2, "{used:?}\n{}", proxy.log());
    assert!(used.watches <= 1, "{used:?}\n{}", proxy.log());
}

async fn run_fabric8(program: &Path, kubeconfig: &Path, time: u64) -> Value {
    let arguments = [
        DATA.namespace.to_owned(),
        POLLERS.to_string(),
        FABRIC8_PERIOD_MILLIS.to_string(),
        time.to_string(),
        WRITE_EVERY_ROUNDS.to_string(),
    ];
    ClientProgram::Fabric8.run(program, kubeconfig, &arguments, &[]).await.expect("a result")
}

/// All responses right, every write visible in the writer's next read, and the expected number of
/// them.
fn check(result: &Value, time: u64) {
    assert_eq!(result["misses"], json!([]), "{result}");
    assert_eq!(result["errors"], json!([]), "{result}");
    let count = |name: &str| result[name].as_u64().expect("a count");
    assert!(count("pods") >= u64::from(POLLERS) * 50, "{result}");
    assert!(count("writes") > 0, "{result}");
    let rounds = time * 1000 / FABRIC8_PERIOD_MILLIS;
    assert!(count("polls") >= u64::from(POLLERS) * rounds / 2, "{result}");
}

/// The requests to the apiserver, and their cost.
#[derive(Clone, Copy, Debug)]
struct Meter {
    lists: u64,
    watches: u64,
    cpu_seconds: f64,
}

// === impl Meter ===

impl Meter {
    async fn read(fleet: &Fleet) -> Self {
        let counts = fleet.plane().request_counts().await.expect("metrics");
        let cpu_seconds = fleet.plane().cpu_seconds(Component::Apiserver).expect("a time");
        Self { cpu_seconds, ..Self::of(&counts) }
    }

    /// The apiserver watches all pods for itself and renews that watch at times of its own. An
    /// ended watch of all namespaces is therefore not counted; an open one is.
    fn of(counts: &RequestCounts) -> Self {
        let renewed = [("verb", "WATCH"), ("resource", "pods"), ("scope", "cluster")];
        let renewed = counts.sum("apiserver_request_total", &renewed) as u64;
        Self {
            lists: counts.arrived("LIST", "pods"),
            watches: counts.arrived("WATCH", "pods").saturating_sub(renewed),
            cpu_seconds: 0.0,
        }
    }

    fn since(self, before: &Self) -> Self {
        Self {
            lists: self.lists.saturating_sub(before.lists),
            watches: self.watches.saturating_sub(before.watches),
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
        }
    }
}

async fn outage(version: Version) {
    let Some(fleet) = Fleet::take(version).await else { return };
    let plane = fleet.plane();
    let straight = plane.client(User::Admin, Protocol::Http1).expect("a client");
    let mut history = History::begin(straight).await.expect("the pods");
    let proxy = fleet.proxy().await.expect("a proxy");
    let client = proxy.client(Protocol::Http2);
    let pollers = Pollers::start(&client, POLL_PERIOD);

    let made = history.write_for(WRITE_TIME, WRITE_PERIOD).await.expect("writes");
    assert!(made > 0 && pollers.know(history.last_version(), CATCH_UP_LIMIT).await);

    let outage = kill_for_a_while(&fleet, &client).await;
    let made_after = history.write_for(WRITE_TIME, WRITE_PERIOD).await.expect("writes");
    let caught_up = pollers.know(history.last_version(), CATCH_UP_LIMIT).await;
    let seen = pollers.stop().await;
    let counts = plane.request_counts().await.expect("metrics");

    let own = proxy.metrics().await.expect("metrics");
    let relists = own.sum("listless_replica_lists_total", &[("round", "again")]) as u64;
    let summary = Summary::of(&fleet, &counts, outage, &seen, relists);
    eprintln!(
        "proof: outage on {}: {made} + {made_after} writes, {summary}, {} lists behind one of another \
         query",
        version.name(),
        steps_across(&seen)
    );
    let log = proxy.log();
    assert!(caught_up, "not all changes came from memory in {CATCH_UP_LIMIT:?}\n{log}");
    let wrong = wrong_answers(&history, &seen);
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    let wrong = wrong_in_outage(outage, &seen);
    assert!(wrong.is_empty(), "{} wrong: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    assert!(summary.hits_in_outage > 0 && summary.refused_in_outage > 0, "{summary}");
    assert!(summary.relists <= 1, "{summary}\n{log}");
    // The other one asks for the storage's version: one object at most (S-CONS-10).
    assert!(summary.own_lists() <= 2, "{summary}\n{log}");
}

async fn kill_for_a_while(fleet: &Fleet, through: &Client) -> Outage {
    let plane = fleet.plane();
    let from = Instant::now();
    plane.kill(Component::Apiserver).expect("a kill");
    let time = Duration::from_secs(seconds(OUTAGE_VARIABLE, OUTAGE_SECONDS));
    tokio::time::sleep(time / 2).await;
    write_in_outage(through).await;
    tokio::time::sleep(time / 2).await;
    // Responses that come once the new process listens may be its own.
    let until = Instant::now();
    plane.start_again(Component::Apiserver).expect("a start");
    plane.ready().await.expect("an apiserver");
    Outage { from, until }
}

/// A write that nobody can accept is refused without an invitation to repeat it (S-ERR-02).
async fn write_in_outage(through: &Client) {
    let post = Request::new(Method::POST, &DATA.collection()).json(&json!({"metadata": {}}));
    let refusal = Refusal::of(&through.send(post).await.expect("an answer"));
    let wanted = Refusal {
        status: 503,
        retry_after: None,
        reason: Some("ServiceUnavailable".to_owned()),
        cache_status: true,
    };
    assert_eq!(refusal, wanted);
}

/// Reports whether a response was the apiserver's own; Listless sends 503 when it has none.
fn reached_apiserver(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::List { served, .. } => *served == Served::Forwarded,
        Outcome::Refused(refusal) => refusal.status != 503,
        Outcome::Failed(_) => false,
    }
}

/// The outage in figures.
#[derive(Clone, Copy, Debug)]
struct Summary {
    answers: usize,
    hits_in_outage: usize,
    refused_in_outage: usize,
    forwarded_after: u64,
    lists_after: u64,
    relists: u64,
    /// From the return of the apiserver to the first answer from memory.
    memory_back_after: Option<Duration>,
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} answers; without an apiserver {} from memory, {} refused; after it {} forwarded \
             lists of {} that arrived ({} own, {} relists), from memory again after {:.1?}",
            self.answers,
            self.hits_in_outage,
            self.refused_in_outage,
            self.forwarded_after,
            self.lists_after,
            self.own_lists(),
            self.relists,
            self.memory_back_after
        )
    }
}

// === impl Summary ===

impl Summary {
    fn of(
        fleet: &Fleet,
        counts: &RequestCounts,
        outage: Outage,
        seen: &[Observation],
        relists: u64,
    ) -> Self {
        let is_list = |observation: &Observation, wanted: Served| matches!(observation.outcome, Outcome::List { served, .. } if served == wanted);
        let inside = || seen.iter().filter(|observation| outage.covers(observation));
        let hits = inside().filter(|observation| is_list(observation, Served::Hit)).count();
        let refused = inside().filter(|it| matches!(it.outcome, Outcome::Refused(_))).count();
        let after = || seen.iter().filter(|observation| observation.received >= outage.until);
        let forwarded = after().filter(|it| reached_apiserver(&it.outcome)).count();
        let first_hit = after().find(|observation| is_list(observation, Served::Hit));
        let since_return = |it: &Observation| it.received.duration_since(outage.until);
        // The new process counts from zero, and repeats the requests of its first start.
        let lists = Meter::of(counts).since(&Meter::of(fleet.at_start())).lists;
        let forwarded_after = forwarded as u64;
        Self {
            answers: seen.len(),
            hits_in_outage: hits,
            refused_in_outage: refused,
            forwarded_after,
            lists_after: lists,
            relists,
            memory_back_after: first_hit.map(since_return),
        }
    }

    /// The lists of Listless itself that the restarted apiserver received.
    fn own_lists(&self) -> u64 {
        self.lists_after.saturating_sub(self.forwarded_after)
    }
}
