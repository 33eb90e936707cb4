//! Many different readers in one session: memory answers, whatever the others read.
//!
//! At least nine pollers share one session, among them unmodified programs. Each response to the
//! raw pollers and to the writer, as objects or as a Table, is checked against the three rules of
//! the level `session`. Listless' own metrics give the reads that a replica covers and memory
//! answered, and the requests that Listless sent itself.

mod measured;
mod rules;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::measured::Measured;
use self::rules::Rules;
use crate::clusters::{Machine, available};
use crate::drivers::programs::Programs;
use crate::drivers::workload::Workload;
use crate::rig::client::{Answer, Client, Protocol, Request};
use crate::rig::control_plane::{Component, ControlPlane, User, Version};
use crate::rig::load_data::LoadData;
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until_hit_at_last;

/// The namespace with most pods; they run on fifty nodes.
const FLEET: LoadData =
    LoadData { namespace: "fleet", pods: 4_900, pollers: 100, apps: 40, nodes: 50 };
/// A small namespace.
const SHOP: LoadData = LoadData { namespace: "shop", pods: 100, pollers: 4, apps: 4, nodes: 50 };
const CONFIG_MAPS: u32 = 50;

/// The time in which replicas start.
const WARM_UP: Duration = Duration::from_secs(30);
/// Programs start this long after the raw pollers, and not before memory answers a read of theirs. A
/// cold apiserver 1.30 needs more than ten seconds for the first lists of all pollers at once, and
/// fabric8 gives up after ten.
const COLD_START: Duration = Duration::from_secs(20);
const COLD_START_MAX: Duration = Duration::from_secs(60);
const MEASURED: Duration = Duration::from_secs(60);
/// The representation that kubectl asks for.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
/// The time for which the apiserver stops.
const STALL: Duration = Duration::from_secs(25);
/// The time after it in which connections and watches are opened again.
const RECOVERY: Duration = Duration::from_secs(10);
/// Objects that change in a second, in the part with changes, and the share of them that must.
const WRITES_PER_SECOND: u32 = 5;
const WRITTEN_MIN: f64 = 0.6;
/// Two writes in so many delete an object of the large namespace and make it again.
const DELETED_EACH: u32 = 20;

/// The identity of the session, and the kind of proxy in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Session {
    /// `listless local` for a user who may do everything.
    Local,
    /// A caller of `listless gateway` who may do everything.
    Gateway,
    /// `listless local` for a user who may read two namespaces.
    TwoNamespaces,
}

/// One raw poller.
#[derive(Clone, Debug)]
struct Poller {
    resource: &'static str,
    target: String,
    period: Duration,
    accept: &'static str,
}

/// Everything that polls; programs end when it is dropped.
struct Readers {
    programs: Vec<(&'static str, Workload)>,
    tasks: JoinSet<()>,
}

/// The events while a session is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Quiet,
    Changes,
    AfterStall,
}

/// One session and its readers' requests.
struct Trial<'a> {
    plane: &'a ControlPlane,
    session: Session,
    proxy: ProxyProcess,
    client: Client,
    rules: Arc<Rules>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_readers_of_one_session_are_answered_from_memory_on_1_36() {
    every_session(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_readers_of_one_session_are_answered_from_memory_on_1_30() {
    every_session(Version::V1_30).await;
}

async fn every_session(version: Version) {
    if !available(version) {
        return;
    }
    let Some(programs) = Programs::build() else { return };
    let _machine = Machine::alone().await;
    let plane = filled(version).await.expect("a control plane with data");
    let mut wrong = Vec::new();
    for session in [Session::Local, Session::Gateway, Session::TwoNamespaces] {
        wrong.extend(measure(&plane, session, &programs).await.expect("a measurement"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Measures one session: quiet and with changes, and `local` also after a stall of the apiserver;
/// returns what is wrong.
async fn measure(
    plane: &ControlPlane,
    session: Session,
    programs: &Programs,
) -> Result<Vec<String>> {
    let (proxy, kubeconfig) = session.proxy(plane).await?;
    let token = session.token(&proxy);
    let client = Client::new(proxy.server(), Some(&token), Protocol::Http1);
    let rules = Arc::new(Rules::default());
    let mut readers =
        Readers::start(session, programs, &client, &rules, &kubeconfig, plane).await?;
    let trial = Trial { plane, session, proxy, client, rules };
    sleep(WARM_UP).await;
    let mut wrong = trial.part(Part::Quiet).await?;
    wrong.extend(trial.part(Part::Changes).await?);
    wrong.extend(readers.errors().await?);
    if session == Session::Local {
        trial.stall().await?;
        wrong.extend(trial.part(Part::AfterStall).await?);
    }
    wrong.extend(trial.rules.violations().into_iter().take(20));
    wrong.extend(readers.ended());
    // Before the proxy that they ask.
    drop(readers);
    if !wrong.is_empty() {
        eprintln!("{}", trial.proxy.log());
    }
    Ok(wrong)
}

async fn filled(version: Version) -> Result<ControlPlane> {
    let plane = ControlPlane::start(version).await?;
    let admin = plane.client(User::Admin, Protocol::Http1)?;
    FLEET.load(&admin).await?;
    SHOP.load(&admin).await?;
    let create = async |path: String, object: Value| {
        admin.send(Request::new(Method::POST, &path).json(&object)).await?.successful().map(drop)
    };
    for namespace in [FLEET.namespace, SHOP.namespace] {
        for number in 0..CONFIG_MAPS {
            let object = json!({"metadata": {"name": format!("map-{number}")}, "data": {"a": "b"}});
            create(format!("/api/v1/namespaces/{namespace}/configmaps"), object).await?;
        }
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
        let rule = json!({"apiGroups": [""], "resources": ["pods", "configmaps"],
                          "verbs": ["get", "list", "watch", "patch", "create", "delete"]});
        create(format!("{rbac}/roles"), json!({"metadata": {"name": "mixed"}, "rules": [rule]}))
            .await?;
        let group = "rbac.authorization.k8s.io";
        let subject = json!({"kind": "User", "name": User::Reader.name(), "apiGroup": group});
        let role = json!({"kind": "Role", "name": "mixed", "apiGroup": group});
        let binding =
            json!({"metadata": {"name": "mixed"}, "subjects": [subject], "roleRef": role});
        create(format!("{rbac}/rolebindings"), binding).await?;
    }
    Ok(plane)
}

// === impl Trial ===

impl Trial<'_> {
    /// Measures for a minute; returns what is wrong.
    async fn part(&self, part: Part) -> Result<Vec<String>> {
        let Self { plane, session, proxy, client, rules } = self;
        let writes = if part == Part::Changes { WRITES_PER_SECOND } else { 0 };
        let over = Arc::<AtomicBool>::default();
        let writer = (writes > 0).then(|| {
            let clients = writer::plane_writer(plane, *session, client);
            tokio::spawn(writer::write(clients, writes, Arc::clone(rules), Arc::clone(&over)))
        });
        rules.take_forwarded();
        let before = proxy.metrics().await?;
        sleep(MEASURED).await;
        let measured = Measured::between(&before, &proxy.metrics().await?);
        let name = format!("{} {session:?}, {part:?}", plane.version().name());
        eprintln!("proof: mixed readers on {name}: {measured}");
        let mut wrong = measured.wrong(*session, part);
        if !wrong.is_empty() {
            eprintln!("forwarded on {name}: {:#?}", rules.take_forwarded());
        }
        if let Some(writer) = writer {
            over.store(true, Ordering::Relaxed);
            let expected = f64::from(writes) * MEASURED.as_secs_f64() * WRITTEN_MIN;
            match writer.await {
                Ok(Ok(written)) if f64::from(written) >= expected => {}
                Ok(Ok(written)) => wrong.push(format!("{written} writes")),
                Ok(Err(error)) => wrong.push(format!("the writer: {error:#}")),
                Err(panic) => wrong.push(format!("the writer: {panic}")),
            }
        }
        Ok(wrong.into_iter().map(|what| format!("{name}: {what}")).collect())
    }

    /// Stops the apiserver for a while. Reads that memory may no longer answer can fail meanwhile.
    async fn stall(&self) -> Result<()> {
        self.rules.stalled(true);
        self.plane.pause(Component::Apiserver)?;
        sleep(STALL).await;
        self.plane.unpause(Component::Apiserver)?;
        sleep(RECOVERY).await;
        self.rules.stalled(false);
        Ok(())
    }
}

// === impl Session ===

impl Session {
    async fn proxy(self, plane: &ControlPlane) -> Result<(ProxyProcess, PathBuf)> {
        let user = if self == Self::TwoNamespaces { User::Reader } else { User::Admin };
        let straight = plane.kubeconfig(user)?;
        if self != Self::Gateway {
            let proxy = ProxyProcess::start(&straight, None).await?;
            let kubeconfig = proxy.kubeconfig().to_owned();
            return Ok((proxy, kubeconfig));
        }
        let proxy = ProxyProcess::gateway(&straight, None).await?;
        let kubeconfig = plane.folder().join("mixed.kubeconfig");
        std::fs::write(&kubeconfig, proxy.server().kubeconfig(&User::Admin.token()))?;
        Ok((proxy, kubeconfig))
    }

    fn token(self, proxy: &ProxyProcess) -> String {
        match self {
            Self::Gateway => User::Admin.token(),
            _ => proxy.token().expect("a token").to_owned(),
        }
    }

    /// Eleven raw pollers with the periods that people use.
    fn pollers(self) -> Vec<Poller> {
        let poller = |resource, target: String, seconds| Poller {
            resource,
            target,
            period: Duration::from_secs(seconds),
            accept: "application/json",
        };
        let as_table = |poller: Poller| Poller { accept: TABLE, ..poller };
        let (fleet, shop) = (FLEET.collection(), SHOP.collection());
        let config_maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
        let mut all = vec![
            poller("pods", format!("{fleet}?labelSelector=poller%3D7"), 3),
            poller("pods", format!("{fleet}?labelSelector=poller%20in%20(8%2C9)"), 3),
            poller("pods", shop.clone(), 2),
            poller("pods", format!("{shop}/{}", SHOP.name(3)), 1),
            poller("pods", format!("{shop}?labelSelector=app%3Dapp-1"), 3),
            poller("configmaps", config_maps(SHOP.namespace), 3),
            as_table(poller("pods", shop.clone(), 4)),
            as_table(poller("pods", format!("{fleet}?labelSelector=poller%3D7"), 4)),
        ];
        all.extend(if self == Self::TwoNamespaces {
            [
                poller("pods", format!("{fleet}?fieldSelector=spec.nodeName%3Dnode-3"), 3),
                poller("configmaps", config_maps(FLEET.namespace), 3),
                poller("pods", fleet, 10),
            ]
        } else {
            let everywhere = "/api/v1/pods";
            [
                poller("pods", format!("{everywhere}?fieldSelector=spec.nodeName%3Dnode-3"), 3),
                poller("namespaces", "/api/v1/namespaces".to_owned(), 5),
                poller("pods", everywhere.to_owned(), 10),
            ]
        });
        all
    }
}

// === impl Readers ===

impl Readers {
    async fn start(
        session: Session,
        programs: &Programs,
        client: &Client,
        rules: &Arc<Rules>,
        kubeconfig: &Path,
        plane: &ControlPlane,
    ) -> Result<Self> {
        let mut tasks = JoinSet::new();
        for poller in session.pollers() {
            tasks.spawn(poller.poll(client.clone(), Arc::clone(rules)));
        }
        sleep(COLD_START).await;
        let first = format!("{}?labelSelector=app%3Dapp-0", FLEET.collection());
        until_hit_at_last(client, &Request::get(&first), COLD_START_MAX).await?;
        let log = |name: &str| plane.folder().join(format!("{session:?}-{name}.log"));
        let everywhere = session != Session::TwoNamespaces;
        let agents = programs.agents(if everywhere { "" } else { FLEET.namespace });
        let mut all = Vec::new();
        for (name, command) in [
            ("fabric8", programs.fabric8(FLEET.namespace, 2)),
            ("python", programs.python(SHOP.namespace, &SHOP.name(5))),
            ("client-go", agents),
        ] {
            all.push((name, Workload::program(command, kubeconfig, log(name))?));
        }
        // Tables and pages.
        let kubectl: &[&str] = &["--namespace", SHOP.namespace, "get", "pods"];
        let homes = plane.folder().join(format!("{session:?}-homes"));
        let period = Duration::from_secs(5);
        let kubectl = Workload::kubectl(&programs.kubectl, kubectl, kubeconfig, homes, period);
        all.push(("kubectl", kubectl));
        Ok(Self { programs: all, tasks })
    }

    /// The failures that programs report.
    async fn errors(&mut self) -> Result<Vec<String>> {
        let mut errors = Vec::new();
        for (name, program) in &mut self.programs {
            let tally = program.tally().await?;
            errors.extend(tally.errors.into_iter().map(|error| format!("{name}: {error}")));
            if tally.operations == 0 {
                errors.push(format!("{name} did nothing"));
            }
        }
        Ok(errors)
    }

    /// The raw pollers that ended.
    fn ended(&mut self) -> Vec<String> {
        let ended = std::iter::from_fn(|| self.tasks.try_join_next());
        ended.map(|ended| format!("a poller ended: {ended:?}")).collect()
    }
}

// === impl Poller ===

impl Poller {
    async fn poll(self, client: Client, rules: Arc<Rules>) {
        let mut ticks = interval(self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let sent = rules.sent();
            let request = Request::get(&self.target).header("accept", self.accept);
            let answer = client.send(request).await.and_then(Answer::successful);
            if answer.is_err() && rules.is_stalled() {
                continue;
            }
            let answer = answer.expect("an answer");
            let status = answer.header("cache-status").unwrap_or_default();
            if !status.starts_with("listless; hit") {
                rules.forwarded(&self.target, status);
            }
            let answer = answer.json().expect("JSON");
            rules.answer(self.resource, &self.target, sent, &answer);
        }
    }
}
