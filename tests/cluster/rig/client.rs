//! A raw HTTPS client: it sends requests unchanged and returns responses undecoded.
//!
//! HTTP/1.1 or HTTP/2 as chosen, no redirects, no decompression, no default headers but `Host`,
//! `User-Agent` and the client's own `Authorization`. It never repeats a request, except over
//! HTTP/2 one that the server refused unread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, Version as HttpVersion};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

#[path = "client/server.rs"]
mod server;

pub use server::Server;

/// The limit on every response of the suite; the apiserver's own limit is 60 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(75);
const USER_AGENT: &str = "listless-rig";

/// The HTTP version a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 with kept-alive connections, one request at a time on each.
    Http1,
    /// HTTP/2, all requests on one connection.
    Http2,
}

/// One request as it goes on the wire.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method, any token.
    pub method: Method,
    /// Path and query exactly as sent.
    pub target: String,
    /// Headers in order, repeats allowed; `User-Agent` here replaces the default one.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// One response as it came from the wire.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: StatusCode,
    /// All headers.
    pub headers: HeaderMap,
    /// The body, not decompressed.
    pub body: Bytes,
}

/// Sends requests to one server as one caller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    server: Server,
    tls: Arc<ClientConfig>,
    token: Option<String>,
    protocol: Protocol,
    idle: Mutex<Vec<http1::SendRequest<Full<Bytes>>>>,
    shared: tokio::sync::Mutex<Option<http2::SendRequest<Full<Bytes>>>>,
}

// === impl Request ===

impl Request {
    /// A request without headers and body.
    pub fn new(method: Method, target: &str) -> Self {
        Self { method, target: target.to_owned(), headers: Vec::new(), body: Bytes::new() }
    }

    /// A GET.
    pub fn get(target: &str) -> Self {
        Self::new(Method::GET, target)
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a body and its media type.
    pub fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("Content-Type", content_type)
    }

    /// Sets a JSON body.
    pub fn json(self, value: &serde_json::Value) -> Self {
        self.body("application/json", value.to_string())
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(held, _)| held.eq_ignore_ascii_case(name))
    }
}

// === impl Answer ===

impl Answer {
    /// A header's first value, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Reports whether Listless answered from memory.
    pub fn is_hit(&self) -> bool {
        self.header("cache-status").is_some_and(|said| said.starts_with("listless; hit;"))
    }

    /// The body read as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_slice(&self.body)
            .with_context(|| format!("{}: not JSON: {}", self.status, self.excerpt()))
    }

    /// The response itself if its status is a success, otherwise an error that shows the body.
    pub fn successful(self) -> Result<Self> {
        if !self.status.is_success() {
            bail!("{}: {}", self.status, self.excerpt());
        }
        Ok(self)
    }

    /// The beginning of the body, for messages.
    pub fn excerpt(&self) -> String {
        String::from_utf8_lossy(&self.body).chars().take(400).collect()
    }
}

// === impl Client ===

impl Client {
    /// A client that connects at its first request.
    pub fn new(server: &Server, token: Option<&str>, protocol: Protocol) -> Self {
        let alpn: &[u8] = match protocol {
            Protocol::Http1 => b"http/1.1",
            Protocol::Http2 => b"h2",
        };
        Self(Arc::new(Inner {
            server: server.clone(),
            tls: server.tls(alpn),
            token: token.map(str::to_owned),
            protocol,
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
        }))
    }

    /// A GET without further headers.
    pub async fn get(&self, target: &str) -> Result<Answer> {
        self.send(Request::get(target)).await
    }

    /// Sends a request and reads the whole response.
    pub async fn send(&self, request: Request) -> Result<Answer> {
        let what = format!("{} {}", request.method, request.target);
        tokio::time::timeout(ANSWER_LIMIT, self.exchange(request))
            .await
            .with_context(|| format!("{what}: no answer in {ANSWER_LIMIT:?}"))?
            .with_context(|| what)
    }

    /// Sends a request and returns the response while its body is still coming, as for a watch.
    pub async fn open(&self, request: Request) -> Result<http::Response<Incoming>> {
        let request = self.wire(request)?;
        match self.0.protocol {
            // The connection is not put back: its body is the caller's until the end.
            Protocol::Http1 => Ok(self.idle_or_new().await?.send_request(request).await?),
            Protocol::Http2 => Ok(self.shared().await?.send_request(request).await?),
        }
    }

    async fn exchange(&self, request: Request) -> Result<Answer> {
        let request = self.wire(request)?;
        match self.0.protocol {
            Protocol::Http1 => {
                let mut sender = self.idle_or_new().await?;
                let answer = collect(sender.send_request(request).await?).await?;
                self.idle().push(sender);
                Ok(answer)
            }
            Protocol::Http2 => {
                let again = request.clone();
                match self.shared().await?.send_request(request).await {
                    Err(error) if is_goodbye(&error) => {
                        *self.0.shared.lock().await = None;
                        collect(self.shared().await?.send_request(again).await?).await
                    }
                    other => collect(other?).await,
                }
            }
        }
    }

    fn wire(&self, request: Request) -> Result<http::Request<Full<Bytes>>> {
        let inner = &self.0;
        let authority = inner.server.authority();
        let target = format!("{}{}", inner.server.base_path(), request.target);
        let mut builder = http::Request::builder().method(request.method.clone());
        builder = match inner.protocol {
            Protocol::Http1 => builder.uri(target.parse::<Uri>()?).header("Host", authority),
            Protocol::Http2 => {
                let uri = Uri::builder().scheme("https").authority(authority);
                builder.uri(uri.path_and_query(target).build()?).version(HttpVersion::HTTP_2)
            }
        };
        if !request.has("User-Agent") {
            builder = builder.header("User-Agent", USER_AGENT);
        }
        if let Some(token) = inner.token.as_ref().filter(|_| !request.has("Authorization")) {
            builder = builder.header("Authorization", format!("Bearer {token}"));
        }
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        Ok(builder.body(Full::new(request.body))?)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<http1::SendRequest<Full<Bytes>>>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn idle_or_new(&self) -> Result<http1::SendRequest<Full<Bytes>>> {
        loop {
            let Some(mut sender) = self.idle().pop() else { break };
            // A connection that the server closed meanwhile fails here, before anything is sent.
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let (sender, connection) = http1::handshake(TokioIo::new(self.dial().await?)).await?;
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    async fn shared(&self) -> Result<http2::SendRequest<Full<Bytes>>> {
        let mut shared = self.0.shared.lock().await;
        if let Some(sender) = shared.as_mut()
            && sender.ready().await.is_ok()
        {
            return Ok(sender.clone());
        }
        let io = TokioIo::new(self.dial().await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        *shared = Some(sender.clone());
        Ok(sender)
    }

    async fn dial(&self) -> Result<TlsStream<TcpStream>> {
        let server = &self.0.server;
        let stream = TcpStream::connect(server.authority()).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(server.host().to_owned())?;
        Ok(TlsConnector::from(Arc::clone(&self.0.tls)).connect(name, stream).await?)
    }
}

/// A server that closes a connection in order has not read this request: the apiserver does so
/// after each refused caller. A request after the server's GOAWAY was never sent either.
fn is_goodbye(error: &hyper::Error) -> bool {
    let text = format!("{error:?}");
    error.is_canceled() || text.contains("GoAway") && text.contains("NO_ERROR")
}

async fn collect(response: http::Response<Incoming>) -> Result<Answer> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Answer { status: parts.status, headers: parts.headers, body })
}
