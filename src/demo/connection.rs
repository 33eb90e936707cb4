//! One HTTP/1.1 keep-alive connection over TLS, as in fabric8's default client.
//!
//! It sends no ALPN, no Accept and no Accept-Encoding, like fabric8 7.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use crate::body::Body;

/// The user agent of fabric8.
const USER_AGENT: &str = "fabric8-kubernetes-client/7.6.1";

/// The request timeout of fabric8.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a response. A list of the largest scale fits many times.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A successful response.
pub(super) struct Answer {
    /// The whole body.
    pub body: Bytes,
    /// `true` if Listless reports a cache hit.
    pub from_memory: bool,
}

/// A connection that opens on first use, and again after it broke.
pub(super) struct Connection {
    address: SocketAddr,
    connector: TlsConnector,
    authorization: HeaderValue,
    sender: Option<SendRequest<Body>>,
}

// === impl Connection ===

impl Connection {
    /// Returns a connection to a server. It does not dial yet.
    pub(super) fn new(
        address: SocketAddr,
        config: Arc<rustls::ClientConfig>,
        token: &str,
    ) -> anyhow::Result<Self> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))?;
        authorization.set_sensitive(true);
        Ok(Self { address, connector: config.into(), authorization, sender: None })
    }

    /// Sends a request and reads the whole response, which must be a success.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        content: Option<(&'static str, String)>,
    ) -> anyhow::Result<Answer> {
        let answered = timeout(REQUEST_TIMEOUT, self.exchange(method, path, content)).await;
        let answered = answered.context("no response within 10 s").flatten();
        if answered.is_err() {
            self.sender = None;
        }
        answered
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        content: Option<(&'static str, String)>,
    ) -> anyhow::Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::AUTHORIZATION, self.authorization.clone());
        let mut body = Body::empty();
        if let Some((content_type, text)) = content {
            request = request.header(header::CONTENT_TYPE, content_type);
            body = Body::full(text);
        }
        let request = request.body(body)?;
        let answer = self.ready().await?.send_request(request).await?;
        let status = answer.status();
        let from_memory = answer.headers().get("cache-status").is_some_and(is_hit);
        let body = Body::incoming(answer.into_body()).collect(ANSWER_BYTES_MAX).await;
        ensure!(status.is_success(), "answered {status}");
        let body = body.map_err(|error| anyhow::anyhow!(error))?;
        Ok(Answer { body, from_memory })
    }

    async fn ready(&mut self) -> anyhow::Result<&mut SendRequest<Body>> {
        let alive = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !alive {
            self.sender = None;
        }
        let sender = match self.sender.take() {
            Some(sender) => sender,
            None => self.dial().await?,
        };
        Ok(self.sender.insert(sender))
    }

    async fn dial(&self) -> anyhow::Result<SendRequest<Body>> {
        let stream = TcpStream::connect(self.address).await.context("connecting")?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(self.address.ip());
        let stream = self.connector.connect(name, stream).await.context("the TLS handshake")?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // The task ends with its sender or with the server; the next request notices either.
        tokio::spawn(connection);
        Ok(sender)
    }
}

/// Reports whether a Cache-Status has RFC 9211's `hit`.
fn is_hit(cache_status: &HeaderValue) -> bool {
    cache_status.to_str().is_ok_and(|text| text.split(';').any(|part| part.trim() == "hit"))
}
