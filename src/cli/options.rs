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

/// What `listless local` is told.
#[derive(Clone, Debug, Args)]
pub struct LocalOptions {
    /// The kubeconfig whose apiserver and user to stand for [default: as kubectl chooses].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = loopback(7443))]
    pub listen: SocketAddr,
    /// Where metrics and replicas are shown, without TLS or login.
    #[arg(long, value_name = "ADDRESS", default_value_t = loopback(7444))]
    pub admin: SocketAddr,
    /// Where /livez and /readyz are answered, without TLS or login.
    #[arg(long, value_name = "ADDRESS", default_value_t = loopback(7445))]
    pub health: SocketAddr,
    /// The configuration file [default: every setting at its default].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where to write the kubeconfig for clients [default: ~/.kube/listless].
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
    /// Threads that answer requests; one spends the least processor time on each.
    #[arg(long, value_name = "N", env = "LISTLESS_WORKER_THREADS", default_value_t = WORKER_THREADS)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=64))]
    pub worker_threads: u8,
}

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
