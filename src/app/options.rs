//! The options of the commands that serve or check. The command line parses them.

mod check;
mod injection;
mod values;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum, builder::PossibleValue};

use crate::{
    config::{NotAnAmount, Span},
    supervisor::{Ends, Role},
};

pub use check::CheckOptions;
pub use injection::InjectionOptions;
pub(crate) use values::{address, whole};

/// The apiserver and the user.
#[derive(Clone, Debug, Args)]
pub struct KubeconfigOptions {
    /// The kubeconfig with the apiserver and the user [default: as kubectl chooses].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of that kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// The options of every serving command.
#[derive(Clone, Debug, Args)]
pub struct ServingOptions {
    /// The address of the page, replicas and metrics, without TLS or login.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7444))]
    pub admin: SocketAddr,
    /// A host name that browsers may use for the admin address, besides IP addresses and localhost;
    /// may be repeated.
    #[arg(long = "admin-name", value_name = "NAME")]
    pub admin_names: Vec<String>,
    /// The address of /livez, /readyz and /metrics, without TLS or login.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7445))]
    pub health: SocketAddr,
    /// The configuration file [default: every setting at its default].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The number of threads that answer requests; one needs the least CPU time per request.
    #[arg(long, value_name = "N", env = "LISTLESS_WORKER_THREADS", default_value_t = WORKER_THREADS)]
    #[arg(value_parser = whole::<u8>(1..=64))]
    pub worker_threads: u8,
}

/// The options of `listless local`.
#[derive(Clone, Debug, Args)]
pub struct LocalOptions {
    /// The apiserver and the user.
    #[command(flatten)]
    pub upstream: KubeconfigOptions,
    /// The options of every serving command.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// The address for clients; port 0 selects a free one.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7443))]
    pub listen: SocketAddr,
    /// The kubeconfig to write for clients [default: ~/.kube/listless].
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,
    /// The directory that keeps the certificate authority, so that clients with the kubeconfig
    /// still work after a restart [default: none; a new one at each start].
    #[arg(long, value_name = "DIRECTORY")]
    pub state: Option<PathBuf>,
    /// Serve the new context when the kubeconfig's current context changes, or when this context
    /// changes [default: only log it].
    #[arg(long)]
    pub follow_context: bool,
}

/// The options of `listless gateway`.
#[derive(Clone, Debug, Args)]
pub struct GatewayOptions {
    /// The apiserver and the user.
    #[command(flatten)]
    pub upstream: KubeconfigOptions,
    /// The options of every serving command.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// The address for clients; port 0 selects a free one.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = anywhere(7443))]
    pub listen: SocketAddr,
    /// In a cluster: the directory of the service account to read as.
    #[arg(long, value_name = "DIRECTORY", default_value = SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// The listener's certificate with its chain, in PEM; reloaded when it changes [default: one of
    /// a private authority; required in a cluster].
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// The kubeconfig to write, with this server and the same user [default: none].
    #[arg(long, value_name = "FILE", conflicts_with = "tls_cert")]
    pub write_kubeconfig: Option<PathBuf>,
}

/// The options of `listless injector`.
#[derive(Clone, Debug, Args)]
pub struct InjectorOptions {
    /// The settings of the injected sidecar.
    #[command(flatten)]
    pub sidecar: InjectionOptions,
    /// The apiserver with the webhook [default: that of the pod's cluster].
    #[command(flatten)]
    pub upstream: KubeconfigOptions,
    /// The address for the apiserver's calls, over TLS.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = anywhere(9443))]
    pub listen: SocketAddr,
    /// The address of the metrics, without TLS or login.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7444))]
    pub admin: SocketAddr,
    /// The address of /livez and /readyz, without TLS or login.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value_t = loopback(7445))]
    pub health: SocketAddr,
    /// The directory of the service account to maintain the webhook with.
    #[arg(long, value_name = "DIRECTORY", default_value = SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// The namespace of the Service and of the Secret; its pods are never injected [default: the
    /// pod's].
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE")]
    pub namespace: Option<String>,
    /// The Service in front of the injector.
    #[arg(long, value_name = "NAME", default_value = "listless-injector")]
    pub service: String,
    /// The Secret for the certificates; it must exist, and may be empty.
    #[arg(long, value_name = "NAME", default_value = "listless-injector-certificates")]
    pub secret: String,
    /// The MutatingWebhookConfiguration that calls the injector.
    #[arg(long, value_name = "NAME", default_value = "listless-injector")]
    pub webhook_configuration: String,
    /// A further name or address of the webhook for its certificate; may be repeated.
    #[arg(long = "name", value_name = "NAME")]
    pub names: Vec<String>,
    /// A namespace whose pods are never injected, besides kube-system and its own; may be repeated.
    #[arg(long = "exclude-namespace", value_name = "NAME")]
    pub excluded_namespaces: Vec<String>,
    /// Do not report the outcome to the owners of pods by events.
    #[arg(long)]
    pub no_events: bool,
    /// Accept reviews only with a client certificate that an authority in this file signed: the
    /// apiserver's, if its admission configuration gives it one for this webhook.
    #[arg(long = "client-ca", value_name = "FILE")]
    pub client_authority: Option<PathBuf>,
    /// The lifetime of the webhook's authority; it is replaced after two thirds of it.
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = lifetime)]
    pub authority_lifetime: Duration,
    /// The lifetime of the webhook's certificate; it is replaced after half of it.
    #[arg(long, value_name = "DURATION", default_value = "168h", value_parser = lifetime)]
    pub certificate_lifetime: Duration,
}

/// The options of `listless sidecar`.
#[derive(Clone, Debug, Args)]
pub struct SidecarOptions {
    /// The options of every serving command.
    #[command(flatten)]
    pub serving: ServingOptions,
    /// The address for the workload; may be repeated. One that cannot be bound is skipped, except
    /// for the first; for example `[::1]` in a pod without IPv6.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_values_t = [loopback(7443)])]
    pub listen: Vec<SocketAddr>,
    /// The directory of the pod's service account; reloaded when it changes.
    #[arg(long, value_name = "DIRECTORY", default_value = SERVICE_ACCOUNT)]
    pub service_account: PathBuf,
    /// The directory for the workload's copy of it, whose ca.crt also trusts Listless.
    #[arg(long, value_name = "DIRECTORY")]
    pub mirror: PathBuf,
    /// A further service account's directory, and the directory for its copy; may be repeated.
    #[arg(long, value_name = "DIRECTORY=DIRECTORY", value_parser = pair)]
    pub also_mirror: Vec<(PathBuf, PathBuf)>,
    /// The directory of the pod's own certificate authority, which lives as long as the pod.
    #[arg(long, value_name = "DIRECTORY")]
    pub state: PathBuf,
    /// The role of a worker; set by its supervisor.
    #[arg(long, value_enum, hide = true)]
    pub worker: Option<Role>,
    /// The number of earlier workers and the reasons for their end; set by the supervisor.
    #[arg(long, hide = true, default_value_t)]
    pub restarts: Ends,
}

/// Wrong usage that the argument parser cannot detect.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The directory of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The default number of threads. More threads wake each other for every response, which costs as
/// much as some responses do.
const WORKER_THREADS: u8 = 1;

/// The minimum lifetime. A shorter one would end before the certificate is published.
const LIFETIME_MIN: Duration = Duration::from_secs(10);

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
    /// Returns the path of the kubeconfig to write. `None` if there is no home directory.
    pub fn kubeconfig_to_write(&self) -> Option<PathBuf> {
        self.write_kubeconfig.clone().or_else(kubeconfig_of_local)
    }
}

/// Returns the default path of the kubeconfig of `listless local`.
pub(crate) fn kubeconfig_of_local() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".kube/listless"))
}

/// Parses the lifetime of a certificate.
fn lifetime(text: &str) -> Result<Duration, String> {
    let Span(lifetime) = text.parse().map_err(|error: NotAnAmount| error.to_string())?;
    if lifetime < LIFETIME_MIN {
        Err("too short: use at least 10s".to_owned())
    } else {
        Ok(lifetime)
    }
}

/// Parses two paths with an equals sign between them.
fn pair(text: &str) -> Result<(PathBuf, PathBuf), String> {
    match text.split_once('=') {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.into(), to.into())),
        _ => Err("write two directories with = between them".to_owned()),
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

fn anywhere(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}
