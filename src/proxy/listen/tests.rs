//! Tests of a listener with raw sockets and real clients.

use std::{sync::Mutex, time::SystemTime};

use http_body_util::BodyExt;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;
use crate::{
    metrics::Metrics,
    tls::{Authority, Leaf, Names},
};

mod bounds;
mod idle;

/// Echoes the request after reading its body; records every path.
#[derive(Default)]
struct Echo {
    seen: Mutex<Vec<String>>,
}

impl Serve for Echo {
    async fn serve(&self, connection: &Connection, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
        self.seen.lock().unwrap().push(path.clone());
        if path == "/early" {
            return Response::new(Body::full("early"));
        }
        if path == "/refused" {
            let mut response = Response::new(Body::full("no"));
            *response.status_mut() = http::StatusCode::FORBIDDEN;
            return response;
        }
        if path == "/never" {
            std::future::pending::<()>().await;
        }
        let read = match request.into_body().collect().await {
            Ok(body) => body.to_bytes().len().to_string(),
            Err(error) => error.to_string(),
        };
        let (protocol, tls) = (connection.protocol, connection.tls);
        Response::new(Body::full(format!("{} {protocol:?} {tls:?} {read}", path.len())))
    }
}

struct Running {
    address: SocketAddr,
    roots: Vec<u8>,
    echo: Arc<Echo>,
    begin: CancellationToken,
    metrics: Metrics,
    serving: tokio::task::JoinHandle<()>,
}

async fn start(limits: Limits) -> Running {
    let now = SystemTime::now();
    let authority = Authority::generate(now).unwrap();
    let leaf: Leaf = authority.issue(&Names::of_apiserver(""), now).unwrap();
    let bound = Bound::bind("--listen", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = bound.address();
    let (echo, begin) = (Arc::new(Echo::default()), CancellationToken::new());
    let drain = Drain { begin: begin.clone(), deadline: Duration::from_secs(2) };
    let tls = Some(tls::Server::new(leaf).unwrap());
    let (slots, metrics) = (limits.connection_limit(), Metrics::new());
    let serving = tokio::spawn(serve(
        vec![bound],
        ListenerTls { tls, authorities: Authorities::default() },
        Arc::clone(&echo),
        (limits, slots),
        drain,
        metrics.clone(),
    ));
    let roots = authority.pem().as_bytes().to_vec();
    Running { address, roots, echo, begin, metrics, serving }
}

impl Running {
    fn seen(&self) -> Vec<String> {
        self.echo.seen.lock().unwrap().clone()
    }

    fn client(&self, protocols: &[&str]) -> ClientConfig {
        let mut config = tls::client_config(&self.roots).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    async fn connect(&self, config: ClientConfig) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        // An address as server name: the client sends no SNI.
        let name = ServerName::try_from("127.0.0.1").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Sends bytes over HTTP/1 and reads until the server closes.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect(self.client(&["http/1.1"])).await.unwrap();
        // The server may respond and close before it has read everything.
        let _ = stream.write_all(bytes).await;
        read_all(&mut stream).await
    }
}

async fn read_all(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(20), reading).await.expect("closed in time");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Reads until the bytes end with `end`.
async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut answer = String::new();
    while !answer.ends_with(end) {
        answer.push(char::from(stream.read_u8().await.expect("the answer goes on")));
    }
    answer
}

async fn get_http2(stream: TlsStream<TcpStream>, path: &str) -> String {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get(format!("https://localhost{path}")).body(Body::empty()).unwrap();
    let body = sender.send_request(request).await.unwrap().into_body();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
    drop(sender);
    connection.await.unwrap().unwrap();
    text
}

#[tokio::test]
async fn both_tls_versions_and_both_protocols_are_spoken() {
    let running = start(Limits::default()).await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut config = ClientConfig::builder_with_provider(tls::provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(tls::roots(&running.roots).unwrap())
            .with_no_client_auth();
        let stream = running.connect(config.clone()).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), None);
        let answer = running_http1(stream).await;
        assert_eq!(answer, format!("2 Http1 Some({:?}) 0", version.version));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let stream = running.connect(config).await.unwrap();
        let answer = get_http2(stream, "/x").await;
        assert_eq!(answer, format!("2 Http2 Some({:?}) 0", version.version));
    }
}

async fn running_http1(stream: TlsStream<TcpStream>) -> String {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/x").header("host", "localhost").body(Body::empty()).unwrap();
    let body = sender.send_request(request).await.unwrap().into_body();
    String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn second_connection_of_a_client_resumes_the_tls_session() {
    let running = start(Limits::default()).await;
    let config = running.client(&["http/1.1"]);
    let first = running.connect(config.clone()).await.unwrap();
    assert_eq!(first.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Full));
    running_http1(first).await; // Tickets come with the first bytes.
    let second = running.connect(config).await.unwrap();
    assert_eq!(second.get_ref().1.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
}

#[tokio::test]
async fn ambiguous_framing_is_answered_400_and_the_connection_closed() {
    let running = start(Limits::default()).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    let te = "Transfer-Encoding: chunked\r\n";
    for headers in [
        format!("Host: x\r\nContent-Length: 3\r\n{te}"),
        format!("Host: x\r\n{te}Content-Length: 3\r\n"),
        "Host: x\r\nContent-Length: 0\r\nContent-Length: 0\r\n".to_owned(),
        "Host: x\r\nContent-Length: 0\r\nContent-Length: 5\r\n".to_owned(),
        "Host: x\r\nContent-Length: +0\r\n".to_owned(),
        "Host: x\r\nContent-Length: -1\r\n".to_owned(),
        "Host: x\r\nContent-Length: 99999999999999999999\r\n".to_owned(),
        "Host: x\r\nTransfer-Encoding: chunked, identity\r\n".to_owned(),
        "Host: x\r\nTransfer-Encoding: xchunked\r\n".to_owned(),
        "Host: x\r\nTransfer-Encoding : chunked\r\n".to_owned(),
        "Host: x\r\nA: b\r\n folded: c\r\n".to_owned(),
        "Host: x\r\nHost: y\r\n".to_owned(),
        "Accept: */*\r\n".to_owned(),
        "Host: x\r\nA\0: b\r\n".to_owned(),
        "Host: x\nA: b\r\n".to_owned(),
        "Host: x\r\nA: b\rB: c\r\n".to_owned(),
    ] {
        let request = format!("POST /first HTTP/1.1\r\n{headers}\r\n0\r\n\r\n{smuggled}");
        let answer = running.raw(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{headers:?}: {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{headers:?}: {answer:?}");
        assert_eq!(running.seen(), Vec::<String>::new(), "{headers:?}");
    }
}

#[tokio::test]
async fn a_framing_conflict_is_found_on_a_reused_connection() {
    let running = start(Limits::default()).await;
    let mut stream = running.connect(running.client(&[])).await.unwrap();
    stream.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    read_until(&mut stream, "TLSv1_3) 0").await;
    stream
        .write_all(
            b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\
              Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /c HTTP/1.1\r\nHost: x\r\n\r\n",
        )
        .await
        .unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains(r#""reason":"BadRequest""#), "{answer}");
    assert_eq!(running.seen(), ["/a"]);
}

#[tokio::test]
async fn malformed_and_oversized_requests_get_a_clear_error() {
    let running = start(Limits::default()).await;
    let query = |count: usize| {
        let parameters: Vec<_> = (0..count).map(|number| format!("p{number}=v")).collect();
        format!("GET /q?{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", parameters.join("&"))
    };
    let many_headers: String = (0..200).map(|number| format!("H{number}: v\r\n")).collect();
    let long_header = "x".repeat(100 * 1024);
    for (request, status) in [
        ("complete nonsense\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/7.3\r\nHost: x\r\n\r\n".to_owned(), "400"),
        ("GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
        ("CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "405"),
        ("GET /version#x HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
        ("GET /a/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(), "400"),
        ("GET /a/%2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(), "400"),
        ("GET /a/%2F?%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(), "200"),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: close, Authorization\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: impersonate-user\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: x\r\nConnection: close, x-author\r\n\r\n".to_owned(), "200"),
        ("GET / HTTP/1.1\r\nHost: x\r\nExpect: 200-ok\r\n\r\n".to_owned(), "417"),
        (query(5_000), "200"),
        (query(10_000), "431"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\n{many_headers}\r\n"), "431"),
        (format!("GET / HTTP/1.1\r\nHost: x\r\nA: {long_header}\r\n\r\n"), "431"),
    ] {
        let answer = running.raw(request.as_bytes()).await;
        let start: String = request.chars().take(60).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{start:?}: {answer:?}");
    }
    let metrics = running.metrics.render();
    let refused =
        [("connect", 1), ("target", 2), ("credential_in_connection", 2), ("expectation", 1)];
    for (reason, count) in refused {
        let line = format!("listless_client_refused_total{{reason=\"{reason}\"}} {count}");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
}

#[tokio::test]
async fn an_oversized_http2_head_does_not_disturb_other_streams() {
    let running = start(Limits::default()).await;
    let stream = running.connect(running.client(&["h2"])).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = |path: &str, header: &str| {
        let uri = format!("https://localhost{path}");
        Request::get(uri).header("x-long", header).body(Body::empty()).unwrap()
    };
    let long_path = format!("/?{}", "p=v&".repeat(16_000));
    for (path, header, status) in [
        ("/a", "short", 200),
        ("/b", &*"x".repeat(100 * 1024), 431),
        ("/a/%zz", "short", 400),
        (&*long_path, &*"x".repeat(4 * 1024), 431),
        ("/c", "short", 200),
    ] {
        let response = sender.send_request(request(path, header)).await.unwrap();
        assert_eq!(response.status(), status, "{}", path.len());
    }
}

#[tokio::test]
async fn large_and_unread_bodies_do_not_disturb_other_requests() {
    let running = start(Limits::default()).await;
    let body = vec![b'x'; 3 << 20];
    let head = |path: &str, more: &str| {
        let length = body.len();
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n")
    };
    let request = [head("/read", "Connection: close\r\n").as_bytes(), &body].concat();
    let answer = running.raw(&request).await;
    assert!(answer.ends_with("Some(TLSv1_3) 3145728"), "{answer}");
    let request = [head("/early", "").as_bytes(), &body, b"GET /x HTTP/1.1\r\n\r\n"].concat();
    let answer = running.raw(&request).await;
    assert!(!answer.contains("400"), "the rest of a body is no request: {answer}");
    assert!(running.seen().iter().all(|path| path != "/x"));
}

#[tokio::test]
async fn an_incomplete_head_times_out_and_an_idle_connection_does_not() {
    let limits = Limits {
        head_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_secs(60),
        ..Limits::default()
    };
    let running = start(limits).await;
    let mut slow = running.connect(running.client(&[])).await.unwrap();
    slow.write_all(b"GET /slow HT").await.unwrap();
    let mut idle = running.connect(running.client(&[])).await.unwrap();
    assert_eq!(read_all(&mut slow).await, "");
    idle.write_all(b"GET /idle HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(read_all(&mut idle).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_timeout() {
    let limits = Limits { idle_timeout: Duration::from_millis(100), ..Limits::default() };
    let running = start(limits).await;
    let mut idle = running.connect(running.client(&[])).await.unwrap();
    assert_eq!(read_all(&mut idle).await, "");
}

#[tokio::test]
async fn clients_without_tls_get_an_error_or_are_disconnected() {
    let limits = Limits { handshake_timeout: Duration::from_secs(1), ..Limits::default() };
    let running = start(limits).await;
    let mut plain = TcpStream::connect(running.address).await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let answer = read_all(&mut plain).await;
    assert!(answer.starts_with("HTTP/1.0 400 ") && answer.contains("HTTPS"), "{answer}");
    for bytes in [&b"\x16\x03\x01\xff\xffgarbage"[..], b"\x00\x01\x02", b""] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.len() < 16, "at most an alert: {answer:?}");
    }
    let stream = running.connect(running.client(&["h2"])).await.unwrap();
    assert_eq!(get_http2(stream, "/still-serving").await, "14 Http2 Some(TLSv1_3) 0");
}

#[tokio::test]
async fn refused_upgrade_closes_the_connection() {
    let running = start(Limits::default()).await;
    let answer = running
        .raw(
            b"GET /up HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\
              GET /after HTTP/1.1\r\nHost: x\r\n\r\n",
        )
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"),
        "{answer}"
    );
    assert_eq!(running.seen(), ["/up"]);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let running = start(Limits::default()).await;
    let answer = running
        .raw(
            b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /22 HTTP/1.1\r\nHost: x\r\n\r\n\
              GET /333 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        )
        .await;
    let positions: Vec<_> =
        ["2 Http1", "3 Http1", "4 Http1"].iter().map(|text| answer.find(text).unwrap()).collect();
    assert!(positions.is_sorted(), "{answer}");
}

/// Opens connections that send nothing.
async fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        held.push(TcpStream::connect(address).await.unwrap());
    }
    held
}

#[tokio::test]
async fn drain_ends_idle_connections_finishes_requests_and_keeps_its_deadline() {
    let running = start(Limits::default()).await;
    let mut idle = running.connect(running.client(&[])).await.unwrap();
    let mut busy = running.connect(running.client(&[])).await.unwrap();
    busy.write_all(b"POST /busy HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na").await.unwrap();
    let mut stuck = running.connect(running.client(&[])).await.unwrap();
    stuck.write_all(b"GET /never HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    while running.seen().len() < 2 {
        tokio::task::yield_now().await;
    }
    running.begin.cancel();
    assert_eq!(read_all(&mut idle).await, "");
    assert!(TcpStream::connect(running.address).await.is_err(), "nobody is accepted any more");
    busy.write_all(b"b").await.unwrap();
    let answer = read_all(&mut busy).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(" 2"), "{answer}");
    running.serving.await.unwrap();
    assert_eq!(read_all(&mut stuck).await, "");
}

#[tokio::test]
async fn plain_listener_serves_http1() {
    let bound = Bound::bind("--health", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = bound.address();
    let drain = Drain { begin: CancellationToken::new(), deadline: Duration::ZERO };
    tokio::spawn(serve(
        vec![bound],
        ListenerTls::default(),
        Arc::new(Echo::default()),
        (Limits::default(), Limits::default().connection_limit()),
        drain,
        Metrics::new(),
    ));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let answer = read_all(&mut stream).await;
    assert!(answer.ends_with("2 Http1 None 0"), "{answer}");
}

#[tokio::test]
async fn bind_error_names_the_flag_and_the_address() {
    let first = Bound::bind("--listen", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let error = Bound::bind("--admin", first.address()).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        error.to_string(),
        format!("--admin {}: cannot listen on this address", first.address())
    );
    assert!(source.contains("in use"), "{source}");
}
