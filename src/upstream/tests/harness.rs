//! An apiserver's transport: TLS on in-memory streams, so that time can be virtual.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use tokio::{
    io::DuplexStream,
    sync::mpsc,
    time::{Duration, Instant},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    body::{Body, BoxError},
    tls::{self, Authority, Names},
    upstream::{
        Endpoint, Error, Lane, Pool, Settings,
        dial::{Dial, Stream},
    },
};

/// What a listening server sees of a connection before TLS.
pub(super) type Accepted = mpsc::UnboundedReceiver<DuplexStream>;

/// A dialler whose every connection appears at a receiver.
#[derive(Clone)]
pub(super) struct Network {
    connections: mpsc::UnboundedSender<DuplexStream>,
    dialled: Arc<AtomicUsize>,
}

/// A server's side of TLS and the roots that trust it.
pub(super) struct Server {
    pub(super) accepted: Accepted,
    acceptor: TlsAcceptor,
}

impl Dial for Network {
    fn dial(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        self.dialled.fetch_add(1, Ordering::SeqCst);
        let (near, far) = tokio::io::duplex(64 * 1024);
        let sent = self.connections.send(far);
        Box::pin(async move {
            match sent {
                Ok(()) => Ok(Box::new(near) as Box<dyn Stream>),
                Err(_) => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

impl Network {
    pub(super) fn dialled(&self) -> usize {
        self.dialled.load(Ordering::SeqCst)
    }
}

impl Server {
    /// The next connection, after its handshake.
    pub(super) async fn accept(&mut self) -> TlsStream<DuplexStream> {
        let stream = self.accepted.recv().await.expect("the pool is alive");
        self.handshake(stream).await
    }

    async fn handshake(&self, stream: DuplexStream) -> TlsStream<DuplexStream> {
        self.acceptor.accept(stream).await.expect("the handshake succeeds")
    }

    /// Serves every connection with `serve` on a task of its own.
    pub(super) fn serve<F>(mut self, serve: impl Fn(TlsStream<DuplexStream>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(async move {
            while let Some(stream) = self.accepted.recv().await {
                let Ok(stream) = self.acceptor.accept(stream).await else { continue };
                tokio::spawn(serve(stream));
            }
        });
    }
}

/// A server at `https://apiserver` with `path` below it, and a pool for it.
pub(super) fn start(path: &str, protocols: &[&str], settings: Settings) -> (Pool, Network, Server) {
    let (network, server, client) = network(protocols);
    let uri = format!("https://apiserver{path}").parse().unwrap();
    let endpoint = Endpoint::new(&uri, client, None).unwrap();
    let pool = Pool::new(Arc::new(network.clone()), endpoint, settings);
    (pool, network, server)
}

/// A server whose certificate is for `apiserver`, and a configuration that trusts it.
pub(super) fn network(protocols: &[&str]) -> (Network, Server, Arc<rustls::ClientConfig>) {
    let now = SystemTime::now();
    let authority = Authority::generate(now).unwrap();
    let leaf = authority.issue(&Names::of_apiserver("").and("apiserver"), now).unwrap();
    let mut config = (*tls::Server::new(leaf).unwrap().current()).clone();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let (connections, accepted) = mpsc::unbounded_channel();
    let client = tls::client_config(authority.pem().as_bytes()).unwrap();
    let network = Network { connections, dialled: Arc::default() };
    let server = Server { accepted, acceptor: TlsAcceptor::from(Arc::new(config)) };
    (network, server, Arc::new(client))
}

pub(super) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

pub(super) async fn send(pool: &Pool, path: &str, lane: Lane) -> Result<Response<Body>, Error> {
    crate::upstream::Client::send(pool, get(path), lane).await
}

pub(super) async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect(1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The next piece of a body.
pub(super) async fn piece(body: &mut Body) -> Option<Result<Bytes, BoxError>> {
    use http_body_util::BodyExt;
    body.frame().await.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// A body fed by hand.
pub(super) fn fed() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let stream = futures_util::stream::poll_fn(move |cx| {
        receiver.poll_recv(cx).map(|data| data.map(|data| Ok::<_, BoxError>(Frame::data(data))))
    });
    (sender, Body::wrap(http_body_util::StreamBody::new(stream)))
}

/// Waits until something holds, at most ten seconds of the clock in use.
pub(super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
