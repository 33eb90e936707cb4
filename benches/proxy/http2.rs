//! A client's HTTP/2 connection.

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Empty;
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::wire::Endpoint;

/// An open connection.
pub(crate) struct Http2 {
    sender: http2::SendRequest<Empty<Bytes>>,
    authority: String,
    token: String,
}

// === impl Http2 ===

impl Http2 {
    /// Connects to this server.
    pub(crate) async fn open(endpoint: &Endpoint) -> Result<Self> {
        let tls = endpoint.connect(b"h2").await?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        let (authority, token) = (endpoint.authority.clone(), endpoint.token.clone());
        Ok(Self { sender, authority, token })
    }

    /// Sends a GET and returns the response without waiting for its body.
    pub(crate) async fn get(&mut self, target: &str) -> Result<Response<Incoming>> {
        self.sender.ready().await?;
        let uri = Uri::builder().scheme("https").authority(self.authority.as_str());
        let request = Request::get(uri.path_and_query(target).build()?)
            .header("user-agent", "listless-bench")
            .header("accept", "application/json")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Empty::new())?;
        let response = self.sender.send_request(request).await?;
        ensure!(response.status() == 200, "{target}: {}", response.status());
        Ok(response)
    }
}
