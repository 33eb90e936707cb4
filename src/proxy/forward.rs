//! Sends a request to the apiserver and streams its response back.
//!
//! The request changes only where HTTP requires it: hop-by-hop headers, and the query if the plan
//! says so. Listless adds its identity to no other caller's request: it carries only the caller's
//! own credential. The session learns from a response before the client has all of it (see
//! `learn`).

mod learn;

use std::{net::IpAddr, sync::Arc};

use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header, request,
    uri::PathAndQuery,
};
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use crate::{
    api::{
        Verb,
        request::{Outline, RequestInfo, ResourceRequest},
    },
    body::Body,
    cache::Cache,
    insight::{Insight, WriteObserver},
    metrics::Metrics,
    proxy::{
        SharedSession,
        decide::Rewriting,
        identify::{self, Caller, Unauthenticated},
    },
    upstream::{self, Client, Lane, Own, Peer, Pool},
};

pub(super) use learn::ListContent;
use learn::{Armed, Learning, LearningPair, WatchLearning};

/// The clients to the apiserver, and the counters of forwarded requests.
pub struct Forwarder {
    clients: Clients,
    cache: Cache,
    insight: Insight,
    metrics: Metrics,
}

/// The learners from a response; an unauthenticated caller has none.
#[derive(Clone, Copy)]
pub struct Learners<'a> {
    /// The session of the request.
    pub session: &'a SharedSession,
    /// The session as mode `enforce` would have it, and the rewriting the request would have.
    pub predicted: Option<(&'a SharedSession, &'a Rewriting)>,
    /// The observer of the changes by a write.
    pub write_observer: Option<&'a WriteObserver>,
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    /// The caller that it identifies as.
    pub caller: Caller,
    /// The address that it comes from.
    pub peer: IpAddr,
}

/// The clients to the apiserver, by identity.
#[derive(Clone)]
pub struct Clients {
    /// The client with the identity that Listless reads with.
    pub own: Arc<dyn Client>,
    /// The same, for requests to impersonate the user that they name: the apiserver decides whether
    /// it may.
    pub impersonating: Arc<dyn Client>,
    /// The client that sends only what the caller sent.
    pub plain: Arc<dyn Client>,
}

/// The parameter that sets the timeout of a watch.
const TIME_LIMIT: &str = "timeoutSeconds=";

// === impl Clients ===

impl Clients {
    /// Creates the clients of real connections.
    pub fn new(plain: Pool, own: Own) -> Self {
        Self {
            impersonating: Arc::new(own.clone().allowing_impersonation()),
            own: Arc::new(own),
            plain: Arc::new(plain),
        }
    }
}

// === impl Learners ===

impl<'a> Learners<'a> {
    /// Returns the session itself as the only learner.
    pub fn one(session: &'a SharedSession) -> Self {
        Self { session, predicted: None, write_observer: None }
    }

    fn learning(
        &self,
        request: &ResourceRequest,
        rewriting: &Rewriting,
        (cache, metrics): (&Cache, &Metrics),
    ) -> LearningPair {
        let now = Instant::now();
        let predicted = self.predicted.map(|(session, rewriting)| {
            Learning::of(request, rewriting, session, now).beside(cache)
        });
        LearningPair {
            session: Learning::of(request, rewriting, self.session, now)
                .beside(cache)
                .seen_by(self.write_observer.cloned())
                .counted_in(metrics),
            predicted: predicted.unwrap_or_else(Learning::none),
        }
    }
}

// === impl Forwarder ===

impl Forwarder {
    /// Creates a forwarder that sends through `clients` and counts its requests.
    pub fn new(clients: Clients, cache: Cache, insight: Insight, metrics: Metrics) -> Self {
        Self { clients, cache, insight, metrics }
    }

    /// Forwards a request; the learners learn from the response.
    pub async fn forward(
        &self,
        sender: Sender,
        info: &RequestInfo,
        rewriting: &Rewriting,
        request: Request<Incoming>,
        learners: Learners<'_>,
    ) -> Result<Response<Body>, upstream::Error> {
        self.insight.passed_on();
        let learning = |rewriting: &Rewriting| match (sender.caller, info) {
            (Caller::Own | Caller::Bearer(_), RequestInfo::Resource(resource)) => {
                learners.learning(resource, rewriting, (&self.cache, &self.metrics))
            }
            _ => LearningPair { session: Learning::none(), predicted: Learning::none() },
        };
        if is_upgrade(request.headers()) {
            let target = target(request.uri(), rewriting, info);
            let outline = info.outline();
            return self.upgrade(sender, request, target, outline, learning(rewriting)).await;
        }
        let as_asked = path_and_query(request.uri());
        let target = target(request.uri(), rewriting, info);
        let request = outgoing(request, target);
        if matches!(rewriting, Rewriting::Keep | Rewriting::Brief(_)) {
            let learning = learning(rewriting);
            return self.send(sender, info, request.map(Body::incoming), learning).await;
        }
        let (head, _) = request.into_parts();
        let relaxed = without_body(&head, head.uri.clone());
        let response = self.send(sender, info, relaxed, learning(rewriting)).await?;
        // An added version must not cost the client a response: its own read names none.
        if !is_about_version(response.status()) {
            return Ok(response);
        }
        let as_it_came = without_body(&head, as_asked);
        self.send(sender, info, as_it_came, learning(&Rewriting::Keep)).await
    }

    /// Sends a short request of Listless's own user; nothing is learned from its response.
    pub async fn send_own(
        &self,
        request: Request<Body>,
    ) -> Result<Response<Body>, upstream::Error> {
        let target = path_and_query(request.uri());
        let mut response = self.clients.own.send(outgoing(request, target), Lane::Short).await?;
        strip_hop_by_hop(response.headers_mut());
        Ok(response)
    }

    async fn send(
        &self,
        Sender { caller, peer }: Sender,
        info: &RequestInfo,
        mut request: Request<Body>,
        learning: LearningPair,
    ) -> Result<Response<Body>, upstream::Error> {
        request.extensions_mut().insert(Peer(peer));
        let armed = Armed::new(learning);
        match self.client(caller).send_read(request, lane(info), info.outline()).await {
            Ok(mut response) => {
                strip_hop_by_hop(response.headers_mut());
                Ok(armed.disarm().learn(response))
            }
            Err(error) => {
                armed.disarm().failed(&error);
                Err(error)
            }
        }
    }

    async fn upgrade(
        &self,
        Sender { caller, peer }: Sender,
        mut request: Request<Incoming>,
        target: Uri,
        outline: Outline,
        learning: LearningPair,
    ) -> Result<Response<Body>, upstream::Error> {
        let downstream = hyper::upgrade::on(&mut request);
        let upgrade: Vec<HeaderValue> =
            request.headers().get_all(header::UPGRADE).iter().cloned().collect();
        let mut request = outgoing(request, target);
        for value in upgrade {
            request.headers_mut().append(header::UPGRADE, value);
        }
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        request.extensions_mut().insert(Peer(peer));
        let armed = Armed::new(learning);
        let mut response =
            match self.client(caller).upgrade_read(request.map(Body::incoming), outline).await {
                Ok(response) => response,
                Err(error) => {
                    armed.disarm().failed(&error);
                    return Err(error);
                }
            };
        let learning = armed.disarm();
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            strip_hop_by_hop(response.headers_mut());
            return Ok(learning.learn(response));
        }
        let upstream = hyper::upgrade::on(&mut response);
        let learning = learning.watch_tunnel();
        tokio::spawn(async move {
            let outcome = tunnel(downstream, upstream, learning).await;
            tracing::debug!(?outcome, "tunnel ended");
        });
        Ok(response)
    }

    fn client(&self, caller: Caller) -> &dyn Client {
        match caller {
            Caller::Own => &*self.clients.own,
            Caller::Other(Unauthenticated::Impersonating) => &*self.clients.impersonating,
            Caller::Bearer(_)
            | Caller::Other(
                Unauthenticated::NoCredential
                | Unauthenticated::OtherCredential
                | Unauthenticated::ImpersonatingBearer
                | Unauthenticated::SafeMode,
            ) => &*self.clients.plain,
        }
    }
}

/// Copies bytes both ways until both sides have ended; parses a watch in them.
async fn tunnel(
    downstream: OnUpgrade,
    upstream: OnUpgrade,
    learning: WatchLearning,
) -> std::io::Result<(u64, u64)> {
    let (downstream, upstream) =
        tokio::try_join!(downstream, upstream).map_err(std::io::Error::other)?;
    let upstream = learning.read_along_io(TokioIo::new(upstream));
    upstream::tunnel::splice(TokioIo::new(downstream), upstream).await
}

/// Returns the lane of a request: long-lived streams must not block short requests.
fn lane(info: &RequestInfo) -> Lane {
    let RequestInfo::Resource(request) = info else { return Lane::Short };
    let streams = matches!(
        request.subresource.as_deref(),
        Some("log" | "exec" | "attach" | "portforward" | "proxy")
    );
    if request.verb == Verb::Watch || streams { Lane::Long } else { Lane::Short }
}

/// Returns the target of the upstream request.
fn target(uri: &Uri, rewriting: &Rewriting, info: &RequestInfo) -> Uri {
    match info {
        RequestInfo::Resource(resource) => rewritten(uri, rewriting, resource),
        RequestInfo::NonResource(_) => path_and_query(uri),
    }
}

fn outgoing<B>(request: Request<B>, target: Uri) -> Request<B> {
    let (mut parts, body) = request.into_parts();
    parts.uri = target;
    strip_hop_by_hop(&mut parts.headers);
    strip_remote_user(&mut parts.headers);
    parts.headers.remove(header::HOST);
    parts.version = http::Version::default();
    parts.extensions.clear();
    Request::from_parts(parts, body)
}

fn path_and_query(uri: &Uri) -> Uri {
    let target = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    Uri::from(target)
}

/// Copies a request for another target; called only for reads, which have no body.
fn without_body(head: &request::Parts, target: Uri) -> Request<Body> {
    let mut copy = Request::new(Body::empty());
    *copy.method_mut() = head.method.clone();
    *copy.uri_mut() = target;
    *copy.headers_mut() = head.headers.clone();
    copy
}

/// Reports whether the version that a read names can cause this status (S-LIST-40..41).
fn is_about_version(code: StatusCode) -> bool {
    code == StatusCode::GONE || code == StatusCode::GATEWAY_TIMEOUT
}

/// Returns the target with an added resource version, for reads without one, or with another
/// timeout, for watches.
fn rewritten(uri: &Uri, rewriting: &Rewriting, request: &ResourceRequest) -> Uri {
    let added = match rewriting {
        Rewriting::Keep => return path_and_query(uri),
        Rewriting::Any => "resourceVersion=0".to_owned(),
        // A GET has no resourceVersionMatch (S-GET-05).
        Rewriting::NotOlderThan(version) if request.verb == Verb::Get => {
            format!("resourceVersion={version}")
        }
        Rewriting::NotOlderThan(version) => {
            format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan")
        }
        Rewriting::Brief(length) => format!("{TIME_LIMIT}{}", length.as_secs()),
    };
    let target = match uri.query() {
        Some(query) if matches!(rewriting, Rewriting::Brief(_)) => {
            let kept = query.split('&').filter(|pair| !pair.starts_with(TIME_LIMIT));
            // The first of several values counts, however its name is encoded (S-URL-06).
            let all: Vec<&str> = [&*added].into_iter().chain(kept).collect();
            format!("{}?{}", uri.path(), all.join("&"))
        }
        Some(query) if !query.is_empty() => format!("{}?{query}&{added}", uri.path()),
        _ => format!("{}?{added}", uri.path()),
    };
    target.parse().unwrap_or_else(|_| path_and_query(uri))
}

/// Reports whether the client asks for another protocol on this connection (S-NET-04).
fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
        && headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .any(|token| token.trim().eq_ignore_ascii_case("upgrade"))
}

/// Removes headers that belong to one connection only (RFC 9110, section 7.6.1).
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|token| token.trim().parse().ok())
        .collect();
    for name in named {
        // A client must not be able to remove its credential or other end-to-end fields.
        if !is_end_to_end(&name) {
            headers.remove(name);
        }
    }
    for name in [
        header::CONNECTION,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ] {
        headers.remove(name);
    }
    for name in ["keep-alive", "proxy-connection"] {
        headers.remove(name);
    }
}

fn is_end_to_end(name: &HeaderName) -> bool {
    [header::AUTHORIZATION, header::CONTENT_LENGTH, header::CONTENT_TYPE, header::HOST]
        .contains(name)
        || identify::is_impersonation(name)
}

fn strip_remote_user(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        headers.keys().filter(|name| identify::is_remote_user(name)).cloned().collect();
    for name in named {
        headers.remove(name);
    }
}
