//! The cells of the benchmark matrix, and their measurement.
//!
//! A figure is a ratio of CPU time per request between servers in adjacent slots. Their order
//! alternates, so that a machine that slows down slows all of them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    bare::Bare,
    content::Content,
    load::{self, Exchange, Expected, Slot},
    options::Options,
    setup::{APPS, IdleLoad, Listless, POLLERS, Setup},
    wire::{Connection, Endpoint},
};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    requests: Requests,
    content: Content,
    pub(crate) gate: Option<Gate>,
}

/// The requests that a connection repeats.
#[derive(Clone, Copy, Debug)]
enum Requests {
    /// One request: the path and query below the pods of the load namespace.
    One(&'static str),
    /// All pages of the pods with this limit, one after the other.
    Pages(usize),
}

/// The required ratio of a cell: apiserver ÷ Listless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gate {
    pub(crate) times: f64,
    /// The ratio of a bare server on the machine on which the gate was set. If it is lower
    /// elsewhere, the gate is lowered in proportion: the kernel's share of a small response differs
    /// much between machines.
    pub(crate) ceiling: f64,
}

// === impl Gate ===

impl Gate {
    /// Returns the gate on a machine on which a bare server reaches `ceiling`.
    pub(crate) fn at(self, ceiling: f64) -> f64 {
        self.times * (ceiling / self.ceiling).min(1.0)
    }
}

/// The result of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) cell: Cell,
    pub(crate) body_bytes: usize,
    pub(crate) requests: [u64; 2],
    /// CPU time per request in microseconds, per round: apiserver, etcd, Listless.
    pub(crate) apiserver: Vec<f64>,
    pub(crate) etcd: Vec<f64>,
    pub(crate) listless: Vec<f64>,
    /// The same for a server that only has the bytes.
    pub(crate) bare: Vec<f64>,
    /// Requests per second through Listless, with the load generator on the same cores.
    pub(crate) rate: f64,
    /// The apiserver's CPU time per request while Listless answered.
    pub(crate) apiserver_meanwhile: f64,
}

/// The cells of the matrix, in the order of the documentation. P2 has no gate in this version.
pub(crate) const CELLS: &[Cell] = &[
    Cell {
        id: "P1",
        what: "GET one, resourceVersion=0",
        requests: Requests::One("/pod-00007?resourceVersion=0"),
        content: Content::Json,
        gate: Some(Gate { times: 25.0, ceiling: 57.0 }),
    },
    Cell {
        id: "P2",
        what: "GET one, version unset",
        requests: Requests::One("/pod-00007"),
        content: Content::Json,
        gate: None,
    },
    Cell {
        id: "P3",
        what: "LIST selector -> 0",
        requests: Requests::One("?labelSelector=app%3Dnone"),
        content: Content::Json,
        gate: Some(Gate { times: 200.0, ceiling: 580.0 }),
    },
    Cell {
        id: "P4",
        what: "LIST selector -> 10",
        requests: Requests::One("?labelSelector=app%3Dapp-7"),
        content: Content::Json,
        gate: Some(Gate { times: 60.0, ceiling: 138.0 }),
    },
    Cell {
        id: "P5",
        what: "LIST selector -> 50",
        requests: Requests::One("?labelSelector=poller%3D7"),
        content: Content::Json,
        gate: Some(Gate { times: 25.0, ceiling: 49.0 }),
    },
];

/// The cells of a Listless that holds the pods in each form. They have no gate in this version.
pub(crate) const FORM_CELLS: &[Cell] = &[
    Cell {
        id: "P7",
        what: "LIST all",
        requests: Requests::One(""),
        content: Content::Json,
        gate: None,
    },
    Cell {
        id: "P5p",
        what: "LIST selector -> 50, proto",
        requests: Requests::One("?labelSelector=poller%3D7"),
        content: Content::Protobuf,
        gate: None,
    },
    Cell {
        id: "P7p",
        what: "LIST all, protobuf",
        requests: Requests::One(""),
        content: Content::Protobuf,
        gate: None,
    },
    Cell {
        id: "P9",
        what: "Table of 500 rows",
        requests: Requests::One(TENTH),
        content: Content::Table,
        gate: None,
    },
    Cell {
        id: "pages",
        what: "pages of 500",
        requests: Requests::Pages(500),
        content: Content::Json,
        gate: None,
    },
];

/// Ten pollers of a hundred: 500 pods of 5 000.
const TENTH: &str = "?labelSelector=poller%20in%20(0,1,2,3,4,5,6,7,8,9)";

// P4 and P5 are named by their sizes for the default of 5 000 pods.
const _: () = assert!(5_000 / APPS == 10 && 5_000 / POLLERS == 50);

/// Measures one cell. The responses must be equal first; then rounds of ABC, CBA follow.
pub(crate) fn measure(
    cell: &Cell,
    direct: &Expected,
    (setup, listless): (&Setup, &Listless),
    bare: &Bare,
    options: &Options,
    idle: IdleLoad,
) -> Result<Measured> {
    let through = Expected { cache_status: Some("hit"), ..direct.clone() };
    let mut measured = Measured {
        cell: *cell,
        body_bytes: direct.body_bytes(),
        requests: [0; 2],
        apiserver: Vec::new(),
        etcd: Vec::new(),
        listless: Vec::new(),
        bare: Vec::new(),
        rate: 0.0,
        apiserver_meanwhile: 0.0,
    };
    for round in 0..options.rounds {
        let mut sides = [Side::Direct, Side::Bare, Side::Through];
        if round % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            match side {
                Side::Direct => measured.add_direct(&direct_slot(direct, setup, options)?, idle),
                Side::Bare => measured.add_bare(&bare_slot(&through, bare, options)?),
                Side::Through => {
                    let slot = through_slot(&through, setup, listless, options)?;
                    measured.add_through(&slot, idle);
                }
            }
        }
    }
    measured.rate /= f64::from(options.rounds);
    measured.apiserver_meanwhile /= f64::from(options.rounds);
    Ok(measured)
}

/// The server under load in a slot.
#[derive(Clone, Copy)]
enum Side {
    Direct,
    Bare,
    Through,
}

/// Requests the apiserver once for each response. Listless must return the same ones.
pub(crate) fn expected(cell: &Cell, setup: &Setup, listless: &Listless) -> Result<Expected> {
    let collection = setup.data.collection();
    let (targets, content) = match cell.requests {
        Requests::One(suffix) => (vec![format!("{collection}{suffix}")], cell.content),
        Requests::Pages(limit) => {
            let start = format!("{collection}?limit={limit}");
            (pages(&start, &listless.endpoint)?, cell.content)
        }
    };
    let mut connection = Connection::open(&setup.direct)?;
    let mut exchanges = Vec::new();
    for target in targets {
        let request = setup.direct.request_for(&target, content.accept());
        let answer = connection.exchange(&request)?;
        ensure!(
            answer.status == 200,
            "the apiserver's own response to {target}: {}",
            answer.status
        );
        exchanges.push(Exchange::new(target, answer.body.to_vec(), content)?);
    }
    Ok(Expected { exchanges, content, cache_status: None })
}

/// Returns the targets of all pages. The tokens are of Listless: it keeps the state that they name,
/// and the apiserver accepts them for five minutes.
fn pages(start: &str, endpoint: &Endpoint) -> Result<Vec<String>> {
    let mut connection = Connection::open(endpoint)?;
    let mut targets = vec![start.to_owned()];
    loop {
        let target = targets.last().context("a first page")?;
        let answer = connection.exchange(&endpoint.request(target))?;
        ensure!(answer.status == 200, "{target}: {}", answer.status);
        let page: Value = serde_json::from_slice(answer.body)?;
        match page["metadata"]["continue"].as_str() {
            Some(token) => targets.push(format!("{start}&continue={token}")),
            None => return Ok(targets),
        }
    }
}

fn direct_slot(expected: &Expected, setup: &Setup, options: &Options) -> Result<Slot> {
    let meter = || Ok([setup.apiserver_cpu()?, setup.etcd_cpu()?]);
    load::run(&setup.direct, expected, options.connections, options.slot, &meter)
}

fn through_slot(
    expected: &Expected,
    setup: &Setup,
    listless: &Listless,
    options: &Options,
) -> Result<Slot> {
    let meter = || Ok([listless.cpu_seconds()?, setup.apiserver_cpu()?]);
    load::run(&listless.endpoint, expected, options.connections, options.slot, &meter)
}

fn bare_slot(expected: &Expected, bare: &Bare, options: &Options) -> Result<Slot> {
    let meter = || Ok([bare.cpu_seconds()?, 0.0]);
    load::run(&bare.endpoint, expected, options.connections, options.slot, &meter)
}

// === impl Measured ===

impl Measured {
    /// Returns apiserver ÷ Listless per round, sorted.
    pub(crate) fn ratios(&self) -> Vec<f64> {
        ratios(&self.apiserver, &self.listless)
    }

    /// Returns apiserver ÷ the bare server: the limit of this machine.
    pub(crate) fn ceiling(&self) -> f64 {
        median(&ratios(&self.apiserver, &self.bare))
    }

    fn add_direct(&mut self, slot: &Slot, idle: IdleLoad) {
        self.requests[0] += slot.requests;
        self.apiserver.push(micros_per_request(slot, 0, idle.apiserver));
        self.etcd.push(micros_per_request(slot, 1, idle.etcd));
    }

    fn add_bare(&mut self, slot: &Slot) {
        self.bare.push(micros_per_request(slot, 0, 0.0));
    }

    fn add_through(&mut self, slot: &Slot, idle: IdleLoad) {
        self.requests[1] += slot.requests;
        self.listless.push(micros_per_request(slot, 0, idle.listless));
        self.rate += slot.requests as f64 / slot.elapsed.as_secs_f64();
        self.apiserver_meanwhile += micros_per_request(slot, 1, idle.apiserver).max(0.0);
    }
}

/// Returns the CPU time above that of the idle process.
fn micros_per_request(slot: &Slot, process: usize, idle_cores: f64) -> f64 {
    let beyond = slot.cpu_seconds[process] - idle_cores * slot.elapsed.as_secs_f64();
    beyond * 1e6 / slot.requests.max(1) as f64
}

/// Returns one ÷ the other per round, sorted.
pub(crate) fn ratios(over: &[f64], under: &[f64]) -> Vec<f64> {
    let mut ratios: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    ratios.sort_by(f64::total_cmp);
    ratios
}

/// Returns the median. Zero for no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}
