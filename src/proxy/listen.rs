//! Accepting clients: sockets, TLS, HTTP/1.1 and HTTP/2, bounds, and a graceful end.
//!
//! Invariants: a request whose framing is ambiguous is answered 400 and its connection closed,
//! before anyone else sees it; connections are bounded; a drain ends within its deadline.
//! Nothing here knows what a request asks for.

mod edge;
mod guard;
mod socket;

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::socket::{Place, Socket};
use crate::{
    body::Body,
    metrics::{self, Limit, Metrics, Outcome},
    tls,
    upstream::dial::tune,
};

/// How long to rest when the process has no file descriptor left.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Received bytes on one HTTP/2 connection that may wait for their readers.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// The same for one stream.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// What a client sees that speaks plain HTTP to a TLS port, as from an apiserver.
const PLAIN_TEXT_ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// A socket that is bound and listens.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// Why a socket could not be bound; names the flag that asked for it.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {address}: cannot listen there")]
pub struct BindError {
    flag: &'static str,
    address: SocketAddr,
    #[source]
    source: io::Error,
}

/// The bounds of a listener.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time, tunnels included.
    pub connections_max: usize,
    /// Requests at a time on one HTTP/2 connection.
    pub streams_max: u32,
    /// How long a TLS handshake may take.
    pub handshake_timeout: Duration,
    /// How long a request's head may take from its first byte on.
    pub head_timeout: Duration,
    /// How long an HTTP/1 connection may idle between requests.
    pub idle_timeout: Duration,
    /// The most bytes of a request's head.
    pub head_bytes_max: usize,
}

/// How a listener ends.
#[derive(Clone, Debug)]
pub struct Drain {
    /// Cancelled when no more connections should be accepted.
    pub begin: CancellationToken,
    /// How long requests under way may go on after that.
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
    /// Unique within the process.
    pub id: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// What is spoken on it.
    pub protocol: Protocol,
    /// The version of TLS; absent on a plain-text listener.
    pub tls: Option<rustls::ProtocolVersion>,
}

/// Something that answers requests.
pub trait Serve: Send + Sync + 'static {
    /// Answers one request; never fails, only answers with an error.
    fn serve(
        &self,
        connection: &Connection,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send;
}

/// What all connections share.
struct Listener<S> {
    tls: Option<tls::Server>,
    service: Arc<S>,
    limits: Limits,
    begin: CancellationToken,
    metrics: Metrics,
}

// === impl Bound ===

impl Bound {
    /// Binds `address`; `flag` is what the operator gave it with.
    pub async fn bind(flag: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { flag, address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// Takes over a socket that someone else has bound, such as a supervisor.
    pub fn inherit(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener: TcpListener::from_std(listener)?, address })
    }

    /// The address with the port that was really bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            streams_max: 250,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(180),
            head_bytes_max: 64 * 1024,
        }
    }
}

/// Serves until `drain` begins, then until all requests are done or its deadline has passed.
pub async fn serve<S: Serve>(
    listeners: Vec<Bound>,
    tls: Option<tls::Server>,
    service: Arc<S>,
    limits: Limits,
    drain: Drain,
    metrics: Metrics,
) {
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let begin = drain.begin.clone();
    let listener = Arc::new(Listener { tls, service, limits, begin, metrics });
    let mut loops = JoinSet::new();
    for bound in listeners {
        loops.spawn(accept(Arc::clone(&listener), bound, Arc::clone(&places)));
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
        warn!("requests were still under way at the end of the drain and are cut off");
    }
}

/// Accepts until the drain begins; returns the connections still open.
async fn accept<S: Serve>(
    listener: Arc<Listener<S>>,
    bound: Bound,
    places: Arc<Semaphore>,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            if places.available_permits() == 0 {
                listener.metrics.limit_reached(Limit::Connections);
                warn!(address = %bound.address, "all connections are taken: new ones wait");
            }
            let place = Arc::clone(&places).acquire_owned().await;
            (place, bound.listener.accept().await)
        };
        tokio::select! {
            () = listener.begin.cancelled() => return connections,
            Some(_) = connections.join_next() => {}
            (place, accepted) = next => match (place, accepted) {
                (Ok(place), Ok((stream, peer))) => {
                    connections.spawn(Arc::clone(&listener).connection(stream, peer, place));
                }
                (Ok(_), Err(error)) => rest_after(&error).await,
                (Err(_), _) => return connections,
            },
        }
    }
}

/// Accepting fails for one connection, or because the process ran out of something.
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

// === impl Listener ===

impl<S: Serve> Listener<S> {
    async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
    ) {
        // Fails only on a connection that is gone already.
        let _ = tune(&stream);
        let Some(tls) = &self.tls else {
            return self.http1(stream, connection(peer, Protocol::Http1, None), place).await;
        };
        let handshake = tokio::time::timeout(self.limits.handshake_timeout, shake(tls, stream));
        let stream = tokio::select! {
            stream = handshake => stream,
            () = self.begin.cancelled() => return,
        };
        let shaken = matches!(stream, Ok(Ok(_)));
        let outcome = if shaken { Outcome::Success } else { Outcome::Failure };
        self.metrics.client_handshake(outcome);
        let stream = match stream {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => return debug!(%peer, "TLS handshake timed out"),
        };
        let session = stream.get_ref().1;
        let version = session.protocol_version();
        if session.alpn_protocol() == Some(b"h2") {
            self.http2(stream, connection(peer, Protocol::Http2, version), place).await;
        } else {
            self.http1(stream, connection(peer, Protocol::Http1, version), place).await;
        }
    }

    async fn http1<I>(&self, stream: I, connection: Connection, place: OwnedSemaphorePermit)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let place = Place::new(&self.metrics, metrics::Protocol::Http1, place);
        let (socket, verdict) = Socket::http1(stream, place, self.limits.head_timeout);
        let service = service_fn(move |request| {
            let service = Arc::clone(&self.service);
            let (connection, verdict) = (connection.clone(), verdict.clone());
            async move {
                Ok::<_, Infallible>(
                    edge::answer_http1(&*service, &connection, &verdict, request).await,
                )
            }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // Counts from the end of the request before, so it is what bounds idling.
            .header_read_timeout(self.limits.idle_timeout)
            .max_header_size(self.limits.head_bytes_max);
        let served = builder.serve_connection(TokioIo::new(socket), service).with_upgrades();
        let mut served = std::pin::pin!(served);
        let outcome = tokio::select! {
            outcome = served.as_mut() => outcome,
            () = self.begin.cancelled() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        debug!(?outcome, "client connection ended");
    }

    async fn http2<I>(&self, stream: I, connection: Connection, place: OwnedSemaphorePermit)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = service_fn(|request| {
            let (service, connection) = (Arc::clone(&self.service), connection.clone());
            async move { Ok::<_, Infallible>(edge::answer(&*service, &connection, request).await) }
        });
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.limits.streams_max)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .max_header_list_size(u32::try_from(self.limits.head_bytes_max).unwrap_or(u32::MAX))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        let place = Place::new(&self.metrics, metrics::Protocol::Http2, place);
        let socket = TokioIo::new(Socket::http2(stream, place));
        let mut served = std::pin::pin!(builder.serve_connection(socket, service));
        let outcome = tokio::select! {
            outcome = served.as_mut() => outcome,
            () = self.begin.cancelled() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        debug!(?outcome, "client connection ended");
    }
}

fn connection(
    peer: SocketAddr,
    protocol: Protocol,
    tls: Option<rustls::ProtocolVersion>,
) -> Connection {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Connection { id: NEXT.fetch_add(1, Ordering::Relaxed), peer, protocol, tls }
}

/// The TLS handshake; answers those who speak plain HTTP in their own words.
async fn shake(
    tls: &tls::Server,
    mut stream: TcpStream,
) -> io::Result<tokio_rustls::server::TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_uppercase() {
        stream.write_all(PLAIN_TEXT_ANSWER).await?;
        return Err(io::Error::other("plain HTTP on a TLS port"));
    }
    TlsAcceptor::from(tls.current()).accept(stream).await
}

#[cfg(test)]
mod tests;
