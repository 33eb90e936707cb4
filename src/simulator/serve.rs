//! The simulator on sockets: TLS, HTTP/1.1 and HTTP/2, like the apiserver's listener.
//!
//! A request without a response breaks its whole connection, and an outage breaks all of them, as
//! clients of a failing apiserver see it.

use std::{convert::Infallible, io, sync::Arc, sync::atomic::Ordering, time::Duration};

use http::{HeaderValue, Request, Response, header};
use hyper::{client::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{Interrupted, Interruption, Simulator};
use crate::{body::Body, tls, upstream};

/// The maximum number of connections.
const CONNECTIONS_MAX: usize = 4096;

/// The maximum number of concurrent requests on one HTTP/2 connection (S-NET-01).
const STREAMS_MAX: u32 = 100;

/// The timeout for a handshake, and for a request's head (S-NET-01).
const HEAD_TIMEOUT: Duration = Duration::from_secs(32);

/// The buffer size of a connection inside the process.
const PIPE_BYTES: usize = 64 << 10;

/// The pause after the process runs out of file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(50);

// === impl Simulator ===

impl Simulator {
    /// Accepts TLS connections forever. Dropping the future ends them all.
    pub async fn serve_tls(self, listener: TcpListener, server: tls::Server) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            let accepted = listener.accept().await;
            let place = places.clone().try_acquire_owned();
            let (Ok((stream, _)), Ok(place)) = (accepted, place) else {
                tokio::time::sleep(ACCEPT_REST).await;
                continue;
            };
            if self.0.stopped.load(Ordering::SeqCst) {
                continue;
            }
            let (simulator, server) = (self.clone(), server.clone());
            connections.spawn(async move {
                let _place = place;
                let _ = stream.set_nodelay(true);
                let acceptor = TlsAcceptor::from(server.current());
                if let Ok(Ok(stream)) = timeout(HEAD_TIMEOUT, acceptor.accept(stream)).await {
                    simulator.serve_stream(stream).await;
                }
            });
        }
    }

    /// Serves one connection over any stream, until it ends or an outage breaks it.
    pub async fn serve_stream<S>(&self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut interruptions = self.0.interruptions.follow();
        let resets = interruptions.value().resets;
        let broken = CancellationToken::new();
        let service = service_fn(|request: Request<hyper::body::Incoming>| {
            let (simulator, broken) = (self.clone(), broken.clone());
            async move {
                let answered = simulator.answer(request.map(Body::incoming)).await;
                if answered.is_err() {
                    broken.cancel();
                }
                let date = simulator.date();
                answered.map_err(io::Error::other).map(|mut answered| {
                    answered.headers_mut().entry(header::DATE).or_insert(date);
                    answered
                })
            }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::select! {
            // The client reports how a connection ended.
            _ = connection => {}
            () = broken.cancelled() => {}
            _ = interruptions.until(|now: &Interruption| now.resets != resets) => {}
        }
    }

    /// Sends one request over a new connection inside the process, so that it can switch protocols.
    pub(super) async fn dial_and_send(
        self,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, upstream::Error> {
        if self.0.stopped.load(Ordering::SeqCst) {
            return Err(upstream::Error::Connect(Interrupted::Refused.into()));
        }
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        tokio::spawn(async move { self.serve_stream(far).await });
        let connected = http1::handshake(TokioIo::new(near)).await;
        let (mut sender, connection) =
            connected.map_err(|error| upstream::Error::Connect(error.into()))?;
        tokio::spawn(connection.with_upgrades());
        let local = HeaderValue::from_static("simulator");
        request.headers_mut().entry(header::HOST).or_insert(local);
        let answered = sender.send_request(request).await;
        let answered = answered.map_err(|error| upstream::Error::Broken(error.into()))?;
        Ok(answered.map(Body::incoming))
    }
}
