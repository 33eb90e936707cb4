//! The first process of a sidecar: it holds the listening sockets and keeps a worker behind them.
//!
//! Invariants: it answers nobody and reads nothing a client sends, so nothing a client sends can end
//! it; while a worker is missing, clients wait in the sockets' queues instead of being refused; it
//! ends only when asked to, or when it or its worker is used wrongly at the first start.

mod ends;
mod restarts;

use std::{
    ffi::OsString,
    io,
    net::{SocketAddr, TcpListener},
    os::{fd::OwnedFd, unix::process::CommandExt},
    process::{Command, ExitCode, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use command_fds::{CommandFdExt, FdMapping};
use listenfd::ListenFd;
use rustix::process::{Pid, Signal};
use tokio::{
    process::Child,
    signal::unix::SignalKind,
    time::{Instant, sleep, sleep_until, timeout},
};

pub use ends::Ends;
pub use restarts::{Restarts, Role};

use crate::{error::Chain, lifecycle::Signals, metrics::WorkerEnd};

/// The sockets that stay while workers come and go.
#[derive(Debug)]
pub struct Sockets {
    /// Where the workload connects.
    pub data: Vec<TcpListener>,
    /// Where operators connect.
    pub admin: TcpListener,
    /// Where probes connect.
    pub health: TcpListener,
}

/// Where the sockets are to listen.
#[derive(Debug)]
pub struct Addresses<'a> {
    /// Where the workload connects; the first is a must, further ones only where the pod has them.
    pub data: &'a [SocketAddr],
    /// Where operators connect.
    pub admin: SocketAddr,
    /// Where probes connect.
    pub health: SocketAddr,
}

/// How one worker's time ended.
enum End {
    /// It ended by itself.
    Crashed(ExitStatus),
    /// Safe mode has lasted long enough.
    SafeModeOver,
    /// We were asked to end.
    Asked(&'static str),
}

/// The first descriptor that a worker inherits beside its standard ones.
const FIRST_FD: i32 = 3;

/// Tells a worker how many sockets it inherits.
const INHERITED: &str = "LISTEN_FDS";

/// How long a worker may take to end once asked; longer than it gives its requests.
const END_PATIENCE: Duration = Duration::from_secs(12);

/// The exit code of wrong use.
const USED_WRONGLY: i32 = 2;

/// Keeps workers behind these sockets until a signal asks to stop; they are this program with
/// `arguments`, and the words that [`worker_arguments`] makes.
pub fn run(sockets: &Sockets, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().context("the runtime cannot be started")?;
    runtime.block_on(supervise(sockets, arguments))
}

async fn supervise(sockets: &Sockets, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen().context("signals cannot be heard")?;
    let mut restarts = Restarts::default();
    loop {
        let role = restarts.role();
        restarts.started();
        let rest = match spawn(sockets, arguments, role, restarts.ends()) {
            Err(error) => {
                tracing::error!(%error, "a worker cannot be started");
                restarts.crashed(WorkerEnd::NotStarted, Instant::now())
            }
            Ok(mut worker) => match attend(&mut worker, &mut signals, &restarts).await? {
                End::Asked(signal) => return stop(worker, signal, &mut signals).await,
                End::SafeModeOver => {
                    tracing::info!("safe mode is over");
                    end(&mut worker).await;
                    restarts.safe_mode_ended();
                    Duration::ZERO
                }
                End::Crashed(status) if role == Role::First && is_wrong_use(status) => {
                    return Ok(ExitCode::from(USED_WRONGLY as u8));
                }
                End::Crashed(status) => {
                    let rest = restarts.crashed(ends::of(status), Instant::now());
                    let next = restarts.role().as_str();
                    tracing::error!(%status, ?rest, next, "the worker ended; another takes its place");
                    rest
                }
            },
        };
        tokio::select! {
            () = sleep(rest) => {}
            signal = signals.next() => {
                tracing::info!("{signal}");
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

fn is_wrong_use(status: ExitStatus) -> bool {
    status.code() == Some(USED_WRONGLY)
}

/// Waits until something must be done.
async fn attend(
    worker: &mut Child,
    signals: &mut Signals,
    restarts: &Restarts,
) -> anyhow::Result<End> {
    let mut reload = tokio::signal::unix::signal(SignalKind::hangup())?;
    let safe_mode_over = async {
        match restarts.safe_until() {
            Some(until) => sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(safe_mode_over);
    loop {
        tokio::select! {
            status = worker.wait() => {
                return Ok(End::Crashed(status.context("a worker cannot be waited for")?));
            }
            () = &mut safe_mode_over => return Ok(End::SafeModeOver),
            signal = signals.next() => return Ok(End::Asked(signal)),
            _ = reload.recv() => tell(worker, Signal::HUP),
        }
    }
}

/// Lets a worker finish what is under way; a second signal, or too long a wait, cuts it off.
async fn stop(
    mut worker: Child,
    signal: &'static str,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    tracing::info!("{signal}: the worker finishes what is under way");
    tokio::select! {
        () = end(&mut worker) => Ok(ExitCode::SUCCESS),
        signal = signals.next() => {
            worker.kill().await.context("the worker cannot be killed")?;
            bail!("{signal} again: what was under way is cut off");
        }
    }
}

/// Asks a worker to end, and makes it.
async fn end(worker: &mut Child) {
    tell(worker, Signal::TERM);
    if timeout(END_PATIENCE, worker.wait()).await.is_err()
        && let Err(error) = worker.kill().await
    {
        tracing::error!(%error, "a worker cannot be killed");
    }
}

/// Sends a signal, unless the worker has ended already.
fn tell(worker: &Child, signal: Signal) {
    let pid = worker.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid
        && let Err(error) = rustix::process::kill_process(pid, signal)
    {
        tracing::warn!(%error, "a worker cannot be told");
    }
}

fn spawn(sockets: &Sockets, arguments: &[OsString], role: Role, ends: Ends) -> io::Result<Child> {
    // The running program, even if its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).args(worker_arguments(role, ends)).stdin(Stdio::null());
    // A key press at a terminal is for us; we tell the worker.
    command.process_group(0);
    let fds = sockets.duplicates()?;
    command.env(INHERITED, fds.len().to_string()).env_remove("LISTEN_PID");
    let mappings = (FIRST_FD..).zip(fds);
    let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd });
    command.fd_mappings(mappings.collect()).map_err(io::Error::other)?;
    tokio::process::Command::from(command).kill_on_drop(true).spawn()
}

/// What a worker is told beside the arguments of its supervisor.
pub fn worker_arguments(role: Role, ends: Ends) -> [String; 2] {
    [format!("--worker={}", role.as_str()), format!("--restarts={ends}")]
}

/// Makes a worker end with its supervisor, however that ends.
pub fn end_with_supervisor() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(())
}

// === impl Sockets ===

impl Sockets {
    /// Binds them all.
    pub fn bind(addresses: &Addresses<'_>) -> anyhow::Result<Self> {
        let mut data = Vec::new();
        for &address in addresses.data {
            match bind("--listen", address) {
                Ok(listener) => data.push(listener),
                Err(error) if data.is_empty() => return Err(error),
                // A pod without IPv6 has no ::1.
                Err(error) => {
                    let error = Chain(error.as_ref());
                    tracing::warn!(%error, "the workload cannot connect there");
                }
            }
        }
        Ok(Self {
            data,
            admin: bind_in_plain_text("--admin", addresses.admin)?,
            health: bind_in_plain_text("--health", addresses.health)?,
        })
    }

    /// Those of the supervisor that started this process; none without one.
    pub fn inherited() -> io::Result<Option<Self>> {
        let mut inherited = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..inherited.len() {
            sockets.extend(inherited.take_tcp_listener(index)?);
        }
        let (Some(health), Some(admin)) = (sockets.pop(), sockets.pop()) else { return Ok(None) };
        Ok(Some(Self { data: sockets, admin, health }))
    }

    /// In the order in which [`Sockets::inherited`] takes them.
    fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        let all = self.data.iter().chain([&self.admin, &self.health]);
        all.map(|listener| Ok(listener.try_clone()?.into())).collect()
    }
}

/// Binds, and says where: the port may have been left to the system.
fn bind_in_plain_text(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = bind(flag, address)?;
    tracing::info!("{flag}: http://{}", listener.local_addr()?);
    Ok(listener)
}

fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .with_context(|| format!("{flag} {address}: cannot listen on this address"))
}
