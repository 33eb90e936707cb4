//! One client connection: its protocol detection, TLS, HTTP, and the tunnel it may become.

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

use http::{Response, header::UPGRADE};
use hyper::{service::service_fn, upgrade::OnUpgrade};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    Connection, Limits, ListenerTls, Protocol, Serve,
    connect::{Served, Tunnels},
    edge, socket,
};
use crate::{
    body::Body,
    connection_limit::ConnectionSlot,
    metrics::{self, EdgeRefusal, Limit, Metrics, Outcome},
    tls,
    upstream::dial::tune,
};

/// The state that all connections share.
pub(super) struct Listener<S> {
    pub(super) listener_tls: ListenerTls,
    pub(super) service: Arc<S>,
    pub(super) limits: Limits,
    pub(super) begin: CancellationToken,
    pub(super) metrics: Metrics,
}

/// The first bytes of a client on a TLS port.
enum Greeting {
    /// A TLS handshake, as expected.
    Tls(TcpStream),
    /// Plain HTTP, on a listener that can serve it.
    Plain(TcpStream),
}

/// A slot for a connection, or for the tunnel on it.
#[derive(Clone, Copy)]
struct Seat<'a> {
    slot: &'a ConnectionSlot,
    /// `true` if it counts as a client's connection; the outer connection of a tunnel already does.
    counted: bool,
}

/// The received bytes on one HTTP/2 connection that may wait for their readers. Bodies of requests
/// wait for a place upstream, also those of callers that the apiserver does not know.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// The same for one stream, as at the apiserver. With 64 KiB, an upload of a client that delays
/// small packets (Nagle's algorithm) would stop for 40 ms in every window.
pub(super) const STREAM_WINDOW_BYTES: u32 = 256 * 1024;

/// The time that a client has to receive the end of its idle HTTP/2 connection.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(5);

/// The apiserver's response to plain HTTP on a TLS port.
const PLAIN_TEXT_ANSWER: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

// === impl Listener ===

impl<S: Serve> Listener<S> {
    /// Serves one connection until one of three events: it ends, the drain has begun and its
    /// requests are done, or its slot is given to another.
    pub(super) async fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        slot: ConnectionSlot,
    ) {
        tokio::select! {
            () = self.whole(stream, peer, &slot) => {}
            () = slot.closed() => {
                debug!(%peer, "closed an idle connection for a new one");
            }
        }
    }

    async fn whole(&self, stream: TcpStream, peer: SocketAddr, slot: &ConnectionSlot) {
        // This call fails only on a closed connection.
        let _ = tune(&stream);
        let seat = Seat { slot, counted: true };
        let (metrics, authorities) = (&self.metrics, &self.listener_tls.authorities);
        let Some(tls) = &self.listener_tls.tls else {
            let connection = connection(peer, Protocol::Http1, None);
            return self.http1(stream, connection, seat, &Tunnels::none(metrics)).await;
        };
        let (tunnels, plain);
        match self.greet(stream).await {
            Ok(Greeting::Tls(stream)) => {
                tunnels = Tunnels::new(authorities, metrics, Served::Everything);
                self.encrypted(tls, stream, peer, seat, &tunnels).await;
            }
            Ok(Greeting::Plain(stream)) => {
                tunnels = Tunnels::new(authorities, metrics, Served::ConnectOnly);
                plain = connection(peer, Protocol::Http1, None);
                self.http1(stream, plain, seat, &tunnels).await;
            }
            Err(error) => return debug!(%peer, %error, "cannot read the first bytes of a client"),
        }
        if let Some(tunnel) = tunnels.take() {
            self.inside(tls, tunnel, peer, slot).await;
        }
    }

    /// Detects the client's protocol; answers plain HTTP with an error if it cannot be served.
    async fn greet(&self, mut stream: TcpStream) -> io::Result<Greeting> {
        let mut first = [0];
        let peeked = tokio::time::timeout(self.limits.handshake_timeout, stream.peek(&mut first));
        let peeked = tokio::select! {
            peeked = peeked => peeked??,
            () = self.begin.cancelled() => return Err(io::ErrorKind::Interrupted.into()),
        };
        if peeked == 0 || !first[0].is_ascii_uppercase() {
            return Ok(Greeting::Tls(stream));
        }
        if !self.listener_tls.authorities.is_empty() {
            return Ok(Greeting::Plain(stream));
        }
        self.metrics.client_handshake(Outcome::Failure);
        stream.write_all(PLAIN_TEXT_ANSWER).await?;
        Err(io::Error::other("plain HTTP on a TLS port"))
    }

    /// Serves the connection inside a tunnel that CONNECT opened.
    async fn inside(
        &self,
        tls: &tls::Server,
        tunnel: OnUpgrade,
        peer: SocketAddr,
        slot: &ConnectionSlot,
    ) {
        match tunnel.await {
            Ok(stream) => {
                let stream = TokioIo::new(stream);
                let seat = Seat { slot, counted: false };
                self.encrypted(tls, stream, peer, seat, &Tunnels::none(&self.metrics)).await;
            }
            Err(error) => debug!(%peer, %error, "cannot open the tunnel"),
        }
    }

    async fn encrypted<I>(
        &self,
        tls: &tls::Server,
        stream: I,
        peer: SocketAddr,
        seat: Seat<'_>,
        tunnels: &Tunnels,
    ) where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let Some(stream) = self.shake(tls, stream, peer).await else { return };
        let session = stream.get_ref().1;
        let version = session.protocol_version();
        if session.alpn_protocol() == Some(b"h2") {
            self.http2(stream, connection(peer, Protocol::Http2, version), seat).await;
        } else {
            self.http1(stream, connection(peer, Protocol::Http1, version), seat, tunnels).await;
        }
    }

    /// Performs the TLS handshake; returns `None` if it fails, times out, or the drain begins. The stream is
    /// boxed, because a future holds a place for it at each step that it passes.
    async fn shake<I>(
        &self,
        tls: &tls::Server,
        stream: I,
        peer: SocketAddr,
    ) -> Option<Box<TlsStream<I>>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let shaken = TlsAcceptor::from(tls.current()).accept(stream);
        let shaken = tokio::select! {
            shaken = tokio::time::timeout(self.limits.handshake_timeout, shaken) => shaken,
            () = self.begin.cancelled() => return None,
        };
        let shaken = shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let outcome = if shaken.is_ok() { Outcome::Success } else { Outcome::Failure };
        self.metrics.client_handshake(outcome);
        shaken.inspect_err(|error| debug!(%peer, %error, "TLS handshake failed")).ok().map(Box::new)
    }

    async fn http1<I>(&self, stream: I, connection: Connection, seat: Seat<'_>, tunnels: &Tunnels)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let counted = self.counted(seat, metrics::Protocol::Http1);
        let (socket, verdict) = socket::http1(stream, counted, self.limits.head_timeout);
        let (connection, verdict) = (&connection, &verdict);
        let service = service_fn(move |request| {
            let busy = seat.slot.begin();
            // The rules of a connection are suspended while its client expects a tunnel.
            let is_last = busy.is_err() && request.headers().contains_key(UPGRADE);
            async move {
                let service = &*self.service;
                let answer = edge::answer_http1(service, connection, verdict, tunnels, request);
                // hyper keeps this future in place while the body is sent, which takes hours for a
                // watch. Boxed, its kilobytes are freed.
                let mut response = edge::while_busy(busy, Box::pin(answer)).await;
                if is_last {
                    edge::close(&mut response);
                }
                Ok::<_, Infallible>(recorded(&self.metrics, response))
            }
        });
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            // For each request a timer, which a connection with a slot of its own does not need.
            .header_read_timeout((!seat.counted).then_some(self.limits.idle_timeout))
            .max_header_size(self.limits.head_bytes_max);
        let served = builder.serve_connection(TokioIo::new(socket), service).with_upgrades();
        let mut served = std::pin::pin!(served);
        let outcome = tokio::select! {
            outcome = served.as_mut() => outcome,
            () = self.begin.cancelled() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
            () = unused(seat.slot, self.limits.idle_timeout), if seat.counted => {
                served.as_mut().graceful_shutdown();
                served.await
            }
        };
        debug!(?outcome, "client connection ended");
    }

    async fn http2<I>(&self, stream: I, connection: Connection, seat: Seat<'_>)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = service_fn(|request| {
            let (service, connection) = (Arc::clone(&self.service), connection.clone());
            let metrics = self.metrics.clone();
            let busy = seat.slot.begin();
            async move {
                let answer = edge::answer(&*service, &connection, request);
                // As over HTTP/1, for every stream.
                let response = edge::while_busy(busy, Box::pin(answer)).await;
                Ok::<_, Infallible>(recorded(&metrics, response))
            }
        });
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(self.limits.streams_max)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            // A header counts 32 bytes more than its text, which also bounds the number of headers.
            .max_header_list_size(u32::try_from(self.limits.head_bytes_max).unwrap_or(u32::MAX))
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        let counted = self.counted(seat, metrics::Protocol::Http2);
        let socket = TokioIo::new(socket::http2(stream, counted));
        let mut served = std::pin::pin!(builder.serve_connection(socket, service));
        let outcome = tokio::select! {
            outcome = served.as_mut() => outcome,
            () = self.begin.cancelled() => {
                served.as_mut().graceful_shutdown();
                served.await
            }
            () = unused(seat.slot, self.limits.idle_timeout) => {
                served.as_mut().graceful_shutdown();
                loop {
                    let goodbye = tokio::time::timeout(GOODBYE_TIMEOUT, served.as_mut()).await;
                    // A request may have begun before the client saw the goodbye.
                    // The last bytes of its response may still be on their way.
                    if goodbye.is_ok() || seat.slot.idle_for() >= GOODBYE_TIMEOUT {
                        return debug!(?goodbye, "an idle client connection was closed");
                    }
                }
            }
        };
        debug!(?outcome, "client connection ended");
    }

    fn counted(&self, seat: Seat<'_>, protocol: metrics::Protocol) -> Option<socket::SocketSlot> {
        seat.counted.then(|| socket::SocketSlot::new(&self.metrics, protocol, seat.slot.clone()))
    }
}

/// Counts the response if the listener itself refused the request.
fn recorded(metrics: &Metrics, response: Response<Body>) -> Response<Body> {
    if let Some(refusal) = response.extensions().get::<EdgeRefusal>() {
        metrics.edge_refused(*refusal);
        if *refusal == EdgeRefusal::TooMany {
            metrics.limit_reached(Limit::ClientRequests);
        }
        debug!(reason = refusal.as_str(), "refused a request");
    }
    response
}

/// Waits until the connection has had no request for that long.
async fn unused(slot: &ConnectionSlot, timeout: Duration) {
    loop {
        let left = timeout.saturating_sub(slot.idle_for());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
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
