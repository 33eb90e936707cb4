//! The options that commands share, and those of the commands that run.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use clap::{Args, ValueEnum};

/// What is logged, and how.
#[derive(Clone, Debug, Args)]
pub struct LogOptions {
    /// What to log: a level (error, warn, info, debug, trace), or levels by module such as
    /// info,listless::access=debug [default: info; for the demo error].
    #[arg(
        long = "log",
        value_name = "FILTER",
        help_heading = LOG,
        global = true,
        env = "LISTLESS_LOG",
        hide_env_values = true
    )]
    pub filter: Option<String>,
    /// How to write the log, which goes to standard error.
    #[arg(long = "log-format", help_heading = LOG, global = true, value_enum, default_value_t)]
    pub format: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Table,
    /// JSON.
    Json,
}

/// Which apiserver to stand before, and as whom.
#[derive(Clone, Debug, Args)]
pub struct KubeconfigOptions {
    /// The kubeconfig whose apiserver and user to stand for [default: as kubectl chooses].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// What every command that serves is told.
#[derive(Clone, Debug, Args)]
pub struct ServingOptions {
    /// Where the page, metrics and replicas are shown, without TLS or login.
    #[arg(long, value_name = "ADDRESS", default_value_t = loopback(7444))]
    pub admin: SocketAddr,
    /// A name by which browsers may ask for the admin address, besides IP addresses and localhost;
    /// may be repeated.
    #[arg(long = "admin-name", value_name = "NAME")]
    pub admin_names: Vec<String>,
    /// Where /livez and /readyz are answered, without TLS or login.
    #[arg(long, value_name = "ADDRESS", default_value_t = loopback(7445))]
    pub health: SocketAddr,
    /// The configuration file [default: every setting at its default].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Threads that answer requests; one spends the least processor time on each.
    #[arg(long, value_name = "N", env = "LISTLESS_WORKER_THREADS", default_value_t = WORKER_THREADS)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    pub worker_threads: u8,
}

/// What `listless local` is told.
#[derive(Clone, Debug, Args)]
pub struct LocalOptions {
    /// Which apiserver to stand before, and as whom.
    #[command(flatten)]
    pub upstream: KubeconfigOptions,
    /// What every command that serves is told.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = loopback(7443))]
    pub listen: SocketAddr,
    /// Where to write the kubeconfig for clients [default: ~/.kube/listless].
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
}

/// What `listless gateway` is told.
#[derive(Clone, Debug, Args)]
pub struct GatewayOptions {
    /// Which apiserver to stand before, and as whom.
    #[command(flatten)]
    pub upstream: KubeconfigOptions,
    /// What every command that serves is told.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = anywhere(7443))]
    pub listen: SocketAddr,
    /// In a cluster: the directory of the service account to read as.
    #[arg(long, value_name = "DIRECTORY", default_value = SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// The certificate to show, in PEM, with its chain; followed as it changes
    /// [default: one of an own authority; required in a cluster].
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Where to write a kubeconfig that leads here and has the same user [default: nowhere].
    #[arg(long, value_name = "FILE", conflicts_with = "tls_cert")]
    pub write_kubeconfig: Option<PathBuf>,
}

/// What `listless sidecar` is told.
#[derive(Clone, Debug, Args)]
pub struct SidecarOptions {
    /// What every command that serves is told.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// Where the workload connects.
    #[arg(long, value_name = "ADDRESS", default_value_t = loopback(7443))]
    pub listen: SocketAddr,
    /// The directory of the pod's service account; followed as it changes.
    #[arg(long, value_name = "DIRECTORY", default_value = SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// Where the workload finds that directory instead, with a ca.crt that trusts Listless, too.
    #[arg(long, value_name = "DIRECTORY")]
    pub mirror: PathBuf,
    /// Where the pod's own certificate authority is kept while the pod lives.
    #[arg(long, value_name = "DIRECTORY")]
    pub state: PathBuf,
}

/// Where a pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// More threads wake each other for every answer, which costs as much as some answers do.
const WORKER_THREADS: u8 = 1;

/// The heading of the options that every command has.
const LOG: &str = "Log";

// === impl LocalOptions ===

impl LocalOptions {
    /// Where to write the kubeconfig; none when there is no home directory to put it in.
    pub fn kubeconfig_to_write(&self) -> Option<PathBuf> {
        let default = || Some(std::env::home_dir()?.join(".kube/listless"));
        self.write_kubeconfig.clone().or_else(default)
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn anywhere(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}
