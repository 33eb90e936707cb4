//! The first process of a sidecar: it holds the listening sockets and keeps a worker running.
//!
//! Invariants: it answers no client and reads no client data, so no client can end it. While a
//! worker is missing, clients wait in the sockets' queues instead of being refused. It ends only on
//! request, or when it or its worker reports wrong usage at the first start.

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

use crate::{
    error::Chain,
    lifecycle::{Signals, survive_hangup},
    metrics::WorkerEnd,
};

/// The sockets that outlive workers.
#[derive(Debug)]
pub struct Sockets {
    /// The listeners for the workload.
    pub data: Vec<TcpListener>,
    /// The listener for operators.
    pub admin: TcpListener,
    /// The listener for probes.
    pub health: TcpListener,
}

/// The addresses of the sockets.
#[derive(Debug)]
pub struct Addresses<'a> {
    /// The addresses for the workload. The first is required; further ones are used only if the pod
    /// has them.
    pub data: &'a [SocketAddr],
    /// The address for operators.
    pub admin: SocketAddr,
    /// The address for probes.
    pub health: SocketAddr,
}

/// The reason why a worker's run ended.
enum End {
    /// It ended by itself.
    Crashed(ExitStatus),
    /// Safe mode has lasted long enough.
    SafeModeOver,
    /// A signal stopped the supervisor.
    Asked(&'static str),
}

/// The first inherited descriptor of a worker, after its standard ones.
const FIRST_FD: i32 = 3;

/// The variable with the number of inherited sockets.
const INHERITED: &str = "LISTEN_FDS";

/// The time that a worker has to end on request. It is longer than the worker's drain.
const END_PATIENCE: Duration = Duration::from_secs(12);

/// The exit code of wrong usage.
const USED_WRONGLY: i32 = 2;

/// Keeps workers running behind these sockets until a stop signal. Workers are this program with
/// `arguments` and those of [`worker_arguments`].
pub fn run(sockets: &Sockets, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(supervise(sockets, arguments))
}

async fn supervise(sockets: &Sockets, arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    survive_hangup().context("cannot listen for signals")?;
    let mut restarts = Restarts::default();
    loop {
        let role = restarts.role();
        restarts.started();
        let rest = match spawn(sockets, arguments, role, restarts.ends()) {
            Err(error) => {
                tracing::error!(%error, "cannot start a worker");
                restarts.crashed(WorkerEnd::NotStarted, Instant::now())
            }
            Ok(mut worker) => match attend(&mut worker, &mut signals, &restarts).await? {
                End::Asked(signal) => return stop(worker, signal, &mut signals).await,
                End::SafeModeOver => {
                    tracing::info!("safe mode is over; starting a normal worker");
                    // It drains for seconds: the next one serves meanwhile.
                    tokio::spawn(async move { end(&mut worker).await });
                    restarts.safe_mode_ended();
                    Duration::ZERO
                }
                End::Crashed(status) if role == Role::First && is_wrong_use(status) => {
                    return Ok(ExitCode::from(USED_WRONGLY as u8));
                }
                End::Crashed(status) => {
                    let rest = restarts.crashed(ends::of(status), Instant::now());
                    let next = restarts.role().as_str();
                    tracing::error!(%status, ?rest, next, "the worker ended; starting another");
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

/// Waits for the next thing to do.
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
                return Ok(End::Crashed(status.context("cannot wait for a worker")?));
            }
            () = &mut safe_mode_over => return Ok(End::SafeModeOver),
            signal = signals.next() => return Ok(End::Asked(signal)),
            _ = reload.recv() => tell(worker, Signal::HUP),
        }
    }
}

/// Lets a worker drain. A second signal, or a timeout, kills it.
async fn stop(
    mut worker: Child,
    signal: &'static str,
    signals: &mut Signals,
) -> anyhow::Result<ExitCode> {
    tracing::info!("{signal}: the worker drains; send another signal to stop at once");
    tokio::select! {
        () = end(&mut worker) => Ok(ExitCode::SUCCESS),
        signal = signals.next() => {
            worker.kill().await.context("cannot kill the worker")?;
            bail!("{signal} again: cut off the requests in flight");
        }
    }
}

/// Asks a worker to end, and kills it after a timeout.
async fn end(worker: &mut Child) {
    tell(worker, Signal::TERM);
    if timeout(END_PATIENCE, worker.wait()).await.is_err()
        && let Err(error) = worker.kill().await
    {
        tracing::error!(%error, "cannot kill a worker");
    }
}

/// Sends a signal, unless the worker has ended already.
fn tell(worker: &Child, signal: Signal) {
    let pid = worker.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(pid) = pid
        && let Err(error) = rustix::process::kill_process(pid, signal)
    {
        tracing::warn!(%error, "cannot signal a worker");
    }
}

fn spawn(sockets: &Sockets, arguments: &[OsString], role: Role, ends: Ends) -> io::Result<Child> {
    // The running program, even if its file has been replaced.
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments).args(worker_arguments(role, ends)).stdin(Stdio::null());
    // A key press in a terminal signals only the supervisor, which signals the worker.
    command.process_group(0);
    let fds = sockets.duplicates()?;
    command.env(INHERITED, fds.len().to_string()).env_remove("LISTEN_PID");
    let mappings = (FIRST_FD..).zip(fds);
    let mappings = mappings.map(|(child_fd, parent_fd)| FdMapping { parent_fd, child_fd });
    command.fd_mappings(mappings.collect()).map_err(io::Error::other)?;
    tokio::process::Command::from(command).kill_on_drop(true).spawn()
}

/// Returns the arguments of a worker in addition to its supervisor's.
pub fn worker_arguments(role: Role, ends: Ends) -> [String; 2] {
    [format!("--worker={}", role.as_str()), format!("--restarts={ends}")]
}

/// Makes a worker end when its supervisor ends for any reason.
pub fn end_with_supervisor() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(())
}

// === impl Sockets ===

impl Sockets {
    /// Binds all sockets.
    pub fn bind(addresses: &Addresses<'_>) -> anyhow::Result<Self> {
        let mut data = Vec::new();
        for &address in addresses.data {
            match bind("--listen", address) {
                Ok(listener) => data.push(listener),
                Err(error) if data.is_empty() => return Err(error),
                // A pod without IPv6 has no ::1.
                Err(error) => {
                    let error = Chain(error.as_ref());
                    tracing::warn!(%error, "cannot listen there; the workload cannot use this \
                                            address");
                }
            }
        }
        Ok(Self {
            data,
            admin: bind_in_plain_text("--admin", addresses.admin)?,
            health: bind_in_plain_text("--health", addresses.health)?,
        })
    }

    /// Returns the sockets of the supervisor that started this process. `None` without one.
    pub fn inherited() -> io::Result<Option<Self>> {
        let mut inherited = ListenFd::from_env();
        let mut sockets = Vec::new();
        for index in 0..inherited.len() {
            sockets.extend(inherited.take_tcp_listener(index)?);
        }
        let (Some(health), Some(admin)) = (sockets.pop(), sockets.pop()) else { return Ok(None) };
        Ok(Some(Self { data: sockets, admin, health }))
    }

    /// Duplicates them in the order that [`Sockets::inherited`] expects.
    fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        let all = self.data.iter().chain([&self.admin, &self.health]);
        all.map(|listener| Ok(listener.try_clone()?.into())).collect()
    }
}

/// Binds a socket and logs its address, because the system may have chosen the port.
fn bind_in_plain_text(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = bind(flag, address)?;
    tracing::info!("{flag}: http://{}", listener.local_addr()?);
    Ok(listener)
}

fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).with_context(|| {
        format!(
            "{flag} {address}: cannot listen; pass \
                                                        another address"
        )
    })
}
