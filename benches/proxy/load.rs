//! Closed-loop load: each connection sends its next request after the last response is read
//! completely.
//!
//! Every response is checked: status, length and `Cache-Status` always, the whole body sometimes.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::wire::{ANSWER_LIMIT, Answer, Connection, Endpoint};

/// The interval of whole-body comparisons. Their cost is the load generator's, not the server's.
const WHOLE_BODY_EVERY: u64 = 64;
/// The number of digits by which the version in a list's metadata may grow during a run.
const VERSION_DIGITS: usize = 4;

/// A request and its expected response.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) target: String,
    /// The apiserver's body without the version of the list.
    pub(crate) body: Vec<u8>,
    /// The required text in `Cache-Status`, if the server is Listless.
    pub(crate) cache_status: Option<&'static str>,
}

// === impl Expected ===

impl Expected {
    /// Returns the target and a response for it from a server without versions.
    pub(crate) fn answer(&self) -> (String, Vec<u8>) {
        (self.target.clone(), self.body.clone())
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
    let request = endpoint.request(&expected.target);
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
pub(crate) fn without_version(body: &[u8]) -> Vec<u8> {
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
    ensure!(without_version(answer.body) == expected.body, "another body: {}", expected.target);
    Ok(())
}

fn connect(endpoint: &Endpoint, expected: &Expected) -> Result<Connection> {
    let mut connection = Connection::open(endpoint)?;
    let request = endpoint.request(&expected.target);
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
    let extra = answer.body.len().wrapping_sub(expected.body.len());
    // A list's body is longer by its version.
    if answer.status != 200 || extra > 20 + VERSION_DIGITS {
        bail!(
            "{}: status {}, {} bytes, expected 200 and {}: {}",
            expected.target,
            answer.status,
            answer.body.len(),
            expected.body.len(),
            String::from_utf8_lossy(&answer.body[..answer.body.len().min(300)])
        );
    }
    if let Some(wanted) = expected.cache_status {
        let found = answer.cache_status();
        ensure!(found.contains(wanted), "{}: Cache-Status {found:?}", expected.target);
    }
    Ok(())
}
