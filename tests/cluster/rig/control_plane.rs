//! A real control plane on loopback: etcd and kube-apiserver of one version.
//!
//! It is built from Go modules once and starts in seconds. Its ports and data survive restarts of
//! its parts. Dropping it ends both processes and removes the data. It holds no HTTP connection.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::artifact::{Built, work_folder};
use super::client::{Client, Protocol, Server};
use super::process::{Process, Signal, Stopped};

#[path = "control_plane/build.rs"]
pub mod build;
#[path = "control_plane/credentials.rs"]
mod credentials;
#[path = "control_plane/request_counts.rs"]
mod request_counts;

pub use build::build;
pub use request_counts::RequestCounts;

const START_LIMIT: Duration = Duration::from_secs(60);
/// No controller creates the default service accounts that this admission plugin requires.
const USUAL: Flags = &["--disable-admission-plugins", "ServiceAccount"];
/// The storage format of etcd is JSON; otherwise it is protobuf. One request in fifty, the most that
/// may be set, makes the apiserver close its HTTP/2 connection.
const HISTORIES: Flags = &[
    "--disable-admission-plugins",
    "ServiceAccount",
    "--storage-media-type",
    "application/json",
    "--goaway-chance",
    "0.02",
];
/// Two requests at once are too many, except of the admin and for watches.
const SCARCE: Flags = &[
    "--disable-admission-plugins",
    "ServiceAccount",
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=1",
    "--max-mutating-requests-inflight=1",
];
/// Every plugin that is on by default.
const ADMITTING: Flags = &[];
const READY_POLL: Duration = Duration::from_millis(50);
/// The first port. It is below the kernel's range for outgoing connections, so that a port stays
/// free while its server is down.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// The Kubernetes versions the suite runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Version {
    /// 1.30 with etcd 3.5.10: the old cluster, no consistent reads from the watch cache.
    V1_30,
    /// 1.36 with etcd 3.6.8: the modern cluster.
    V1_36,
}

/// The two processes of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The store.
    Etcd,
    /// The kube-apiserver.
    Apiserver,
}

/// The sender of a request, as the apiserver's token file knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum User {
    /// In `system:masters`: may do everything, exempt from flow control.
    Admin,
    /// May read pods and config maps of one namespace.
    Reader,
    /// May read one config map by its name.
    Narrow,
    /// Authenticated, without any right.
    Nobody,
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    version: Version,
    binary: PathBuf,
    ports: Ports,
    flags: Flags,
    /// The number of tokens issued beside the users' own.
    tokens: AtomicU32,
    etcd: Mutex<Process>,
    apiserver: Mutex<Process>,
    // Declared last: removed after the processes have ended.
    folder: TempDir,
}

/// Flags of an apiserver beside those that all have.
type Flags = &'static [&'static str];

#[derive(Clone, Copy, Debug)]
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    apiserver: u16,
}

// === impl Version ===

impl Version {
    /// The full version the apiserver reports.
    pub fn release(self) -> &'static str {
        match self {
            Self::V1_30 => "v1.30.14",
            Self::V1_36 => "v1.36.3",
        }
    }

    fn progress_flag(self) -> &'static str {
        match self {
            Self::V1_30 => "--experimental-watch-progress-notify-interval",
            Self::V1_36 => "--watch-progress-notify-interval",
        }
    }

    /// The short name, also of folders.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1_30 => "v1.30",
            Self::V1_36 => "v1.36",
        }
    }
}

// === impl User ===

impl User {
    /// Every user of the token file.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Reader, Self::Narrow, Self::Nobody];

    /// The user's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Reader => "reader",
            Self::Narrow => "narrow",
            Self::Nobody => "nobody",
        }
    }

    /// The bearer token.
    pub fn token(self) -> String {
        format!("{}-token", self.name())
    }

    fn token_file_line(self, token: &str) -> String {
        let groups = if self == Self::Admin { "system:masters" } else { "people" };
        format!("{token},{name},{name},\"{groups}\"\n", name = self.name())
    }
}

/// Another apiserver of a control plane; dropping it ends it.
#[derive(Debug)]
pub struct SecondApiserver {
    server: Server,
    _process: Process,
}

// === impl SecondApiserver ===

impl SecondApiserver {
    /// The host and port where it listens.
    pub fn authority(&self) -> &str {
        self.server.authority()
    }
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Builds the binary if needed, starts both processes and waits until the apiserver is ready.
    pub async fn start(version: Version) -> Result<Self> {
        Self::start_with(version, USUAL).await
    }

    /// The same, but etcd stores JSON, for tests that read it there, and connections are often closed.
    pub async fn start_for_histories(version: Version) -> Result<Self> {
        Self::start_with(version, HISTORIES).await
    }

    /// The same, but pods get their service account's token, as in a cluster with nodes.
    pub async fn start_admitting(version: Version) -> Result<Self> {
        Self::start_with(version, ADMITTING).await
    }

    /// The same, but it refuses a user's read with 429 while it serves another one.
    pub async fn start_scarce(version: Version) -> Result<Self> {
        Self::start_with(version, SCARCE).await
    }

    async fn start_with(version: Version, flags: Flags) -> Result<Self> {
        let binary = match build(version)? {
            Built::Here(path) => path,
            Built::Impossible(reason) => bail!("no control plane {}: {reason}", version.name()),
        };
        let folder = run_folder(version)?;
        credentials::write(folder.path())?;
        let ports = Ports::pick()?;
        let etcd = start_etcd(version, &binary, folder.path(), ports)?;
        let apiserver = start_apiserver(&binary, folder.path(), ports, flags)?;
        let (etcd, apiserver) = (Mutex::new(etcd), Mutex::new(apiserver));
        let plane = Self {
            version,
            binary,
            ports,
            flags,
            tokens: AtomicU32::new(0),
            etcd,
            apiserver,
            folder,
        };
        plane.ready().await?;
        Ok(plane)
    }

    /// The version that runs.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The address where the apiserver listens, and the authorities that signed its certificate.
    pub fn server(&self) -> Result<Server> {
        let authorities = fs::read(self.folder.path().join("certificates/apiserver.crt"))?;
        Server::new(&format!("https://127.0.0.1:{}", self.ports.apiserver), &authorities)
    }

    /// A client with a user's token.
    pub fn client(&self, user: User, protocol: Protocol) -> Result<Client> {
        Ok(Client::new(&self.server()?, Some(&user.token()), protocol))
    }

    /// The folder of this run, removed at the end; other files may be put there.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The address where etcd listens, without TLS.
    pub fn etcd_address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.etcd))
    }

    /// Another token of the admin each time. The running apiserver knows it. An apiserver that
    /// starts later no longer knows the earlier ones.
    pub fn replace_token(&self) -> Result<String> {
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        credentials::write_tokens(self.folder.path(), number)?;
        Ok(credentials::spare_token(number))
    }

    /// Writes a kubeconfig for a user and returns its path; its only context is `cluster`.
    pub fn kubeconfig(&self, user: User) -> Result<PathBuf> {
        let path = self.folder.path().join(format!("{}.kubeconfig", user.name()));
        fs::write(&path, self.server()?.kubeconfig(&user.token()))?;
        Ok(path)
    }

    /// Starts another apiserver, which reaches the same storage at an address of its own. It has the
    /// same certificate and knows the same users.
    pub async fn second_apiserver(&self, etcd: SocketAddr) -> Result<SecondApiserver> {
        let ports = Ports { etcd: etcd.port(), ..Ports::pick()? };
        let mut process = start_apiserver(&self.binary, self.folder.path(), ports, self.flags)?;
        let authorities = fs::read(self.folder.path().join("certificates/apiserver.crt"))?;
        let server = Server::new(&format!("https://127.0.0.1:{}", ports.apiserver), &authorities)?;
        let deadline = Instant::now() + START_LIMIT;
        let mut poll = tokio::time::interval(READY_POLL);
        loop {
            poll.tick().await;
            if is_ready(&server).await {
                return Ok(SecondApiserver { server, _process: process });
            }
            if !process.is_running() || Instant::now() > deadline {
                bail!("the second apiserver is not ready\n{}", process.log_tail(30));
            }
        }
    }

    /// Gives the apiserver a certificate of another authority, as a rotated cluster has it. It must
    /// have ended; see [`ControlPlane::start_again`].
    pub fn replace_authority(&self) -> Result<()> {
        Ok(fs::remove_dir_all(self.folder.path().join("certificates"))?)
    }

    /// Waits until the apiserver says it is ready.
    pub async fn ready(&self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let mut poll = tokio::time::interval(READY_POLL);
        loop {
            poll.tick().await;
            // The certificate is written while the server starts.
            if let Ok(server) = self.server()
                && is_ready(&server).await
            {
                return Ok(());
            }
            if !self.is_running(Component::Apiserver) || Instant::now() > deadline {
                let (etcd, apiserver) = (lock(&self.etcd), lock(&self.apiserver));
                bail!("not ready\n{}\n{}", etcd.log_tail(10), apiserver.log_tail(30));
            }
        }
    }

    /// Reports whether a process has not ended.
    pub fn is_running(&self, component: Component) -> bool {
        lock(self.slot(component)).is_running()
    }

    /// Ends a process cleanly.
    pub fn stop(&self, component: Component) -> Result<Stopped> {
        lock(self.slot(component)).stop()
    }

    /// Ends a process with SIGKILL.
    pub fn kill(&self, component: Component) -> Result<()> {
        lock(self.slot(component)).kill()
    }

    /// Stops a process from running until [`ControlPlane::unpause`].
    pub fn pause(&self, component: Component) -> Result<()> {
        lock(self.slot(component)).signal(Signal::Pause)
    }

    /// Lets a paused process run on.
    pub fn unpause(&self, component: Component) -> Result<()> {
        lock(self.slot(component)).signal(Signal::Continue)
    }

    /// Starts a process that has ended, on the same ports and data; see [`ControlPlane::ready`].
    pub fn start_again(&self, component: Component) -> Result<()> {
        let mut slot = lock(self.slot(component));
        if slot.is_running() {
            bail!("{component:?} is still running");
        }
        let folder = self.folder.path();
        *slot = match component {
            Component::Etcd => start_etcd(self.version, &self.binary, folder, self.ports)?,
            Component::Apiserver => start_apiserver(&self.binary, folder, self.ports, self.flags)?,
        };
        Ok(())
    }

    /// Starts the apiserver, which has ended, with flags in place of its usual ones, for this time only.
    pub fn start_apiserver_with(&self, flags: Flags) -> Result<()> {
        let process = start_apiserver(&self.binary, self.folder.path(), self.ports, flags)?;
        *lock(&self.apiserver) = process;
        Ok(())
    }

    /// Processor time a process has used.
    pub fn cpu_seconds(&self, component: Component) -> Result<f64> {
        lock(self.slot(component)).cpu_seconds()
    }

    /// The apiserver's own metrics about the requests that it has served since its start.
    pub async fn request_counts(&self) -> Result<RequestCounts> {
        let answer = self.client(User::Admin, Protocol::Http1)?.get("/metrics").await?;
        Ok(RequestCounts::parse(&String::from_utf8_lossy(&answer.body)))
    }

    /// The process id of a component.
    pub fn process_id(&self, component: Component) -> u32 {
        lock(self.slot(component)).id()
    }

    fn slot(&self, component: Component) -> &Mutex<Process> {
        match component {
            Component::Etcd => &self.etcd,
            Component::Apiserver => &self.apiserver,
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // The apiserver ends first: without etcd it would wait for it. On errors, the drop of each
        // process kills the rest.
        let _ = lock(&self.apiserver).stop();
        let _ = lock(&self.etcd).stop();
    }
}

// === impl Ports ===

impl Ports {
    fn pick() -> Result<Self> {
        // Control planes may start side by side, and hold their ports only once they listen.
        static TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
        let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut next = || -> Result<u16> {
            let offset = std::process::id().wrapping_mul(7919) % u32::from(PORTS.end - PORTS.start);
            let first = PORTS.start + offset as u16;
            let free = |port: &u16| {
                !taken.contains(port) && TcpListener::bind(("127.0.0.1", *port)).is_ok()
            };
            let port = (first..PORTS.end).chain(PORTS.start..first).find(free);
            let port = port.context("no free port")?;
            taken.insert(port);
            Ok(port)
        };
        Ok(Self { etcd: next()?, etcd_peer: next()?, apiserver: next()? })
    }
}

/// Asks an apiserver whether it is ready, with a connection of its own.
async fn is_ready(server: &Server) -> bool {
    let client = Client::new(server, Some(&User::Admin.token()), Protocol::Http1);
    client.get("/readyz").await.is_ok_and(|answer| answer.status.as_u16() == 200)
}

fn lock(process: &Mutex<Process>) -> std::sync::MutexGuard<'_, Process> {
    process.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A new folder for one run, named after this process so that leftovers of dead ones can be swept.
fn run_folder(version: Version) -> Result<TempDir> {
    let parent = work_folder().join("run");
    fs::create_dir_all(&parent)?;
    for entry in fs::read_dir(&parent)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.split('-').next().unwrap_or_default();
        if !owner.is_empty() && !Path::new("/proc").join(owner).exists() {
            // Another process may sweep at the same time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let prefix = format!("{}-{}-", std::process::id(), version.name());
    Ok(TempDir::with_prefix_in(prefix, &parent)?)
}

fn start_etcd(version: Version, binary: &Path, folder: &Path, ports: Ports) -> Result<Process> {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    let mut command = Command::new(binary);
    command.arg("etcd").env("STOP_WITH_STDIN", "1");
    command.arg("--data-dir").arg(folder.join("etcd"));
    command.args(["--name", "one", "--unsafe-no-fsync", "--log-level", "warn"]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("one={peer}")]);
    // As kubeadm configures it: watch caches of idle resources keep up with the store.
    command.args([version.progress_flag(), "5s"]);
    Process::start("etcd", command, &folder.join("etcd.log"))
}

fn start_apiserver(binary: &Path, folder: &Path, ports: Ports, flags: Flags) -> Result<Process> {
    let mut command = Command::new(binary);
    command.arg("kube-apiserver").env("STOP_WITH_STDIN", "1");
    command.args(["--etcd-servers", &format!("http://127.0.0.1:{}", ports.etcd)]);
    command.args(["--bind-address", "127.0.0.1", "--advertise-address", "10.255.255.1"]);
    command.args(["--secure-port", &ports.apiserver.to_string()]);
    command.args(["--endpoint-reconciler-type", "none", "--authorization-mode", "RBAC"]);
    // Old versions stay readable, and events exist, however long a suite takes.
    command.args(["--etcd-compaction-interval", "0", "--event-ttl", "24h"]);
    command.args(flags);
    command.args(["--service-cluster-ip-range", "10.96.0.0/16"]);
    command.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
    command.arg("--cert-dir").arg(folder.join("certificates"));
    command.arg("--token-auth-file").arg(folder.join("tokens.csv"));
    command.arg("--service-account-key-file").arg(folder.join("service-account.pub"));
    command.arg("--service-account-signing-key-file").arg(folder.join("service-account.key"));
    Process::start("kube-apiserver", command, &folder.join("apiserver.log"))
}
