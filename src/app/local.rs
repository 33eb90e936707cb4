//! `listless local`: one context of a kubeconfig, served on this machine to its own user.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use anyhow::{Context, bail};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::watch,
    time::{Duration, Instant},
};
use uuid::Uuid;

use super::{DRAIN_DEADLINE, Foundation, Running, wire::MeteredDial};
use crate::{
    admin::{self, Audience, Sources},
    cache::Cache,
    cli::{Announcement, Kubeconfig, LocalOptions, UsageError, announce},
    config::{Config, Reloader},
    lifecycle::{Drain, Heartbeat, Ready, Signals},
    metrics::{Certificate, Metrics},
    proxy::{
        forward::Clients,
        identify::{Identify, LocalToken},
        listen::Bound,
    },
    tls,
    upstream::{
        self,
        dial::Tcp,
        identity::{self, Access, Source},
    },
};

/// What the parts of the process share.
struct Shared {
    ready: Ready,
    drain: Drain,
    heartbeat: Heartbeat,
    metrics: Metrics,
}

/// What must be closed or named by the end of the start.
struct Started {
    running: Running,
    announcement: Announcement,
    /// Without a file the configuration is published by nobody else.
    _config: Option<watch::Sender<Arc<Config>>>,
}

/// The addresses that people and probes ask.
struct AdminListeners {
    operators: TcpListener,
    probes: TcpListener,
}

/// The domain that in-cluster names end in, unless the cluster was told otherwise.
const CLUSTER_DOMAIN: &str = "cluster.local";

/// What is left to tasks after the drain.
const RUNTIME_REST: Duration = Duration::from_millis(200);

/// Serves until a signal asks to stop.
pub fn local(options: &LocalOptions) -> anyhow::Result<()> {
    let admin = runtime("admin", 1)?;
    let data = data_runtime(options.worker_threads.into())?;
    let ended = data.block_on(serve(options, admin.handle()));
    data.shutdown_timeout(RUNTIME_REST);
    admin.shutdown_background();
    ended
}

fn runtime(name: &str, threads: usize) -> anyhow::Result<Runtime> {
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

async fn serve(options: &LocalOptions, admin: &Handle) -> anyhow::Result<()> {
    let mut signals = Signals::listen().context("signals cannot be heard")?;
    let shared = Shared {
        ready: Ready::default(),
        drain: Drain::new(),
        heartbeat: Heartbeat::new(),
        metrics: Metrics::new(),
    };
    let started = tokio::select! {
        started = start(options, &shared, admin) => started?,
        signal = signals.next() => {
            tracing::info!("{signal} while starting");
            return Ok(());
        }
    };
    announce(&started.announcement)?;
    let signal = signals.next().await;
    tracing::info!("{signal}: finishing what is under way; another one ends at once");
    shared.drain.begin(Instant::now() + DRAIN_DEADLINE);
    tokio::select! {
        () = started.running.drain() => tracing::info!("done"),
        signal = signals.next() => bail!("{signal} again: what was under way is cut off"),
    }
    Ok(())
}

async fn start(options: &LocalOptions, shared: &Shared, admin: &Handle) -> anyhow::Result<Started> {
    let written = kubeconfig_to_write(options)?;
    let (config, reloader, publisher) = configuration(options.config.as_deref(), &shared.metrics)?;
    let listening = shared.ready.register("listener");
    let bound = Bound::bind("--listen", options.listen).await?;
    let listeners = AdminListeners::bind(options)?;
    warn_of_strangers(options);
    let access =
        identity::from_kubeconfig(options.kubeconfig.as_deref(), options.context.as_deref())
            .await?;

    let server = format!("https://{}", reachable(bound.address()));
    let token = token();
    let (authority, serving) = certificates(bound.address().ip(), &shared.metrics)?;
    let announcement = written_kubeconfig(&access, &server, &authority, &token, written)?;
    let dial = MeteredDial::new(Tcp, shared.metrics.clone());
    let (plain, own) = access.clients(Arc::new(dial), upstream::Settings::default());
    let running = Running::start(Foundation {
        listeners: vec![bound],
        tls: Some(serving),
        identify: Identify::Own(LocalToken::new(&token)),
        clients: Clients::new(plain, own),
        config,
        metrics: shared.metrics.clone(),
    });
    tokio::spawn(shared.heartbeat.clone().run());
    listeners.serve(shared, running.cache().clone(), admin)?;
    if let Some(reloader) = reloader {
        admin.spawn(reload(reloader, shared));
    }
    drop(listening);
    Ok(Started { running, announcement, _config: publisher })
}

fn kubeconfig_to_write(options: &LocalOptions) -> Result<PathBuf, UsageError> {
    options.kubeconfig_to_write().ok_or_else(|| {
        UsageError("there is no home directory; name a file with --write-kubeconfig".to_owned())
    })
}

type Configuration =
    (watch::Receiver<Arc<Config>>, Option<Reloader>, Option<watch::Sender<Arc<Config>>>);

/// The file's configuration, which is followed, or the default one, which stays.
fn configuration(file: Option<&Path>, metrics: &Metrics) -> anyhow::Result<Configuration> {
    if let Some(file) = file {
        let (reloader, config) = Reloader::start(file.to_owned(), metrics.clone())?;
        return Ok((config, Some(reloader), None));
    }
    let (publisher, config) = watch::channel(Arc::new(Config::default()));
    metrics.config_in_use(SystemTime::now(), config.borrow().memory_limit_bytes);
    Ok((config, None, Some(publisher)))
}

fn reload(reloader: Reloader, shared: &Shared) -> impl Future<Output = ()> + use<> {
    let draining = shared.drain.watch();
    async move {
        if let Err(error) = reloader.run(draining).await {
            tracing::error!(%error, "the configuration file is no longer followed");
        }
    }
}

/// The authority clients trust, and what the listener shows.
fn certificates(
    address: IpAddr,
    metrics: &Metrics,
) -> anyhow::Result<(tls::Authority, tls::Server)> {
    let now = SystemTime::now();
    let authority = tls::Authority::generate(now)?;
    let names = tls::Names::of_apiserver(CLUSTER_DOMAIN).and(&address.to_string());
    let serving = tls::Server::new(authority.issue(&names, now)?)?;
    metrics.certificate_expires(Certificate::Authority, now + tls::CA_LIFETIME);
    metrics.certificate_expires(Certificate::Serving, now + tls::LEAF_LIFETIME);
    Ok((authority, serving))
}

fn written_kubeconfig(
    access: &Access,
    server: &str,
    authority: &tls::Authority,
    token: &str,
    file: PathBuf,
) -> anyhow::Result<Announcement> {
    let (context, namespace) = match access.source() {
        Source::Kubeconfig { context, namespace, .. } => (context.as_str(), namespace.as_str()),
        Source::ServiceAccount { namespace, .. } => ("listless", namespace.as_str()),
        Source::Given { .. } => ("listless", ""),
    };
    let authority_pem = authority.pem();
    Kubeconfig { server, authority_pem, token, context, namespace }.write(&file)?;
    Ok(Announcement {
        server: server.to_owned(),
        source: access.source().to_string(),
        kubeconfig: file,
    })
}

/// A secret that no one can guess; the prefix keeps YAML from reading it as a number.
fn token() -> String {
    format!("listless-{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// Where a client on this machine reaches a listener.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

/// Whoever reaches these addresses needs no login.
fn warn_of_strangers(options: &LocalOptions) {
    for (flag, address) in [("--admin", options.admin), ("--health", options.health)] {
        if !address.ip().is_loopback() {
            tracing::warn!("{flag} {address} is open to other machines, without TLS or login");
        }
    }
}

// === impl AdminListeners ===

impl AdminListeners {
    fn bind(options: &LocalOptions) -> anyhow::Result<Self> {
        Ok(Self {
            operators: bind("--admin", options.admin)?,
            probes: bind("--health", options.health)?,
        })
    }

    /// Serves both on the admin runtime, for as long as that runs.
    fn serve(self, shared: &Shared, cache: Cache, admin: &Handle) -> anyhow::Result<()> {
        let sources = Arc::new(Sources {
            ready: shared.ready.clone(),
            draining: shared.drain.watch(),
            heartbeat: shared.heartbeat.clone(),
            metrics: shared.metrics.clone(),
            replicas: Box::new(move || cache.replicas()),
        });
        let _within = admin.enter();
        for (listener, audience) in
            [(self.operators, Audience::Operators), (self.probes, Audience::Probes)]
        {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            admin.spawn(admin::serve(listener, audience, sources.clone()));
        }
        Ok(())
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
