//! Side by side in one run: a real kube-apiserver and Listless in front of it, same requests, same
//! machine. `cargo bench --bench proxy` prints the table; `-- --gate` fails when a gate is missed.
//!
//! `benches/README.md` says how to read the figures.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the table is its output")]

mod cell;
mod latency;
mod load;
mod options;
mod report;
#[expect(dead_code, unreachable_pub, reason = "shared with the cluster tests; used in part here")]
#[path = "../../tests/cluster/rig.rs"]
mod rig;
mod setup;
mod wire;

use std::process::ExitCode;

use anyhow::Result;

use options::Options;
use report::Report;
use setup::Setup;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let missed = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => run(&options).await.map(|missed| missed * usize::from(options.gate)),
        Err(error) => Err(error),
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

/// Measures everything wanted and returns how many gates were missed.
async fn run(options: &Options) -> Result<usize> {
    if !options.as_built {
        setup::build_release()?;
    }
    let setup = Setup::start(options).await?;
    let mut report = Report::new(options, &setup);
    report.opening();

    report.memory(&setup)?;
    let idle = setup.idle_load()?;
    report.idle(idle);
    for cell in cell::CELLS.iter().filter(|cell| options.wants(cell.id)) {
        report.cell(&cell::measure(cell, &setup, options, idle)?);
    }
    if options.wants("P15") {
        report.latency("P15", &latency::http1(&setup, options)?);
        report.latency("P15 h2", &latency::http2(&setup, options).await?);
    }
    report.memory_after_load(&setup)?;
    report.requests_upstream(&setup).await?;

    report.closing();
    Ok(report.missed())
}
