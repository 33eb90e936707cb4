//! The listener: sockets, TLS, HTTP/1.1 and HTTP/2, limits, and a graceful drain.
//!
//! Invariants: a request with ambiguous framing is answered with 400 and its connection is closed,
//! before any other code sees it. The numbers of connections and requests are limited. A drain ends
//! within its deadline. This module does not interpret requests.

mod connect;
pub(super) mod edge;
mod guard;
mod listener;
mod socket;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

pub use self::connect::Authorities;
use self::listener::Listener;
use crate::{
    body::Body,
    connection_limit::{Bounds, ConnectionLimit, Full},
    metrics::{Limit, Metrics},
    tls,
};

/// The pause when the process has no file descriptor left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A bound, listening socket.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// The reason why a socket could not be bound; names the flag that asked for it.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {address}: cannot listen on this address")]
pub struct BindError {
    flag: &'static str,
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// The limits of a listener.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Concurrent connections, tunnels included.
    pub connections_max: usize,
    /// Concurrent connections of one IP address, unless it is loopback.
    pub connections_per_peer_max: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// Concurrent requests on all connections, watches included.
    pub requests_max: usize,
    /// Concurrent requests of one IP address, unless it is loopback.
    pub requests_per_peer_max: usize,
    /// The timeout of a TLS handshake.
    pub handshake_timeout: Duration,
    /// The timeout of a request's head, from its first byte.
    pub head_timeout: Duration,
    /// The longest idle time of a connection between requests.
    pub idle_timeout: Duration,
    /// The largest request head.
    pub head_bytes_max: usize,
}

/// The end of a listener.
#[derive(Clone, Debug)]
pub struct Drain {
    /// A token that is cancelled when no more connections should be accepted.
    pub begin: CancellationToken,
    /// The time that running requests get after that.
    pub deadline: Duration,
}

/// The HTTP version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// A client's connection.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The id, unique within the process.
    pub id: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// The HTTP version.
    pub protocol: Protocol,
    /// The TLS version; absent on a plaintext listener.
    pub tls: Option<rustls::ProtocolVersion>,
}

/// A handler of requests.
pub trait Serve: Send + Sync + 'static {
    /// Responds to one request; a failure is an error response.
    fn serve(
        &self,
        connection: &Connection,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// The TLS settings of a listener, and the targets of its CONNECT.
#[derive(Clone, Default)]
pub struct ListenerTls {
    /// The TLS configuration; without one, everything is served in plaintext.
    pub tls: Option<tls::Server>,
    /// The targets that CONNECT accepts, with the same TLS inside; if empty, CONNECT is refused.
    pub authorities: Authorities,
}

// === impl Bound ===

impl Bound {
    /// Binds `address`; `flag` is the operator's flag for it.
    pub async fn bind(flag: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { flag, address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Adopts a socket that another process has bound, such as a supervisor.
    pub fn inherit(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener: TcpListener::from_std(listener)?, address })
    }

    /// Returns the address, with the port that was bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            connections_per_peer_max: 1024,
            streams_max: 250,
            requests_max: 16_384,
            requests_per_peer_max: 4096,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(180),
            head_bytes_max: 64 * 1024,
        }
    }
}

impl Limits {
    /// Returns the pool of connection slots, which also counts requests.
    pub fn connection_limit(&self) -> ConnectionLimit {
        ConnectionLimit::new(Bounds {
            all_max: self.connections_max,
            per_peer_max: self.connections_per_peer_max,
            requests_max: self.requests_max,
            requests_per_peer_max: self.requests_per_peer_max,
        })
    }
}

/// Serves until `drain` begins, then until all requests are done or its deadline has passed.
pub async fn serve<S: Serve>(
    listeners: Vec<Bound>,
    listener_tls: ListenerTls,
    service: Arc<S>,
    (limits, slots): (Limits, ConnectionLimit),
    drain: Drain,
    metrics: Metrics,
) {
    let begin = drain.begin.clone();
    let listener = Arc::new(Listener { listener_tls, service, limits, begin, metrics });
    let mut loops = JoinSet::new();
    for bound in listeners {
        loops.spawn(accept(Arc::clone(&listener), bound, slots.clone()));
    }
    let mut connections = Vec::new();
    while let Some(ended) = loops.join_next().await {
        connections.extend(ended.ok());
    }
    let ended = async {
        for mut connections in connections {
            while connections.join_next().await.is_some() {}
        }
    };
    if tokio::time::timeout(drain.deadline, ended).await.is_err() {
        warn!("aborting requests that are still running at the end of the drain");
    }
}

/// Accepts until the drain begins; returns the connections still open.
async fn accept<S: Serve>(
    listener: Arc<Listener<S>>,
    bound: Bound,
    slots: ConnectionLimit,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = listener.begin.cancelled() => return connections,
            Some(_) = connections.join_next() => {}
            accepted = bound.listener.accept() => match accepted {
                Ok((stream, peer)) => match slots.take(peer.ip()) {
                    Ok(slot) => {
                        if slot.made_room() {
                            listener.metrics.limit_reached(Limit::Connections);
                        }
                        connections.spawn(Arc::clone(&listener).connection(stream, peer, slot));
                    }
                    Err(Full) => {
                        listener.metrics.limit_reached(Limit::Connections);
                        debug!(%peer, "refusing a connection: all connections are busy");
                    }
                },
                Err(error) => {
                    // No file descriptor is left: an idle connection is closed to free one.
                    slots.shed();
                    rest_after(&error).await;
                }
            },
        }
    }
}

/// Waits after a failed accept, which concerns one connection or exhausted resources of the
/// process.
async fn rest_after(error: &io::Error) {
    let client_gave_up = matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    );
    if !client_gave_up {
        warn!(%error, "accepting a connection failed");
        tokio::time::sleep(ACCEPT_REST).await;
    }
}

#[cfg(test)]
mod tests;
