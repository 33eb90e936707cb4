//! The framing check of HTTP/1 requests, on the bytes from the socket.
//!
//! The HTTP library drops `Content-Length` if `Transfer-Encoding` is also present. Code behind it
//! cannot see that conflict, which request smuggling depends on. This module sees it and tells the
//! service, which answers 400 and closes the connection. It changes no byte.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

/// The largest head that is checked; the HTTP library has refused a larger one.
const HEAD_BYTES_MAX: usize = 512 * 1024;

/// The largest line with the size of a chunk. The HTTP library accepts any number of zeros in it.
const CHUNK_LINE_BYTES_MAX: usize = 16 * 1024;

/// A violation of the framing rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Violation {
    LengthAndEncoding = 1,
    RepeatedLength,
    Encoding,
    Host,
    BareLineFeed,
    FoldedHeader,
    Fragment,
    ChunkLine,
}

/// The result of the guard, shared with the service.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict(Arc<AtomicU8>);

/// The parser of one connection's bytes.
pub(super) struct Guard {
    state: GuardState,
    /// The current head, from the request line on.
    head: Vec<u8>,
    verdict: Verdict,
}

enum GuardState {
    Head,
    /// The remaining bytes of a body of known length.
    Body(u64),
    ChunkSize(Vec<u8>),
    /// The remaining bytes of a chunk, line end included.
    Chunk(u64),
    Trailers(TrailerLine),
    /// The end of parsing: the connection is no longer HTTP, or will be closed.
    Blind,
}

/// The bytes so far of a line of trailers.
#[derive(Clone, Copy, Default)]
struct TrailerLine {
    has_text: bool,
    /// `true` if the last byte was a carriage return.
    returned: bool,
}

/// The framing that a head announces.
#[derive(Default)]
struct Framing {
    lengths: usize,
    length: Option<u64>,
    encodings: usize,
    chunked: bool,
    hosts: usize,
    upgrade: bool,
    connect: bool,
    version_1_1: bool,
    bare_line_feed: bool,
    folded: bool,
    fragment: bool,
}

// === impl Violation ===

impl Violation {
    const ALL: [Self; 8] = [
        Self::LengthAndEncoding,
        Self::RepeatedLength,
        Self::Encoding,
        Self::Host,
        Self::BareLineFeed,
        Self::FoldedHeader,
        Self::Fragment,
        Self::ChunkLine,
    ];

    pub(super) fn message(self) -> &'static str {
        match self {
            Self::LengthAndEncoding => "both Content-Length and Transfer-Encoding are set",
            Self::RepeatedLength => "Content-Length is set more than once",
            Self::Encoding => "Transfer-Encoding is not chunked",
            Self::Host => "exactly one Host header is required",
            Self::BareLineFeed => "a header line ends without a carriage return",
            Self::FoldedHeader => "a header is continued on another line",
            Self::Fragment => "the request target has a fragment",
            Self::ChunkLine => "the line of a chunk's size is too long",
        }
    }
}

// === impl Verdict ===

impl Verdict {
    pub(super) fn violation(&self) -> Option<Violation> {
        let found = self.0.load(Ordering::Acquire);
        Violation::ALL.into_iter().find(|violation| *violation as u8 == found)
    }

    fn set(&self, violation: Violation) {
        self.0.store(violation as u8, Ordering::Release);
    }
}

// === impl Guard ===

impl Guard {
    pub(super) fn new() -> Self {
        Self { state: GuardState::Head, head: Vec::new(), verdict: Verdict::default() }
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// Reports whether a request's head has begun but not ended.
    pub(super) fn is_inside_head(&self) -> bool {
        matches!(self.state, GuardState::Head) && !self.head.is_empty()
    }

    /// Checks bytes that were read.
    pub(super) fn observe(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.state {
                GuardState::Blind => return,
                GuardState::Head => self.observe_head(bytes),
                GuardState::Body(left) => {
                    let (rest, left) = skip(bytes, left);
                    self.state = if left == 0 { GuardState::Head } else { GuardState::Body(left) };
                    rest
                }
                GuardState::Chunk(left) => {
                    let (rest, left) = skip(bytes, left);
                    self.state = match left {
                        0 => GuardState::ChunkSize(Vec::new()),
                        left => GuardState::Chunk(left),
                    };
                    rest
                }
                GuardState::ChunkSize(_) => self.observe_chunk_size(bytes),
                GuardState::Trailers(line) => self.observe_trailers(bytes, line),
            };
        }
    }

    fn observe_head<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.head.is_empty()
            && bytes.first().is_some_and(u8::is_ascii_uppercase)
            && let Some(head) = whole_head(bytes)
        {
            self.take(Framing::of(head));
            return &bytes[head.len()..];
        }
        let (line, rest) = through_line_feed(bytes);
        if self.head.is_empty() && matches!(line, b"\r\n" | b"\n" | b"\r") {
            return rest; // Empty lines before a request line are ignored (RFC 9112 §2.2).
        }
        self.head.extend_from_slice(line);
        if self.head.len() > HEAD_BYTES_MAX {
            self.state = GuardState::Blind;
        } else if self.head.ends_with(b"\n\r\n") || self.head.ends_with(b"\n\n") {
            let framing = Framing::of(&self.head);
            self.head.clear();
            self.take(framing);
        }
        rest
    }

    fn take(&mut self, framing: Framing) {
        self.state = match framing.violation() {
            Some(violation) => {
                self.verdict.set(violation);
                GuardState::Blind
            }
            None => framing.next(),
        };
    }

    fn observe_chunk_size<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (part, rest) = through_line_feed(bytes);
        let GuardState::ChunkSize(line) = &mut self.state else { return rest };
        line.extend_from_slice(part);
        if line.ends_with(b"\n") {
            self.state = match chunk_size(line) {
                Some(0) => GuardState::Trailers(TrailerLine::default()),
                Some(size) => GuardState::Chunk(size.saturating_add(2)),
                None => GuardState::Blind,
            };
        } else if line.len() > CHUNK_LINE_BYTES_MAX {
            self.verdict.set(Violation::ChunkLine);
            self.state = GuardState::Blind;
        }
        rest
    }

    /// Reads a part of the trailers. A line that ends without a carriage return is a violation: the
    /// HTTP library would read on where this parser sees the end, and take a body for requests.
    fn observe_trailers<'a>(&mut self, bytes: &'a [u8], mut line: TrailerLine) -> &'a [u8] {
        let (part, rest) = through_line_feed(bytes);
        let text = part.strip_suffix(b"\n").unwrap_or(part);
        line.has_text |= text.iter().any(|byte| *byte != b'\r');
        line.returned = text.last().map_or(line.returned, |byte| *byte == b'\r');
        self.state = match (part.ends_with(b"\n"), line) {
            (false, line) => GuardState::Trailers(line),
            (true, TrailerLine { returned: false, .. }) => {
                self.verdict.set(Violation::BareLineFeed);
                GuardState::Blind
            }
            (true, TrailerLine { has_text: false, .. }) => GuardState::Head,
            (true, TrailerLine { has_text: true, .. }) => {
                GuardState::Trailers(TrailerLine::default())
            }
        };
        rest
    }
}

fn skip(bytes: &[u8], left: u64) -> (&[u8], u64) {
    let skipped = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (&bytes[skipped..], left - skipped as u64)
}

/// Returns the head at the start of these bytes if it is complete, as it nearly always is.
fn whole_head(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = &bytes[..bytes.len().min(HEAD_BYTES_MAX)];
    memchr::memchr_iter(b'\n', bytes).find_map(|at| {
        let next = &bytes[at + 1..];
        let end = if next.starts_with(b"\r\n") { 2 } else { usize::from(next.starts_with(b"\n")) };
        (end > 0).then(|| &bytes[..at + 1 + end])
    })
}

fn through_line_feed(bytes: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'\n', bytes) {
        Some(at) => bytes.split_at(at + 1),
        None => (bytes, &[]),
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| !byte.is_ascii_hexdigit()).next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

// === impl Framing ===

impl Framing {
    fn of(head: &[u8]) -> Self {
        let mut framing = Self::default();
        let (request_line, mut rest) = through_line_feed(head);
        framing.version_1_1 = request_line.trim_ascii_end().ends_with(b"HTTP/1.1");
        framing.connect = request_line.starts_with(b"CONNECT ");
        framing.bare_line_feed = !request_line.ends_with(b"\r\n");
        framing.fragment = memchr::memchr(b'#', request_line).is_some();
        while !rest.is_empty() {
            let line;
            (line, rest) = through_line_feed(rest);
            framing.bare_line_feed |= !line.ends_with(b"\r\n");
            framing.folded |= matches!(line.first(), Some(b' ' | b'\t'));
            if let Some(colon) = memchr::memchr(b':', line) {
                framing.header(line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
            }
        }
        framing
    }

    fn header(&mut self, name: &[u8], value: &[u8]) {
        // Compare the length first: most headers are none of these.
        match name.len() {
            4 | 7 | 14 | 17 => {}
            _ => return,
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            self.lengths += 1;
            self.length = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.encodings += 1;
            self.chunked = value.eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.upgrade = true;
        }
    }

    fn violation(&self) -> Option<Violation> {
        if self.lengths > 0 && self.encodings > 0 {
            Some(Violation::LengthAndEncoding)
        } else if self.lengths > 1 {
            Some(Violation::RepeatedLength)
        } else if self.encodings > 1 || self.encodings == 1 && !self.chunked {
            Some(Violation::Encoding)
        } else if self.hosts > 1 || self.hosts == 0 && self.version_1_1 {
            Some(Violation::Host)
        } else if self.folded {
            Some(Violation::FoldedHeader)
        } else if self.bare_line_feed {
            Some(Violation::BareLineFeed)
        } else if self.fragment {
            Some(Violation::Fragment)
        } else {
            None
        }
    }

    fn next(&self) -> GuardState {
        match (self.upgrade || self.connect, self.chunked, self.length) {
            // The connection becomes a tunnel, or is closed after the refusal.
            (true, ..) => GuardState::Blind,
            (false, true, _) => GuardState::ChunkSize(Vec::new()),
            (false, false, Some(length)) if length > 0 => GuardState::Body(length),
            _ => GuardState::Head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the violation in bytes that arrive in chunks of one size.
    fn found(bytes: &str, piece: usize) -> Option<Violation> {
        let mut guard = Guard::new();
        for piece in bytes.as_bytes().chunks(piece) {
            guard.observe(piece);
        }
        guard.verdict().violation()
    }

    #[track_caller]
    fn assert_found(bytes: &str, expected: Option<Violation>) {
        for piece in [1, 2, 3, 7, 4096] {
            assert_eq!(found(bytes, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_repeated_head_does_not_let_another_head_pass() {
        let poll = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
        let write = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nGE";
        let wrong = "GET /a HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n";
        for piece in [1, 7, 1000] {
            assert_eq!(found(&[poll, poll, write, poll, write, poll].concat(), piece), None);
            let found = found(&[poll, write, poll, poll, wrong].concat(), piece);
            assert_eq!(found, Some(Violation::Host));
        }
    }

    #[test]
    fn ordinary_requests_on_one_connection_are_fine() {
        assert_found(
            "GET /a HTTP/1.1\r\nHost: x\r\n\r\n\
             POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\n\n\n\n\
             \r\nPOST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n\
             a;q=1\r\n0123456789\r\n2\r\n\r\n\r\n0\r\nTrailer: y\r\n\r\n\
             GET /d HTTP/1.0\r\n\r\n",
            None,
        );
    }

    #[test]
    fn a_long_line_of_a_chunk_size_is_a_violation() {
        let chunked = "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let zeros = "0".repeat(600_000);
        let found = found(&format!("{chunked}{zeros}\r\n\r\n"), 4096);
        assert_eq!(found, Some(Violation::ChunkLine));
    }

    #[test]
    fn conflicting_framing_is_found_in_any_order_and_request() {
        let conflict = Some(Violation::LengthAndEncoding);
        let te = "Transfer-Encoding: chunked\r\n";
        let cl = "content-length: 5\r\n";
        for headers in [format!("{te}{cl}"), format!("{cl}{te}")] {
            let request = format!("POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n0\r\n\r\n");
            assert_found(&request, conflict);
            assert_found(&format!("GET / HTTP/1.1\r\nHost: x\r\n\r\n{request}"), conflict);
            let chunked = format!("POST / HTTP/1.1\r\nHost: x\r\n{te}\r\n3\r\nabc\r\n0\r\n\r\n");
            assert_found(&format!("{chunked}{request}"), conflict);
        }
    }

    #[test]
    fn every_other_ambiguity_is_reported() {
        let cases = [
            ("Host: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n", Violation::RepeatedLength),
            ("Host: x\r\nTransfer-Encoding: gzip, chunked\r\n", Violation::Encoding),
            ("Host: x\r\nTransfer-Encoding: chunked\r\ntransfer-encoding: chunked\r\n", {
                Violation::Encoding
            }),
            ("Accept: */*\r\n", Violation::Host),
            ("Host: x\r\nhost: y\r\n", Violation::Host),
            ("Host: x\r\nA: b\n", Violation::BareLineFeed),
            ("Host: x\r\nA: b\r\n c\r\n", Violation::FoldedHeader),
        ];
        for (headers, violation) in cases {
            assert_found(&format!("GET / HTTP/1.1\r\n{headers}\r\n"), Some(violation));
        }
    }

    #[test]
    fn trailers_end_where_the_http_library_sees_their_end() {
        let head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
        let next = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_found(&format!("{head}\r\n{next}"), None);
        assert_found(&format!("{head}A: b\r\nC: d\r\n\r\n{next}"), None);
        for end in ["\n", "A: b\n\n", "A: b\r\n\n"] {
            assert_found(&format!("{head}{end}{next}"), Some(Violation::BareLineFeed));
        }
    }

    #[test]
    fn a_body_that_looks_like_a_request_is_a_body() {
        let inner = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let length = inner.len();
        let head = "POST / HTTP/1.1\r\nHost: x\r\n";
        assert_found(&format!("{head}Content-Length: {length}\r\n\r\n{inner}"), None);
        let chunked = format!("{length:x}\r\n{inner}\r\n0\r\n\r\n");
        assert_found(&format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunked}"), None);
    }

    #[test]
    fn the_bytes_of_a_tunnel_are_not_requests() {
        let upgrade =
            "GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";
        assert_found(&format!("{upgrade}GET / HTTP/1.1\n\n"), None);
        let connect = "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n";
        assert_found(&format!("{connect}GET / HTTP/1.1\n\n"), None);
    }
}
