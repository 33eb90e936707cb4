//! Requests to the etcd of a control plane, in JSON.

use std::net::SocketAddr;

use anyhow::{Result, bail};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Sends one request on a connection of its own; the body may still be coming.
pub async fn ask(etcd: SocketAddr, path: &str, body: &Value) -> Result<Response<Incoming>> {
    let stream = TokioIo::new(TcpStream::connect(etcd).await?);
    let (mut sender, connection) = http1::handshake(stream).await?;
    tokio::spawn(connection);
    let request = Request::post(path).header("Host", etcd.to_string());
    let request = request.body(Full::new(Bytes::from(body.to_string())))?;
    let answer = sender.send_request(request).await?;
    if !answer.status().is_success() {
        bail!("etcd said {} to {path}", answer.status());
    }
    Ok(answer)
}
