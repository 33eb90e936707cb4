//! A client with the Kubernetes verbs, over HTTP/1.1 or HTTP/2, through the proxy or directly.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::{
    client::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use listless::{
    body::{Body, BoxError},
    proxy::{
        Proxy,
        listen::{Connection, Protocol, Serve},
    },
    simulator::Simulator,
    upstream::dial::Stream,
};
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::answer::Answer;

/// The way from a client to its server.
#[derive(Clone)]
pub(crate) enum Door {
    /// The proxy, without sockets.
    Memory(Arc<Proxy>),
    /// The proxy's port, in plain text.
    Plain(SocketAddr),
    /// The proxy's port, with TLS.
    Tls(SocketAddr, Arc<ClientConfig>),
    /// The target of a CONNECT on the first door, with TLS inside.
    Connect(Box<Self>, Arc<ClientConfig>, &'static str),
    /// The apiserver itself.
    Straight(Simulator),
}

/// The scheme that a client uses with its HTTP proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    /// `proxy-url: http://…`
    Http,
    /// `proxy-url: https://…`
    Https,
}

/// A client; clones share its connections.
#[derive(Clone)]
pub(crate) struct TestClient {
    door: Door,
    protocol: Protocol,
    headers: HeaderMap,
    connections: Arc<Connections>,
}

/// An open watch, read line by line.
pub(crate) struct Watch {
    /// The head of the response.
    pub(crate) head: http::response::Parts,
    body: Body,
    rest: Vec<u8>,
}

#[derive(Default)]
struct Connections {
    http1: Mutex<Vec<http1::SendRequest<Body>>>,
    http2: tokio::sync::Mutex<Option<http2::SendRequest<Body>>>,
}

/// Bytes on their way between a client and the proxy in memory.
const PIPE_BYTES: usize = 64 * 1024;

/// Connections in memory so far.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// The limit on every response; a paused clock would otherwise run for ever.
const ANSWER_WAIT: Duration = Duration::from_secs(100);

/// The limit on the wait for an event.
const EVENT_WAIT: Duration = Duration::from_secs(3600);

/// The host name of the apiserver for clients on loopback.
const HOST: &str = "127.0.0.1";

// === impl Door ===

impl Door {
    /// The same port without TLS.
    pub(super) fn without_tls(&self) -> Self {
        match self {
            Self::Tls(address, _) => Self::Plain(*address),
            other => other.clone(),
        }
    }

    /// Through a CONNECT on this port to an authority.
    pub(super) fn connect(&self, via: Via, authority: &'static str) -> Self {
        let Self::Tls(_, config) = self else { panic!("CONNECT needs a port with TLS") };
        let door = if via == Via::Http { self.without_tls() } else { self.clone() };
        Self::Connect(Box::new(door), config.clone(), authority)
    }

    /// A new connection for HTTP of this version.
    pub(crate) async fn dial(&self, protocol: Protocol) -> Box<dyn Stream> {
        match self {
            Self::Memory(proxy) => {
                let (near, far) = duplex(PIPE_BYTES);
                tokio::spawn(serve(proxy.clone(), far, protocol));
                Box::new(near)
            }
            Self::Plain(address) => Box::new(tcp(*address).await),
            Self::Tls(address, config) => {
                encrypted(tcp(*address).await, HOST, config, protocol).await
            }
            Self::Connect(door, config, authority) => {
                let mut stream = Box::pin(door.dial(Protocol::Http1)).await;
                let asked = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
                stream.write_all(asked.as_bytes()).await.expect("an open connection");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("an answer"));
                }
                let head = String::from_utf8(head).expect("a head");
                assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
                let (host, _) = authority.rsplit_once(':').expect("a port");
                encrypted(stream, host, config, protocol).await
            }
            Self::Straight(_) => panic!("the simulator has no connections"),
        }
    }
}

/// TLS to a host.
async fn encrypted(
    stream: impl Stream + 'static,
    host: &'static str,
    config: &ClientConfig,
    protocol: Protocol,
) -> Box<dyn Stream> {
    let mut config = ClientConfig::clone(config);
    config.alpn_protocols = match protocol {
        Protocol::Http1 => Vec::new(),
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    let name = ServerName::try_from(host).expect("a host");
    let tls = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    Box::new(tls.expect("a TLS connection"))
}

async fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("an open socket");
    stream
}

/// The proxy's side of a connection in memory.
async fn serve(proxy: Arc<Proxy>, stream: DuplexStream, protocol: Protocol) {
    let peer = ([127, 0, 0, 1], 1).into();
    let id = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
    let connection = Connection { id, peer, protocol, tls: None };
    let service = service_fn(move |request| {
        let (proxy, connection) = (proxy.clone(), connection.clone());
        async move { Ok::<_, Infallible>(proxy.serve(&connection, request).await) }
    });
    let stream = TokioIo::new(stream);
    // The client sees the end of the connection itself.
    let _ = match protocol {
        Protocol::Http1 => {
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new());
            builder.serve_connection(stream, service).with_upgrades().await
        }
        Protocol::Http2 => {
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new());
            builder.serve_connection(stream, service).await
        }
    };
}

// === impl TestClient ===

impl TestClient {
    /// A client without headers of its own.
    pub(crate) fn new(door: Door) -> Self {
        let (headers, connections) = (HeaderMap::new(), Arc::default());
        Self { door, protocol: Protocol::Http1, headers, connections }
    }

    /// The same, speaking HTTP/2.
    pub(crate) fn over_http2(&self) -> Self {
        Self { protocol: Protocol::Http2, ..self.clone() }
    }

    /// The same on connections of its own.
    pub(crate) fn apart(&self) -> Self {
        Self { connections: Arc::default(), ..self.clone() }
    }

    /// The same with one more header in every request.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut client = self.clone();
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
        client.headers.append(name, HeaderValue::from_str(value).expect("a header value"));
        client
    }

    /// The headers of every request.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// GET of an object, a collection or anything else.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "").await
    }

    /// POST of JSON.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Answer {
        self.sending_json().send(Method::POST, path, object.to_string()).await
    }

    /// PUT of JSON.
    pub(crate) async fn update(&self, path: &str, object: &Value) -> Answer {
        self.sending_json().send(Method::PUT, path, object.to_string()).await
    }

    /// PATCH; `format` is the middle of the Content-Type, for example `merge-patch`.
    pub(crate) async fn patch(&self, path: &str, format: &str, patch: &str) -> Answer {
        let suffix = if format == "apply-patch" { "yaml" } else { "json" };
        let client = self.with("content-type", &format!("application/{format}+{suffix}"));
        client.send(Method::PATCH, path, patch.to_owned()).await
    }

    /// DELETE of an object or a collection.
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "").await
    }

    /// Any request.
    pub(crate) async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let body = body.into();
        let body = if body.is_empty() { Body::empty() } else { Body::full(body) };
        self.ask(request(method, path, body)).await
    }

    /// Sends a request made by the test; the response is read whole.
    pub(crate) async fn ask(&self, request: Request<Body>) -> Answer {
        let exchange = async {
            let (response, sender) = self.exchange(request).await.ok()?;
            let (head, body) = response.into_parts();
            Some((head, read(body).await, sender))
        };
        let exchanged = timeout(ANSWER_WAIT, exchange).await.expect("an answer in time");
        let Some((head, (body, whole), sender)) = exchanged else { return Answer::none() };
        if let (Some(sender), true) = (sender, whole) {
            self.connections.http1.lock().expect("no panic holds it").push(sender);
        }
        Answer { status: head.status.as_u16(), headers: head.headers, body, whole }
    }

    /// Sends a request made by the test; the response's body still streams.
    pub(crate) async fn open(&self, request: Request<Body>) -> Response<Body> {
        let exchanged = timeout(ANSWER_WAIT, self.exchange(request)).await;
        exchanged.expect("an answer in time").expect("an answer").0
    }

    /// An open watch; `path` contains `watch=1`.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.try_watch(path).await.expect("an answer")
    }

    /// The same, unless the connection breaks before a response.
    pub(crate) async fn try_watch(&self, path: &str) -> Option<Watch> {
        let exchange = self.exchange(request(Method::GET, path, Body::empty()));
        let answered = timeout(ANSWER_WAIT, exchange).await.expect("an answer in time");
        let (head, body) = answered.ok()?.0.into_parts();
        Some(Watch { head, body, rest: Vec::new() })
    }

    fn sending_json(&self) -> Self {
        self.with("content-type", "application/json")
    }

    async fn exchange(
        &self,
        mut request: Request<Body>,
    ) -> Result<(Response<Body>, Option<http1::SendRequest<Body>>), BoxError> {
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        if let Door::Straight(simulator) = &self.door {
            return Ok((simulator.answer(request).await?, None));
        }
        if self.protocol == Protocol::Http2 {
            *request.uri_mut() = absolute(request.uri());
            let mut sender = self.http2().await;
            let response = sender.send_request(request).await?;
            return Ok((response.map(Body::incoming), None));
        }
        request.headers_mut().entry("host").or_insert(HeaderValue::from_static(HOST));
        let mut sender = self.http1().await;
        let response = sender.send_request(request).await?;
        Ok((response.map(Body::incoming), Some(sender)))
    }

    async fn http1(&self) -> http1::SendRequest<Body> {
        loop {
            let idle = self.connections.http1.lock().expect("no panic holds it").pop();
            let Some(mut sender) = idle else { break };
            if sender.ready().await.is_ok() {
                return sender;
            }
        }
        let stream = TokioIo::new(self.door.dial(Protocol::Http1).await);
        let (sender, connection) = http1::handshake(stream).await.expect("a handshake");
        tokio::spawn(connection.with_upgrades());
        sender
    }

    async fn http2(&self) -> http2::SendRequest<Body> {
        let mut shared = self.connections.http2.lock().await;
        if let Some(sender) = &*shared {
            return sender.clone();
        }
        let stream = TokioIo::new(self.door.dial(Protocol::Http2).await);
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(stream).await.expect("a handshake");
        tokio::spawn(connection);
        shared.insert(sender).clone()
    }
}

/// A request for a path and query.
pub(crate) fn request(method: Method, path: &str, body: Body) -> Request<Body> {
    Request::builder().method(method).uri(path).body(body).expect("a request")
}

fn absolute(uri: &Uri) -> Uri {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    format!("https://{HOST}{path}").parse().expect("a URI")
}

/// Returns the received part of a body, and whether it is complete.
async fn read(mut body: Body) -> (Bytes, bool) {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            Err(_) => return (bytes.into(), false),
        }
    }
    (bytes.into(), true)
}

// === impl Watch ===

impl Watch {
    /// Reports whether memory serves it.
    pub(crate) fn is_hit(&self) -> bool {
        self.head.headers["cache-status"].as_bytes().starts_with(b"listless; hit;")
    }

    /// The next line with its newline; `None` at the end, clean or not.
    pub(crate) async fn next_line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                return Some(self.rest.drain(..=end).collect::<Vec<_>>().into());
            }
            let frame = timeout(EVENT_WAIT, self.body.frame()).await.expect("an event in time");
            let frame = frame?.ok()?;
            self.rest.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
    }

    /// The type and object name of the next event, or the message of an error.
    pub(crate) async fn next(&mut self) -> Option<(String, String)> {
        let event: Value = serde_json::from_slice(&self.next_line().await?).expect("an event");
        let object = &event["object"];
        let what = match event["type"].as_str() {
            Some("ERROR") => &object["message"],
            Some("BOOKMARK") => &object["metadata"]["resourceVersion"],
            _ => &object["metadata"]["name"],
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some((text(&event["type"]), text(what)))
    }
}
