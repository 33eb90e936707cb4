//! The way from the proxy to the apiserver, as tests see it: the caller, the request and its
//! wording.

use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Request, Response, header::AUTHORIZATION};
use listless::{
    api::Verb,
    body::Body,
    simulator::Asked,
    upstream::{Client, Error, Lane},
};

use super::OWN_TOKEN;

/// The identity of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Listless's own.
    Own,
    /// Listless's own, with impersonation of another user.
    Impersonating,
    /// The caller's own credentials.
    Plain,
}

/// One request as it left the proxy, before our own credential was added.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The identity it was sent with.
    pub(crate) identity: Identity,
    /// Its method and target.
    pub(crate) asked: Asked,
    /// Its headers.
    pub(crate) headers: HeaderMap,
}

/// The requests so far; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Requests(Arc<Mutex<Vec<Seen>>>);

/// A client that records its requests, and signs them as the real ones do.
pub(crate) struct Upstream {
    target: Arc<dyn Client>,
    identity: Identity,
    requests: Requests,
}

// === impl Seen ===

impl Seen {
    /// Reports whether Listless sends it from time to time, whatever its clients do.
    fn is_upkeep(&self) -> bool {
        let is_ours = self.asked.user_agent.starts_with("listless/");
        self.is_check() || is_ours && self.asked.path_and_query == "/version"
    }

    /// Reports whether it is a consistency check of a replica.
    fn is_check(&self) -> bool {
        self.identity == Identity::Own && is_check(&self.asked)
    }
}

/// Reports whether a request of Listless's own is a consistency check.
pub(crate) fn is_check(asked: &Asked) -> bool {
    asked.user_agent.starts_with("listless/")
        && asked.path_and_query.contains("resourceVersionMatch=Exact")
}

// === impl Requests ===

impl Requests {
    /// The consistency checks of replicas, in order.
    pub(crate) fn checks(&self) -> Vec<Seen> {
        self.everything().into_iter().filter(Seen::is_check).collect()
    }

    /// All of them, in order.
    pub(crate) fn everything(&self) -> Vec<Seen> {
        self.0.lock().expect("no panic holds it").clone()
    }

    /// Returns all of them except consistency checks and those for the apiserver's release, in order.
    pub(crate) fn all(&self) -> Vec<Seen> {
        self.everything().into_iter().filter(|seen| !seen.is_upkeep()).collect()
    }

    /// Returns path and query of those with this verb for this resource.
    pub(crate) fn targets(&self, verb: Verb, resource: &str) -> Vec<String> {
        let fits = |seen: &Seen| seen.asked.verb == verb && seen.asked.resource == resource;
        self.all().into_iter().filter(fits).map(|seen| seen.asked.path_and_query).collect()
    }

    /// Counts those with this verb for this resource.
    pub(crate) fn count(&self, verb: Verb, resource: &str) -> usize {
        self.targets(verb, resource).len()
    }

    /// Counts the access reviews.
    pub(crate) fn reviews(&self) -> usize {
        let kinds = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
        kinds.map(|kind| self.count(Verb::Create, kind)).iter().sum()
    }

    /// The last of them.
    pub(crate) fn last(&self) -> Seen {
        self.all().pop().expect("a request upstream")
    }

    /// Forgets them.
    pub(crate) fn forget(&self) {
        self.0.lock().expect("no panic holds it").clear();
    }
}

// === impl Upstream ===

impl Upstream {
    /// Sends to `target` and records the request in `requests`.
    pub(crate) fn new(target: Arc<dyn Client>, identity: Identity, requests: Requests) -> Self {
        Self { target, identity, requests }
    }

    fn note(&self, request: &mut Request<Body>) {
        let (asked, _, _) = Asked::read(request);
        let seen = Seen { identity: self.identity, asked, headers: request.headers().clone() };
        self.requests.0.lock().expect("no panic holds it").push(seen);
        if self.identity != Identity::Plain {
            let own = HeaderValue::from_str(&format!("Bearer {OWN_TOKEN}")).expect("a text");
            request.headers_mut().insert(AUTHORIZATION, own);
        }
    }
}

impl Client for Upstream {
    fn send(
        &self,
        mut request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.note(&mut request);
        self.target.send(request, lane)
    }

    fn upgrade(
        &self,
        mut request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.note(&mut request);
        self.target.upgrade(request)
    }
}
