//! An apiserver on a real port, for the one feature the simulator has not: switching protocols.

use std::{net::SocketAddr, sync::Arc, time::SystemTime};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use listless::{
    body::Body,
    simulator::Simulator,
    tls,
    upstream::{Client, Endpoint, Error, Lane, Pool, Settings, dial::Tcp},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

/// Gives every head the same response and leaves the rest of the connection to the test.
pub(crate) struct TcpApiserver {
    /// The address where it listens.
    pub(crate) address: SocketAddr,
    /// The connections, after the response to their heads.
    pub(crate) visits: mpsc::Receiver<Visit>,
}

/// The apiserver's side of one connection.
pub(crate) struct Visit {
    /// The request's head, lower case.
    pub(crate) head: String,
    /// The bytes after it.
    pub(crate) stream: TcpStream,
}

/// A simulated apiserver whose upgrades go to a real port.
pub(crate) struct WithUpgrades {
    /// Responds to requests without an upgrade.
    pub(crate) simulator: Simulator,
    /// Responds to upgrades.
    pub(crate) pool: Pool,
}

// === impl TcpApiserver ===

impl TcpApiserver {
    /// Listens on a free port.
    pub(crate) async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (sender, visits) = mpsc::channel(8);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if sender.send(Visit::receive(stream, answer).await).await.is_err() {
                    return;
                }
            }
        });
        Self { address, visits }
    }

    /// The next connection.
    pub(crate) async fn visit(&mut self) -> Visit {
        self.visits.recv().await.expect("a connection")
    }

    /// The client to it that the proxy uses in production.
    pub(crate) fn pool(&self) -> Pool {
        let authority = tls::Authority::generate(SystemTime::now()).expect("an authority");
        let config = tls::client_config(authority.pem().as_bytes()).expect("a configuration");
        let uri = format!("http://{}", self.address).parse().expect("a URI");
        let endpoint = Endpoint::new(&uri, Arc::new(config), None).expect("an endpoint");
        Pool::new(Arc::new(Tcp::default()), endpoint, Settings::default())
    }
}

impl Visit {
    async fn receive(mut stream: TcpStream, answer: &str) -> Self {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => break,
            }
        }
        // A client that left early needs no response.
        let _ = stream.write_all(answer.as_bytes()).await;
        let head = String::from_utf8(head).expect("a textual head").to_ascii_lowercase();
        Self { head, stream }
    }

    /// Reads this many bytes from the other side.
    pub(crate) async fn read(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        self.stream.read_exact(&mut buffer).await.expect("as many bytes");
        buffer
    }

    /// Sends bytes to the other side.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("an open connection");
    }

    /// Returns all bytes until the other side ends the connection.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A connection that is reset has ended, too.
        let _ = self.stream.read_to_end(&mut rest).await;
        rest
    }
}

// === impl WithUpgrades ===

impl Client for WithUpgrades {
    fn send(
        &self,
        request: Request<Body>,
        lane: Lane,
    ) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.simulator.send(request, lane)
    }

    fn upgrade(&self, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        self.pool.upgrade(request)
    }
}
