//! The client of a running Listless's admin address: plain HTTP, one request per connection.

use std::{fmt, str::FromStr, time::Duration};

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use http::{Request, Response, StatusCode, header::HOST};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::progress::waiting_for;
use crate::body::Body;

/// The Listless to query.
#[derive(Clone, Debug, Args)]
pub(super) struct AdminOptions {
    /// The admin address of a running Listless.
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS)]
    pub(super) admin: AdminAddress,
}

/// The admin address of a running Listless: a host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdminAddress(String);

/// The default admin address.
const DEFAULT_ADDRESS: &str = "127.0.0.1:7444";

/// The timeout for a connection, and for the head of a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum size of a document.
const DOCUMENT_BYTES_MAX: usize = 64 << 20;

/// Runs one query to its end.
pub(super) fn block_on<T>(question: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build().context("cannot start the runtime")?.block_on(question)
}

/// Returns the whole response for a path and query.
pub(super) async fn document(address: &AdminAddress, target: &str) -> anyhow::Result<Bytes> {
    let answer = open(address, target).await?;
    let body = Body::incoming(answer.into_body()).collect(DOCUMENT_BYTES_MAX).await;
    body.map_err(anyhow::Error::from_boxed).with_context(|| {
        format!(
            "{address}: cannot read the \
                                                                     response"
        )
    })
}

/// Opens a response that still arrives.
pub(super) async fn open(
    address: &AdminAddress,
    target: &str,
) -> anyhow::Result<Response<Incoming>> {
    let answer = timeout(ANSWER_TIMEOUT, sent(address, target)).await;
    let answer = answer.with_context(|| format!("{address}: no response within 10 s"))??;
    if answer.status() == StatusCode::OK {
        return Ok(answer);
    }
    let status = answer.status();
    let text = Body::incoming(answer.into_body()).collect(DOCUMENT_BYTES_MAX).await;
    let text = text.unwrap_or_default();
    bail!("{address}: {status}: {}", String::from_utf8_lossy(&text).trim())
}

async fn sent(address: &AdminAddress, target: &str) -> anyhow::Result<Response<Incoming>> {
    let nobody = || {
        format!(
            "{address}: nothing listens there; start Listless, or pass its address with \
                    --admin"
        )
    };
    let stream = TcpStream::connect(&address.0).await.with_context(nobody)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(target).header(HOST, &address.0).body(Body::empty())?;
    sender.send_request(request).await.with_context(|| {
        format!(
            "{address}: this is not Listless's admin address; pass it with \
                                  --admin"
        )
    })
}

/// Builds a path with parameters, their values escaped.
pub(super) fn target(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut target = path.to_owned();
    for (index, (name, value)) in parameters.iter().enumerate() {
        target.push(if index == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    target.push(char::from(byte));
                }
                _ => target.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    target
}

// === impl AdminOptions ===

impl AdminOptions {
    /// Returns the document at this path.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Bytes> {
        waiting_for(&self.admin.to_string(), || block_on(document(&self.admin, path)))
    }
}

// === impl AdminAddress ===

impl FromStr for AdminAddress {
    type Err = String;

    /// Parses a host and a port, or a URL as a log or a browser shows it.
    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        match address.rsplit_once(':') {
            Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => {
                Ok(Self(address.to_owned()))
            }
            _ => Err(format!("write HOST:PORT, such as {DEFAULT_ADDRESS}")),
        }
    }
}

/// Reports whether this can be a name or an address, and not a URL of another scheme.
fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains('/')
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_a_url_as_a_browser_shows_it() {
        for text in ["127.0.0.1:7444", "http://127.0.0.1:7444/", "[::1]:7444", "localhost:1"] {
            assert!(text.parse::<AdminAddress>().is_ok(), "{text}");
        }
        for text in ["", "7444", "localhost", ":7444", "localhost:port", "https://a:1"] {
            assert!(text.parse::<AdminAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn values_are_escaped() {
        let target = target("/api/v1/explain", &[("url", "/a?b=c&d=é"), ("method", "GET")]);
        assert_eq!(target, "/api/v1/explain?url=/a%3Fb%3Dc%26d%3D%C3%A9&method=GET");
    }
}
