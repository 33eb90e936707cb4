//! The cells of the benchmark matrix, and their measurement.
//!
//! A figure is a ratio of CPU time per request between servers in adjacent slots. Their order
//! alternates, so that a machine that slows down slows all of them.

use anyhow::Result;

use crate::{
    bare::Bare,
    churn::Churn,
    expected::Expected,
    form::Form,
    load::{self, Slot},
    nginx::Nginx,
    options::Options,
    setup::{IdleLoad, NODES, POLLERS, Setup},
    wire::Endpoint,
};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell {
    pub(crate) id: &'static str,
    pub(crate) what: &'static str,
    requests: Requests,
    form: Form,
    gate: Option<Gate>,
}

/// The requests of a cell: paths and queries below the pods of the load namespace.
#[derive(Clone, Copy, Debug)]
enum Requests {
    One(&'static str),
    /// This number of requests in turn, so that no server can repeat one response for ever.
    Each(u32, fn(u32) -> String),
    /// The pages of a list, one after the other.
    Pages(&'static str),
    /// One that Listless must forward, because of a parameter that no apiserver knows.
    Forwarded(&'static str),
    /// One with a body, for a path of its own.
    Posted(&'static str, &'static str),
}

/// Servers that only have the bytes, and relay what they do not have.
pub(crate) struct Baselines {
    pub(crate) bare: Bare,
    /// Nothing where the machine has no nginx.
    pub(crate) nginx: Option<Nginx>,
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
    /// Returns a gate that is lowered only where a bare server, which sends the apiserver's own
    /// compressed bytes, does not reach it.
    const fn below_bare(times: f64) -> Self {
        Self { times, ceiling: times }
    }

    /// Returns the gate on a machine on which a bare server reaches `ceiling`.
    pub(crate) fn at(self, ceiling: f64) -> f64 {
        self.times * (ceiling / self.ceiling).min(1.0)
    }
}

/// The result of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) cell: Cell,
    pub(crate) gate: Option<Gate>,
    /// Changes per second while it was measured.
    pub(crate) changes: f64,
    pub(crate) body_bytes: usize,
    pub(crate) requests: [u64; 2],
    /// CPU time per request in microseconds, per round: apiserver, etcd, Listless.
    pub(crate) apiserver: Vec<f64>,
    pub(crate) etcd: Vec<f64>,
    pub(crate) listless: Vec<f64>,
    /// The same for a server that only has the bytes.
    pub(crate) bare: Vec<f64>,
    pub(crate) nginx: Vec<f64>,
    /// Requests per second through Listless, with the load generator on the same cores.
    pub(crate) rate: f64,
    /// The apiserver's CPU time per request while Listless answered.
    pub(crate) apiserver_meanwhile: f64,
}

/// The number of pods that are read in turn.
const PODS_IN_TURN: u32 = 200;

/// The cells of the matrix, in the order of the documentation. P2 has no gate in this version. P3
/// and P4 repeat one request, because their gates were set for it.
pub(crate) const CELLS: &[Cell] = &[
    Cell {
        id: "P1",
        what: "GET one, resourceVersion=0",
        requests: Requests::Each(PODS_IN_TURN, |pod| format!("/pod-{pod:05}?resourceVersion=0")),
        form: Form::Json,
        gate: Some(Gate { times: 25.0, ceiling: 57.0 }),
    },
    Cell {
        id: "P2",
        what: "GET one, version unset",
        requests: Requests::Each(PODS_IN_TURN, |pod| format!("/pod-{pod:05}")),
        form: Form::Json,
        gate: None,
    },
    Cell {
        id: "P3",
        what: "LIST selector -> 0",
        requests: Requests::One("?labelSelector=app%3Dnone"),
        form: Form::Json,
        gate: Some(Gate { times: 200.0, ceiling: 580.0 }),
    },
    Cell {
        id: "P4",
        what: "LIST selector -> 10",
        requests: Requests::One("?labelSelector=app%3Dapp-7"),
        form: Form::Json,
        gate: Some(Gate { times: 60.0, ceiling: 138.0 }),
    },
    Cell {
        id: "P5",
        what: "LIST selector -> 50",
        requests: Requests::Each(POLLERS, of_poller),
        form: Form::Json,
        gate: Some(Gate { times: 25.0, ceiling: 49.0 }),
    },
    Cell {
        id: "P6",
        what: "LIST selector -> 50, gzip",
        requests: Requests::Each(POLLERS, of_poller),
        form: Form::Gzip,
        gate: Some(Gate::below_bare(100.0)),
    },
    Cell { id: "P7", what: "LIST all", requests: Requests::One(""), form: Form::Json, gate: None },
    Cell {
        id: "P8",
        what: "LIST all, gzip",
        requests: Requests::One(""),
        form: Form::Gzip,
        gate: Some(Gate::below_bare(60.0)),
    },
    Cell {
        id: "F1",
        what: "LIST spec.nodeName -> 50",
        requests: Requests::Each(NODES, |node| {
            format!("?fieldSelector=spec.nodeName%3Dnode-{node}")
        }),
        form: Form::Json,
        gate: None,
    },
    Cell {
        id: "PG1",
        what: "LIST all, pages of 500",
        requests: Requests::Pages("?limit=500"),
        form: Form::Json,
        gate: None,
    },
    Cell {
        id: "PB1",
        what: "LIST selector -> 50, protobuf",
        requests: Requests::Each(POLLERS, of_poller),
        form: Form::Protobuf,
        gate: Some(Gate { times: 10.0, ceiling: 25.0 }),
    },
    Cell {
        id: "PB2",
        what: "LIST all, protobuf",
        requests: Requests::One(""),
        form: Form::Protobuf,
        gate: None,
    },
    Cell {
        id: "T1",
        what: "LIST limit=500, Table",
        requests: Requests::One("?limit=500"),
        form: Form::Table,
        gate: Some(Gate { times: 12.0, ceiling: 25.0 }),
    },
    Cell {
        id: "R1",
        what: "GET one, forwarded",
        requests: Requests::Forwarded("/pod-00007?resourceVersion=0&unknownToEverybody=1"),
        form: Form::Json,
        gate: None,
    },
    Cell {
        id: "R2",
        what: "POST, forwarded",
        requests: Requests::Posted(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            r#"{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}"#,
        ),
        form: Form::Json,
        gate: None,
    },
];

fn of_poller(poller: u32) -> String {
    format!("?labelSelector=poller%3D{poller}")
}

/// Measures one cell. The responses must be equal first; then rounds of ABC, CBA follow.
pub(crate) fn measure(
    cell: &Cell,
    direct: &Expected,
    setup: &Setup,
    baselines: &Baselines,
    options: &Options,
    idle: IdleLoad,
) -> Result<Measured> {
    let changes = direct.changes || options.churn > 0;
    let direct = &Expected { changes, ..direct.clone() };
    let cache_status = if direct.is_forwarded { "fwd" } else { "hit" };
    let through = Expected { cache_status: Some(cache_status), ..direct.clone() };
    warm(&through, setup)?;
    let churn = Churn::start(setup, options.churn)?;
    let changing = churn.load(setup, idle)?;
    let mut measured = Measured {
        cell: *cell,
        gate: cell.gate.filter(|_| options.churn == 0 || cell.form.is_gzip()),
        body_bytes: direct.steps[0].sent.len(),
        changes: 0.0,
        requests: [0; 2],
        apiserver: Vec::new(),
        etcd: Vec::new(),
        listless: Vec::new(),
        bare: Vec::new(),
        nginx: Vec::new(),
        rate: 0.0,
        apiserver_meanwhile: 0.0,
    };
    for round in 0..options.rounds {
        let mut sides = [Side::Direct, Side::Bare, Side::Nginx, Side::Through];
        if round % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            match side {
                Side::Direct => {
                    measured.add_direct(&direct_slot(direct, setup, options)?, changing);
                }
                Side::Bare => {
                    let Bare { endpoint, .. } = &baselines.bare;
                    let cpu = || baselines.bare.cpu_seconds();
                    measured.bare.push(baseline(&through, endpoint, &cpu, options)?);
                }
                Side::Nginx => {
                    let Some(nginx) = &baselines.nginx else { continue };
                    let cpu = || nginx.cpu_seconds();
                    measured.nginx.push(baseline(&through, &nginx.endpoint, &cpu, options)?);
                }
                Side::Through => {
                    measured.add_through(&through_slot(&through, setup, options)?, changing);
                }
            }
        }
    }
    measured.rate /= f64::from(options.rounds);
    measured.apiserver_meanwhile /= f64::from(options.rounds);
    measured.changes = churn.end()?;
    Ok(measured)
}

/// The server under load in a slot.
#[derive(Clone, Copy)]
enum Side {
    Direct,
    Bare,
    Nginx,
    Through,
}

impl Baselines {
    /// Starts them with these responses.
    pub(crate) fn start(setup: &Setup, expected: &[Expected]) -> Result<Self> {
        let kept = || expected.iter().flat_map(Expected::kept);
        Ok(Self { bare: setup.bare(kept())?, nginx: Nginx::start(&setup.direct, kept())? })
    }
}

/// Sends each request to the apiserver once. Listless must return the same responses.
pub(crate) fn expected(cell: &Cell, setup: &Setup) -> Result<Expected> {
    let target = |suffix: &str| format!("{}{suffix}", setup.data.collection());
    let targets: Vec<_> = match cell.requests {
        Requests::One(suffix) => vec![target(suffix)],
        Requests::Each(count, suffix) => (0..count).map(|each| target(&suffix(each))).collect(),
        Requests::Pages(suffix) => {
            return Expected::learn_pages(cell.form, &target(suffix), &setup.direct);
        }
        Requests::Forwarded(suffix) => {
            let expected = Expected::learn(cell.form, &[target(suffix)], None, &setup.direct)?;
            return Ok(Expected { is_forwarded: true, ..expected });
        }
        Requests::Posted(path, body) => {
            let targets = [path.to_owned()];
            let expected = Expected::learn(cell.form, &targets, Some(body), &setup.direct)?;
            // The response has the time of the request.
            return Ok(Expected { is_forwarded: true, changes: true, ..expected });
        }
    };
    Expected::learn(cell.form, &targets, None, &setup.direct)
}

/// Makes Listless hold what the cell reads, and checks every byte of each response.
fn warm(through: &Expected, setup: &Setup) -> Result<()> {
    if through.is_forwarded {
        return load::each_once(&setup.through, through);
    }
    // JSON is held from the start. Of another form one replica shall serve all reads.
    if matches!(through.form, Form::Protobuf | Form::Table) {
        setup.warm(through.form, &setup.data.collection())?;
    }
    setup.warm(through.form, &through.steps[0].target)?;
    load::each_once(&setup.through, through)
}

fn direct_slot(expected: &Expected, setup: &Setup, options: &Options) -> Result<Slot> {
    let meter = || Ok([setup.apiserver_cpu()?, setup.etcd_cpu()?]);
    load::run(&setup.direct, expected, options.connections, options.slot, &meter)
}

fn through_slot(expected: &Expected, setup: &Setup, options: &Options) -> Result<Slot> {
    let meter = || Ok([setup.listless_cpu()?, setup.apiserver_cpu()?]);
    load::run(&setup.through, expected, options.connections, options.slot, &meter)
}

/// Returns the CPU time per request of a server that only has the bytes, in microseconds.
fn baseline(
    expected: &Expected,
    endpoint: &Endpoint,
    cpu_seconds: &(dyn Fn() -> Result<f64> + Sync),
    options: &Options,
) -> Result<f64> {
    let meter = || Ok([cpu_seconds()?, 0.0]);
    // A server that only has the bytes sees no changes.
    let expected = &Expected { changes: expected.body.is_some(), ..expected.clone() };
    let slot = load::run(endpoint, expected, options.connections, options.slot, &meter)?;
    Ok(micros_per_request(&slot, 0, 0.0))
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

    fn add_through(&mut self, slot: &Slot, idle: IdleLoad) {
        self.requests[1] += slot.requests;
        self.listless.push(micros_per_request(slot, 0, idle.listless));
        self.rate += slot.requests as f64 / slot.elapsed.as_secs_f64();
        self.apiserver_meanwhile += micros_per_request(slot, 1, idle.apiserver).max(0.0);
    }
}

/// Returns the CPU time above that of the idle process.
pub(crate) fn micros_per_request(slot: &Slot, process: usize, idle_cores: f64) -> f64 {
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
