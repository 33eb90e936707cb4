//! The table: units in the heading, medians with their range, gates with a verdict.

use anyhow::Result;

use crate::{
    cell::{self, Measured, median},
    fanout::{self, Fanout, IdleMemory},
    form::Form,
    latency::{Latency, Quantile},
    memory::OfForms,
    options::Options,
    paced::{self, Pace, Paced},
    setup::{IdleLoad, Setup},
    sidecar::Memory,
    staleness::{self, Staleness},
};

const ADDED_MICROS_MAX: f64 = 100.0;
const TIMES_DIRECT_MAX: f64 = 1.3;
/// The maximum added latency as a multiple of a bare relay's, if that is more: the ratio on the
/// machine on which the gate was set.
const TIMES_RELAY_MAX: f64 = 2.0;
const TIMES_JSON_MAX: f64 = 0.5;
/// The maximum memory of a further form as a multiple of that of JSON. The bytes of these pods alone
/// are 0.78 × as many in protobuf, and 1.0 × in Tables.
const PROTOBUF_TIMES_JSON_MAX: f64 = 0.85;
const TABLE_TIMES_JSON_MAX: f64 = 1.1;
const SIDECAR_MEGABYTES_MAX: f64 = 10.0;
const WATCHER_KILOBYTES_MAX: f64 = 32.0;
/// The same for watchers that share HTTP/2 connections.
const SHARED_KILOBYTES_MAX: f64 = 16.0;
const ACCOUNT_PERCENT_MAX: f64 = 3.0;
const STALENESS_MILLIS_MAX: f64 = 10.0;

/// A report that prints as it goes and keeps the gates for the end.
pub(crate) struct Report {
    options: Options,
    version: &'static str,
    gates: Vec<Gate>,
    head_printed: bool,
}

/// A figure with a limit.
struct Gate {
    cell: &'static str,
    what: &'static str,
    found: f64,
    side: Side,
    limit: f64,
    /// The limit on this machine if it differs, and the bare server's figure.
    here: Option<(f64, f64)>,
}

#[derive(Clone, Copy)]
enum Side {
    AtLeast,
    AtMost,
}

// === impl Report ===

impl Report {
    pub(crate) fn new(options: &Options, setup: &Setup) -> Self {
        let (options, version) = (options.clone(), setup.version());
        Self { options, version, gates: Vec::new(), head_printed: false }
    }

    /// Prints the machine, the servers and the method.
    pub(crate) fn opening(&self) {
        let options = &self.options;
        println!(
            "\nListless {} in front of kube-apiserver {}",
            env!("CARGO_PKG_VERSION"),
            self.version
        );
        if let Some(program) = &options.program {
            println!("{}: not the shipped binary", program.display());
        }
        println!("machine: {}", machine());
        println!(
            "load: {} pods; {} kept-alive HTTP/1.1 connections, TLS 1.3 AES-128-GCM, closed loop; \
             {} rounds of {} s a slot; every response checked",
            options.pods,
            options.connections,
            options.rounds,
            options.slot.as_secs()
        );
    }

    pub(crate) fn memory(&mut self, setup: &Setup) -> Result<()> {
        let (resident, json) = (setup.listless_resident_bytes()? as f64, setup.json_bytes as f64);
        println!("\nmemory with {} cached pods, before any load", self.options.pods);
        self.gate("RSS", "resident ÷ JSON", resident / json, Side::AtMost, TIMES_JSON_MAX);
        println!(
            "  {:.1} MB resident, {:.1} MB of JSON: {:.2}",
            resident / 1e6,
            json / 1e6,
            resident / json
        );
        Ok(())
    }

    pub(crate) fn memory_after_load(&self, setup: &Setup) -> Result<()> {
        let resident = setup.listless_resident_bytes()? as f64;
        println!(
            "\nmemory after all load: {:.1} MB resident, {:.2} × the JSON",
            resident / 1e6,
            resident / setup.json_bytes as f64
        );
        Ok(())
    }

    /// Prints the memory of JSON, and of each form beside it.
    pub(crate) fn forms(&mut self, forms: &OfForms, json_bytes: usize) {
        let (json, bytes) = (forms.json, json_bytes as f64);
        println!("\nmemory that {} cached pods add, before any load (medians)", self.options.pods);
        println!("  json: {:.1} MB, {:.2} × the JSON", json / 1e6, json / bytes);
        for (form, added) in &forms.beside {
            let (name, ratio) = (form.name(), added / json);
            println!(
                "  {name} too: {:.1} MB more, {:.2} × the JSON, {ratio:.2} × its memory",
                added / 1e6,
                added / bytes
            );
            let most = match form {
                Form::Table => TABLE_TIMES_JSON_MAX,
                _ => PROTOBUF_TIMES_JSON_MAX,
            };
            self.gate("forms", name, ratio, Side::AtMost, most);
        }
    }

    /// Prints the memory of each process of an idle sidecar.
    pub(crate) fn sidecar(&mut self, processes: &[Memory]) {
        println!(
            "\nmemory of an idle sidecar, and with the pages that both processes map counted once"
        );
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        for Memory { process, resident_bytes, proportional_bytes } in processes {
            let (resident, part) = (megabytes(*resident_bytes), megabytes(*proportional_bytes));
            println!("  {process}: {resident:.1} MB, {part:.1} MB");
        }
        let resident = megabytes(processes.iter().map(|it| it.resident_bytes).sum());
        let once = megabytes(processes.iter().map(|it| it.proportional_bytes).sum());
        println!("  in all: {resident:.1} MB, {once:.1} MB");
        self.gate("sidecar", "MB, shared pages once", once, Side::AtMost, SIDECAR_MEGABYTES_MAX);
    }

    pub(crate) fn idle(&self, idle: IdleLoad) {
        println!(
            "idle: apiserver {:.1} %, etcd {:.1} %, listless {:.1} % of a core (subtracted below)",
            idle.apiserver * 100.0,
            idle.etcd * 100.0,
            idle.listless * 100.0
        );
    }

    pub(crate) fn cell(&mut self, measured: &Measured) {
        if !self.head_printed {
            self.head_printed = true;
            println!("\nCPU time per request of the serving process, µs (median of rounds)");
            println!(
                "{:<4} {:<29} {:>9} {:>10} {:>7} {:>9} {:>8} {:>8} {:>19} {:>10} {:>17} {:>11}",
                "cell",
                "request",
                "body B",
                "apiserver",
                "+etcd",
                "listless",
                "bare **",
                "nginx",
                "ratio (range)",
                "listless/s",
                "requests",
                "apis. µs *"
            );
        }
        let (ratios, cell) = (measured.ratios(), measured.cell);
        let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
        println!(
            "{:<4} {:<29} {:>9} {:>10.1} {:>7.1} {:>9.2} {:>8.2} {:>8} {:>19} {:>10.0} {:>17} {:>11.2}",
            cell.id,
            cell.what,
            measured.body_bytes,
            median(&measured.apiserver),
            median(&measured.etcd),
            median(&measured.listless),
            median(&measured.bare),
            match measured.nginx.as_slice() {
                [] => "-".to_owned(),
                nginx => format!("{:.2}", median(nginx)),
            },
            format!("{:.0}× ({low:.0}-{high:.0})", median(&ratios)),
            measured.rate,
            format!("{} / {}", measured.requests[0], measured.requests[1]),
            measured.apiserver_meanwhile
        );
        if measured.changes > 0.0 {
            println!("     while {:.1} pods changed each second", measured.changes);
        }
        if let Some(gate) = measured.gate {
            self.gate_ratio(cell.id, median(&ratios), gate, measured.ceiling());
        }
    }

    pub(crate) fn latency(&mut self, id: &'static str, latency: &Latency) {
        println!(
            "\n{id}: a forwarded GET, one connection each way, {} alternating samples, µs",
            latency.samples()
        );
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
            let Quantile { direct, through, relayed, nginx } = latency.quantile(share);
            let added = through - direct;
            print!("  {name}: direct {direct:.0}, through {through:.0}, added {added:.0}");
            if relayed > 0.0 {
                print!("; a bare relay adds {:.0}", relayed - direct);
            }
            if nginx > 0.0 {
                print!("; nginx adds {:.0}", nginx - direct);
            }
            println!();
        }
        // Only HTTP/1.1 has a gate; HTTP/2 is for information.
        if id == "P15" {
            self.gate_latency(latency.quantile(0.5));
        }
    }

    /// Prints the cost of relaying at a fixed pace, and what it adds to the time of the apiserver's response.
    pub(crate) fn paced(&mut self, id: &'static str, paced: &Paced) {
        let Paced { connections, direct, listless, nginx } = paced;
        println!("\n{id} at {} requests a second on {connections} connection(s), µs", paced::RATE);
        let [direct50, direct99] = direct.quantiles();
        let line = |name: &str, pace: &Pace| {
            let [p50, p99] = pace.quantiles();
            println!(
                "  {name:<9} {:>7.1} of CPU, p50 {p50:>5.0}, p99 {p99:>5.0}; added {:>5.0} and {:>5.0}",
                pace.cpu(),
                p50 - direct50,
                p99 - direct99
            );
        };
        line("apiserver", direct);
        line("listless", listless);
        if let Some(nginx) = nginx {
            line("nginx", nginx);
            println!("  listless ÷ nginx: {:.2} of CPU", listless.cpu() / nginx.cpu());
        }
    }

    fn gate_latency(&mut self, Quantile { direct, through, relayed, .. }: Quantile) {
        let (added, added_bare) = (through - direct, relayed - direct);
        let limit = ADDED_MICROS_MAX.max(TIMES_RELAY_MAX * added_bare);
        let here = Some((limit, added_bare));
        self.gates.push(Gate {
            cell: "P15",
            what: "added at p50, µs",
            found: added,
            side: Side::AtMost,
            limit: ADDED_MICROS_MAX,
            here,
        });
        let limit = TIMES_DIRECT_MAX.max((direct + TIMES_RELAY_MAX * added_bare) / direct);
        let here = Some((limit, relayed / direct));
        let found = through / direct;
        self.gates.push(Gate {
            cell: "P15",
            what: "through ÷ direct at p50",
            found,
            side: Side::AtMost,
            limit: TIMES_DIRECT_MAX,
            here,
        });
    }

    /// Prints the cost of recording, beside that of the whole request.
    pub(crate) fn account(&mut self, nanoseconds: f64, request_micros: f64) {
        let share = nanoseconds / 10.0 / request_micros;
        println!("account: {nanoseconds:.0} ns to record a request of {request_micros:.2} µs");
        self.gate("account", "% of the cheapest request", share, Side::AtMost, ACCOUNT_PERCENT_MAX);
    }

    pub(crate) fn idle_watchers(&mut self, memory: &IdleMemory) {
        let (connections, each) = fanout::SHARED;
        let (own, shared) = (memory.own_connection / 1e3, memory.shared / 1e3);
        println!(
            "\nP19: KB of memory for each idle watcher: {own:.1} of {} with a TLS connection each (a \
             bare server {:.1}), {shared:.1} of {} on {connections} HTTP/2 connections",
            fanout::WATCHERS,
            memory.bare / 1e3,
            connections * each
        );
        self.gate("P19", "KB per idle watcher", own, Side::AtMost, WATCHER_KILOBYTES_MAX);
        self.gate("P19", "KB, connections shared", shared, Side::AtMost, SHARED_KILOBYTES_MAX);
    }

    pub(crate) fn fanout(&mut self, fanout: &Fanout) {
        let (ratios, size) = (fanout.ratios(), fanout.size);
        let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
        println!(
            "\nP18: {} watchers, changes of {} ({} B an event); {} / {} events delivered\n  CPU \
             time per delivered event: apiserver {:.2} µs (its writes subtracted), listless {:.2} \
             µs, a bare server {:.2} µs; listless delivers {:.0} events per CPU second\n  ratio \
             {:.2}× ({low:.2}-{high:.2}), of a bare server {:.2}×",
            fanout::WATCHERS,
            size.what,
            fanout.event_bytes,
            fanout.delivered[0],
            fanout.delivered[1],
            median(&fanout.apiserver),
            median(&fanout.listless),
            median(&fanout.bare),
            fanout.per_second(),
            median(&ratios),
            fanout.ceiling()
        );
        if let Some(gate) = size.gate {
            self.gate_ratio("P18", median(&ratios), gate, fanout.ceiling());
        }
    }

    pub(crate) fn staleness(&mut self, staleness: &Staleness) {
        println!(
            "\nP20: delay of an event compared with the direct watch, {} events at {} per second, \
             ms",
            staleness.samples(),
            staleness::EVENTS_PER_SECOND
        );
        for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)] {
            println!("  {name}: {:.3}", staleness.quantile(share));
        }
        let found = staleness.quantile(0.99);
        self.gate("P20", "ms behind at p99", found, Side::AtMost, STALENESS_MILLIS_MAX);
    }

    fn gate(&mut self, cell: &'static str, what: &'static str, found: f64, side: Side, limit: f64) {
        self.gates.push(Gate { cell, what, found, side, limit, here: None });
    }

    fn gate_ratio(&mut self, cell: &'static str, found: f64, gate: cell::Gate, ceiling: f64) {
        self.gates.push(Gate {
            cell,
            what: "apiserver ÷ listless",
            found,
            side: Side::AtLeast,
            limit: gate.times,
            here: Some((gate.at(ceiling), ceiling)),
        });
    }

    /// Prints the apiserver's load from all of the above, besides the direct halves.
    pub(crate) async fn requests_upstream(&self, setup: &Setup) -> Result<()> {
        let (_, watches) = setup.arrived().await?;
        println!("watches of pods that reached the apiserver in the whole run: {watches}");
        Ok(())
    }

    pub(crate) fn closing(&self) {
        println!(
            "\n*  CPU time of the apiserver per request that Listless answered meanwhile\n** a \
             server from the same libraries that only has the bytes, as nginx does; - if \
             there is none\n"
        );
        self.gates.iter().for_each(Gate::print);
        println!("gates: {} passed, {} failed", self.gates.len() - self.missed(), self.missed());
    }

    pub(crate) fn missed(&self) -> usize {
        self.gates.iter().filter(|gate| !gate.holds()).count()
    }

    /// Reports whether this cell missed a gate.
    pub(crate) fn has_missed(&self, cell: &str) -> bool {
        self.gates.iter().any(|gate| gate.cell == cell && !gate.holds())
    }

    /// Discards this cell's gates for a second measurement. Its figures stay printed.
    pub(crate) fn again(&mut self, cell: &str) {
        println!("missed; other load on the machine can cause that, so it is measured again:");
        self.gates.retain(|gate| gate.cell != cell);
    }
}

// === impl Gate ===

impl Gate {
    /// Reports whether the figure meets its limit. A ratio that is not a number does not.
    fn holds(&self) -> bool {
        let limit = self.here.map_or(self.limit, |(limit, _)| limit);
        match self.side {
            Side::AtLeast => self.found >= limit,
            Side::AtMost => self.found <= limit,
        }
    }

    fn print(&self) {
        let Self { cell, what, found, side, limit, here } = self;
        let here = here.map_or(String::new(), |(limit, bare)| {
            format!("here {} {limit:.2}, for a bare one has {bare:.2} ", side.sign())
        });
        let verdict = if self.holds() { "holds" } else { "MISSED" };
        println!(
            "gate {cell:<4} {what:<24} {found:>9.3}  {} {limit:<6.2} {here}{verdict}",
            side.sign()
        );
    }
}

// === impl Side ===

impl Side {
    fn sign(self) -> &'static str {
        match self {
            Self::AtLeast => "≥",
            Self::AtMost => "≤",
        }
    }
}

/// Describes the processor, cores, memory and kernel, without the machine's name.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |text: &str, name: &str| -> String {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{cores} cores of {}, {} memory, Linux {}",
        field(&cpuinfo, "model name"),
        field(&read("/proc/meminfo"), "MemTotal"),
        kernel.trim()
    )
}
