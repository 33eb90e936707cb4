//! Load on a server: in a closed loop, in which each connection sends its next request after the last
//! response is read completely, or at a fixed pace.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{
    expected::Expected,
    wire::{ANSWER_LIMIT, Answer, Connection, Endpoint},
};

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

/// A server and the requests for it.
struct Plan<'a> {
    endpoint: &'a Endpoint,
    expected: &'a Expected,
    /// The bytes of each step's request.
    requests: Vec<Vec<u8>>,
}

/// A connection with its next request.
struct Client<'a> {
    plan: &'a Plan<'a>,
    connection: Connection,
    next: Next,
}

/// The next request of a connection.
struct Next {
    /// The number of the step.
    step: usize,
    /// The request of a later page: the server chose its token.
    page: Option<Vec<u8>>,
}

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
    let plan = Plan::new(endpoint, expected);
    let mut clients = plan.begin(connections)?;
    let mut requests = 0;
    let (before, started) = (meter()?, Instant::now());
    for client in &mut clients {
        client.send()?;
    }
    let mut busy = clients.len();
    while busy > 0 {
        let may_go_on = started.elapsed() < length;
        let target = &expected.steps[0].target;
        ensure!(started.elapsed() < length + ANSWER_LIMIT, "no response: {target}");
        let mut idle = true;
        for client in clients.iter_mut().filter(|client| client.connection.awaits()) {
            if !client.connection.receive()? {
                continue;
            }
            (idle, requests) = (false, requests + 1);
            client.take(requests)?;
            if may_go_on {
                client.send()?;
            } else {
                busy -= 1;
            }
        }
        if idle {
            thread::yield_now();
        }
    }
    Slot::since(started, before, requests, meter)
}

/// Sends requests at this rate per second, on the connections in turn, and meters processes. Returns also the
/// time of each response since its request was due.
pub(crate) fn paced(
    endpoint: &Endpoint,
    expected: &Expected,
    connections: usize,
    rate: u32,
    length: Duration,
    meter: Meter<'_>,
) -> Result<(Slot, Vec<Duration>)> {
    let plan = Plan::new(endpoint, expected);
    let mut clients = plan.begin(connections)?;
    let count = length.as_secs() as usize * rate as usize;
    let (before, started) = (meter()?, Instant::now());
    let due = |number: usize| started + Duration::from_secs(1) / rate * number as u32;
    let (mut sent, mut took, mut dues) = (0, Vec::with_capacity(count), vec![started; connections]);
    while took.len() < count {
        let target = &expected.steps[0].target;
        ensure!(started.elapsed() < length + ANSWER_LIMIT, "no response: {target}");
        let next = sent % connections;
        let is_due = sent < count && due(sent) <= Instant::now();
        if is_due && !clients[next].connection.awaits() {
            clients[next].send()?;
            (dues[next], sent) = (due(sent), sent + 1);
        }
        let mut awaits = false;
        for (client, due) in clients.iter_mut().zip(&dues) {
            if !client.connection.awaits() {
                continue;
            }
            if client.connection.receive()? {
                took.push(due.elapsed());
                client.take(took.len() as u64)?;
            } else {
                awaits = true;
            }
        }
        if awaits {
            thread::yield_now();
        } else {
            thread::park_timeout(due(sent).saturating_duration_since(Instant::now()));
        }
    }
    Ok((Slot::since(started, before, count as u64, meter)?, took))
}

/// Sends each request once and checks every byte of the responses.
pub(crate) fn each_once(endpoint: &Endpoint, expected: &Expected) -> Result<()> {
    let plan = Plan::new(endpoint, expected);
    let mut client = Client::open(&plan, 0)?;
    expected.steps.iter().try_for_each(|_| client.exchange())
}

// === impl Slot ===

impl Slot {
    /// Ends a slot that began at `started` with this reading of the meter.
    fn since(started: Instant, before: [f64; 2], requests: u64, meter: Meter<'_>) -> Result<Self> {
        let (elapsed, after) = (started.elapsed(), meter()?);
        let cpu_seconds = [after[0] - before[0], after[1] - before[1]];
        Ok(Self { requests, elapsed, cpu_seconds })
    }
}

// === impl Plan ===

impl<'a> Plan<'a> {
    fn new(endpoint: &'a Endpoint, expected: &'a Expected) -> Self {
        let request = |target: &str| endpoint.request_with(expected.form, target, expected.body);
        let requests = expected.steps.iter().map(|step| request(&step.target)).collect();
        Self { endpoint, expected, requests }
    }

    /// Opens connections. Their handshakes and first requests are not measured.
    fn begin(&'a self, connections: usize) -> Result<Vec<Client<'a>>> {
        let begin = |index| Client::begin(self, self.first_step(index, connections));
        (0..connections).map(begin).collect()
    }

    /// Returns the first step of a connection: they are spread, unless each begins with page one.
    fn first_step(&self, index: usize, connections: usize) -> usize {
        if self.expected.pages { 0 } else { index * self.requests.len() / connections }
    }

    /// Returns the request after a response.
    fn after(&self, step: usize, answer: &Answer<'_>) -> Result<Next> {
        let step = (step + 1) % self.requests.len();
        if !self.expected.pages {
            return Ok(Next { step, page: None });
        }
        let page = self.expected.next_page(answer);
        let target = &self.expected.steps[step].target;
        ensure!(page.is_some() == (step > 0), "no page or too many: {target}");
        let page = page.map(|page| self.endpoint.request_in(self.expected.form, &page));
        Ok(Next { step, page })
    }
}

// === impl Client ===

impl<'a> Client<'a> {
    fn open(plan: &'a Plan<'a>, step: usize) -> Result<Self> {
        let connection = Connection::open(plan.endpoint)?;
        Ok(Self { plan, connection, next: Next { step, page: None } })
    }

    /// Opens a connection that has its first response. It does not block from then on.
    fn begin(plan: &'a Plan<'a>, step: usize) -> Result<Self> {
        let mut client = Self::open(plan, step)?;
        client.exchange().context("before the load")?;
        client.connection.set_nonblocking()?;
        Ok(client)
    }

    fn send(&mut self) -> Result<()> {
        let Next { step, page } = &self.next;
        self.connection.send(page.as_ref().unwrap_or(&self.plan.requests[*step]))
    }

    /// Checks the response that has arrived and turns to the next request.
    fn take(&mut self, count: u64) -> Result<()> {
        let answer = self.connection.answer()?;
        let expected = self.plan.expected;
        expected.check_now_and_then(&expected.steps[self.next.step], &answer, count)?;
        self.next = self.plan.after(self.next.step, &answer)?;
        Ok(())
    }

    /// Sends the next request, waits for the response and checks every byte of it.
    fn exchange(&mut self) -> Result<()> {
        let Next { step, page } = &self.next;
        let request = page.as_ref().unwrap_or(&self.plan.requests[*step]);
        let answer = self.connection.exchange(request)?;
        let expected = self.plan.expected;
        expected.check_whole(&expected.steps[*step], &answer)?;
        self.next = self.plan.after(*step, &answer)?;
        Ok(())
    }
}
