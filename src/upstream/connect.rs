//! The steps from an endpoint to a connection that is ready for HTTP: dial, proxy, TLS, ALPN.
//!
//! Invariant: a connection has a client certificate only if the endpoint's TLS configuration has
//! one. The pool keeps connections; this module does not.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use http::{
    Uri,
    uri::{Authority, Scheme},
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::io::BufReader;
use tokio_rustls::TlsConnector;

use super::{
    Error,
    dial::{Dial, HttpProxy, Stream, bare_host},
    health::ConnectFailure,
};

/// The bytes that one system call reads at most.
const READ_BYTES: usize = 32 * 1024;

/// The timeout of dial, proxy response and TLS handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The address of the apiserver, and the verification of its certificate.
#[derive(Clone)]
pub struct Endpoint {
    scheme: Scheme,
    authority: Authority,
    base_path: String,
    tls: Option<Tls>,
    proxy: Option<HttpProxy>,
}

#[derive(Clone)]
struct Tls {
    config: Arc<ClientConfig>,
    server_name: ServerName<'static>,
}

/// The reason why a server URL is invalid.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The scheme is neither `http` nor `https`.
    #[error("server URL {0} is neither http:// nor https://")]
    Scheme(Uri),
    /// The URL names no host.
    #[error("server URL {0} has no host")]
    NoHost(Uri),
    /// The name for the verification of the certificate is not a valid one.
    #[error("{0:?} is not a valid server name of a certificate")]
    ServerName(String),
}

/// The protocols that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// HTTP/2 if the server has it, else HTTP/1.1.
    Any,
    /// HTTP/1.1 only: connections that will be upgraded.
    Http1,
}

/// The negotiated protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http2,
    Http1,
}

/// The reason why no connection was made; every waiting request gets a copy.
#[derive(Clone)]
pub(super) enum ConnectError {
    TimedOut,
    Failed(ConnectFailure),
}

/// The opener of connections to one endpoint.
pub(super) struct Connector {
    dialler: Arc<dyn Dial>,
    endpoint: Endpoint,
    tls: ArcSwapOption<Offers>,
}

/// The TLS configuration of each offer.
struct Offers {
    any: TlsConnector,
    http1: TlsConnector,
}

// === impl Endpoint ===

impl Endpoint {
    /// Creates an endpoint at `server`; `config` is used for the scheme `https`.
    ///
    /// `server_name` replaces the URL's host in the verification of the certificate.
    pub fn new(
        server: &Uri,
        config: Arc<ClientConfig>,
        server_name: Option<&str>,
    ) -> Result<Self, EndpointError> {
        let scheme = match server.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS || *scheme == Scheme::HTTP => scheme.clone(),
            _ => return Err(EndpointError::Scheme(server.clone())),
        };
        let authority = match server.authority() {
            Some(authority) if !authority.host().is_empty() => without_user_info(authority),
            _ => return Err(EndpointError::NoHost(server.clone())),
        };
        let tls = if scheme == Scheme::HTTPS {
            let name = server_name.map_or_else(|| bare_host(&authority), str::to_owned);
            let server_name =
                ServerName::try_from(name.clone()).map_err(|_| EndpointError::ServerName(name))?;
            Some(Tls { config, server_name })
        } else {
            None
        };
        let base_path = server.path().trim_end_matches('/').to_owned();
        Ok(Self { scheme, authority, base_path, tls, proxy: None })
    }

    /// Returns the same endpoint, reached through a proxy.
    #[must_use]
    pub fn through(mut self, proxy: HttpProxy) -> Self {
        self.proxy = Some(proxy);
        self
    }

    /// Returns the same endpoint with another TLS configuration.
    #[must_use]
    pub(super) fn with_tls(mut self, config: Arc<ClientConfig>) -> Self {
        if let Some(tls) = &mut self.tls {
            tls.config = config;
        }
        self
    }

    /// Returns host and port as in the server URL.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the path before every request's path; empty for most clusters.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    pub(super) fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub fn host(&self) -> String {
        bare_host(&self.authority)
    }

    /// Returns the port, which the server URL may omit.
    pub fn port(&self) -> u16 {
        let default = if self.tls.is_some() { 443 } else { 80 };
        self.authority.port_u16().unwrap_or(default)
    }
}

fn without_user_info(authority: &Authority) -> Authority {
    let bare = authority.as_str().rsplit_once('@').map(|(_, bare)| bare);
    bare.and_then(|bare| bare.parse().ok()).unwrap_or_else(|| authority.clone())
}

// === impl Connector ===

impl Connector {
    pub(super) fn new(dialler: Arc<dyn Dial>, endpoint: Endpoint) -> Self {
        let tls = ArcSwapOption::from(endpoint.tls.as_ref().map(|tls| Offers::new(&tls.config)));
        Self { dialler, endpoint, tls }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Replaces the TLS configuration of later connections, for example after a certificate was
    /// renewed.
    pub(super) fn replace_tls(&self, config: &ClientConfig) {
        if self.endpoint.tls.is_some() {
            self.tls.store(Some(Offers::new(config)));
        }
    }

    pub(super) async fn connect(
        &self,
        offer: Offer,
    ) -> Result<(Box<dyn Stream>, Protocol), ConnectError> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.connect_slowly(offer))
            .await
            .map_err(|_| ConnectError::TimedOut)?
            .map_err(ConnectError::new)
    }

    async fn connect_slowly(&self, offer: Offer) -> std::io::Result<(Box<dyn Stream>, Protocol)> {
        let endpoint = &self.endpoint;
        let (host, port) = (bare_host(&endpoint.authority), endpoint.port());
        let stream = match &endpoint.proxy {
            None => self.dialler.dial(host, port).await?,
            Some(proxy) => {
                let target = format!("{}:{port}", endpoint.authority.host());
                proxy.dial(&*self.dialler, &target).await?
            }
        };
        let (Some(tls), Some(offers)) = (&endpoint.tls, self.tls.load_full()) else {
            return Ok((stream, Protocol::Http1));
        };
        let connector = match offer {
            Offer::Any => &offers.any,
            Offer::Http1 => &offers.http1,
        };
        // The TLS library reads 4 KiB at a time.
        let stream = BufReader::with_capacity(READ_BYTES, stream);
        let stream = connector.connect(tls.server_name.clone(), stream).await?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Ok((Box::new(stream), protocol))
    }
}

// === impl ConnectError ===

impl ConnectError {
    pub(super) fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Failed(ConnectFailure::new(error))
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::TimedOut => Self::ConnectTimeout,
            ConnectError::Failed(error) => Self::Connect(Box::new(error)),
        }
    }
}

// === impl Offers ===

impl Offers {
    fn new(config: &ClientConfig) -> Arc<Self> {
        let connector = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            TlsConnector::from(Arc::new(config))
        };
        Arc::new(Self { any: connector(&[b"h2", b"http/1.1"]), http1: connector(&[b"http/1.1"]) })
    }
}
