//! The connections to one apiserver, shared by all requests that may share them.
//!
//! Invariants: long requests never take a slot from short ones. A request is sent again only if the
//! apiserver certainly never processed it. Requests whose credential was not accepted yet have
//! their own connections, of which one address takes a part, for as long as it reads. No credential is
//! added here.

mod backlog;
mod http1;
mod http2;
mod lane;
mod stream;
mod trust;
mod unread;

use std::{hash::Hash, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, Uri,
    header::{CONNECTION, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE},
    uri::{self, PathAndQuery},
};

use self::{
    backlog::Backlog,
    http2::RequestFailure,
    lane::{Growth, Lane, Lease},
    stream::Budget,
    trust::Trust,
};
pub use self::{backlog::Unread, trust::Judgement};
use super::{
    Client, Error, Peer,
    connect::{Connector, Endpoint},
    dial::Dial,
    tunnel::{TunnelSender, Tunnels},
};
use crate::{
    body::Body,
    shares::{Network, SharePlace, Shares},
};

/// The limit of attempts for one request that the apiserver keeps refusing unprocessed.
const ATTEMPTS_MAX: usize = 3;

/// The limit of closing connections that one request meets. An apiserver that ends says so on all of
/// its connections, and each is found out by a request.
const CLOSING_MAX: usize = 64;

#[cfg(test)]
pub(super) use self::{backlog::UNREAD_BYTES_MAX, stream::KEPT_BYTES_MAX};

/// The headers that belong to one HTTP/1.1 connection, besides those that `Connection` names.
const CONNECTION_HEADERS: [HeaderName; 5] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TRANSFER_ENCODING,
    UPGRADE,
    // The body is sent at once, without a wait for `100 Continue`.
    EXPECT,
];

/// The limits of a pool.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Concurrent requests on one HTTP/2 connection, if the server allows as many.
    pub streams_max: usize,
    /// HTTP/2 connections for short requests.
    pub short_connections_max: usize,
    /// HTTP/2 connections for watches and other long requests.
    pub long_connections_max: usize,
    /// HTTP/2 connections per lane for requests whose credential was not accepted yet.
    pub unproven_connections_max: usize,
    /// HTTP/1.1 connections per lane, for servers without HTTP/2.
    pub http1_connections_max: usize,
    /// Requests per lane that may wait for a slot.
    pub waiting_max: usize,
    /// The longest wait of a request for a slot.
    pub wait_max: Duration,
    /// Upgraded connections.
    pub tunnels_max: usize,
    /// The time for which an unused connection is kept.
    pub idle_timeout: Duration,
    /// The interval of pings.
    pub ping_interval: Duration,
    /// The timeout of a ping.
    pub ping_timeout: Duration,
}

/// A [`Client`] that forwards requests with their own credentials.
#[derive(Clone)]
pub struct Pool {
    connector: Arc<Connector>,
    host: HeaderValue,
    proven: Lanes,
    unproven: Lanes,
    /// The accepted credentials; absent if every connection itself authenticates its sender.
    trust: Option<Arc<Trust>>,
    shares: Arc<PoolShares>,
    tunnels: Tunnels,
}

/// The memory of requests that may share connections, all together.
#[derive(Clone, Default)]
struct Memory {
    /// For bodies that may be sent again.
    kept: Budget,
    /// For responses.
    unread: Backlog,
}

/// The two lanes of requests that may share connections.
#[derive(Clone)]
struct Lanes {
    short: Arc<Lane>,
    long: Arc<Lane>,
}

/// The shares of senders in lanes.
struct PoolShares {
    /// The shares of accepted credentials, by keyed hashes.
    proven: LaneShares<u64>,
    /// The shares of networks without an accepted credential.
    unproven: LaneShares<Network>,
}

struct LaneShares<S> {
    short: Shares<S>,
    long: Shares<S>,
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        Self {
            streams_max: 100,
            short_connections_max: 4,
            long_connections_max: 64,
            unproven_connections_max: 4,
            http1_connections_max: 256,
            waiting_max: 1024,
            wait_max: Duration::from_secs(10),
            tunnels_max: 1024,
            idle_timeout: Duration::from_secs(90),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(5),
        }
    }
}

// === impl Pool ===

impl Pool {
    /// Creates a pool of connections to `endpoint`; nothing is dialled before the first request.
    pub fn new(dialler: Arc<dyn Dial>, endpoint: Endpoint, settings: Settings) -> Self {
        let host = HeaderValue::from_str(endpoint.authority().as_str())
            .expect("an authority is made of visible ASCII");
        let connector = Arc::new(Connector::new(dialler, endpoint));
        let (short_busy, long_busy) = (settings.streams_max / 4, settings.streams_max * 3 / 4);
        let lanes = |short_max, long_max| {
            let memory = Memory::default();
            let lane = |connections_max, busy_at| {
                let growth = Growth { connections_max, busy_at };
                Lane::new(Arc::clone(&connector), settings.clone(), growth, memory.clone())
            };
            Lanes { short: lane(short_max, short_busy), long: lane(long_max, long_busy) }
        };
        let (short_max, long_max) = (settings.short_connections_max, settings.long_connections_max);
        let unproven_max = settings.unproven_connections_max;
        let (proven, unproven) = (lanes(short_max, long_max), lanes(unproven_max, unproven_max));
        let tunnels = Tunnels::new(Arc::clone(&connector), settings.tunnels_max);
        let shares = Arc::new(PoolShares {
            proven: LaneShares::new(&settings, short_max, long_max),
            unproven: LaneShares::new(&settings, unproven_max, unproven_max),
        });
        Self { connector, host, proven, unproven, trust: Some(Arc::default()), shares, tunnels }
    }

    /// Returns the same for requests that all come from one user, authenticated by a client
    /// certificate.
    #[must_use]
    pub fn of_one_user(self) -> Self {
        Self { trust: None, ..self }
    }

    /// Uses another TLS configuration, and new connections, for later requests.
    pub fn replace_tls(&self, config: &rustls::ClientConfig) {
        self.connector.replace_tls(config);
        for lanes in [&self.proven, &self.unproven] {
            lanes.short.retire_all();
            lanes.long.retire_all();
        }
    }

    async fn send_apart(
        &self,
        request: Request<Body>,
        lane: super::Lane,
    ) -> Result<Response<Body>, Error> {
        let Some(trust) = &self.trust else {
            return self.send(request, self.proven.of(lane)).await;
        };
        let credential = trust.credential(&request);
        let Some(accepted) = trust.accepted(credential) else {
            let place = match request.extensions().get() {
                Some(Peer(address)) => {
                    Some(self.shares.unproven.take(lane, Network::from(*address)).await?)
                }
                None => None,
            };
            let response = self.send(request, self.unproven.of(lane)).await?;
            trust.learn(credential, &response);
            // An accepted one holds none: many callers may share an address.
            let place = place.filter(|_| trust.accepted(credential).is_none());
            return Ok(response.map(|body| unread::bounded(body.holding(place))));
        };
        let place = self.shares.proven.take(lane, accepted).await?;
        let response = self.send(request, self.proven.of(lane)).await?;
        trust.learn(credential, &response);
        Ok(response.map(|body| body.holding(place)))
    }

    async fn send(
        &self,
        request: Request<Body>,
        lane: &Arc<Lane>,
    ) -> Result<Response<Body>, Error> {
        let (mut head, mut body) = request.into_parts();
        head.uri = self.uri(&head.uri)?;
        head.extensions.clear();
        strip_connection_headers(&mut head.headers);
        head.headers.remove(HOST);
        let (mut attempt, mut closing) = (1, 0);
        loop {
            let outcome = match lane.acquire().await? {
                Lease::Http2(connection, slot) => connection.send(&head, body, slot).await,
                Lease::Http1(connection) => {
                    connection.send(&head, body, &self.host, Arc::downgrade(lane)).await
                }
            };
            match outcome {
                Ok(response) => return final_answer(response),
                Err(RequestFailure::Broken(error)) => return Err(Error::Broken(error)),
                Err(RequestFailure::RequestBody(error)) => return Err(Error::RequestBody(error)),
                Err(RequestFailure::Unsent(_, error)) if attempt == ATTEMPTS_MAX => {
                    return Err(Error::Connect(error));
                }
                Err(RequestFailure::Unopened(_, error)) if closing == CLOSING_MAX => {
                    return Err(Error::Connect(error));
                }
                Err(RequestFailure::Unopened(unsent, _)) => {
                    body = *unsent;
                    closing += 1;
                }
                Err(RequestFailure::Unsent(unsent, _)) => {
                    body = *unsent;
                    attempt += 1;
                }
            }
        }
    }

    async fn open_tunnel(&self, mut request: Request<Body>) -> Result<Response<Body>, Error> {
        *request.uri_mut() =
            self.uri(request.uri())?.into_parts().path_and_query.map(Uri::from).unwrap_or_default();
        let peer = request.extensions().get().map(|Peer(address)| Network::from(*address));
        request.extensions_mut().clear();
        let Some(trust) = &self.trust else {
            return self.tunnels.open(request, &self.host, TunnelSender::OnlyUser).await;
        };
        let credential = trust.credential(&request);
        let sender = trust.accepted(credential);
        let sender = sender.map_or(TunnelSender::Unaccepted(peer), TunnelSender::Accepted);
        let response = self.tunnels.open(request, &self.host, sender).await?;
        trust.learn(credential, &response);
        Ok(response)
    }

    /// Returns the URI of the request at the endpoint.
    fn uri(&self, asked: &Uri) -> Result<Uri, Error> {
        let endpoint = self.connector.endpoint();
        let path = match (asked.path_and_query(), endpoint.base_path()) {
            (Some(path), "") => Ok(path.clone()),
            (Some(path), base) => PathAndQuery::try_from(format!("{base}{path}")),
            (None, base) => PathAndQuery::try_from(format!("{base}/")),
        };
        let path = path.map_err(|error| Error::Connect(error.into()))?;
        let mut parts = uri::Parts::default();
        parts.scheme = Some(endpoint.scheme().clone());
        parts.authority = Some(endpoint.authority().clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).map_err(|error| Error::Connect(error.into()))
    }
}

// === impl Lanes ===

impl Lanes {
    fn of(&self, lane: super::Lane) -> &Arc<Lane> {
        match lane {
            super::Lane::Short => &self.short,
            super::Lane::Long => &self.long,
        }
    }
}

// === impl LaneShares ===

impl<S: Copy + Eq + Hash> LaneShares<S> {
    fn new(settings: &Settings, short_connections: usize, long_connections: usize) -> Self {
        let share = |connections| {
            let places = connections * settings.streams_max;
            Shares::new(places, settings.waiting_max, settings.wait_max)
        };
        Self { short: share(short_connections), long: share(long_connections) }
    }

    async fn take(&self, lane: super::Lane, sender: S) -> Result<SharePlace, Error> {
        let shares = match lane {
            super::Lane::Short => &self.short,
            super::Lane::Long => &self.long,
        };
        shares.take(sender).await.ok_or(Error::Saturated("upstream places of one caller"))
    }
}

impl Client for Pool {
    fn send(
        &self,
        request: Request<Body>,
        lane: super::Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let pool = self.clone();
        Box::pin(async move { pool.send_apart(request, lane).await })
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let pool = self.clone();
        Box::pin(async move { pool.open_tunnel(request).await })
    }
}

/// Rejects a switch of protocols that the request did not ask for. Its connection is dropped.
fn final_answer(response: Response<Body>) -> Result<Response<Body>, Error> {
    if response.status().is_informational() {
        return Err(Error::Broken(format!("unexpected response {}", response.status()).into()));
    }
    Ok(response)
}

fn strip_connection_headers(headers: &mut HeaderMap) {
    if let Some(named) = headers.remove(CONNECTION) {
        for name in named.to_str().unwrap_or_default().split(',') {
            headers.remove(name.trim());
        }
    }
    for name in &CONNECTION_HEADERS {
        headers.remove(name);
    }
    if headers.get(TE).is_some_and(|value| value != "trailers") {
        headers.remove(TE);
    }
}
