//! The apiserver's address and Listless's own identity, from a kubeconfig or a service account.
//!
//! Invariant: the endpoint for other callers' requests never has Listless's client certificate;
//! only the [`Own`] client has its credentials. The `kube` crate handles kubeconfig formats and
//! plugins.

mod credentials;
mod fault;
mod flight;
mod follow;
mod kubeconfig;
mod mark;
mod proxy;
mod redirect;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use http::Uri;
use kube::{
    client::ConfigExt,
    config::{AuthInfo, Config, KubeConfigOptions},
};

use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, pem::PemObject},
};

pub(super) use self::credentials::{Credentials, Refreshed};
pub use self::{
    follow::{Followed, Turn},
    kubeconfig::places,
    mark::{KUBECONFIG_MARK, Writer, cluster_mark, mark_clusters, writer_of},
    redirect::{has_only_certificate, proxied, redirected},
};
use super::{
    Endpoint, Own, Pool, Settings,
    connect::EndpointError,
    dial::{Dial, HttpProxy, ProxyError},
};
use crate::{api::url, body::BoxError, metrics::Metrics};

/// An apiserver and Listless's own identity there.
pub struct Access {
    /// The endpoint for requests with their own credentials.
    endpoint: Endpoint,
    credentials: Credentials,
    /// The source of both.
    source: Source,
}

/// The source of an [`Access`].
#[derive(Clone, Debug)]
pub enum Source {
    /// A context of one or several kubeconfig files.
    Kubeconfig {
        /// The file, or the files that were merged.
        files: String,
        /// The context's name.
        context: String,
        /// The context's namespace.
        namespace: String,
    },
    /// The directory of a service account.
    ServiceAccount {
        /// The directory.
        directory: PathBuf,
        /// The pod's namespace.
        namespace: String,
    },
    /// None: the caller passed everything in.
    Given {
        /// The apiserver's URL.
        server: Uri,
    },
}

/// The reason why there is no access.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig could not be read, parsed or merged.
    #[error("cannot read kubeconfig {files}: {text}")]
    Kubeconfig {
        /// The file, or the files that were to be merged.
        files: String,
        /// The cause, without any content of the files.
        text: String,
    },
    /// The kubeconfig file does not exist, or must not be read.
    #[error("cannot read kubeconfig {file}{advice}")]
    NoKubeconfig {
        /// The file.
        file: String,
        /// The setting to correct.
        advice: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The kubeconfig leads to Listless instead of the apiserver.
    #[error(
        "kubeconfig {} was written by listless and leads to Listless itself; pass the kubeconfig of the cluster to --kubeconfig",
        .0.display()
    )]
    OwnKubeconfig(PathBuf),
    /// The context leads to Listless instead of the apiserver, in a kubeconfig of someone else.
    #[error(
        "context {context:?} of kubeconfig {files} was written by listless and leads to Listless itself; pass the context of a cluster to --context"
    )]
    OwnContext {
        /// The files.
        files: String,
        /// The context.
        context: String,
    },
    /// No context was named and the kubeconfig has no current one.
    #[error(
        "kubeconfig {files} has no current-context and {available}; pass --context or set one with kubectl config use-context"
    )]
    NoCurrentContext {
        /// The files.
        files: String,
        /// The names of its contexts.
        available: String,
    },
    /// The context does not exist.
    #[error("kubeconfig {files} has no context {context:?}; it has {available}")]
    NoSuchContext {
        /// The files.
        files: String,
        /// The requested context.
        context: String,
        /// The names of its contexts.
        available: String,
    },
    /// The context names an entry that does not exist.
    #[error(
        "context {context:?} of kubeconfig {files} names {kind} {name:?}, which does not exist"
    )]
    Dangling {
        /// The files.
        files: String,
        /// The context.
        context: String,
        /// `cluster` or `user`.
        kind: &'static str,
        /// The name without an entry.
        name: String,
    },
    /// The cluster's entry is invalid.
    #[error("cannot use the cluster of {origin}")]
    Cluster {
        /// The place of the entry.
        origin: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// The user's entry is invalid.
    #[error("cannot use the credentials of {origin}")]
    Credentials {
        /// The place of the entry.
        origin: String,
        /// The cause.
        #[source]
        source: BoxError,
    },
    /// A file of the service account could not be read.
    #[error("cannot read service account file {}", .path.display())]
    ServiceAccount {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Reads a kubeconfig: the file at `path`, or those that `KUBECONFIG` names, or the user's own.
/// Files in `KUBECONFIG` that Listless wrote are left out; such a file at `path` is an error, and so
/// is a context that leads to Listless.
pub async fn from_kubeconfig(path: Option<&Path>, context: Option<&str>) -> Result<Access, Error> {
    let files = kubeconfig::files(path);
    let kubeconfig = kubeconfig::read(path, &files)?;
    let (context, explicit_proxy, authority) =
        kubeconfig::checked_context(&kubeconfig, context, &files)?;
    let options = KubeConfigOptions { context: Some(context.clone()), ..Default::default() };
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|source| kubeconfig::unreadable(&files, source))?;
    if !explicit_proxy && proxy::is_exempt(config.cluster_url.host().unwrap_or_default()) {
        config.proxy_url = None;
    }
    config.root_cert_file = authority;
    let namespace = config.default_namespace.clone();
    Access::new(config, None, Source::Kubeconfig { files, context, namespace }).await
}

/// Reads the service account mounted at `directory`, for the apiserver at `host` and `port`.
pub async fn in_cluster(directory: &Path, host: &str, port: u16) -> Result<Access, Error> {
    let source = |namespace| Source::ServiceAccount { directory: directory.to_owned(), namespace };
    let read = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).map_err(|source| Error::ServiceAccount { path, source })
    };
    let namespace = read("namespace").map(|name| name.trim().to_owned()).unwrap_or_default();
    let bundle = read("ca.crt")?;
    let unusable = |error: BoxError| Error::Cluster {
        origin: source(String::new()).to_string(),
        source: error,
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let server = url::parse(&format!("https://{host}:{port}"));
    let server = server.map_err(|error| unusable(error.into()))?;
    let roots = crate::tls::roots(bundle.as_bytes()).map_err(|error| unusable(error.into()))?;
    drop(roots); // It only checks the bundle here; the file is read again when it changes.
    let mut config = Config::new(server);
    config.root_cert = Some(Vec::new());
    config.root_cert_file = Some(directory.join("ca.crt"));
    Access::new(config, Some(directory.join("token")), source(namespace)).await
}

/// Reads the service account in a pod, unless a kubeconfig or a context was named; else the
/// kubeconfig.
pub async fn here(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    service_account: &Path,
) -> Result<Access, Error> {
    match cluster_unless_named(kubeconfig, context) {
        Some((host, port)) => in_cluster(service_account, &host, port).await,
        None => from_kubeconfig(kubeconfig, context).await,
    }
}

/// Returns host and port of the pod's apiserver, unless a kubeconfig or a context was named. As with
/// kubectl, `KUBECONFIG` names a kubeconfig too.
pub fn cluster_unless_named(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Option<(String, u16)> {
    let is_named = kubeconfig.is_some() || context.is_some() || kubeconfig::named().is_some();
    cluster_address().filter(|_| !is_named)
}

/// Creates the access of a token's bearer to an apiserver at a URL, which the certificates in
/// `authority_pem` verify.
pub async fn from_token(server: Uri, authority_pem: &str, token: String) -> Result<Access, Error> {
    let source = Source::Given { server: server.clone() };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(authority_pem.as_bytes()).collect();
    let certificates = certificates
        .map_err(|error| Error::Cluster { origin: source.to_string(), source: error.into() })?;
    let mut config = Config::new(server);
    config.root_cert = Some(certificates.iter().map(|der| der.to_vec()).collect());
    config.auth_info.token = Some(token.into());
    Access::new(config, None, source).await
}

/// Returns host and port of the apiserver from the environment of a pod.
pub fn cluster_address() -> Option<(String, u16)> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let port = variable("KUBERNETES_SERVICE_PORT")?.parse().ok()?;
    Some((variable("KUBERNETES_SERVICE_HOST")?, port))
}

// === impl Access ===

impl Access {
    async fn new(
        config: Config,
        token_file: Option<PathBuf>,
        source: Source,
    ) -> Result<Self, Error> {
        let endpoint = endpoint(&config)
            .map_err(|error| Error::Cluster { origin: source.to_string(), source: error })?;
        let credentials = Credentials::new(config, token_file).await.map_err(|error| {
            Error::Credentials { origin: source.to_string(), source: error.into() }
        })?;
        Ok(Self { endpoint, credentials, source })
    }

    /// Returns the address of the apiserver.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the source of the access.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Publishes metrics of the token, if it is a service account's.
    pub fn metered(self, metrics: &Metrics) -> Self {
        if let Source::ServiceAccount { .. } = self.source {
            self.credentials.metered(metrics.clone());
        }
        self
    }

    /// Returns the two clients: one for requests with their own credentials, one with Listless's.
    ///
    /// They share connections, except for credentials that the apiserver has not accepted yet. They
    /// share none if Listless's credentials include a client certificate, or may do so later.
    pub fn clients(self, dialler: Arc<dyn Dial>, settings: Settings) -> (Pool, Own) {
        let plain = Pool::new(Arc::clone(&dialler), self.endpoint.clone(), settings.clone());
        let own = if self.credentials.may_have_certificate() {
            let endpoint = match self.credentials.tls() {
                Some(tls) => self.endpoint.with_tls(tls),
                None => self.endpoint.clone(),
            };
            Pool::new(dialler, endpoint, settings).of_one_user()
        } else {
            plain.clone()
        };
        (plain, Own::new(own, self.credentials))
    }
}

/// Returns the TLS configuration. A kubeconfig may trust the apiserver's own certificate.
pub(super) fn client_config(config: &Config) -> Result<ClientConfig, BoxError> {
    let mut tls = config.rustls_client_config()?;
    let trusted = config.root_cert.iter().flatten().cloned().map(CertificateDer::from);
    let trusted: Vec<_> = trusted.collect();
    if !trusted.is_empty() && !config.accept_invalid_certs {
        crate::tls::accept_trusted(&mut tls, trusted)?;
    }
    Ok(tls)
}

/// Returns the endpoint for requests with their own credentials.
fn endpoint(config: &Config) -> Result<Endpoint, BoxError> {
    let mut config = config.clone();
    config.auth_info = AuthInfo::default();
    let tls = Arc::new(client_config(&config)?);
    let server_name = config.tls_server_name.as_deref();
    let endpoint = Endpoint::new(&config.cluster_url, tls, server_name)
        .map_err(|error: EndpointError| Box::new(error) as BoxError)?;
    match &config.proxy_url {
        None => Ok(endpoint),
        Some(url) => {
            let proxy = HttpProxy::parse(url).map_err(|error: ProxyError| Box::new(error))?;
            Ok(endpoint.through(proxy))
        }
    }
}

// === impl Source ===

impl Source {
    /// Returns the namespace of the source: the context's or the pod's.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Kubeconfig { namespace, .. } | Self::ServiceAccount { namespace, .. } => {
                namespace
            }
            Self::Given { .. } => "",
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kubeconfig { files, context, .. } => {
                write!(formatter, "context {context:?} of kubeconfig {files}")
            }
            Self::ServiceAccount { directory, .. } => {
                write!(formatter, "service account {}", directory.display())
            }
            Self::Given { server } => write!(formatter, "{server}"),
        }
    }
}
