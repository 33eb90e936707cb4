//! Closed-loop load: each connection sends its next request after the last response is read
//! completely.
//!
//! Every response is checked: status, encoding, length and `Cache-Status` always, the whole body
//! sometimes.

use std::{
    io::Read,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use flate2::bufread::GzDecoder;

use crate::wire::{ANSWER_LIMIT, Answer, Connection, Endpoint};

/// The interval of whole-body comparisons. Their cost is the load generator's, not the server's.
const WHOLE_BODY_EVERY: u64 = 64;
/// The number of digits by which the version in a list's metadata may grow during a run.
const VERSION_DIGITS: usize = 4;
/// The start of each pod in a list.
const ITEM: &[u8] = b"{\"metadata\":{\"name\":";
/// The start of a gzip member.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A request and its expected response.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) target: String,
    pub(crate) encoding: Encoding,
    /// The apiserver's body as it was sent.
    pub(crate) sent: Vec<u8>,
    /// The body, unpacked and without the version of the list.
    pub(crate) body: Vec<u8>,
    /// `true` if the objects change meanwhile.
    pub(crate) changes: bool,
    /// The required text in `Cache-Status`, if the server is Listless.
    pub(crate) cache_status: Option<&'static str>,
}

/// The encoding that a request accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
}

// === impl Expected ===

impl Expected {
    /// Learns from the apiserver's own response.
    pub(crate) fn learn(target: String, encoding: Encoding, answer: &Answer<'_>) -> Result<Self> {
        let body = without_version(&unpacked(answer.body)?);
        let sent = match encoding {
            Encoding::Identity => body.clone(),
            Encoding::Gzip => answer.body.to_vec(),
        };
        let expected = Self { target, encoding, sent, body, changes: false, cache_status: None };
        check_whole(answer, &expected).context("the apiserver's own response")?;
        Ok(expected)
    }

    /// Returns the target and a response for it from a server without versions.
    pub(crate) fn answer(&self) -> (String, Vec<u8>) {
        (self.target.clone(), self.sent.clone())
    }

    /// Returns the bytes of the request.
    pub(crate) fn request(&self, endpoint: &Endpoint) -> Vec<u8> {
        match self.encoding {
            Encoding::Identity => endpoint.request(&self.target),
            Encoding::Gzip => endpoint.gzip_request(&self.target),
        }
    }
}

/// The result of one slot of load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) requests: u64,
    pub(crate) elapsed: Duration,
    /// CPU seconds of the measured processes, in the order given.
    pub(crate) cpu_seconds: [f64; 2],
}

/// A function that reads the CPU time of up to two processes.
pub(crate) type Meter<'a> = &'a (dyn Fn() -> Result<[f64; 2]> + Sync);

/// Loads a server for a while and meters processes. A wrong response is an error.
///
/// One thread drives all connections and never sleeps while they are busy, so no server pays for
/// waking it.
pub(crate) fn run(
    endpoint: &Endpoint,
    expected: &Expected,
    connections: usize,
    length: Duration,
    meter: Meter<'_>,
) -> Result<Slot> {
    // Handshakes and the first request are not measured.
    let connect = |_| connect(endpoint, expected);
    let mut connections: Vec<_> = (0..connections).map(connect).collect::<Result<_>>()?;
    let request = expected.request(endpoint);
    let mut requests = 0;
    let (before, started) = (meter()?, Instant::now());
    for connection in &mut connections {
        connection.send(&request)?;
    }
    let mut busy = connections.len();
    while busy > 0 {
        let may_go_on = started.elapsed() < length;
        ensure!(started.elapsed() < length + ANSWER_LIMIT, "no response: {}", expected.target);
        let mut idle = true;
        for connection in connections.iter_mut().filter(|connection| connection.awaits()) {
            if !connection.receive()? {
                continue;
            }
            (idle, requests) = (false, requests + 1);
            check_now_and_then(&connection.answer()?, expected, requests)?;
            if may_go_on {
                connection.send(&request)?;
            } else {
                busy -= 1;
            }
        }
        if idle {
            thread::yield_now();
        }
    }
    let (elapsed, after) = (started.elapsed(), meter()?);
    let cpu_seconds = [after[0] - before[0], after[1] - before[1]];
    Ok(Slot { requests, elapsed, cpu_seconds })
}

/// Returns the body without the version of the list, which changes while the objects stay the same.
fn without_version(body: &[u8]) -> Vec<u8> {
    const FIELD: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";
    match memchr::memmem::find(body, FIELD) {
        Some(at) if at < 100 => {
            let from = at + FIELD.len();
            let digits = body[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            [&body[..from], &body[from + digits..]].concat()
        }
        _ => body.to_vec(),
    }
}

/// Checks every byte of a response.
pub(crate) fn check_whole(answer: &Answer<'_>, expected: &Expected) -> Result<()> {
    check(answer, expected)?;
    let body = unpacked(answer.body)?;
    if expected.changes {
        let items = |body: &[u8]| memchr::memmem::find_iter(body, ITEM).count();
        ensure!(items(&body) == items(&expected.body), "other objects: {}", expected.target);
        return Ok(());
    }
    ensure!(without_version(&body) == expected.body, "another body: {}", expected.target);
    Ok(())
}

/// Returns a body without its encoding: exactly one gzip member, or the body as it is.
fn unpacked(body: &[u8]) -> Result<Vec<u8>> {
    if !body.starts_with(&GZIP) {
        return Ok(body.to_vec());
    }
    let (mut text, mut rest) = (Vec::new(), body);
    GzDecoder::new(&mut rest).read_to_end(&mut text)?;
    ensure!(rest.is_empty(), "bytes after the gzip member");
    Ok(text)
}

fn connect(endpoint: &Endpoint, expected: &Expected) -> Result<Connection> {
    let mut connection = Connection::open(endpoint)?;
    let request = expected.request(endpoint);
    check_whole(&connection.exchange(&request)?, expected).context("before the load")?;
    connection.set_nonblocking()?;
    Ok(connection)
}

fn check_now_and_then(answer: &Answer<'_>, expected: &Expected, count: u64) -> Result<()> {
    if count.is_multiple_of(WHOLE_BODY_EVERY) {
        check_whole(answer, expected)
    } else {
        check(answer, expected)
    }
}

fn check(answer: &Answer<'_>, expected: &Expected) -> Result<()> {
    let is_gzip = answer.body.starts_with(&GZIP);
    let extra = answer.body.len().wrapping_sub(expected.body.len());
    // A list's body is longer by its version. The lengths of compressed and of changed ones differ.
    let any_length = is_gzip || expected.changes;
    if answer.status != 200
        || is_gzip != (expected.encoding == Encoding::Gzip)
        || (extra > 20 + VERSION_DIGITS && !any_length)
    {
        bail!(
            "{}: status {}, {} bytes, expected 200 and {}: {}",
            expected.target,
            answer.status,
            answer.body.len(),
            expected.sent.len(),
            String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)])
        );
    }
    if let Some(wanted) = expected.cache_status {
        let found = answer.cache_status();
        ensure!(found.contains(wanted), "{}: Cache-Status {found:?}", expected.target);
    }
    Ok(())
}
