//! An apiserver's transport: TLS on in-memory streams, for virtual time.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Frame;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier};
use tokio::{
    io::DuplexStream,
    sync::mpsc,
    time::{Duration, Instant},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    body::{Body, BoxError},
    tls,
    upstream::{
        Endpoint, Error, Lane, Pool, Settings,
        dial::{Dial, Stream},
    },
};

/// The connections to a listening server, before TLS.
pub(super) type Accepted = mpsc::UnboundedReceiver<DuplexStream>;

/// A dialler whose every connection appears at a receiver.
#[derive(Clone)]
pub(super) struct Network {
    connections: mpsc::UnboundedSender<DuplexStream>,
    dialled: Arc<AtomicUsize>,
    /// The number of the dial to refuse.
    refused: Arc<AtomicUsize>,
}

/// A server's side of TLS, the authority that it and its clients trust, and a user it knows.
pub(super) struct Server {
    pub(super) accepted: Accepted,
    pub(super) authority: String,
    pub(super) user: User,
    acceptor: TlsAcceptor,
}

/// A client certificate and its key in PEM.
#[derive(Clone)]
pub(super) struct User {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Dial for Network {
    fn dial(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let number = self.dialled.fetch_add(1, Ordering::SeqCst) + 1;
        let (near, far) = tokio::io::duplex(64 * 1024);
        let refused =
            number == self.refused.load(Ordering::SeqCst) || self.connections.send(far).is_err();
        Box::pin(async move {
            if refused {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Ok(Box::new(near) as Box<dyn Stream>)
        })
    }
}

impl Network {
    pub(super) fn refuse(&self, number: usize) {
        self.refused.store(number, Ordering::SeqCst);
    }

    pub(super) fn dialled(&self) -> usize {
        self.dialled.load(Ordering::SeqCst)
    }
}

impl Server {
    /// Returns the next connection, after its handshake.
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

/// Creates a server at `https://apiserver` with `path` below it, and a pool for it.
pub(super) fn start(path: &str, protocols: &[&str], settings: Settings) -> (Pool, Network, Server) {
    let (network, server, client) = network(protocols);
    let uri = format!("https://apiserver{path}").parse().unwrap();
    let endpoint = Endpoint::new(&uri, client, None).unwrap();
    let pool = Pool::new(Arc::new(network.clone()), endpoint, settings).of_one_user();
    (pool, network, server)
}

/// Creates the same with a pool for callers that do not trust each other.
pub(super) fn start_shared(protocols: &[&str]) -> (Pool, Network, Server) {
    let (network, server, client) = network(protocols);
    let endpoint = Endpoint::new(&"https://apiserver".parse().unwrap(), client, None).unwrap();
    let pool = Pool::new(Arc::new(network.clone()), endpoint, Settings::default());
    (pool, network, server)
}

/// Creates a server whose certificate is for `apiserver`, and a configuration that trusts it.
pub(super) fn network(protocols: &[&str]) -> (Network, Server, Arc<rustls::ClientConfig>) {
    let ca = CertifiedIssuer::self_signed(ca_params(), KeyPair::generate().unwrap()).unwrap();
    let authority = ca.pem();
    let roots = tls::roots(authority.as_bytes()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider());
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["apiserver".to_owned()]).unwrap();
    let chain = vec![leaf.signed_by(&key, &ca).unwrap().der().clone()];
    let mut config = ServerConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.allow_unauthenticated().build().unwrap())
        .with_single_cert(chain, PrivateKeyDer::Pkcs8(key.serialize_der().into()))
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new([]).unwrap();
    let user =
        User { certificate: leaf.signed_by(&key, &ca).unwrap().pem(), key: key.serialize_pem() };
    #[expect(clippy::disallowed_methods, reason = "a test sends a bounded number of messages")]
    let (connections, accepted) = mpsc::unbounded_channel();
    let client = tls::client_config(authority.as_bytes()).unwrap();
    let network = Network { connections, dialled: Arc::default(), refused: Arc::default() };
    let acceptor = TlsAcceptor::from(Arc::new(config));
    (network, Server { accepted, authority, user, acceptor }, Arc::new(client))
}

fn ca_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

pub(super) fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

pub(super) async fn send(pool: &Pool, path: &str, lane: Lane) -> Result<Response<Body>, Error> {
    within(crate::upstream::Client::send(pool, get(path), lane)).await
}

pub(super) async fn text(response: Response<Body>) -> String {
    let bytes = within(response.into_body().collect(1 << 20)).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the next chunk of a body.
pub(super) async fn piece(body: &mut Body) -> Option<Result<Bytes, BoxError>> {
    use http_body_util::BodyExt;
    let frame = within(body.frame()).await;
    frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
}

/// Fails if the future hangs.
async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(100), future).await.expect("it takes too long")
}

/// Returns a body that the test feeds.
pub(super) fn fed() -> (mpsc::UnboundedSender<Bytes>, Body) {
    #[expect(clippy::disallowed_methods, reason = "a test sends a bounded number of messages")]
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
        // A yield does not work: a paused clock advances only while everything waits.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
