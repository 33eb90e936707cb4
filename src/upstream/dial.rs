//! Byte streams to the apiserver: TCP, or TCP through an HTTP proxy.
//!
//! The dialler is a parameter, to run the whole upstream side over simulated networks. This module
//! knows nothing of TLS, and of HTTP only the proxy's CONNECT.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http::{HeaderValue, uri::Authority};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream, lookup_host},
};

use super::health::{ProxyRefused, Unresolved};

/// The longest response to a CONNECT that is read.
const CONNECT_ANSWER_BYTES_MAX: usize = 8 * 1024;

/// The time after which the next address of a name is tried beside one that does not answer.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(300);

/// The silence of a connection after which its peer is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// The time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A connected byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// An opener of byte streams to `host:port`.
pub trait Dial: Send + Sync + 'static {
    /// Opens one stream; `host` is a name or an IP address without brackets.
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>>;
}

/// The operating system's TCP. While a name cannot be resolved, its last addresses are used.
#[derive(Clone, Debug, Default)]
pub struct Tcp(Arc<LastResolved>);

/// The addresses of the name that was resolved last. A process dials one apiserver or one proxy.
#[derive(Debug, Default)]
struct LastResolved(Mutex<Option<(String, u16, Vec<SocketAddr>)>>);

/// An HTTP proxy that opens tunnels with CONNECT.
#[derive(Clone)]
pub struct HttpProxy {
    host: String,
    port: u16,
    authorization: Option<HeaderValue>,
}

/// The reason why a proxy URL is invalid.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The scheme is not `http`.
    #[error("proxy-url has scheme {0:?}, only http:// is supported")]
    Scheme(String),
    /// The URL names no host.
    #[error("proxy-url has no host")]
    NoHost,
    /// User and password are not valid in a header.
    #[error("the credentials in proxy-url are not valid in a header")]
    Credentials,
}

// === impl Tcp ===

impl Dial for Tcp {
    fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
        let last = self.0.clone();
        Box::pin(async move {
            let addresses = last.or_last(&host, port, resolve(&host, port).await)?;
            let stream = connect_any(&host, addresses).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

// === impl LastResolved ===

impl LastResolved {
    /// Keeps the addresses of a name, or returns the kept ones if it could not be resolved.
    fn or_last(
        &self,
        host: &str,
        port: u16,
        resolved: io::Result<Vec<SocketAddr>>,
    ) -> io::Result<Vec<SocketAddr>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (resolved, &*last) {
            (Ok(addresses), _) => {
                *last = Some((host.to_owned(), port, addresses.clone()));
                Ok(addresses)
            }
            (Err(error), Some((name, of, addresses))) if name == host && *of == port => {
                tracing::warn!(host, %error, "using the last known addresses");
                Ok(addresses.clone())
            }
            (Err(error), _) => Err(error),
        }
    }
}

async fn connect_any(host: &str, addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    first_of(addresses.into_iter().map(connect)).await.unwrap_or_else(|| Err(none()))
}

/// Returns the first success, or the last failure. An attempt begins when the one before has failed, or has taken
/// [`NEXT_ADDRESS_AFTER`] (RFC 8305).
async fn first_of<A, T>(attempts: impl Iterator<Item = A>) -> Option<io::Result<T>>
where
    A: Future<Output = io::Result<T>>,
{
    let mut waiting = attempts.peekable();
    let (mut running, mut last) = (FuturesUnordered::new(), None);
    loop {
        running.extend(waiting.next());
        tokio::select! {
            ended = running.next() => match ended {
                Some(Err(error)) => last = Some(Err(error)),
                Some(done) => return Some(done),
                None => return last,
            },
            () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if waiting.peek().is_some() => {}
        }
    }
}

async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match lookup_host((host, port)).await {
        Ok(addresses) => Ok(addresses.collect()),
        Err(source) => Err(io::Error::other(Unresolved { host: host.to_owned(), source })),
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    let stream = socket.connect(address).await?;
    tune(&stream)?;
    Ok(stream)
}

/// Sends small writes at once, and detects within a minute that a peer has vanished.
///
/// HTTP/2 has its own pings; this is for HTTP/1.1 and for tunnels.
pub fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

// === impl HttpProxy ===

impl HttpProxy {
    /// Parses a `proxy-url`.
    pub fn parse(url: &http::Uri) -> Result<Self, ProxyError> {
        match url.scheme_str() {
            Some("http") => {}
            other => return Err(ProxyError::Scheme(other.unwrap_or_default().to_owned())),
        }
        let authority = url.authority().ok_or(ProxyError::NoHost)?;
        let host = bare_host(authority);
        if host.is_empty() {
            return Err(ProxyError::NoHost);
        }
        let authorization = match authority.as_str().rsplit_once('@') {
            Some((user_info, _)) => Some(basic(user_info)?),
            None => None,
        };
        Ok(Self { host, port: authority.port_u16().unwrap_or(80), authorization })
    }

    /// Dials the proxy and requests a tunnel to `target`.
    pub async fn dial(&self, dialler: &dyn Dial, target: &str) -> io::Result<Box<dyn Stream>> {
        let mut stream = dialler.dial(self.host.clone(), self.port).await?;
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        if let Some(value) = &self.authorization {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(value.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).await?;
        stream.flush().await?;
        accepted(&read_head(&mut *stream).await?)?;
        Ok(stream)
    }
}

/// Returns the host of an authority without port, credentials and IPv6 brackets.
pub(super) fn bare_host(authority: &Authority) -> String {
    authority.host().trim_start_matches('[').trim_end_matches(']').to_owned()
}

fn basic(user_info: &str) -> Result<HeaderValue, ProxyError> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let decoded = percent_decoded(user_info).ok_or(ProxyError::Credentials)?;
    let decoded = if decoded.contains(':') { decoded } else { decoded + ":" };
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(decoded)))
        .map_err(|_| ProxyError::Credentials)?;
    value.set_sensitive(true);
    Ok(value)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let high = char::from(rest.next()?).to_digit(16)?;
        let low = char::from(rest.next()?).to_digit(16)?;
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// Reads byte by byte up to the blank line: later bytes belong to the tunnel.
async fn read_head(stream: &mut dyn Stream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == CONNECT_ANSWER_BYTES_MAX {
            return Err(io::Error::other("the proxy's response to CONNECT is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(head)
}

fn accepted(head: &[u8]) -> io::Result<()> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let version = words.next().unwrap_or_default();
    let status = words.next().unwrap_or_default();
    if version.starts_with(b"HTTP/1.") && status.len() == 3 && status.starts_with(b"2") {
        return Ok(());
    }
    let line = String::from_utf8_lossy(line).into_owned();
    Err(io::Error::other(ProxyRefused(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OneStream(Mutex<Option<tokio::io::DuplexStream>>);

    impl Dial for OneStream {
        fn dial(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Box<dyn Stream>>> {
            assert_eq!((host.as_str(), port), ("proxy.example", 3128));
            let stream = self.0.lock().unwrap().take().unwrap();
            Box::pin(async move { Ok(Box::new(stream) as Box<dyn Stream>) })
        }
    }

    async fn tunnel(answer: &'static [u8]) -> (String, io::Result<Box<dyn Stream>>) {
        let (near, mut far) = tokio::io::duplex(1024);
        let proxy =
            HttpProxy::parse(&"http://us%65r:p@proxy.example:3128".parse().unwrap()).unwrap();
        let served = tokio::spawn(async move {
            let head = read_head(&mut far).await.unwrap();
            far.write_all(answer).await.unwrap();
            String::from_utf8(head).unwrap()
        });
        let dialler = OneStream(Mutex::new(Some(near)));
        let outcome = proxy.dial(&dialler, "10.0.0.1:6443").await;
        (served.await.unwrap(), outcome)
    }

    #[tokio::test]
    async fn a_proxy_opens_a_tunnel_and_later_bytes_stay_in_it() {
        let (asked, stream) = tunnel(b"HTTP/1.1 200 Connection established\r\n\r\nhello").await;
        assert_eq!(
            asked,
            "CONNECT 10.0.0.1:6443 HTTP/1.1\r\nHost: 10.0.0.1:6443\r\n\
             Proxy-Authorization: Basic dXNlcjpw\r\n\r\n"
        );
        let mut rest = String::new();
        stream.unwrap().read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "hello");
    }

    #[tokio::test]
    async fn the_refusal_of_a_proxy_contains_its_status_line() {
        let (_, stream) = tunnel(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await;
        let error = stream.err().unwrap().to_string();
        assert!(error.contains("407 Proxy Authentication Required"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_that_do_not_answer_delay_the_others_little() {
        let attempt = |outcome: Option<bool>| async move {
            match outcome {
                Some(true) => Ok(()),
                Some(false) => Err(io::ErrorKind::ConnectionRefused.into()),
                None => std::future::pending().await,
            }
        };
        let began = tokio::time::Instant::now();
        let outcomes = [None, None, None, Some(false), Some(true)];
        first_of(outcomes.into_iter().map(attempt)).await.expect("an outcome").expect("a success");
        assert_eq!(began.elapsed(), 3 * NEXT_ADDRESS_AFTER);
        let failed = first_of([Some(false), Some(false)].into_iter().map(attempt)).await;
        assert!(failed.expect("an outcome").is_err());
        assert!(first_of(std::iter::empty().map(attempt)).await.is_none());
    }

    #[test]
    fn a_name_that_cannot_be_resolved_keeps_its_last_addresses() {
        let (last, failed) = (LastResolved::default(), || Err(io::Error::other("no such host")));
        let resolved = |address: &str| vec![address.parse::<SocketAddr>().unwrap()];
        assert!(last.or_last("api.example", 6443, failed()).is_err(), "nothing is known yet");
        for address in ["192.0.2.1:6443", "192.0.2.2:6443"] {
            last.or_last("api.example", 6443, Ok(resolved(address))).unwrap();
            assert_eq!(last.or_last("api.example", 6443, failed()).unwrap(), resolved(address));
        }
        assert!(last.or_last("other.example", 6443, failed()).is_err(), "of another name");
        assert!(last.or_last("api.example", 443, failed()).is_err(), "of another port");
    }

    #[test]
    fn only_plain_http_proxies_are_accepted() {
        let error = HttpProxy::parse(&"socks5://localhost:1080".parse().unwrap()).err().unwrap();
        assert!(error.to_string().contains("socks5"), "{error}");
    }
}
