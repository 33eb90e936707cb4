//! The common part of all serving commands: threads, admin addresses, reload and drain.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Context, bail};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

use super::{
    Announce, Announcement, DRAIN_DEADLINE, ProcessHealth, Running, certificate::IssuedCertificate,
    options::ServingOptions, shown,
};
use crate::{
    admin::{self, Audience},
    config::{Config, Reloader},
    lifecycle::{Drain, Draining, Heartbeat, Ready, Signals},
    metrics::Metrics,
    proxy::listen::Authorities,
    tls,
    upstream::Endpoint,
};

/// The shared parts of the process.
pub(super) struct Shared {
    pub(super) ready: Ready,
    pub(super) drain: Drain,
    pub(super) heartbeat: Heartbeat,
    pub(super) metrics: Metrics,
    /// The admin runtime, apart from the data path.
    pub(super) admin: Handle,
    /// Ends serving so that another context can be served.
    pub(super) switched: CancellationToken,
}

/// The reason for which serving ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A stop signal.
    Asked,
    /// A switch to another context.
    Switched,
}

/// The part of the shutdown that a following task uses. It waits for the end and may cause it.
pub(super) struct Follower {
    pub(super) draining: Draining,
    /// `None` if the task may not end serving.
    pub(super) switched: Option<CancellationToken>,
}

/// The result of a start, needed until the end of the process.
pub(super) struct Started {
    pub(super) running: Running,
    /// The ready announcement. Absent if another process has printed it.
    pub(super) announcement: Option<Announcement>,
    /// The configuration, which is published while this is held.
    pub(super) _configuration: Configuration,
    /// The time for which clients are accepted after a stop signal.
    pub(super) leave_time: Duration,
}

/// The current configuration and its publisher.
pub(super) struct Configuration {
    pub(super) current: watch::Receiver<Arc<Config>>,
    reloader: Option<Reloader>,
    /// The publisher without a file. It keeps the channel open.
    _publisher: Option<watch::Sender<Arc<Config>>>,
}

/// The listeners for operators and probes.
pub(super) struct AdminListeners {
    operators: TcpListener,
    probes: TcpListener,
    /// The host names that browsers may use for the operators' address.
    names: Vec<String>,
}

/// The default domain of in-cluster names.
pub(super) const CLUSTER_DOMAIN: &str = "cluster.local";

/// Time that the apiserver has to respond before the announcement says that it did not.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

/// The time that tasks have after the drain.
const RUNTIME_REST: Duration = Duration::from_millis(200);

/// Announces the result of `start` and serves it until a stop signal.
pub(super) fn run(
    options: &ServingOptions,
    announce: Announce,
    start: impl AsyncFnOnce(&Shared) -> anyhow::Result<Started>,
) -> anyhow::Result<Ended> {
    let admin = runtime("admin", 1)?;
    let data = data_runtime(options.worker_threads.into())?;
    let shared = Shared::new(admin.handle().clone());
    let ended = data.block_on(serve(shared, announce, start));
    data.shutdown_timeout(RUNTIME_REST);
    admin.shutdown_background();
    ended
}

pub(super) fn runtime(name: &str, threads: usize) -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name).enable_all();
    builder.build().context("cannot start threads")
}

/// Builds the data runtime. The calling thread is one of its threads, because each extra one has a
/// memory arena of its own.
fn data_runtime(threads: usize) -> anyhow::Result<Runtime> {
    if threads > 1 {
        return runtime("data", threads);
    }
    Builder::new_current_thread().enable_all().build().context("cannot start the runtime")
}

async fn serve(
    shared: Shared,
    announce: Announce,
    start: impl AsyncFnOnce(&Shared) -> anyhow::Result<Started>,
) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let started = tokio::select! {
        started = start(&shared) => started?,
        signal = signals.next() => {
            tracing::info!("{signal} while starting");
            return Ok(Ended::Asked);
        }
    };
    let serving = async {
        if let Some(announcement) = &started.announcement {
            let wrong = match announcement.asks_apiserver {
                true => started.running.first_contact(FIRST_CONTACT).await,
                false => None,
            };
            announce(announcement, wrong.as_deref())?;
        }
        std::future::pending::<anyhow::Result<()>>().await
    };
    let (mut ended, why) = tokio::select! {
        signal = signals.next() => (Ended::Asked, signal),
        () = shared.switched.cancelled() => (Ended::Switched, "another context"),
        Err(error) = serving => return Err(error),
    };
    shared.drain.begin(Instant::now() + started.leave_time + DRAIN_DEADLINE);
    if !started.leave_time.is_zero() {
        leave(started.leave_time, why, &mut signals).await;
    }
    tracing::info!("{why}: draining; send another signal to stop at once");
    let mut drained = std::pin::pin!(started.running.drain());
    loop {
        tokio::select! {
            () = &mut drained => {
                tracing::info!("done");
                return Ok(ended);
            }
            // Until now only the context has changed.
            signal = signals.next() => match ended {
                Ended::Switched => {
                    tracing::info!("{signal}: draining");
                    ended = Ended::Asked;
                }
                Ended::Asked => bail!("{signal} again: cut off the requests in flight"),
            }
        }
    }
}

/// Serves on for a while, or until another signal.
pub(super) async fn leave(time: Duration, why: &str, signals: &mut Signals) {
    tracing::info!("{why}: serving for {time:?} more; send another signal to drain now");
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        signal = signals.next() => tracing::info!("{signal} again"),
    }
}

/// Issues a certificate for these names with an authority of its own, stored in `state` if that is
/// given.
pub(super) fn own_certificate(
    state: Option<&Path>,
    names: tls::Names,
    metrics: &Metrics,
) -> Result<IssuedCertificate, tls::Error> {
    let now = SystemTime::now();
    let generate = || tls::Authority::generate(now);
    let authority = match state {
        Some(directory) => tls::Authority::kept(directory, now, generate)?,
        None => generate()?,
    };
    IssuedCertificate::new(authority, names, metrics.clone(), now)
}

#[expect(clippy::exit, reason = "the threads of the data path cannot be asked to end")]
fn end_at_once() {
    std::process::exit(1)
}

/// Returns the hosts that CONNECT may open: the apiserver's as its clients know it.
///
/// An apiserver below a path gets none: its clients send that path already, and Listless would add
/// it again.
pub(super) fn authorities(endpoint: &Endpoint) -> Authorities {
    match endpoint.base_path() {
        "" => Authorities::default().and(&endpoint.host(), endpoint.port()),
        _ => Authorities::default(),
    }
}

/// Returns the apiserver's host and port for display.
pub(super) fn authority_of(endpoint: &Endpoint) -> String {
    format!("{}:{}", endpoint.host(), endpoint.port())
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(admin: Handle) -> Self {
        Self {
            ready: Ready::default(),
            drain: Drain::new(),
            heartbeat: Heartbeat::new(),
            metrics: Metrics::new(),
            admin,
            switched: CancellationToken::new(),
        }
    }

    /// Starts the heartbeat of the data path. The process ends when it stops: a supervisor, a kubelet
    /// or a service manager starts another one, and clients do not wait for nothing.
    pub(super) fn beat(&self) {
        tokio::spawn(self.heartbeat.clone().run());
        let stopped = self.heartbeat.clone().stopped();
        self.admin.spawn(async move {
            stopped.await;
            tracing::error!("the data path has run nothing for a minute: the process ends");
            end_at_once();
        });
    }

    /// Returns a follower for a task. It can end serving only if `may_end`.
    pub(super) fn follower(&self, may_end: bool) -> Follower {
        let switched = may_end.then(|| self.switched.clone());
        Follower { draining: self.drain.watch(), switched }
    }

    /// Returns the process's health and the host names that browsers may use.
    fn process_health(&self, names: Vec<String>) -> ProcessHealth {
        ProcessHealth {
            ready: self.ready.clone(),
            draining: self.drain.watch(),
            heartbeat: self.heartbeat.clone(),
            names,
        }
    }
}

// === impl Configuration ===

impl Configuration {
    /// Loads the file, or the default configuration without one.
    pub(super) fn load(file: Option<&Path>, metrics: &Metrics) -> anyhow::Result<Self> {
        if let Some(file) = file {
            let (reloader, current) = Reloader::start(file.to_owned(), metrics.clone())?;
            return Ok(Self { current, reloader: Some(reloader), _publisher: None });
        }
        let (publisher, current) = watch::channel(Arc::new(Config::default()));
        metrics.config_in_use(SystemTime::now(), current.borrow().memory_limit_bytes);
        Ok(Self { current, reloader: None, _publisher: Some(publisher) })
    }

    /// Follows the file, if there is one.
    pub(super) fn follow(&mut self, shared: &Shared) {
        let Some(reloader) = self.reloader.take() else { return };
        let draining = shared.drain.watch();
        shared.admin.spawn(async move {
            if let Err(error) = reloader.run(draining).await {
                tracing::error!(%error, "cannot follow the configuration file; restart to apply \
                                         changes");
            }
        });
    }
}

// === impl AdminListeners ===

impl AdminListeners {
    /// Takes over the listeners that a supervisor has bound.
    pub(super) fn inherit(
        operators: TcpListener,
        probes: TcpListener,
        names: Vec<String>,
    ) -> io::Result<Self> {
        for listener in [&operators, &probes] {
            listener.set_nonblocking(true)?;
        }
        Ok(Self { operators, probes, names })
    }

    /// Binds both addresses. They require no login.
    pub(super) fn bind(options: &ServingOptions) -> anyhow::Result<Self> {
        let listeners = Self {
            operators: bind("--admin", options.admin)?,
            probes: bind("--health", options.health)?,
            names: options.admin_names.clone(),
        };
        warn_of_openness(options);
        Ok(listeners)
    }

    /// Serves both addresses on the admin runtime until that ends.
    pub(super) fn serve(self, shared: &Shared, running: &Running) -> anyhow::Result<()> {
        let process_health = shared.process_health(self.names.clone());
        self.serve_to(shared, Audience::Operators, running.sources(process_health))
    }

    /// Serves the vitals of a process without an apiserver. It has only probe paths.
    pub(super) fn serve_process_health(self, shared: &Shared) -> anyhow::Result<()> {
        let sources = shown::nothing(shared.process_health(Vec::new()), shared.metrics.clone());
        self.serve_to(shared, Audience::Probes, sources)
    }

    fn serve_to(
        self,
        shared: &Shared,
        operators: Audience,
        sources: admin::Sources,
    ) -> anyhow::Result<()> {
        let sources = Arc::new(sources);
        let _within = shared.admin.enter();
        for (listener, audience) in [(self.operators, operators), (self.probes, Audience::Probes)] {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            shared.admin.spawn(admin::serve(listener, audience, sources.clone()));
        }
        Ok(())
    }
}

/// Logs a warning if other machines can reach an address without login.
pub(super) fn warn_of_openness(options: &ServingOptions) {
    for (flag, address) in [("--admin", options.admin), ("--health", options.health)] {
        if !address.ip().is_loopback() {
            tracing::warn!(
                "{flag} {address} is open to other machines, without TLS or login; bind \
                            it to loopback or restrict it by a network policy"
            );
        }
    }
}

fn bind(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bind = || -> io::Result<TcpListener> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        tracing::info!("{flag}: http://{}", listener.local_addr()?);
        Ok(listener)
    };
    bind().with_context(|| format!("{flag} {address}: cannot listen; pass another address"))
}
