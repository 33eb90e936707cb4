//! One kept-alive HTTP/1.1 connection over TLS with minimal overhead, because the load shares the
//! cores with the servers.
//!
//! It expects correct framing from the server, and fails otherwise.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use memchr::memmem;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::form::Form;

pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 * 1024;

/// The address of a server, its trusted roots, and a token for it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) authority: String,
    pub(crate) token: String,
    roots: Arc<RootCertStore>,
}

/// A connection that is used for sequential requests.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// Bytes read but not yet consumed.
    buffer: Vec<u8>,
    filled: usize,
    /// `true` while a response is expected.
    awaits: bool,
    /// The framing of the current response, once its head is read.
    framing: Option<Framing>,
    head_end: usize,
    next_chunk: usize,
    /// The decoded chunks of the body so far.
    unchunked: Vec<u8>,
}

/// A response, valid until the next request.
#[derive(Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) head: &'a str,
    pub(crate) body: &'a [u8],
}

/// The framing of a response's body.
#[derive(Clone, Copy)]
enum Framing {
    Length(usize),
    Chunked,
}

// === impl Endpoint ===

impl Endpoint {
    /// Reads the first cluster and user of a kubeconfig with embedded credentials.
    pub(crate) fn from_kubeconfig(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let config: serde_json::Value = serde_saphyr::from_str(&text)?;
        let cluster = &config["clusters"][0]["cluster"];
        let server = cluster["server"].as_str().context("no server")?;
        let authority = server.strip_prefix("https://").context("not an https server")?;
        let token = config["users"][0]["user"]["token"].as_str().context("no token")?;
        let pem = cluster["certificate-authority-data"].as_str().context("no authority data")?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&STANDARD.decode(pem)?) {
            roots.add(certificate?)?;
        }
        Ok(Self {
            authority: authority.trim_end_matches('/').to_owned(),
            token: token.to_owned(),
            roots: Arc::new(roots),
        })
    }

    /// Returns another server for the same token.
    pub(crate) fn at(&self, authority: &str, roots: RootCertStore) -> Self {
        let token = self.token.clone();
        Self { authority: authority.to_owned(), token, roots: Arc::new(roots) }
    }

    /// Returns a configuration with TLS 1.3 and AES-128-GCM only: both servers must use the same
    /// cipher.
    pub(crate) fn tls(&self, protocol: &[u8]) -> Result<Arc<ClientConfig>> {
        let provider = CryptoProvider {
            cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
            ..aws_lc_rs::default_provider()
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::new(config))
    }

    /// Connects over TLS for this protocol.
    pub(crate) async fn connect(
        &self,
        protocol: &[u8],
    ) -> Result<TlsStream<tokio::net::TcpStream>> {
        let tcp = tokio::net::TcpStream::connect(&self.authority).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(self.host().to_owned())?;
        let tls = TlsConnector::from(self.tls(protocol)?).connect(name, tcp).await?;
        ensure!(
            tls.get_ref().1.alpn_protocol() == Some(protocol),
            "another protocol was negotiated"
        );
        Ok(tls)
    }

    /// Returns the host without the port.
    pub(crate) fn host(&self) -> &str {
        self.authority.rsplit_once(':').map_or(&self.authority, |(host, _)| host)
    }

    /// Returns the bytes of a GET request for JSON.
    pub(crate) fn request(&self, target: &str) -> Vec<u8> {
        self.request_in(Form::Json, target)
    }

    /// Returns the bytes of a GET request for a form.
    pub(crate) fn request_in(&self, form: Form, target: &str) -> Vec<u8> {
        self.request_with(form, target, None)
    }

    /// Returns the bytes of a GET request, or of a POST request with a body in JSON.
    pub(crate) fn request_with(&self, form: Form, target: &str, body: Option<&str>) -> Vec<u8> {
        let method = if body.is_some() { "POST" } else { "GET" };
        let content = body.map_or_else(String::new, |body| {
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
        });
        let encoding = if form.is_gzip() { "Accept-Encoding: gzip\r\n" } else { "" };
        format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nUser-Agent: listless-bench\r\nAccept: \
             {}\r\n{encoding}{content}Authorization: Bearer {}\r\n\r\n{}",
            self.authority,
            form.accept(),
            self.token,
            body.unwrap_or_default()
        )
        .into_bytes()
    }
}

// === impl Connection ===

impl Connection {
    pub(crate) fn open(endpoint: &Endpoint) -> Result<Self> {
        let tcp = TcpStream::connect(&endpoint.authority)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(ANSWER_LIMIT))?;
        let name = ServerName::try_from(endpoint.host().to_owned())?;
        let tls = ClientConnection::new(endpoint.tls(b"http/1.1")?, name)?;
        let mut stream = StreamOwned::new(tls, tcp);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        let buffer = vec![0; READ_BYTES];
        Ok(Self {
            stream,
            buffer,
            filled: 0,
            awaits: false,
            framing: None,
            head_end: 0,
            next_chunk: 0,
            unchunked: Vec::new(),
        })
    }

    /// Makes reads non-blocking from now on.
    pub(crate) fn set_nonblocking(&self) -> Result<()> {
        Ok(self.stream.sock.set_nonblocking(true)?)
    }

    /// Sends a request made by [`Endpoint::request`] and waits for its whole response.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        let begun = Instant::now();
        self.send(request)?;
        while !self.receive()? {
            ensure!(begun.elapsed() < ANSWER_LIMIT, "no response in {ANSWER_LIMIT:?}");
        }
        self.answer()
    }

    /// Sends a request made by [`Endpoint::request`].
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<()> {
        (self.filled, self.framing, self.awaits) = (0, None, true);
        self.unchunked.clear();
        self.stream.write_all(request)?;
        Ok(self.stream.flush()?)
    }

    /// Reads once. Returns `true` when the response is complete.
    pub(crate) fn receive(&mut self) -> Result<bool> {
        let whole = self.read_once()?;
        self.awaits = !whole;
        Ok(whole)
    }

    fn read_once(&mut self) -> Result<bool> {
        if self.buffer.len() < self.filled + READ_BYTES {
            self.buffer.resize((self.buffer.len() * 2).max(self.filled + READ_BYTES), 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("the server closed the connection"),
            Ok(read) => self.filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        if self.framing.is_none() {
            let Some(at) = memmem::find(&self.buffer[..self.filled], b"\r\n\r\n") else {
                return Ok(false);
            };
            self.head_end = at + 4;
            self.framing = Some(framing(std::str::from_utf8(&self.buffer[..self.head_end])?)?);
            self.next_chunk = self.head_end;
        }
        match self.framing {
            Some(Framing::Length(length)) => {
                let end = self.head_end + length;
                ensure!(self.filled <= end, "{} bytes after the response", self.filled - end);
                Ok(self.filled == end)
            }
            Some(Framing::Chunked) => self.take_chunks(),
            None => Ok(false),
        }
    }

    /// Reports whether a response is still incomplete.
    pub(crate) fn awaits(&self) -> bool {
        self.awaits
    }

    /// Returns the complete response that [`Connection::receive`] found.
    pub(crate) fn answer(&self) -> Result<Answer<'_>> {
        let head = std::str::from_utf8(&self.buffer[..self.head_end])?;
        let status = head.get(9..12).context("no status line")?.parse()?;
        let body = match self.framing {
            Some(Framing::Chunked) => &self.unchunked,
            _ => &self.buffer[self.head_end..self.filled],
        };
        Ok(Answer { status, head, body })
    }

    /// Consumes the chunks that have arrived. Returns `true` after the last one.
    fn take_chunks(&mut self) -> Result<bool> {
        let ended = loop {
            let rest = &self.buffer[self.next_chunk..self.filled];
            let Some(line_end) = memmem::find(rest, b"\r\n") else { break false };
            let size = std::str::from_utf8(&rest[..line_end])?.trim();
            let size = usize::from_str_radix(size, 16)?;
            let from = line_end + 2;
            let Some(chunk) = rest.get(from..from + size + 2) else { break false };
            if size == 0 {
                break true;
            }
            self.unchunked.extend_from_slice(&chunk[..size]);
            self.next_chunk += from + size + 2;
        };
        // The buffer would otherwise hold a large body a second time.
        if self.next_chunk > self.head_end {
            self.buffer.copy_within(self.next_chunk..self.filled, self.head_end);
            self.filled -= self.next_chunk - self.head_end;
            self.next_chunk = self.head_end;
        }
        Ok(ended)
    }
}

// === impl Answer ===

impl Answer<'_> {
    /// Returns a header's value. Names are compared without case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }

    /// Returns the Cache-Status of Listless. Empty from other servers.
    pub(crate) fn cache_status(&self) -> &str {
        self.header("cache-status").unwrap_or_default()
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

fn framing(head: &str) -> Result<Framing> {
    if let Some(length) = header(head, "content-length") {
        return Ok(Framing::Length(length.parse()?));
    }
    match header(head, "transfer-encoding") {
        Some("chunked") => Ok(Framing::Chunked),
        other => bail!("a response without length, transfer-encoding {other:?}"),
    }
}
