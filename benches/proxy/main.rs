//! A comparison in one run: a real kube-apiserver and Listless in front of it, with the same
//! requests on the same machine. `cargo bench --bench proxy` prints the table; `-- --gate` fails
//! when a gate is missed.
//!
//! `docs/performance.md` explains the cells and the figures.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is its output")]

mod account;
mod bare;
mod cell;
mod churn;
mod expected;
mod fanout;
mod form;
mod http2;
mod latency;
mod load;
mod memory;
mod nginx;
mod options;
mod paced;
mod report;
#[expect(dead_code, unreachable_pub, reason = "shared with the cluster tests; partly used here")]
#[path = "../../tests/cluster/rig.rs"]
mod rig;
mod setup;
mod sidecar;
mod staleness;
mod watchers;
mod wire;
mod writer;

use std::process::ExitCode;

use anyhow::Result;

use cell::Baselines;
use options::Options;
use report::Report;
use setup::{IdleLoad, Setup};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let missed = if arguments.next_if(|argument| argument == bare::FLAG).is_some() {
        bare::serve(arguments).map(|()| 0)
    } else {
        measure(arguments)
    };
    match missed {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("not measured: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The cell with the cheapest request for Listless.
const CHEAPEST: &str = "P3";

/// Returns the number of missed gates, if gates are enabled.
fn measure(arguments: impl Iterator<Item = String>) -> Result<usize> {
    let options = Options::parse(arguments)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let missed = runtime.block_on(run(&options))?;
    Ok(missed * usize::from(options.gate))
}

/// Measures all selected cells and returns the number of missed gates.
async fn run(options: &Options) -> Result<usize> {
    let setup = Setup::start(options).await?;
    let mut report = Report::new(options, &setup);
    report.opening();

    report.memory(&setup)?;
    let idle = setup.idle_load()?;
    report.idle(idle);
    // This comes before any load, whose freed memory would count as free.
    if options.wants("P19") {
        report.idle_watchers(&fanout::idle_memory(&setup).await?);
    }
    // The account is measured beside the cheapest request.
    let wanted = |id| options.wants(id) || (id == CHEAPEST && options.wants("account"));
    let cells = || cell::CELLS.iter().filter(|cell| wanted(cell.id));
    let asked: Vec<_> = cells().map(|cell| cell::expected(cell, &setup)).collect::<Result<_>>()?;
    let baselines = Baselines::start(&setup, &asked)?;
    for (cell, expected) in cells().zip(&asked) {
        let measure = || cell::measure(cell, expected, &setup, &baselines, options, idle);
        let mut measured = measure()?;
        report.cell(&measured);
        if options.gate && report.has_missed(cell.id) {
            report.again(cell.id);
            measured = measure()?;
            report.cell(&measured);
        }
        if cell.id == CHEAPEST && options.wants("account") {
            report.account(account::nanoseconds(), cell::median(&measured.listless));
        }
    }
    for (cell, expected) in cells().zip(&asked).filter(|(_, expected)| expected.is_forwarded) {
        for connections in paced::CONNECTIONS {
            let paced = paced::measure(expected, connections, &setup, &baselines, options, idle)?;
            report.paced(cell.id, &paced);
        }
    }
    if options.wants("P15") {
        report.latency("P15", &latency::http1(&setup, &baselines, options)?);
        if options.gate && report.has_missed("P15") {
            report.again("P15");
            report.latency("P15", &latency::http1(&setup, &baselines, options)?);
        }
        report.latency("P15 h2", &latency::http2(&setup, options).await?);
    }
    watches(options, &setup, idle, &mut report).await?;
    report.memory_after_load(&setup)?;
    report.requests_upstream(&setup).await?;
    if options.wants("forms") {
        report.forms(&memory::of_forms(&setup).await?, setup.json_bytes);
    }

    if options.wants("sidecar") {
        report.sidecar(&sidecar::idle_memory(&setup).await?);
    }

    report.closing();
    Ok(report.missed())
}

/// Measures the cost and the delay of watches.
async fn watches(
    options: &Options,
    setup: &Setup,
    idle: IdleLoad,
    report: &mut Report,
) -> Result<()> {
    if options.wants("P18") {
        for size in fanout::SIZES {
            report.fanout(&fanout::measure(size, setup, options, idle).await?);
            if options.gate && size.gate.is_some() && report.has_missed("P18") {
                report.again("P18");
                report.fanout(&fanout::measure(size, setup, options, idle).await?);
            }
        }
    }
    if options.wants("P20") {
        report.staleness(&staleness::measure(setup).await?);
        if options.gate && report.has_missed("P20") {
            report.again("P20");
            report.staleness(&staleness::measure(setup).await?);
        }
    }
    Ok(())
}
