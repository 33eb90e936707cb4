//! The measured system: a control plane with many pods, and the shipped `listless local`.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    bare::{Bare, Kept},
    form::Form,
    options::Options,
    rig::{
        client::{Client, Protocol, Server},
        control_plane::{Component, ControlPlane, RequestCounts, User, Version},
        load_data::LoadData,
        proxy_process::{ProxyProcess, shipped},
    },
    wire::{Connection, Endpoint},
};

/// The number of pods with one value of the label `app`, of the label `poller`, and on one node, in a
/// cluster of any size.
const PODS_OF_APP: u32 = 10;
const PODS_OF_POLLER: u32 = 50;
const PODS_OF_NODE: u32 = 50;
/// The number of pods in the smallest cluster.
pub(crate) const PODS_MIN: u32 = 5_000;
/// The number of values of the label `poller` and the number of nodes in the smallest cluster.
pub(crate) const POLLERS: u32 = PODS_MIN / PODS_OF_POLLER;
pub(crate) const NODES: u32 = PODS_MIN / PODS_OF_NODE;

/// The time in which 5 000 pods are listed and held.
const SYNC_LIMIT: Duration = Duration::from_secs(60);
/// Two rounds of ten seconds, in which Listless drops what it does not use, and one in which that
/// memory is returned.
const SETTLE: Duration = Duration::from_secs(33);
const WATCHERS_SETTLE: Duration = Duration::from_secs(1);
const IDLE_SETTLE: Duration = Duration::from_secs(70);
const IDLE_MEASURE: Duration = Duration::from_secs(8);

/// The rule for pods stands first; every read that no rule caches is forwarded unchanged.
const CONFIG: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
cache:
  rules:
  - resources: [\"pods\"]
    {pods}
  - resources: [\"configmaps\"]
    namespaces: [\"fanout\"]
    start: eager
  - resources: [\"*\"]
    start: never
uncachedReads:
  rewrite: keep
repeatPolls:
  action: off
";

/// The running system under test.
pub(crate) struct Setup {
    pub(crate) direct: Endpoint,
    pub(crate) through: Endpoint,
    pub(crate) data: LoadData,
    /// Bytes of the JSON LIST of all pods.
    pub(crate) json_bytes: usize,
    counts_before: RequestCounts,
    /// The measured binary.
    program: PathBuf,
    listless: ProxyProcess,
    plane: ControlPlane,
}

/// The cores used without requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleLoad {
    pub(crate) apiserver: f64,
    pub(crate) etcd: f64,
    pub(crate) listless: f64,
}

/// Returns the configuration of a Listless that holds the pods in these forms from the start.
fn config(forms: &[Form]) -> String {
    let names: Vec<_> = forms.iter().map(|form| form.name()).collect();
    let pods = match names.as_slice() {
        [] => "start: never".to_owned(),
        names => format!("start: eager\n    forms: [{}]", names.join(", ")),
    };
    CONFIG.replace("{pods}", &pods)
}

// === impl Setup ===

impl Setup {
    pub(crate) async fn start(options: &Options) -> Result<Self> {
        let program = options.program.clone().map_or_else(shipped, Ok)?;
        let plane = ControlPlane::start(Version::V1_36).await?;
        let pods = options.pods;
        let data = LoadData {
            namespace: "load",
            pods,
            pollers: pods / PODS_OF_POLLER,
            apps: pods / PODS_OF_APP,
            nodes: pods / PODS_OF_NODE,
        };
        eprintln!("creating {} pods", data.pods);
        data.load(&plane.client(User::Admin, Protocol::Http1)?).await?;

        let kubeconfig = plane.kubeconfig(User::Admin)?;
        let direct = Endpoint::from_kubeconfig(&kubeconfig)?;
        let counts_before = plane.request_counts().await?;
        let listless = ProxyProcess::start_program(
            &program,
            "local",
            &kubeconfig,
            Some(&config(&[Form::Json])),
        )
        .await?;
        let through = Endpoint::from_kubeconfig(listless.kubeconfig())?;
        synced(&through, Form::Json, &data).with_context(|| listless.log())?;
        let list = request_once(&direct, &data.collection())?;
        let counted = list.matches("\"uid\":").count();
        ensure!(counted >= data.pods as usize, "only {counted} objects were created");
        pause(SETTLE);
        let json_bytes = list.len();
        Ok(Self { direct, through, data, json_bytes, counts_before, program, listless, plane })
    }

    /// Starts the bare server with these responses.
    pub(crate) fn bare(&self, answers: impl Iterator<Item = Kept>) -> Result<Bare> {
        Bare::start(&self.plane.kubeconfig(User::Admin)?, &self.direct, answers)
    }

    /// Requests through Listless until it answers from memory. It holds other forms than JSON on
    /// demand, and forwards the first page of a resource.
    pub(crate) fn warm(&self, form: Form, target: &str) -> Result<()> {
        hit(&self.through, form, target, &self.data).with_context(|| self.listless.log())
    }

    /// Returns the memory of other Listlesses, each of which holds the pods in these forms.
    pub(crate) async fn resident_bytes_in(
        &self,
        forms: &[Form],
        processes: usize,
    ) -> Result<Vec<u64>> {
        let (config, kubeconfig) = (config(forms), self.plane.kubeconfig(User::Admin)?);
        let mut running = Vec::with_capacity(processes);
        for _ in 0..processes {
            let listless =
                ProxyProcess::start_program(&self.program, "local", &kubeconfig, Some(&config))
                    .await?;
            let through = Endpoint::from_kubeconfig(listless.kubeconfig())?;
            for form in forms {
                synced(&through, *form, &self.data).with_context(|| listless.log())?;
            }
            running.push(listless);
        }
        pause(SETTLE);
        running.iter().map(ProxyProcess::resident_bytes).collect()
    }

    /// Starts a sidecar of the measured binary for a service account's directory.
    pub(crate) async fn sidecar(&self, account: &Path, pod: &Path) -> Result<ProxyProcess> {
        ProxyProcess::sidecar_program(&self.program, &self.apiserver()?, account, pod).await
    }

    pub(crate) fn apiserver(&self) -> Result<Server> {
        self.plane.server()
    }

    pub(crate) fn apiserver_cpu(&self) -> Result<f64> {
        self.plane.cpu_seconds(Component::Apiserver)
    }

    pub(crate) fn etcd_cpu(&self) -> Result<f64> {
        self.plane.cpu_seconds(Component::Etcd)
    }

    pub(crate) fn listless_cpu(&self) -> Result<f64> {
        self.listless.cpu_seconds()
    }

    pub(crate) fn listless_resident_bytes(&self) -> Result<u64> {
        self.listless.resident_bytes()
    }

    /// Returns a client that writes directly, several requests at a time.
    pub(crate) fn writing_client(&self) -> Result<Client> {
        self.plane.client(User::Admin, Protocol::Http1)
    }

    /// Returns a client that reads through Listless.
    pub(crate) fn reading_client(&self) -> Client {
        self.listless.client(Protocol::Http1)
    }

    /// Waits until opened and closed connections have settled.
    pub(crate) async fn settle(&self) {
        tokio::time::sleep(WATCHERS_SETTLE).await;
    }

    /// Waits until every task that runs each minute has run.
    pub(crate) async fn settle_idle(&self) {
        tokio::time::sleep(IDLE_SETTLE).await;
    }

    pub(crate) fn version(&self) -> &'static str {
        self.plane.version().release()
    }

    /// Returns the LISTs and WATCHes of pods that reached the apiserver since before the start of
    /// Listless.
    pub(crate) async fn arrived(&self) -> Result<(u64, u64)> {
        let now = self.plane.request_counts().await?;
        let since = |verb| now.arrived(verb, "pods") - self.counts_before.arrived(verb, "pods");
        Ok((since("LIST"), since("WATCH")))
    }

    /// Measures the processes' own load: informers, leases, bookmarks.
    pub(crate) fn idle_load(&self) -> Result<IdleLoad> {
        let read = || {
            Ok::<_, anyhow::Error>([self.apiserver_cpu()?, self.etcd_cpu()?, self.listless_cpu()?])
        };
        let (before, begun) = (read()?, Instant::now());
        pause(IDLE_MEASURE);
        let (after, elapsed) = (read()?, begun.elapsed().as_secs_f64());
        let cores = |index: usize| (after[index] - before[index]) / elapsed;
        Ok(IdleLoad { apiserver: cores(0), etcd: cores(1), listless: cores(2) })
    }
}

/// Waits until a LIST that matches no pods is answered from memory.
fn synced(through: &Endpoint, form: Form, data: &LoadData) -> Result<()> {
    hit(through, form, &format!("{}?labelSelector=app%3Dnone", data.collection()), data)
}

/// Requests until a response comes from memory.
fn hit(through: &Endpoint, form: Form, target: &str, data: &LoadData) -> Result<()> {
    let deadline = Instant::now() + SYNC_LIMIT * (data.pods / PODS_MIN);
    let request = through.request_in(form, target);
    let mut connection = Connection::open(through)?;
    loop {
        let answer = connection.exchange(&request)?;
        if answer.status == 200 && answer.cache_status().contains("hit") {
            return Ok(());
        }
        if Instant::now() > deadline {
            let (status, cache_status) = (answer.status, answer.cache_status());
            bail!("no response from memory: {target}: {status} {cache_status}");
        }
        pause(Duration::from_millis(100));
    }
}

fn request_once(endpoint: &Endpoint, target: &str) -> Result<String> {
    let mut connection = Connection::open(endpoint)?;
    let answer = connection.exchange(&endpoint.request(target))?;
    ensure!(answer.status == 200, "{target}: {}", answer.status);
    Ok(String::from_utf8(answer.body.to_vec())?)
}

#[expect(clippy::disallowed_methods, reason = "measurements are over real time")]
fn pause(length: Duration) {
    std::thread::sleep(length);
}
