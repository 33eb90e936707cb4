//! kubectl, straight and through Listless: a matrix of commands with equal output, the requests that
//! reach the apiserver, and thousands of pods.

mod commands;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::clusters::Cluster;
use crate::forms::EXPECTED;
use crate::load::{DATA, Fleet};
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::process::ended_cpu_seconds;
use crate::rig::proxy_process::{ProxyProcess, shipped};
use crate::unmodified::clients;
use commands::{Beside, READS, WATCHES};

/// The number of commands; it may only grow.
const COMMANDS_MIN: usize = 60;
/// The attempts for output with ages, which both sides must print within one second.
const TRIES: usize = 8;
/// The time limit of a command.
const LIMIT: Duration = Duration::from_secs(60);
/// The time that a watch needs to open, and to print the last event.
const OPENING: Duration = Duration::from_millis(1500);
const ARRIVAL: Duration = Duration::from_secs(1);

const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
repeatPolls: {action: off}
";

/// The runs of `get pods -A` before and during the measurement.
const WARM_RUNS: usize = 4;
const RUNS: u32 = 5;

/// The wall time of 5 000 pods through Listless, as a share of the straight one. Most of it is
/// kubectl's own.
const WALL_RATIO_MAX: f64 = 1.0;

/// kubectl with a home of its own, so that each side has its own discovery cache.
struct Side {
    program: PathBuf,
    kubeconfig: PathBuf,
    authority: String,
    home: TempDir,
}

/// The requests that the apiserver received.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// All, without leases.
    pub all: f64,
    /// The LISTs among them.
    pub lists: f64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_prints_the_same_in_every_command_of_the_matrix() {
    let Some(program) = clients::kubectl() else { return };
    let Some(cluster) = Cluster::take_aged(Version::V1_36).await else { return };
    let plane = cluster.plane();
    let proxy = proxy(plane).await;
    let [straight, through] = sides(&program, plane, &proxy).expect("two sides");
    assert!(READS.len() + WATCHES.len() >= COMMANDS_MIN);
    let client = plane.client(User::Admin, Protocol::Http2).expect("a client");
    // The object that the manifests are about.
    straight.run("apply -f SAME").await.expect("an object");
    let (mut differences, mut tries) = (Vec::new(), 0);
    let all =
        READS.iter().map(|command| (*command, Beside::Nothing)).chain(WATCHES.iter().copied());
    for (command, beside) in all {
        let mut found = None;
        for _ in 0..TRIES {
            tries += 1;
            let (expected, given) = match beside {
                Beside::Nothing => tokio::try_join!(straight.run(command), through.run(command)),
                Beside::Churn(collection) => {
                    follow(&straight, &through, command, &client, collection).await
                }
            }
            .with_context(|| command)
            .expect("two results");
            found = difference(&expected, &given);
            if found.is_none() {
                break;
            }
        }
        differences.extend(found.map(|found| format!("=== {command}\n{found}")));
    }
    let count = READS.len() + WATCHES.len();
    eprintln!("proof: {count} kubectl commands in {tries} tries, {} differ", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    count_requests(plane, &straight, &through).await.expect("counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_lists_thousands_of_pods_without_a_list_at_the_apiserver() {
    let Some(program) = clients::kubectl() else { return };
    let Some(fleet) = Fleet::take_alone(Version::V1_36).await else { return };
    let plane = fleet.plane();
    // A debug build is several times slower.
    let listless = shipped().expect("a build");
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    let proxy = ProxyProcess::start_program(&listless, "local", &kubeconfig, Some(CONFIGURATION));
    let proxy = proxy.await.expect("a proxy");
    let [straight, through] = sides(&program, plane, &proxy).expect("two sides");
    let command = "get pods -A";
    for _ in 0..WARM_RUNS {
        let (expected, given) =
            tokio::try_join!(straight.run(command), through.run(command)).expect("two results");
        let lines = given.lines().count();
        assert!(lines > DATA.pods as usize, "{lines} lines of {}", expected.lines().count());
    }
    let mut walls = [Duration::ZERO; 2];
    let (mut lists, mut own) = ([0; 2], [0.0; 2]);
    for (index, side) in [&straight, &through].into_iter().enumerate() {
        let before = plane.request_counts().await.expect("metrics").ended("LIST", "pods");
        let (begun, ended) = (Instant::now(), ended_cpu_seconds().expect("processor time"));
        for _ in 0..RUNS {
            side.run(command).await.expect("a result");
        }
        walls[index] = begun.elapsed() / RUNS;
        let used = ended_cpu_seconds().expect("processor time") - ended;
        own[index] = used / f64::from(RUNS);
        lists[index] =
            plane.request_counts().await.expect("metrics").ended("LIST", "pods") - before;
    }
    let ratio = walls[1].as_secs_f64() / walls[0].as_secs_f64();
    eprintln!(
        "proof: kubectl get pods -A of {} pods: {:.0?} straight, {:.0?} through, ratio {ratio:.2}; \
         kubectl's own processor time: {:.2} s and {:.2} s; LISTs at the apiserver in {RUNS} runs: \
         {} straight, {} through",
        DATA.pods, walls[0], walls[1], own[0], own[1], lists[0], lists[1]
    );
    if EXPECTED.all_pods_from_memory {
        assert_eq!(lists[1], 0, "{}", proxy.log());
        assert!(ratio <= WALL_RATIO_MAX, "{ratio:.2} of the straight time");
    }
}

async fn proxy(plane: &ControlPlane) -> ProxyProcess {
    let kubeconfig = plane.kubeconfig(User::Admin).expect("a kubeconfig");
    ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await.expect("a proxy")
}

fn sides(program: &Path, plane: &ControlPlane, proxy: &ProxyProcess) -> Result<[Side; 2]> {
    let straight =
        Side::new(program, &plane.kubeconfig(User::Admin)?, plane.server()?.authority())?;
    let through = Side::new(program, proxy.kubeconfig(), proxy.server().authority())?;
    Ok([straight, through])
}

/// Runs every command once per side and prints the requests that it cost the apiserver.
async fn count_requests(plane: &ControlPlane, straight: &Side, through: &Side) -> Result<()> {
    let mut sums = [Requests::default(); 2];
    eprintln!("requests at the apiserver, of which LISTs: straight, through Listless");
    for command in READS {
        let mut row = [Requests::default(); 2];
        // The first run through Listless may start a replica.
        through.run(command).await?;
        for (index, side) in [straight, through].into_iter().enumerate() {
            let before = Requests::at(plane).await?;
            side.run(command).await?;
            row[index] = Requests::at(plane).await?.since(before);
            sums[index].all += row[index].all;
            sums[index].lists += row[index].lists;
        }
        let [one, other] = row;
        eprintln!("{:>4} {:>4} {:>5} {:>4}  {command}", one.all, one.lists, other.all, other.lists);
    }
    let [one, other] = sums;
    eprintln!(
        "proof: {} commands cost the apiserver {} requests straight, {} of them LISTs, and {} \
         through Listless, {} of them LISTs",
        READS.len(),
        one.all,
        one.lists,
        other.all,
        other.lists
    );
    let saved = 100.0 - other.lists * 100.0 / one.lists;
    assert!(saved >= EXPECTED.kubectl_lists_saved, "{saved:.0} % of the LISTs are saved");
    Ok(())
}

/// Runs a watching command on both sides while objects come and go.
async fn follow(
    straight: &Side,
    through: &Side,
    command: &str,
    client: &Client,
    collection: &str,
) -> Result<(String, String)> {
    let both = [straight.start(command)?, through.start(command)?];
    tokio::time::sleep(OPENING).await;
    for number in 0..2 {
        churn(client, collection, &format!("churn-{number}")).await?;
    }
    tokio::time::sleep(ARRIVAL).await;
    for child in &both {
        // It may have ended by itself.
        let id = child.id().unwrap_or_default().to_string();
        Command::new("kill").args(["-INT", &id]).stderr(Stdio::null()).status().await?;
    }
    let [one, other] = both;
    tokio::try_join!(straight.end(one), through.end(other))
}

/// An object is created, changed and deleted.
async fn churn(client: &Client, collection: &str, name: &str) -> Result<()> {
    let path = format!("{collection}/{name}");
    let patch = json!({"metadata": {"labels": {"round": "2"}}}).to_string();
    for request in [
        Request::new(Method::POST, collection).json(&object(collection, name)),
        Request::new(Method::PATCH, &path).body("application/merge-patch+json", patch),
        Request::new(Method::DELETE, &format!("{path}?gracePeriodSeconds=0")),
    ] {
        client.send(request).await?.successful()?;
    }
    Ok(())
}

fn object(collection: &str, name: &str) -> Value {
    let metadata = json!({"name": name, "labels": {"churn": "yes"}});
    if collection.ends_with("/pods") {
        let container = json!({"name": "main", "image": "example.com/app:1"});
        json!({"metadata": metadata, "spec": {"containers": [container]}})
    } else if collection.ends_with("/widgets") {
        json!({"apiVersion": "shop.example.com/v1", "kind": "Widget", "metadata": metadata})
    } else {
        json!({"metadata": metadata, "data": {"a": "b"}})
    }
}

/// The lines that only one side printed, if the outputs differ.
fn difference(expected: &str, given: &str) -> Option<String> {
    let only = |text: &str, other: &str, sign: &str| {
        let lines = text.lines().filter(|line| !other.lines().any(|it| it == *line)).take(12);
        lines.map(|line| format!("{sign} {line}")).collect::<Vec<_>>().join("\n")
    };
    (expected != given)
        .then(|| format!("{}\n{}", only(expected, given, "-"), only(given, expected, "+")))
}

// === impl Side ===

impl Side {
    fn new(program: &Path, kubeconfig: &Path, authority: &str) -> Result<Self> {
        let home = TempDir::with_prefix("kubectl-")?;
        for (file, value) in [("SAME", "first"), ("CHANGED", "second")] {
            fs::write(home.path().join(file), manifest(value).to_string())?;
        }
        let (program, kubeconfig) = (program.to_owned(), kubeconfig.to_owned());
        Ok(Self { program, kubeconfig, authority: authority.to_owned(), home })
    }

    fn start(&self, command: &str) -> Result<Child> {
        let arguments = command.split(' ').map(|argument| argument.replace('_', " "));
        let mut started = Command::new(&self.program);
        started.args(arguments).current_dir(self.home.path()).env("HOME", self.home.path());
        started.env("KUBECONFIG", &self.kubeconfig).env("TZ", "UTC").kill_on_drop(true);
        started.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(started.spawn()?)
    }

    async fn run(&self, command: &str) -> Result<String> {
        self.end(self.start(command)?).await
    }

    /// The exit code and both outputs, without the address of the server and the folders of `diff`.
    async fn end(&self, child: Child) -> Result<String> {
        let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await??;
        let (out, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let text = format!("{}\n{out}\n{error}", output.status);
        let lines = without_list_version(text.replace(&self.authority, "SERVER"));
        let lines = lines.lines().map(|line| {
            // The folders that `diff` compares, and the times of their files.
            if line.starts_with(['W', 'I', 'E'])
                && line[1..].starts_with(|it: char| it.is_ascii_digit())
            {
                // A line of the log: time and process.
                return line.split_once("] ").map_or(line, |(_, text)| text);
            }
            if ["diff -u", "--- /", "+++ /"].iter().any(|start| line.starts_with(start)) {
                "FOLDER"
            } else {
                line
            }
        });
        Ok(lines.collect::<Vec<_>>().join("\n"))
    }
}

/// The text without the version of a list in the apiserver's own form, and without the token of its
/// next page, which names it: caches of both sides are right at any that is new enough.
fn without_list_version(text: String) -> String {
    let key = "List\",\"apiVersion\":\"v1\",\"metadata\":{\"resourceVersion\":\"";
    let Some((before, after)) = text.split_once(key) else { return text };
    let after = after.trim_start_matches(|it: char| it.is_ascii_digit());
    let token = "\",\"continue\":\"";
    match after.strip_prefix(token).and_then(|after| after.split_once('"')) {
        Some((_, after)) => format!("{before}{key}{token}\"{after}"),
        None => format!("{before}{key}{after}"),
    }
}

fn manifest(value: &str) -> Value {
    let metadata = json!({"name": "matrix", "namespace": "shop", "labels": {"app": "matrix"}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}})
}

// === impl Requests ===

impl Requests {
    /// The requests since its start.
    pub async fn at(plane: &ControlPlane) -> Result<Self> {
        let counts = plane.request_counts().await?;
        let sum = |labels: &[(&str, &str)]| {
            let sums = counts.sums("apiserver_request_total", labels, "resource");
            // The apiserver renews its own lease.
            sums.iter().filter(|(resource, _)| *resource != "leases").map(|(_, sum)| sum).sum()
        };
        Ok(Self { all: sum(&[]), lists: sum(&[("verb", "LIST")]) })
    }

    /// The requests since then, without the one for the metrics themselves.
    pub fn since(self, before: Self) -> Self {
        Self { all: self.all - before.all - 1.0, lists: self.lists - before.lists }
    }
}
