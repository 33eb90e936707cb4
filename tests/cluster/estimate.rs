//! The report's estimate of the apiserver's processor time, against the kernel's account of it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::drivers::tally::median;
use crate::load::{DATA, Fleet};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{Component, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until_hit;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The estimate may deviate from the measured time by this share, beside the other requests.
const TOLERANCE: f64 = 0.3;

/// The machine's time for the work of one second on the machine of the formula.
const SPEEDS: std::ops::Range<f64> = 0.25..4.0;

/// Each round repeats a request until the apiserver has worked for so many seconds, which the kernel
/// counts in hundredths.
const WORK_MIN: f64 = 1.0;

/// The rounds of each request in a pass.
const ROUNDS: usize = 3;

/// On a shared machine the same work takes up to twice as long in some rounds as in others: if a request
/// is out of tolerance, all are measured further, and the median of all rounds counts.
const PASSES_MAX: usize = 4;

/// The measurement of the apiserver's work on its own.
const IDLE: Duration = Duration::from_secs(3);

const LIMIT: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(50);

/// A request that repeats.
struct Repeated {
    name: &'static str,
    /// The part after the path of the pods' collection.
    target: &'static str,
    accept: &'static str,
    compressed: bool,
}

const fn repeated(name: &'static str, target: &'static str, accept: &'static str) -> Repeated {
    Repeated { name, target, accept, compressed: false }
}

const REPEATED: [Repeated; 14] = [
    repeated("get", "/pod-00007", JSON),
    repeated("get-0", "/pod-00007?resourceVersion=0", JSON),
    repeated("get-protobuf", "/pod-00007", PROTOBUF),
    repeated("none", "?labelSelector=poller%3Dnone", JSON),
    repeated("none-0", "?labelSelector=poller%3Dnone&resourceVersion=0", JSON),
    repeated("fifty", "?labelSelector=poller%3D7", JSON),
    repeated("fifty-0", "?labelSelector=poller%3D7&resourceVersion=0", JSON),
    Repeated { compressed: true, ..repeated("fifty-gzip", "?labelSelector=poller%3D7", JSON) },
    repeated("fifty-protobuf", "?labelSelector=poller%3D7", PROTOBUF),
    Repeated {
        compressed: true,
        ..repeated("fifty-protobuf-gzip", "?labelSelector=poller%3D7", PROTOBUF)
    },
    repeated("fifty-table", "?labelSelector=poller%3D7", TABLE),
    repeated("all", "", JSON),
    Repeated { compressed: true, ..repeated("all-gzip-0", "?resourceVersion=0", JSON) },
    repeated("all-protobuf", "?resourceVersion=0", PROTOBUF),
];

/// One request to one release, and its processor time in seconds.
struct Compared {
    name: String,
    /// The time of each round.
    measured: Vec<f64>,
    estimated: f64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_estimated_processor_time_is_the_measured_one() {
    let mut all: Vec<Compared> = Vec::new();
    for pass in 1..=PASSES_MAX {
        for version in [Version::V1_36, Version::V1_30] {
            let Some(fleet) = Fleet::take_alone(version).await else { return };
            for compared in compared(&fleet, version).await.expect("measured times") {
                match all.iter_mut().find(|it| it.name == compared.name) {
                    Some(earlier) => earlier.measured.extend(compared.measured),
                    None => all.push(compared),
                }
            }
        }
        let (speed, lines, wrong) = judged(&all);
        if wrong.is_empty() || pass == PASSES_MAX {
            lines.iter().for_each(|line| println!("proof: {line}"));
            println!(
                "proof: this machine takes {speed:.2} times as long as the formula's; {pass} passes"
            );
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
            assert!(SPEEDS.contains(&speed), "{speed}");
            return;
        }
        eprintln!("measured further, because of\n{}", wrong.join("\n"));
    }
}

/// Returns the machine's speed, a line for each request, and the lines of those out of tolerance.
fn judged(all: &[Compared]) -> (f64, Vec<String>, Vec<String>) {
    let found = all.iter().map(|it| (it, median(it.measured.clone()).expect("rounds")));
    // The formula holds for one machine; another one is faster or slower at everything.
    let speeds = found.clone().map(|(it, measured)| measured / it.estimated);
    let speed = median(speeds.collect()).expect("requests");
    let (mut lines, mut wrong) = (Vec::new(), Vec::new());
    for (Compared { name, estimated, .. }, measured) in found {
        let deviation = estimated * speed / measured - 1.0;
        let line = format!(
            "{name}: estimated {:.0} µs, measured {:.0} µs, {:+.0} % beside the others",
            estimated * 1e6,
            measured * 1e6,
            deviation * 100.0
        );
        if deviation.abs() > TOLERANCE {
            wrong.push(line.clone());
        }
        lines.push(line);
    }
    (speed, lines, wrong)
}

/// Measures each request, and takes its estimate from the report.
async fn compared(fleet: &Fleet, version: Version) -> Result<Vec<Compared>> {
    let proxy = fleet.proxy().await?;
    whole(&proxy).await?;
    let mut all = Vec::new();
    for (repeated, measured) in REPEATED.iter().zip(measured(fleet).await?) {
        let name = format!("{} {}", version.name(), repeated.name);
        let estimated = estimated(&proxy, repeated).await?;
        all.push(Compared { name, measured, estimated });
    }
    Ok(all)
}

/// Waits until memory has the whole collection in every form: the apiserver goes through it for each
/// selection.
async fn whole(proxy: &ProxyProcess) -> Result<()> {
    for accept in [JSON, PROTOBUF, TABLE] {
        let list = Request::get(&DATA.collection()).header("Accept", accept);
        until_hit(&proxy.client(Protocol::Http1), &list, LIMIT).await?;
    }
    Ok(())
}

/// Returns the apiserver's seconds for one direct request of each kind, without its work on its own, in several
/// rounds. A garbage collection falls into some of them, and the machine's speed changes between them.
async fn measured(fleet: &Fleet) -> Result<Vec<Vec<f64>>> {
    let client = fleet.plane().client(User::Admin, Protocol::Http1)?;
    for repeated in &REPEATED {
        client.send(repeated.request()).await?.successful()?;
    }
    let (before, begun) = (used(fleet)?, Instant::now());
    tokio::time::sleep(IDLE).await;
    let idle = (used(fleet)? - before) / begun.elapsed().as_secs_f64();
    let mut rounds = vec![Vec::new(); REPEATED.len()];
    for _ in 0..ROUNDS {
        for (repeated, rounds) in REPEATED.iter().zip(&mut rounds) {
            rounds.push(round(fleet, &client, repeated, idle).await?);
        }
    }
    Ok(rounds)
}

/// Repeats a request; returns the apiserver's seconds for one. `idle` is its share of a core without requests.
async fn round(fleet: &Fleet, client: &Client, repeated: &Repeated, idle: f64) -> Result<f64> {
    let (before, begun, mut count, mut worked) = (used(fleet)?, Instant::now(), 0_u32, 0.0);
    while worked < WORK_MIN || count < 2 {
        client.send(repeated.request()).await?.successful()?;
        count += 1;
        worked = used(fleet)? - before - idle * begun.elapsed().as_secs_f64();
    }
    Ok(worked / f64::from(count))
}

fn used(fleet: &Fleet) -> Result<f64> {
    fleet.plane().cpu_seconds(Component::Apiserver)
}

/// Returns the seconds that the report claims for one request that memory answered.
async fn estimated(proxy: &ProxyProcess, repeated: &Repeated) -> Result<f64> {
    let client = proxy.client(Protocol::Http1);
    until_hit(&client, &repeated.request(), LIMIT).await?;
    let (requests, seconds) = claimed(proxy, repeated).await?;
    for _ in 0..4 {
        let answer = client.send(repeated.request()).await?.successful()?;
        ensure!(answer.is_hit(), "{} is not answered from memory", repeated.name);
    }
    let (requests_after, seconds_after) = claimed(proxy, repeated).await?;
    ensure!(requests_after == requests + 4.0, "{requests_after} requests after {requests}");
    Ok((seconds_after - seconds) / 4.0)
}

/// Returns the requests and the apiserver's seconds that the report names.
async fn claimed(proxy: &ProxyProcess, repeated: &Repeated) -> Result<(f64, f64)> {
    // The account is written when the response has ended.
    tokio::time::sleep(POLL).await;
    let report: Value = serde_json::from_str(&proxy.admin("/api/v1/report").await?)?;
    let agent = repeated.agent();
    let polls = report["polls"].as_array().context("no polls")?;
    let poll = polls.iter().find(|poll| poll["userAgent"] == agent).context("no such poll")?;
    let number = |value: &Value| value.as_f64().context("no number");
    Ok((number(&poll["requests"])?, number(&poll["cost"]["apiserverCpuSeconds"])?))
}

// === impl Repeated ===

impl Repeated {
    /// The report tells the requests apart by it.
    fn agent(&self) -> String {
        format!("estimate-{}", self.name)
    }

    fn request(&self) -> Request {
        let request = Request::get(&format!("{}{}", DATA.collection(), self.target))
            .header("User-Agent", &self.agent())
            .header("Accept", self.accept);
        if self.compressed { request.header("Accept-Encoding", "gzip") } else { request }
    }
}
