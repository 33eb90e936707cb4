//! CONNECT, for clients that use Listless as an HTTP proxy to the apiserver.
//!
//! Invariant: a tunnel leads only to Listless itself. The apiserver's address comes from the
//! configuration; a client can only name it. The bytes in the tunnel are TLS that ends here, and
//! requests that are served like all others. Every other authority is refused.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response, StatusCode, uri::Authority};
use hyper::{body::Incoming, upgrade::OnUpgrade};

use super::edge::{bad_request, close, refusal};
use crate::{
    body::Body,
    metrics::{Connect, EdgeRefusal, Metrics},
};

/// The hosts and ports by which clients know the apiserver.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Vec<(String, u16)>);

/// The allowed CONNECT requests of one HTTP/1 connection; clones share the opened tunnel.
#[derive(Clone)]
pub(super) struct Tunnels {
    authorities: Authorities,
    opened: Arc<Mutex<Option<OnUpgrade>>>,
    metrics: Metrics,
    served: Served,
}

/// The other requests that are served on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Every request.
    Everything,
    /// None, because the connection has no TLS.
    ConnectOnly,
}

/// The apiserver's names for pods, without the cluster's domain.
const NAMES_IN_CLUSTER: [&str; 3] = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// The port of the apiserver's Service.
const PORT_IN_CLUSTER: u16 = 443;

// === impl Authorities ===

impl Authorities {
    /// Adds an authority.
    #[must_use]
    pub fn and(mut self, host: &str, port: u16) -> Self {
        self.0.push((host.to_ascii_lowercase(), port));
        self
    }

    /// Adds the authorities that every pod of a cluster knows.
    #[must_use]
    pub fn and_cluster(self, cluster_domain: &str) -> Self {
        let whole = format!("{}.{cluster_domain}", NAMES_IN_CLUSTER[2]);
        let names = NAMES_IN_CLUSTER.into_iter().chain([whole.as_str()]);
        names.fold(self, |known, name| known.and(name, PORT_IN_CLUSTER))
    }

    /// Reports whether there are none; CONNECT is then refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contain(&self, asked: &Authority) -> bool {
        let host = asked.host().trim_start_matches('[').trim_end_matches(']');
        let is_it = |(name, port): &(String, u16)| {
            name.eq_ignore_ascii_case(host) && asked.port_u16() == Some(*port)
        };
        // User information has no meaning here and would only hide the host from a reader.
        !asked.as_str().contains('@') && self.0.iter().any(is_it)
    }
}

// === impl Tunnels ===

impl Tunnels {
    /// Creates tunnels to these authorities; `served` selects the other requests of the connection.
    pub(super) fn new(authorities: &Authorities, metrics: &Metrics, served: Served) -> Self {
        let (authorities, metrics) = (authorities.clone(), metrics.clone());
        Self { authorities, opened: Arc::default(), metrics, served }
    }

    /// Creates tunnels to no target, for a connection that is in a tunnel already.
    pub(super) fn none(metrics: &Metrics) -> Self {
        Self::new(&Authorities::default(), metrics, Served::Everything)
    }

    /// Responds to CONNECT and to requests without TLS, which the request handler must not see.
    pub(super) fn answer(&self, request: &mut Request<Incoming>) -> Option<Response<Body>> {
        if request.method() == Method::CONNECT {
            return Some(self.connect(request));
        }
        (self.served == Served::ConnectOnly).then(|| {
            let message = "without TLS only CONNECT is served here; use https";
            closing(bad_request(EdgeRefusal::Plain, message))
        })
    }

    fn connect(&self, request: &mut Request<Incoming>) -> Response<Body> {
        if self.authorities.is_empty() {
            return closing(not_supported());
        }
        let asked = request.uri().authority();
        if asked.is_some_and(|asked| self.authorities.contain(asked)) {
            *self.lock() = Some(hyper::upgrade::on(request));
            self.metrics.connect(Connect::Opened);
            return Response::new(Body::empty());
        }
        self.metrics.connect(Connect::Refused);
        let asked = asked.map_or("", Authority::as_str);
        let message = format!(
            "CONNECT to {asked:?} is forbidden: listless connects to its own apiserver only"
        );
        closing(refusal(EdgeRefusal::Connect, StatusCode::FORBIDDEN, "Forbidden", &message))
    }

    /// Returns the tunnel that was opened, once its connection is no longer HTTP.
    pub(super) fn take(&self) -> Option<OnUpgrade> {
        self.lock().take()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<OnUpgrade>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closing(mut response: Response<Body>) -> Response<Body> {
    close(&mut response);
    response
}

/// Returns the response of a listener that has no CONNECT targets.
pub(super) fn not_supported() -> Response<Body> {
    let (code, reason) = (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed");
    refusal(EdgeRefusal::Connect, code, reason, "CONNECT is not supported here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_accepts_only_known_names_and_ports() {
        let known = Authorities::default()
            .and("Api.Example.com", 6443)
            .and("10.0.0.1", 443)
            .and("fd00::1", 443)
            .and_cluster("cluster.local");
        let leads = |text: &str| known.contain(&text.parse().expect("an authority"));
        for text in [
            "api.example.com:6443",
            "API.example.COM:6443",
            "10.0.0.1:443",
            "[fd00::1]:443",
            "kubernetes.default.svc:443",
            "kubernetes.default.svc.cluster.local:443",
            "kubernetes:443",
        ] {
            assert!(leads(text), "{text}");
        }
        for text in [
            "api.example.com",
            "api.example.com:443",
            "api.example.com.:6443",
            "user@api.example.com:6443",
            "evil.example.com:6443",
            "api.example.com.evil.com:6443",
            "10.0.0.1:6443",
            "kubernetes.default.svc:6443",
            "[fd00::2]:443",
        ] {
            assert!(!leads(text), "{text}");
        }
    }
}
