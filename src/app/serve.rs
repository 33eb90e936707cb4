//! What all commands that serve do alike: threads, addresses for operators, reload, the end.

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

use super::{DRAIN_DEADLINE, Running, Vitals, shown};
use crate::{
    admin::{self, Audience},
    cli::{Announcement, ServingOptions, announce},
    config::{Config, Reloader},
    lifecycle::{Drain, Draining, Heartbeat, Ready, Signals},
    metrics::{Certificate, Metrics},
    proxy::listen::Authorities,
    tls,
    upstream::Endpoint,
};

/// What the parts of the process share.
pub(super) struct Shared {
    pub(super) ready: Ready,
    pub(super) drain: Drain,
    pub(super) heartbeat: Heartbeat,
    pub(super) metrics: Metrics,
    /// Threads apart from the data path.
    pub(super) admin: Handle,
    /// Ends serving, for another context.
    pub(super) switched: CancellationToken,
}

/// Why serving ended without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal asked for it.
    Asked,
    /// Another context is to be served instead.
    Switched,
}

/// How a task that follows something learns of the end, and may bring it about.
pub(super) struct Follower {
    pub(super) draining: Draining,
    /// None if it may not.
    pub(super) switched: Option<CancellationToken>,
}

/// What must be closed or named by the end of the start.
pub(super) struct Started {
    pub(super) running: Running,
    /// Absent where another process has told it already.
    pub(super) announcement: Option<Announcement>,
    /// Published for as long as this is held.
    pub(super) _configuration: Configuration,
    /// How long clients are taken on after a signal to stop.
    pub(super) leave_time: Duration,
}

/// The configuration in force, and who publishes it.
pub(super) struct Configuration {
    pub(super) current: watch::Receiver<Arc<Config>>,
    reloader: Option<Reloader>,
    /// Without a file it is published by nobody else.
    _publisher: Option<watch::Sender<Arc<Config>>>,
}

/// The addresses that people and probes ask.
pub(super) struct AdminListeners {
    operators: TcpListener,
    probes: TcpListener,
    /// By which names browsers may ask for the operators' one.
    names: Vec<String>,
}

/// The domain that in-cluster names end in, unless the cluster was told otherwise.
pub(super) const CLUSTER_DOMAIN: &str = "cluster.local";

/// Time that the apiserver has to respond before the announcement says that it did not.
const FIRST_CONTACT: Duration = Duration::from_secs(2);

/// What is left to tasks after the drain.
const RUNTIME_REST: Duration = Duration::from_millis(200);

/// Serves what `start` builds, until a signal asks to stop.
pub(super) fn run(
    options: &ServingOptions,
    start: impl AsyncFnOnce(&Shared) -> anyhow::Result<Started>,
) -> anyhow::Result<Ended> {
    let admin = runtime("admin", 1)?;
    let data = data_runtime(options.worker_threads.into())?;
    let shared = Shared::new(admin.handle().clone());
    let ended = data.block_on(serve(shared, start));
    data.shutdown_timeout(RUNTIME_REST);
    admin.shutdown_background();
    ended
}

pub(super) fn runtime(name: &str, threads: usize) -> anyhow::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name).enable_all();
    builder.build().context("threads cannot be started")
}

/// One thread is this one: another would have an arena of memory of its own.
fn data_runtime(threads: usize) -> anyhow::Result<Runtime> {
    if threads > 1 {
        return runtime("data", threads);
    }
    Builder::new_current_thread().enable_all().build().context("the runtime cannot be started")
}

async fn serve(
    shared: Shared,
    start: impl AsyncFnOnce(&Shared) -> anyhow::Result<Started>,
) -> anyhow::Result<Ended> {
    let mut signals = Signals::listen().context("signals cannot be heard")?;
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
    let (ended, why) = tokio::select! {
        signal = signals.next() => (Ended::Asked, signal),
        () = shared.switched.cancelled() => (Ended::Switched, "another context"),
        Err(error) = serving => return Err(error),
    };
    shared.drain.begin(Instant::now() + started.leave_time + DRAIN_DEADLINE);
    if !started.leave_time.is_zero() {
        leave(started.leave_time, why, &mut signals).await;
    }
    tracing::info!("{why}: finishing what is under way; another signal ends at once");
    tokio::select! {
        () = started.running.drain() => tracing::info!("done"),
        signal = signals.next() => bail!("{signal} again: what was under way is cut off"),
    }
    Ok(ended)
}

/// Goes on as before for a while, or until another signal.
pub(super) async fn leave(time: Duration, why: &str, signals: &mut Signals) {
    tracing::info!("{why}: answering for {time:?} more, unless another signal comes");
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        signal = signals.next() => tracing::info!("{signal} again"),
    }
}

/// A certificate of an authority of our own, made now unless one is kept in `state`: the authority
/// clients trust, and what the listener shows.
pub(super) fn own_certificates(
    state: Option<&Path>,
    names: &tls::Names,
    metrics: &Metrics,
) -> anyhow::Result<(tls::Authority, tls::Server)> {
    let now = SystemTime::now();
    let generate = || tls::Authority::generate(now);
    let authority = match state {
        Some(directory) => tls::Authority::kept(directory, now, generate)?,
        None => generate()?,
    };
    let serving = tls::Server::new(authority.issue(names, now)?)?;
    metrics.certificate_expires(Certificate::Authority, now + tls::CA_LIFETIME);
    metrics.certificate_expires(Certificate::Serving, now + tls::LEAF_LIFETIME);
    Ok((authority, serving))
}

/// What CONNECT may lead to: the apiserver as its clients know it.
///
/// One below a path of its own is not offered: its clients send that path, and so would we.
pub(super) fn authorities(endpoint: &Endpoint) -> Authorities {
    match endpoint.base_path() {
        "" => Authorities::default().and(&endpoint.host(), endpoint.port()),
        _ => Authorities::default(),
    }
}

/// The apiserver as people know it: host and port.
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

    /// For a task that may end serving, or only look on.
    pub(super) fn follower(&self, may_end: bool) -> Follower {
        let switched = may_end.then(|| self.switched.clone());
        Follower { draining: self.drain.watch(), switched }
    }

    /// Its signs of life, and the names under which browsers may ask.
    fn vitals(&self, names: Vec<String>) -> Vitals {
        Vitals {
            ready: self.ready.clone(),
            draining: self.drain.watch(),
            heartbeat: self.heartbeat.clone(),
            names,
        }
    }
}

// === impl Configuration ===

impl Configuration {
    /// The file's, which is followed, or the default one, which stays.
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
                tracing::error!(%error, "the configuration file is no longer followed");
            }
        });
    }
}

// === impl AdminListeners ===

impl AdminListeners {
    /// Takes over what a supervisor has bound.
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

    /// Binds both; whoever reaches these addresses needs no login.
    pub(super) fn bind(options: &ServingOptions) -> anyhow::Result<Self> {
        let listeners = Self {
            operators: bind("--admin", options.admin)?,
            probes: bind("--health", options.health)?,
            names: options.admin_names.clone(),
        };
        warn_of_openness(options);
        Ok(listeners)
    }

    /// Serves both on the admin runtime, for as long as that runs.
    pub(super) fn serve(self, shared: &Shared, running: &Running) -> anyhow::Result<()> {
        let vitals = shared.vitals(self.names.clone());
        self.serve_to(shared, Audience::Operators, running.sources(vitals))
    }

    /// The same for a process that stands before no apiserver: nobody has more to ask than probes.
    pub(super) fn serve_vitals(self, shared: &Shared) -> anyhow::Result<()> {
        let sources = shown::nothing(shared.vitals(Vec::new()), shared.metrics.clone());
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

/// Says so in the log if others than this machine reach what has no login.
pub(super) fn warn_of_openness(options: &ServingOptions) {
    for (flag, address) in [("--admin", options.admin), ("--health", options.health)] {
        if !address.ip().is_loopback() {
            tracing::warn!("{flag} {address} is open to other machines, without TLS or login");
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
    bind().with_context(|| format!("{flag} {address}: cannot listen there"))
}
