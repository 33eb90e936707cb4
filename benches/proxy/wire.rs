//! One kept-alive HTTP/1.1 connection over TLS, as lean as a client can be: the load shares the
//! cores with the servers it measures.
//!
//! It trusts the server under test to frame correctly and fails loudly when it does not.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use memchr::memmem;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 * 1024;

/// Where a server listens, whom it is trusted by, and the token to show it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) authority: String,
    pub(crate) token: String,
    roots: Arc<RootCertStore>,
}

/// A connection that is used for one request after the other.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// What was read and not yet consumed.
    buffer: Vec<u8>,
    filled: usize,
    /// The last answer's body when it came in chunks.
    unchunked: Vec<u8>,
}

/// An answer, valid until the next request.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) head: &'a str,
    pub(crate) body: &'a [u8],
}

/// How the body of an answer is framed.
enum Framing {
    Length(usize),
    Chunked,
}

// === impl Endpoint ===

impl Endpoint {
    /// The first cluster and user of a kubeconfig with embedded credentials.
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

    /// TLS 1.3 with AES-128-GCM only: both servers must pay for the same cipher.
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

    /// The host without the port.
    pub(crate) fn host(&self) -> &str {
        self.authority.rsplit_once(':').map_or(&self.authority, |(host, _)| host)
    }

    /// The bytes of a GET request.
    pub(crate) fn request(&self, target: &str) -> Vec<u8> {
        format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\nUser-Agent: listless-bench\r\nAccept: \
             application/json\r\nAuthorization: Bearer {}\r\n\r\n",
            self.authority, self.token
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
        Ok(Self { stream, buffer, filled: 0, unchunked: Vec::new() })
    }

    /// Sends a request made by [`Endpoint::request`] and reads its whole answer.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request)?;
        self.stream.flush()?;
        self.filled = 0;
        let head_end = loop {
            self.read_more()?;
            if let Some(at) = memmem::find(&self.buffer[..self.filled], b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = std::str::from_utf8(&self.buffer[..head_end])?;
        let status = head.get(9..12).context("no status line")?.parse()?;
        let body_end = match framing(head)? {
            Framing::Length(length) => {
                while self.filled < head_end + length {
                    self.read_more()?;
                }
                Some(head_end + length)
            }
            Framing::Chunked => {
                self.read_chunks(head_end)?;
                None
            }
        };
        if body_end.is_some_and(|end| end != self.filled) {
            bail!("{} bytes after the answer", self.filled - body_end.unwrap_or_default());
        }
        let body = match body_end {
            Some(end) => &self.buffer[head_end..end],
            None => &self.unchunked,
        };
        Ok(Answer { status, head: std::str::from_utf8(&self.buffer[..head_end])?, body })
    }

    fn read_chunks(&mut self, mut at: usize) -> Result<()> {
        self.unchunked.clear();
        loop {
            let line_end = loop {
                match memmem::find(&self.buffer[at..self.filled], b"\r\n") {
                    Some(found) => break at + found,
                    None => self.read_more()?,
                }
            };
            let size = std::str::from_utf8(&self.buffer[at..line_end])?;
            let size = usize::from_str_radix(size.trim(), 16)?;
            let end = line_end + 2 + size + 2;
            while self.filled < end {
                self.read_more()?;
            }
            if size == 0 {
                return Ok(());
            }
            self.unchunked.extend_from_slice(&self.buffer[line_end + 2..end - 2]);
            at = end;
        }
    }

    fn read_more(&mut self) -> Result<()> {
        if self.buffer.len() < self.filled + READ_BYTES {
            self.buffer.resize((self.buffer.len() * 2).max(self.filled + READ_BYTES), 0);
        }
        let read = self.stream.read(&mut self.buffer[self.filled..])?;
        if read == 0 {
            bail!("the server closed the connection");
        }
        self.filled += read;
        Ok(())
    }
}

// === impl Answer ===

impl Answer<'_> {
    /// A header's value; names are compared without regard to case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }

    /// What Listless says it did; empty from anyone else.
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
        other => bail!("an answer without length, transfer-encoding {other:?}"),
    }
}
