//! Random reads, writes and watches on a real control plane during faults; afterwards all responses
//! are checked against etcd's own history.
//!
//! Readers, writers and informers of one session go through Listless; another client writes
//! directly. `LISTLESS_SEED` chooses the actions, `LISTLESS_HISTORY_SECONDS` their duration.

#[path = "histories/actors.rs"]
pub mod actors;
#[path = "histories/checker.rs"]
pub mod checker;
#[path = "../it/freshness/model/dice.rs"]
pub mod dice;
#[path = "histories/faults.rs"]
mod faults;
#[path = "histories/informer.rs"]
pub mod informer;
#[path = "histories/record.rs"]
pub mod record;
#[path = "histories/truth.rs"]
pub mod truth;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use serde_json::{Value, json};

use self::actors::{SMALL, Scope};
use self::dice::Dice;
use self::informer::Informer;
use self::record::{Records, Resource, Told};
use self::truth::Truth;
use crate::clusters::{Machine, available};
use crate::dataset::Dataset;
use crate::relay::Relay;
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::control_plane::{ControlPlane, User, Version};
use crate::rig::proxy_process::{PROGRAM, ProxyProcess};

/// State that the actors of one run share.
pub struct World {
    pub plane: ControlPlane,
    pub relay: Relay,
    pub proxy: ProxyProcess,
    /// The objects that the actors write.
    pub scope: Scope,
    pub truth: Truth,
    token_file: PathBuf,
    pub records: Records,
    /// `true` when all writers have stopped.
    pub over: AtomicBool,
    /// The final state of every informer, once it is known.
    last_version: AtomicU64,
}

/// The duration of the faults.
const SECONDS: u64 = 60;
const SECONDS_VARIABLE: &str = "LISTLESS_HISTORY_SECONDS";
const SEED_VARIABLE: &str = "LISTLESS_SEED";

/// Its pace is about thirteen writes a second, which leaves the apiserver time for the readers.
const PAUSE_OF_OUTSIDER: u64 = 150;
const CLIENTS: usize = 8;
const INFORMERS: usize = 6;

/// Repeated reads without a pause see the most. Their throttling is tested elsewhere.
const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
repeatPolls: {action: off}
";

/// The time after which an informer has received the last change.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_hold_on_1_36() {
    histories(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn histories_hold_on_1_30() {
    histories(Version::V1_30).await;
}

async fn histories(version: Version) {
    if !available(version) {
        return;
    }
    let _machine = Machine::beside().await;
    let seed = number(SEED_VARIABLE).unwrap_or_else(|| u64::from(std::process::id()));
    let mut dice = Dice::new(seed);
    let world = Arc::new(
        World::start(PROGRAM.as_ref(), version, SMALL, CONFIGURATION)
            .await
            .expect("a control plane and a proxy"),
    );
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| tokio::spawn(actors::client(world.clone(), dice.another()))).collect();
    let outsider = tokio::spawn(actors::outsider(world.clone(), dice.another(), PAUSE_OF_OUTSIDER));
    let informers: Vec<_> = (0..INFORMERS)
        .map(|number| tokio::spawn(Informer::new(world.clone(), dice.another(), number).run()))
        .collect();
    let time = Duration::from_secs(number(SECONDS_VARIABLE).unwrap_or(SECONDS));
    let faults = faults::faults(world.clone(), dice.another(), time).await.expect("faults");
    world.over.store(true, Ordering::SeqCst);
    for task in clients.into_iter().chain([outsider]) {
        task.await.expect("no panic");
    }
    world.finish().await.expect("last writes");
    let timelines = world.truth.told().await.expect("all that happened");
    let mut outcomes = Vec::new();
    for informer in informers {
        let outcome = tokio::time::timeout(CATCH_UP_LIMIT, informer).await;
        let outcome = outcome.unwrap_or_else(|_| panic!("seed {seed}: {}", world.proxy.log()));
        outcomes.push(outcome.expect("no panic"));
    }
    let mut violations = checker::violations(&timelines, &world.records);
    violations.extend(outcomes.iter().filter_map(|outcome| outcome.wrong(&timelines)));
    let relists: usize = outcomes.iter().map(|outcome| outcome.relists).sum();
    eprintln!(
        "proof: histories on {}, seed {seed}: {}, {relists} lists by {INFORMERS} informers",
        version.name(),
        world.summary()
    );
    eprintln!("proof: faults: {faults:?}; no answer: {:?}", world.records.failures());
    eprintln!("proof: {} violations", violations.len());
    let shown = &violations[..violations.len().min(5)];
    assert!(violations.is_empty(), "seed {seed}: {shown:#?}\n{}", world.proxy.log());
    world.assert_means_something();
}

/// The number in a variable of the environment, if it is set.
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

// === impl World ===

impl World {
    /// Starts a control plane with the namespaces of a scope, and Listless in front of it.
    pub async fn start(
        program: &Path,
        version: Version,
        scope: Scope,
        configuration: &str,
    ) -> Result<Self> {
        let plane = ControlPlane::start_for_histories(version).await?;
        let truth = Truth::follow(plane.etcd_address()).await?;
        let client = plane.client(User::Admin, Protocol::Http1)?;
        Dataset::load(&client).await?;
        for name in scope.namespaces {
            let namespace = json!({"metadata": {"name": name}});
            let request = Request::new(Method::POST, "/api/v1/namespaces").json(&namespace);
            client.send(request).await?.successful()?;
        }
        let relay = Relay::start(plane.server()?.authority()).await?;
        let token_file = plane.folder().join("token");
        fs::write(&token_file, plane.replace_token()?)?;
        let kubeconfig = plane.folder().join("relayed.kubeconfig");
        fs::write(&kubeconfig, through_relay(&plane, &relay, &token_file)?)?;
        let proxy =
            ProxyProcess::start_program(program, "local", &kubeconfig, Some(configuration)).await?;
        let (records, over) = (Records::default(), AtomicBool::new(false));
        let last_version = AtomicU64::new(u64::MAX);
        Ok(Self { plane, relay, proxy, scope, truth, token_file, records, over, last_version })
    }

    /// A client of the session, on a connection of its own.
    fn through(&self) -> Client {
        self.proxy.client(Protocol::Http2)
    }

    /// A client of the apiserver itself.
    pub fn straight(&self) -> Client {
        self.plane.client(User::Admin, Protocol::Http1).expect("a client")
    }

    /// Writes one more change in each collection; everybody then waits for it.
    async fn finish(&self) -> Result<()> {
        let client = self.straight();
        let mut first = u64::MAX;
        for resource in Resource::ALL {
            let (prefix, plural) = resource.path();
            let collection = format!("{prefix}/namespaces/{}/{plural}", SMALL.namespaces[0]);
            let answer = client.send(last_object(resource, &collection)).await?.successful()?;
            let version = record::version(&answer.json()?).context("no version")?;
            first = first.min(version);
        }
        self.last_version.store(first, Ordering::SeqCst);
        Ok(())
    }

    /// What the actors did, in numbers.
    pub fn summary(&self) -> String {
        let (reads, watches) = (self.records.reads(), self.records.watches());
        let hits = reads.iter().filter(|read| read.hit).count();
        let local = watches.iter().filter(|watch| watch.hit).count();
        let is_event = |told: &&Told| told.kind != "BOOKMARK";
        let events: usize =
            watches.iter().map(|watch| watch.told.iter().filter(is_event).count()).sum();
        format!(
            "{} reads ({hits} from memory), {} writes, {events} events of {} watches ({local} from \
             memory)",
            reads.len(),
            self.records.writes().len(),
            watches.len()
        )
    }

    /// The checks prove nothing about actions that hardly happened.
    fn assert_means_something(&self) {
        let (reads, watches) = (self.records.reads(), self.records.watches());
        assert!(reads.iter().filter(|read| read.hit).count() > 100);
        assert!(watches.iter().filter(|watch| watch.hit).count() >= INFORMERS);
        assert!(self.records.writes().len() > 50);
    }
}

fn last_object(resource: Resource, collection: &str) -> Request {
    let metadata = json!({"name": "last", "labels": {"app": "web"}});
    let mut object = json!({"metadata": metadata});
    if resource == Resource::Pods {
        object["spec"] = json!({"containers": [{"name": "main", "image": "example.com/app:1"}]});
    }
    if resource == Resource::Widgets {
        object["apiVersion"] = "shop.example.com/v1".into();
        object["kind"] = "Widget".into();
    }
    Request::new(Method::POST, collection).json(&object)
}

/// The kubeconfig of a user whose token is in a file and whose server is the relay.
fn through_relay(plane: &ControlPlane, relay: &Relay, token_file: &Path) -> Result<String> {
    let text = fs::read_to_string(plane.kubeconfig(User::Admin)?)?;
    let mut config: Value = serde_json::from_str(&text)?;
    config["clusters"][0]["cluster"]["server"] = format!("https://{}", relay.address()).into();
    config["users"][0]["user"] = json!({"tokenFile": token_file});
    Ok(config.to_string())
}
