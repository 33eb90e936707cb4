//! Closed-loop load: each connection sends its next request after the last response is read
//! completely.
//!
//! Every response is checked: status, length and `Cache-Status` always, the whole body sometimes.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    content::Content,
    wire::{ANSWER_LIMIT, Answer, Connection, Endpoint},
};

/// The interval of whole-body comparisons. Their cost is the load generator's, not the server's.
const WHOLE_BODY_EVERY: u64 = 64;

/// Requests that each connection sends in turn, and their expected responses.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) content: Content,
    /// The required text in `Cache-Status`, if the server is Listless.
    pub(crate) cache_status: Option<&'static str>,
}

/// A request and its expected response.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) target: String,
    /// The apiserver's body.
    pub(crate) body: Vec<u8>,
    /// The part of it that does not change while the objects stay the same.
    lasting: Vec<u8>,
}

// === impl Expected ===

impl Expected {
    /// Returns each target, with a response for it from a server without versions.
    pub(crate) fn answers(&self) -> Vec<(String, Vec<u8>)> {
        let exchanges = self.exchanges.iter();
        exchanges.map(|exchange| (exchange.target.clone(), exchange.body.clone())).collect()
    }

    /// Returns the average length of a body.
    pub(crate) fn body_bytes(&self) -> usize {
        let bytes: usize = self.exchanges.iter().map(|exchange| exchange.body.len()).sum();
        bytes / self.exchanges.len().max(1)
    }
}

// === impl Exchange ===

impl Exchange {
    /// Creates one of a body with a content.
    pub(crate) fn new(target: String, body: Vec<u8>, content: Content) -> Result<Self> {
        let lasting = content.lasting(&body)?;
        Ok(Self { target, body, lasting })
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
    let asked: Vec<_> = expected.requests(endpoint).collect();
    let mut requests = 0;
    let (before, started) = (meter()?, Instant::now());
    for (connection, _) in &mut connections {
        connection.send(&asked[0])?;
    }
    let mut busy = connections.len();
    while busy > 0 {
        let may_go_on = started.elapsed() < length;
        let target = &expected.exchanges[0].target;
        ensure!(started.elapsed() < length + ANSWER_LIMIT, "no response: {target}");
        let mut idle = true;
        for (connection, turn) in connections.iter_mut().filter(|(it, _)| it.awaits()) {
            if !connection.receive()? {
                continue;
            }
            (idle, requests) = (false, requests + 1);
            expected.check_now_and_then(&connection.answer()?, *turn, requests)?;
            if may_go_on {
                *turn = (*turn + 1) % asked.len();
                connection.send(&asked[*turn])?;
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

impl Expected {
    /// Returns the bytes of each request.
    pub(crate) fn requests(&self, endpoint: &Endpoint) -> impl Iterator<Item = Vec<u8>> {
        let exchanges = self.exchanges.iter();
        exchanges.map(|exchange| endpoint.request_for(&exchange.target, self.content.accept()))
    }

    /// Checks every byte of a response that does not change while the objects stay the same.
    pub(crate) fn check_whole(&self, answer: &Answer<'_>, turn: usize) -> Result<()> {
        self.check(answer, turn)?;
        let Exchange { target, lasting, .. } = &self.exchanges[turn];
        ensure!(self.content.lasting(answer.body)? == *lasting, "another body: {target}");
        Ok(())
    }

    fn check_now_and_then(&self, answer: &Answer<'_>, turn: usize, count: u64) -> Result<()> {
        if count.is_multiple_of(WHOLE_BODY_EVERY) {
            self.check_whole(answer, turn)
        } else {
            self.check(answer, turn)
        }
    }

    fn check(&self, answer: &Answer<'_>, turn: usize) -> Result<()> {
        let Exchange { target, body, .. } = &self.exchanges[turn];
        let (length, expected) = (answer.body.len(), body.len());
        if answer.status != 200 || length.abs_diff(expected) > self.content.slack() {
            bail!(
                "{target}: status {}, {length} bytes, expected 200 and {expected}: {}",
                answer.status,
                String::from_utf8_lossy(&answer.body[..length.min(300)])
            );
        }
        if let Some(wanted) = self.cache_status {
            let found = answer.cache_status();
            ensure!(found.contains(wanted), "{target}: Cache-Status {found:?}");
        }
        Ok(())
    }
}

/// Opens a connection and checks each response once; returns it with the turn of its next request.
fn connect(endpoint: &Endpoint, expected: &Expected) -> Result<(Connection, usize)> {
    let mut connection = Connection::open(endpoint)?;
    for (turn, request) in expected.requests(endpoint).enumerate() {
        let answer = connection.exchange(&request)?;
        expected.check_whole(&answer, turn).context("before the load")?;
    }
    connection.set_nonblocking()?;
    Ok((connection, 0))
}
