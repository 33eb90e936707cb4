//! CONNECT: clients that take Listless for an HTTP proxy on their way to the apiserver.
//!
//! Invariant: a tunnel leads to nowhere but ourselves. Where the apiserver is, is known from the
//! configuration; a client may only name it, and what it then sends is TLS that ends here and
//! requests that are served like all others. Every other authority is refused.

use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, Response, StatusCode, uri::Authority};
use hyper::{body::Incoming, upgrade::OnUpgrade};

use super::edge::{close, refusal};
use crate::{
    body::Body,
    metrics::{Connect, Metrics},
};

/// The hosts and ports under which clients know the apiserver.
#[derive(Clone, Debug, Default)]
pub struct Authorities(Vec<(String, u16)>);

/// What CONNECT may do on one HTTP/1 connection; clones share what became of it.
#[derive(Clone)]
pub(super) struct Tunnels {
    authorities: Authorities,
    opened: Arc<Mutex<Option<OnUpgrade>>>,
    metrics: Metrics,
    served: Served,
}

/// What else is served on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Every request.
    Everything,
    /// Nothing, for lack of TLS.
    ConnectOnly,
}

/// What pods call the apiserver, without the cluster's domain.
const NAMES_IN_CLUSTER: [&str; 3] = ["kubernetes", "kubernetes.default", "kubernetes.default.svc"];

/// The port of the apiserver's Service.
const PORT_IN_CLUSTER: u16 = 443;

// === impl Authorities ===

impl Authorities {
    /// One more.
    #[must_use]
    pub fn and(mut self, host: &str, port: u16) -> Self {
        self.0.push((host.to_ascii_lowercase(), port));
        self
    }

    /// Those that every pod of a cluster knows.
    #[must_use]
    pub fn and_cluster(self, cluster_domain: &str) -> Self {
        let whole = format!("{}.{cluster_domain}", NAMES_IN_CLUSTER[2]);
        let names = NAMES_IN_CLUSTER.into_iter().chain([whole.as_str()]);
        names.fold(self, |known, name| known.and(name, PORT_IN_CLUSTER))
    }

    /// Whether there are none, so that CONNECT is not served at all.
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
    /// To these, on a connection where `served` says what else is served.
    pub(super) fn new(authorities: &Authorities, metrics: &Metrics, served: Served) -> Self {
        let (authorities, metrics) = (authorities.clone(), metrics.clone());
        Self { authorities, opened: Arc::default(), metrics, served }
    }

    /// To nowhere: a connection that is in a tunnel already.
    pub(super) fn none(metrics: &Metrics) -> Self {
        Self::new(&Authorities::default(), metrics, Served::Everything)
    }

    /// Answers what is no business of who serves requests: CONNECT, and all that comes without TLS.
    pub(super) fn answer(&self, request: &mut Request<Incoming>) -> Option<Response<Body>> {
        if request.method() == Method::CONNECT {
            return Some(self.connect(request));
        }
        (self.served == Served::ConnectOnly).then(|| {
            let message = "without TLS only CONNECT is served here; use https";
            closing(refusal(StatusCode::BAD_REQUEST, "BadRequest", message))
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
        let message =
            format!("CONNECT to {asked:?} is forbidden: listless leads to its own apiserver only");
        closing(refusal(StatusCode::FORBIDDEN, "Forbidden", &message))
    }

    /// The tunnel that was opened, once its connection is no longer HTTP.
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

/// Where CONNECT leads nowhere at all.
pub(super) fn not_supported() -> Response<Body> {
    let reason = "MethodNotAllowed";
    refusal(StatusCode::METHOD_NOT_ALLOWED, reason, "CONNECT is not supported here")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_and_ports_that_are_known_lead_somewhere() {
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
