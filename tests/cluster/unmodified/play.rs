//! One program through one churn, directly and through Listless, and the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::churn::Churn;
use super::program::{Finding, Follower};
use super::stage::{Fault, Scene, Stage};
use crate::rig::control_plane::{RequestCounts, Version};

/// A client opens its watches one soon after the other.
const STEADY: Duration = Duration::from_millis(400);
/// The time limit of a program's first watch.
const OPEN_LIMIT: Duration = Duration::from_secs(30);
const RESOURCES: [&str; 2] = ["pods", "configmaps"];

/// The test of a program.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    /// The control plane.
    pub version: Version,
    /// A namespace of its own.
    pub namespace: &'static str,
    /// The faults, one after the other.
    pub faults: &'static [Fault],
    /// `true` if all its watches come from memory.
    pub from_memory: bool,
    /// `true` if the program lists and watches again and again by itself.
    pub relists: bool,
}

/// Both results and the counts beside them.
#[derive(Debug)]
struct Outcome {
    writes: u32,
    truth: BTreeMap<String, BTreeMap<String, String>>,
    through: Finding,
    straight: Finding,
    served: Served,
    /// Watches at the apiserver before the programs, with the one through Listless, with both.
    upstream: [u64; 3],
}

/// The work of Listless for the program.
#[derive(Clone, Debug)]
pub struct Served {
    /// Watches from memory when the program was ready.
    watches_open: u64,
    /// The reasons for which watches from memory ended, with their number.
    watches_ended: BTreeMap<String, f64>,
    /// The reasons for which watches were forwarded, with their number.
    watches_forwarded: BTreeMap<String, f64>,
    /// Lists and gets since it was ready, by their source.
    reads_from_memory: u64,
    reads_forwarded: u64,
    /// Lists since it was ready.
    relists: u64,
    /// Repeated lists that Listless itself requested from the apiserver.
    own_relists: u64,
}

// === impl Play ===

impl Play {
    /// Runs it all, prints one line, and fails with all errors.
    pub async fn perform(self, follower: &Follower) {
        let Some(stage) = Stage::take(self.version).await else { return };
        let scene = stage.scene(self.namespace).await.expect("a scene");
        let outcome = self.run(follower, &scene).await.expect("a whole run");
        eprintln!("proof: {} on {}: {outcome}", follower.name(), self.version.name());
        let wrong = self.wrong(&outcome);
        assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), scene.proxy.log());
    }

    async fn run(self, follower: &Follower, scene: &Scene<'_>) -> Result<Outcome> {
        let mut churn = Churn::begin(scene).await?;
        let folder = scene.plane.folder();
        let start = async |kubeconfig, instance| {
            follower.start(kubeconfig, folder, self.namespace, instance).await
        };
        let watches = async || Ok(scene.upstream_watches().await? as f64);
        let before = settled(watches).await? as u64;
        let through = start(scene.proxy.kubeconfig(), "through").await?;
        // Some report that they follow as soon as they have listed.
        settled(async || Ok(scene.proxy.metrics().await?.sum("listless_watchers", &[]))).await?;
        let with_one = scene.upstream_watches().await?;
        let kubeconfig = scene.plane.kubeconfig(crate::rig::control_plane::User::Admin)?;
        let straight = start(&kubeconfig, "straight").await?;
        // It may say that it follows before its first watch is open.
        let opening = Instant::now();
        while scene.upstream_watches().await? <= with_one && opening.elapsed() < OPEN_LIMIT {
            tokio::time::sleep(STEADY).await;
        }
        let with_both = settled(watches).await? as u64;
        let at_start = scene.proxy.metrics().await?;
        let writes = churn.run(self.faults).await?;
        let (through, straight) = tokio::join!(through.settle(), straight.settle());
        let served = Served::between(&at_start, &scene.proxy.metrics().await?);
        let mut truth = BTreeMap::new();
        for resource in RESOURCES {
            for (suffix, selector) in [("", ""), ("-in", "?labelSelector=churn%3Din")] {
                let path = format!("{}{selector}", scene.collection(resource));
                truth.insert(format!("{resource}{suffix}"), listed(scene, &path).await?);
            }
        }
        let (through, straight) = (through?, straight?);
        let upstream = [before, with_one, with_both];
        Ok(Outcome { writes, truth, through, straight, served, upstream })
    }

    /// A new apiserver remembers no events, and some of its clients get an error. A client that
    /// then lists again has lost the earlier state of other objects.
    fn restarts(self) -> bool {
        self.faults.contains(&Fault::Restart)
    }

    fn wrong(self, outcome: &Outcome) -> Vec<String> {
        let mut wrong = Vec::new();
        for (who, finding) in [("through", &outcome.through), ("straight", &outcome.straight)] {
            if finding.caches.is_empty() {
                wrong.push(format!("{who}: followed nothing"));
            }
            for (name, held) in &finding.caches {
                let kind = name.split('@').next().unwrap_or_default();
                wrong.extend(
                    differences(&outcome.truth[kind], held)
                        .map(|difference| format!("{who}: {name}: {difference}")),
                );
            }
        }
        let known: BTreeSet<String> = outcome.straight.errors.iter().map(|it| plain(it)).collect();
        let expired = |error: &str| self.restarts() && error.contains("too old resource version");
        let new = outcome.through.errors.iter().filter(|error| !known.contains(&plain(error)));
        let new = new.filter(|error| !expired(error));
        wrong.extend(new.map(|error| format!("complained only through Listless: {error}")));
        let [before, with_one, with_both] = outcome.upstream;
        if with_both <= with_one {
            wrong.push(format!("the apiserver's count of watches shows none: {outcome}"));
        }
        let served = &outcome.served;
        if !self.from_memory {
            return wrong;
        }
        if with_one != before || served.watches_open == 0 {
            wrong.push(format!("watches were not all served from memory: {outcome}"));
        }
        let noticed = (served.relists > 0 && !self.relists) || !served.watches_forwarded.is_empty();
        if !self.restarts() && noticed {
            wrong.push(format!("a cut was noticed by the client: {outcome}"));
        }
        wrong
    }
}

// === impl Served ===

impl Served {
    /// The difference of its metrics.
    pub fn between(before: &RequestCounts, after: &RequestCounts) -> Self {
        let since = |name: &str, labels: &[(&str, &str)]| {
            (after.sum(name, labels) - before.sum(name, labels)) as u64
        };
        let of_resources = |verb: &str, served: &str| -> u64 {
            let labels = |resource| [("verb", verb), ("resource", resource), ("served_by", served)];
            let count = |resource| since("listless_requests_total", &labels(resource));
            RESOURCES.into_iter().map(count).sum()
        };
        let by = |served: &str| of_resources("list", served) + of_resources("get", served);
        Self {
            watches_open: before.sum("listless_watchers", &[]) as u64,
            watches_ended: after.sums("listless_watches_ended_total", &[], "reason"),
            watches_forwarded: after.sums(
                "listless_forwarded_total",
                &[("verb", "watch")],
                "reason",
            ),
            reads_from_memory: by("cache"),
            reads_forwarded: by("upstream") + by("coalesced"),
            relists: ["cache", "upstream", "coalesced", "proxy"]
                .into_iter()
                .map(|served| of_resources("list", served))
                .sum(),
            own_relists: since("listless_replica_lists_total", &[("round", "again")]),
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} watches from memory, ended {:?}, forwarded {:?}; {} relists, {} reads from memory, \
             {} forwarded; {} relists of its own",
            self.watches_open,
            self.watches_ended,
            self.watches_forwarded,
            self.relists,
            self.reads_from_memory,
            self.reads_forwarded,
            self.own_relists
        )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writes, through, straight, served, upstream, .. } = self;
        write!(
            out,
            "{writes} writes; through {:?} and {} errors, straight {:?} and {} errors; {served}; \
             watches at the apiserver {upstream:?}",
            through.counts,
            through.errors.len(),
            straight.counts,
            straight.errors.len()
        )
    }
}

/// A number that has not changed for a while.
async fn settled(read: impl AsyncFn() -> Result<f64>) -> Result<f64> {
    let mut last = read().await?;
    loop {
        tokio::time::sleep(STEADY).await;
        let now = read().await?;
        if now == last {
            return Ok(now);
        }
        last = now;
    }
}

/// The objects that the apiserver holds, read directly.
async fn listed(scene: &Scene<'_>, path: &str) -> Result<BTreeMap<String, String>> {
    let list = scene.straight.get(path).await?.successful()?.json()?;
    let items = list["items"].as_array().context("no items")?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let entry = |item: &serde_json::Value| {
        (text(&item["metadata"]["name"]), text(&item["metadata"]["resourceVersion"]))
    };
    Ok(items.iter().map(entry).collect())
}

fn differences<'a>(
    truth: &'a BTreeMap<String, String>,
    held: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = String> + 'a {
    let names: BTreeSet<&String> = truth.keys().chain(held.keys()).collect();
    names
        .into_iter()
        .filter(|name| truth.get(*name) != held.get(*name))
        .map(|name| format!("{name} is {:?}, held as {:?}", truth.get(name), held.get(name)))
}

/// An error without the parts that differ each time: ports, versions, times.
fn plain(error: &str) -> String {
    error.chars().filter(|character| !character.is_ascii_digit()).collect()
}
