//! A connection for bytes that a test writes, well-formed or not.

use std::time::Duration;

use listless::{proxy::listen::Protocol, upstream::dial::Stream};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{PATIENCE, client::Door};

/// An open connection.
pub(crate) struct RawConnection {
    stream: Box<dyn Stream>,
    unread: Vec<u8>,
}

/// One HTTP/1.1 response.
#[derive(Clone, Debug)]
pub(crate) struct RawAnswer {
    /// The status.
    pub(crate) status: u16,
    /// Status line and headers in lower case.
    pub(crate) head: String,
    /// The body, without its framing.
    pub(crate) body: Vec<u8>,
}

// === impl RawConnection ===

impl RawConnection {
    /// Connects through this door.
    pub(crate) async fn open(door: &Door) -> Self {
        Self { stream: door.dial(Protocol::Http1).await, unread: Vec::new() }
    }

    /// Writes bytes; it is no failure if the other side stopped reading.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let written = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        let _ = timeout(PATIENCE, written).await.expect("the other side reads or closes");
    }

    /// Closes the sending half of the connection.
    pub(crate) async fn finish(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// The next response; `None` if the connection ends instead.
    pub(crate) async fn answer(&mut self) -> Option<RawAnswer> {
        let end = loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                break end + 4;
            }
            self.fill().await?;
        };
        let head = self.take(end);
        let head = String::from_utf8(head).expect("a textual head").to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let body = match field(&head, "content-length") {
            Some(length) => self.exactly(length.parse().expect("a length")).await?,
            None if field(&head, "transfer-encoding") == Some("chunked") => self.chunks().await?,
            None if matches!(status, 100..=199 | 204 | 304) => Vec::new(),
            None => self.rest().await,
        };
        Some(RawAnswer { status, head, body })
    }

    /// Reads this many bytes.
    pub(crate) async fn exactly(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.unread.len() < bytes {
            self.fill().await?;
        }
        Some(self.take(bytes))
    }

    /// Everything until the other side ends the connection.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.fill().await.is_some() {}
        self.take(self.unread.len())
    }

    /// Reports whether nothing more comes within a moment.
    pub(crate) async fn is_silent(&mut self) -> bool {
        self.unread.is_empty() && timeout(MOMENT, self.stream.read_u8()).await.is_err()
    }

    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = find(&self.unread, b"\r\n") {
                    break end;
                }
                self.fill().await?;
            };
            let line = self.take(end + 2);
            let digits = std::str::from_utf8(&line[..end]).expect("a chunk size");
            let size = usize::from_str_radix(digits, 16).expect("a chunk size");
            let chunk = self.exactly(size + 2).await?;
            if size == 0 {
                return Some(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// Reads some bytes; `None` at the end.
    async fn fill(&mut self) -> Option<()> {
        let mut buffer = vec![0; 16 * 1024];
        let read = timeout(PATIENCE, self.stream.read(&mut buffer)).await;
        match read.expect("an answer or the end in time") {
            Ok(0) | Err(_) => None,
            Ok(read) => {
                self.unread.extend_from_slice(&buffer[..read]);
                Some(())
            }
        }
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        self.unread.drain(..bytes).collect()
    }
}

/// Long enough for a response on loopback, and short enough to wait when none comes.
const MOMENT: Duration = Duration::from_millis(50);

// === impl RawAnswer ===

impl RawAnswer {
    /// A header's value, empty when absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        field(&self.head, name).unwrap_or_default()
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
