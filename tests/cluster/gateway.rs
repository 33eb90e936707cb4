//! One gateway for many clients. The tests check the cost of a hundred informers for the apiserver,
//! and their caches after churn and restarts. They also check the time until withdrawn rights end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::Method;
use listless::api::form::Form;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::clusters::{Machine, available, skipped};
use crate::rig::artifact::Built;
use crate::rig::client::{Client, Protocol, Request};
use crate::rig::client_program::ClientProgram;
use crate::rig::control_plane::{Component, ControlPlane, User, Version};
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until_hit_at_last;

mod churn;
mod rights;

use churn::Churn;

/// The number of informers that share the gateway.
const INFORMERS: usize = 100;
const PODS: u32 = 200;
const NAMESPACE: &str = "shop";
const COLLECTION: &str = "/api/v1/namespaces/shop/pods";
const BINDING: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings/readers";

const CHURN_SECONDS: u64 = 60;
const CHURN_VARIABLE: &str = "LISTLESS_CHURN_SECONDS";
/// The duration of each outage of the apiserver.
const OUTAGE: Duration = Duration::from_secs(3);

const SETTLE: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_secs(12);
/// The time after which every informer has received everything.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(500);
/// The time after which every watch that was forwarded in an outage is back at the gateway.
const RETURN_LIMIT: Duration = Duration::from_secs(150);

/// Clients that read the pods in this form find a replica from the start.
fn configuration(form: Form) -> String {
    let form = form.as_str();
    format!(
        "apiVersion: listless.dev/v1alpha1\nkind: ProxyConfiguration\ncache:\n  rules:\n    \
         - {{resources: [pods], namespaces: [shop], start: eager, forms: [{form}]}}\n"
    )
}

/// The version of each pod, by name.
type Truth = BTreeMap<String, String>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_informers_cost_one_watch_and_are_correct_after_restarts_on_1_36() {
    informers(Version::V1_36).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_informers_cost_one_watch_and_are_correct_after_restarts_on_1_30() {
    informers(Version::V1_30).await;
}

async fn informers(version: Version) {
    let program = match ClientProgram::ClientGo.build().expect("a build that works") {
        Built::Here(program) => program,
        Built::Impossible(reason) => return skipped("the client-go program", &reason),
    };
    let Some(shop) = Shop::open(version).await else { return };
    let truth = shop.truth().await.expect("the pods");

    let straight = shop.kubeconfig(None).expect("a kubeconfig");
    let nobody = shop.rest().await;
    let one = shop.resting(&program, &straight, 1, &truth).await;
    let gateway = shop.gateway(Form::Protobuf).await.expect("a gateway");
    let through = shop.kubeconfig(Some(&gateway)).expect("a kubeconfig");
    let hundred = shop.resting(&program, &through, INFORMERS, &truth).await;
    let again = shop.resting(&program, &straight, 1, &truth).await;
    let per_cent = |cores: f64| format!("{:.1} %", cores * 100.0);
    eprintln!(
        "proof: apiserver {} at rest, in processor time of a core: {} with no informer, {} and {} with one \
         straight, {} with {INFORMERS} through a gateway",
        version.name(),
        per_cent(nobody),
        per_cent(one),
        per_cent(again),
        per_cent(hundred)
    );
    assert!(hundred <= one.max(again) * 1.25 + 0.01, "{hundred} against {one} and {again}");

    let mut informers = Informers::start(&program, &through, INFORMERS).expect("informers");
    let took = informers.equal(&truth).await.expect("caches that are right");
    eprintln!("proof: {INFORMERS} informers synced after {took:.1?}");
    shop.one_watch(&gateway).await;
    let time = std::env::var(CHURN_VARIABLE)
        .map_or(CHURN_SECONDS, |text| text.parse().expect("a number of seconds"));
    // The sleeps are the duration of the churn. Nothing is awaited in them.
    let churn = Churn::start(shop.client());
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(time) / 3).await;
        shop.restart().await.expect("an apiserver");
    }
    tokio::time::sleep(Duration::from_secs(time) / 3).await;
    let writes = churn.stop().await;
    let truth = shop.truth().await.expect("the pods");
    let took = informers.equal(&truth).await.with_context(|| gateway.log()).expect("right caches");
    eprintln!(
        "proof: {INFORMERS} caches of {} pods equal the truth {took:.1?} after {writes} writes and two \
         restarts in {time} s on {}",
        truth.len(),
        version.name()
    );
    assert!(writes > time, "{writes} writes are too few");
    let alone = shop.one_watch(&gateway).await;
    eprintln!("proof: one watch upstream again {alone:.1?} later");
}

/// A control plane of its own with pods that a reader may read.
struct Shop {
    plane: ControlPlane,
    /// Watches of pods that the apiserver opens for itself.
    own_watches: u64,
    _machine: Machine,
}

// === impl Shop ===

impl Shop {
    /// `None` means that the machine cannot run a control plane; the reason was printed.
    async fn open(version: Version) -> Option<Self> {
        if !available(version) {
            return None;
        }
        let machine = Machine::alone().await;
        let plane = ControlPlane::start(version).await.expect("a control plane");
        let counts = plane.request_counts().await.expect("metrics");
        let shop = Self { plane, own_watches: counts.open("WATCH", "pods"), _machine: machine };
        shop.fill().await.expect("pods");
        Some(shop)
    }

    async fn fill(&self) -> Result<()> {
        let client = self.client();
        let create = async |path: &str, object: Value| {
            client.send(Request::new(Method::POST, path).json(&object)).await?.successful()
        };
        create("/api/v1/namespaces", json!({"metadata": {"name": NAMESPACE}})).await?;
        let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}");
        let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]});
        let role = json!({"metadata": {"name": "readers"}, "rules": [rule]});
        create(&format!("{rbac}/roles"), role).await?;
        create(&format!("{rbac}/rolebindings"), rights::binding()).await?;
        for number in 0..PODS {
            create(COLLECTION, churn::pod(&format!("pod-{number}"))).await?;
        }
        Ok(())
    }

    fn client(&self) -> Client {
        self.plane.client(User::Admin, Protocol::Http1).expect("a client")
    }

    async fn truth(&self) -> Result<Truth> {
        let list = self.client().get(COLLECTION).await?.successful()?.json()?;
        let items = list["items"].as_array().context("no items")?;
        let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
        let version = |item: &Value| {
            Ok((text(&item["metadata"]["name"])?, text(&item["metadata"]["resourceVersion"])?))
        };
        items.iter().map(version).collect()
    }

    async fn gateway(&self, form: Form) -> Result<ProxyProcess> {
        let kubeconfig = self.plane.kubeconfig(User::Admin)?;
        let gateway = ProxyProcess::gateway(&kubeconfig, Some(&configuration(form))).await?;
        let client = Client::new(gateway.server(), Some(&User::Reader.token()), Protocol::Http1);
        let list = Request::get(COLLECTION).header("accept", form.media_type());
        let warm = until_hit_at_last(&client, &list, ARRIVAL_LIMIT).await;
        warm.with_context(|| gateway.log())?;
        Ok(gateway)
    }

    /// Writes a kubeconfig for the reader, directly or through a gateway.
    fn kubeconfig(&self, gateway: Option<&ProxyProcess>) -> Result<PathBuf> {
        let (name, server) = match gateway {
            Some(gateway) => ("through", gateway.server().clone()),
            None => ("straight", self.plane.server()?),
        };
        let path = self.plane.folder().join(format!("{name}.kubeconfig"));
        std::fs::write(&path, server.kubeconfig(&User::Reader.token()))?;
        Ok(path)
    }

    /// The share of a core that the apiserver uses while informers are idle.
    async fn resting(&self, program: &Path, kubeconfig: &Path, count: usize, truth: &Truth) -> f64 {
        let mut informers = Informers::start(program, kubeconfig, count).expect("informers");
        informers.equal(truth).await.expect("caches that are right");
        self.rest().await
    }

    async fn rest(&self) -> f64 {
        tokio::time::sleep(SETTLE).await;
        let used = || self.plane.cpu_seconds(Component::Apiserver).expect("a time");
        let before = used();
        tokio::time::sleep(REST).await;
        (used() - before) / REST.as_secs_f64()
    }

    async fn restart(&self) -> Result<()> {
        self.plane.kill(Component::Apiserver)?;
        tokio::time::sleep(OUTAGE).await;
        self.plane.start_again(Component::Apiserver)?;
        self.plane.ready().await
    }

    /// Waits until the apiserver's own count of pod watches is one more than without clients.
    /// Watches that were forwarded meanwhile end within a minute, and may be forwarded once more.
    async fn one_watch(&self, gateway: &ProxyProcess) -> Duration {
        let begun = Instant::now();
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let counts = self.plane.request_counts().await.expect("metrics");
            let watches = counts.open("WATCH", "pods").saturating_sub(self.own_watches);
            if watches == 1 {
                return begun.elapsed();
            }
            let waited = begun.elapsed();
            if waited < RETURN_LIMIT {
                continue;
            }
            let metrics = gateway.metrics().await.expect("metrics");
            let why = metrics.sums("listless_forwarded_total", &[("verb", "watch")], "reason");
            panic!("{watches} watches of pods upstream, forwarded {why:?}\n{}", gateway.log());
        }
    }
}

/// A process with many informers.
struct Informers {
    // Dropped first: killed.
    _child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    count: usize,
}

// === impl Informers ===

impl Informers {
    fn start(program: &Path, kubeconfig: &Path, count: usize) -> Result<Self> {
        let arguments = ["-namespace", NAMESPACE, "-informers", &count.to_string()];
        let mut child = ClientProgram::ClientGo.start(program, kubeconfig, &arguments)?;
        let ask = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        Ok(Self { _child: child, ask, answers, count })
    }

    /// Waits until every cache equals the real state; returns the time it took.
    async fn equal(&mut self, truth: &Truth) -> Result<Duration> {
        let begun = Instant::now();
        let mut poll = tokio::time::interval(POLL);
        loop {
            poll.tick().await;
            let caches = self.caches().await?;
            let alike = caches["contents"].as_object().is_some_and(|contents| contents.len() == 1);
            let held: Truth = serde_json::from_value(caches["objects"].clone())?;
            let synced = caches["synced"].as_u64() == Some(self.count as u64);
            if synced && alike && held == *truth {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > ARRIVAL_LIMIT {
                let missing = truth.iter().filter(|(name, at)| held.get(*name) != Some(at)).count();
                bail!("{missing} of {} differ: {}", truth.len(), caches["contents"]);
            }
        }
    }

    async fn caches(&mut self) -> Result<Value> {
        self.ask.write_all(b"\n").await?;
        self.ask.flush().await?;
        let line = self.answers.next_line().await?.context("the informers have ended")?;
        Ok(serde_json::from_str(&line)?)
    }
}
