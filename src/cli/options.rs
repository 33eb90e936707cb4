//! The options that commands share, and those of the commands that run.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum, builder::PossibleValue};

use crate::supervisor::{Ends, Role};

use super::inject::InjectionOptions;
use crate::config::{NotAnAmount, Span};

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
    /// Where the page, replicas and metrics are shown, without TLS or login.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7444))]
    pub admin: SocketAddr,
    /// A name by which browsers may ask for the admin address, besides IP addresses and localhost;
    /// may be repeated.
    #[arg(long = "admin-name", value_name = "NAME")]
    pub admin_names: Vec<String>,
    /// Where /livez, /readyz and /metrics are answered, without TLS or login.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7445))]
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
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7443))]
    pub listen: SocketAddr,
    /// Where to write the kubeconfig for clients [default: ~/.kube/listless].
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
    /// Where its authority is kept, so that clients that have the kubeconfig are served after a
    /// restart, too [default: nowhere; all is made anew].
    #[arg(long, value_name = "DIRECTORY")]
    pub state: Option<PathBuf>,
    /// Serve what the kubeconfig comes to mean, should another context become its current one, or
    /// this one change [default: only say so in the log].
    #[arg(long)]
    pub follow_context: bool,
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
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = anywhere(7443))]
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

/// What `listless injector` is told.
#[derive(Clone, Debug, Args)]
pub struct InjectorOptions {
    /// What the sidecar is that pods get.
    #[command(flatten)]
    pub sidecar: InjectionOptions,
    /// Which apiserver to look after the webhook at [default: that of the pod's cluster].
    #[command(flatten)]
    pub upstream: KubeconfigOptions,
    /// Where the apiserver asks, over TLS.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = anywhere(9443))]
    pub listen: SocketAddr,
    /// Where metrics are shown, without TLS or login.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7444))]
    pub admin: SocketAddr,
    /// Where /livez and /readyz are answered, without TLS or login.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7445))]
    pub health: SocketAddr,
    /// The directory of the service account to look after the webhook with.
    #[arg(long, value_name = "DIRECTORY", default_value = SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// The namespace of the Service and of the Secret; its pods are left alone [default: the
    /// pod's].
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE")]
    pub namespace: Option<String>,
    /// The Service that leads here.
    #[arg(long, value_name = "NAME", default_value = "listless-injector")]
    pub service: String,
    /// The Secret that certificates are kept in; it must be there, and may be empty.
    #[arg(long, value_name = "NAME", default_value = "listless-injector-certificates")]
    pub secret: String,
    /// The MutatingWebhookConfiguration that leads here.
    #[arg(long, value_name = "NAME", default_value = "listless-injector")]
    pub webhook_configuration: String,
    /// Another name or address that the apiserver knows the webhook by; may be repeated.
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// A namespace whose pods are left alone, beside kube-system and its own; may be repeated.
    #[arg(long = "exclude-namespace", value_name = "NAME")]
    pub excluded_namespaces: Vec<String>,
    /// Do not tell the owners of pods by events what became of them.
    #[arg(long)]
    pub no_events: bool,
    /// Take reviews only from holders of a client certificate that an authority in this file signed: the
    /// apiserver's, if its admission configuration gives it one for this webhook.
    #[arg(long = "client-ca", value_name = "FILE")]
    pub client_authority: Option<PathBuf>,
    /// How long the webhook's authority is valid; the next one follows after two thirds of it.
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = lifetime)]
    pub authority_lifetime: Duration,
    /// How long the webhook's certificate is valid; it is replaced after half of it.
    #[arg(long, value_name = "DURATION", default_value = "168h", value_parser = lifetime)]
    pub certificate_lifetime: Duration,
}

/// What `listless sidecar` is told.
#[derive(Clone, Debug, Args)]
pub struct SidecarOptions {
    /// What every command that serves is told.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// Where the workload connects; may be given several times. All but the first are left out in a
    /// pod that lacks them, such as IPv6's loopback.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_values_t = [loopback(7443)])]
    pub listen: Vec<SocketAddr>,
    /// The directory of the pod's service account; followed as it changes.
    #[arg(long, value_name = "DIRECTORY", default_value = SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// Where the workload finds that directory instead, with a ca.crt that trusts Listless, too.
    #[arg(long, value_name = "DIRECTORY")]
    pub mirror: PathBuf,
    /// Another service account's directory, and where containers find it instead; may be repeated.
    #[arg(long, value_name = "DIRECTORY=DIRECTORY", value_parser = pair)]
    pub also_mirror: Vec<(PathBuf, PathBuf)>,
    /// Where the pod's own certificate authority is kept while the pod lives.
    #[arg(long, value_name = "DIRECTORY")]
    pub state: PathBuf,
    /// What a worker is started as; given by its supervisor.
    #[arg(long, value_enum, hide = true)]
    pub worker: Option<Role>,
    /// How many workers ended before, and why; given by the supervisor.
    #[arg(long, hide = true, default_value_t)]
    pub restarts: Ends,
}

/// Where a pod finds its service account.
pub(super) const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// More threads wake each other for every answer, which costs as much as some answers do.
const WORKER_THREADS: u8 = 1;

/// A certificate of a shorter life would be replaced before it is published.
const LIFETIME_MIN: Duration = Duration::from_secs(10);

/// The heading of the options that every command has.
const LOG: &str = "Log";

// === impl Role ===

impl ValueEnum for Role {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.as_str()))
    }
}

// === impl LocalOptions ===

impl LocalOptions {
    /// Where to write the kubeconfig; none when there is no home directory to put it in.
    pub fn kubeconfig_to_write(&self) -> Option<PathBuf> {
        self.write_kubeconfig.clone().or_else(kubeconfig_of_local)
    }
}

/// Where `listless local` writes its kubeconfig unless told otherwise.
pub(super) fn kubeconfig_of_local() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".kube/listless"))
}

/// A length of time that a certificate can be valid for.
fn lifetime(text: &str) -> Result<Duration, String> {
    let Span(lifetime) = text.parse().map_err(|error: NotAnAmount| error.to_string())?;
    if lifetime < LIFETIME_MIN { Err("too short: at least 10s".to_owned()) } else { Ok(lifetime) }
}

/// Two paths with an equals sign between them.
fn pair(text: &str) -> Result<(PathBuf, PathBuf), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.into(), to.into())),
        _ => Err("expected two directories with = between them".to_owned()),
    }
}

/// An address to listen on, by number or by name.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let resolved = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    resolved.ok_or_else(|| {
        "expected HOST:PORT, such as 127.0.0.1:7443, localhost:7443 or [::1]:7443".to_owned()
    })
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn anywhere(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_address_is_a_number_or_a_name_with_a_port() {
        assert!(address("localhost:7443").expect("a name").ip().is_loopback());
        assert!(address("[::1]:7443").expect("IPv6").is_ipv6());
        for wrong in ["here", "7443", "127.0.0.1", "::1"] {
            assert!(address(wrong).expect_err(wrong).contains("localhost:7443"), "{wrong}");
        }
    }
}
