//! The workloads that Listless is made for, as real programs. Three figures are compared: the cost
//! for the control plane without Listless, the savings predicted in observe mode, and the cost in
//! enforce mode.
//!
//! Every figure is of a window in the middle of a run, and is compared per operation of the driver.
//! A slow machine then makes fewer operations, not other ratios. Both control planes are driven at
//! once, one driver at a time on each.

mod driver;
mod field;
mod meter;
mod moment;
pub mod programs;
mod report;
mod run;
mod table;
pub mod tally;
mod together;
pub mod workload;

use std::sync::Arc;

use crate::clusters::{Machine, available};
use crate::rig::control_plane::Version;
use driver::Programs;
use table::Table;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_cost_less_as_predicted_and_are_reported_on_1_36_and_on_1_30() {
    let versions = [Version::V1_36, Version::V1_30];
    if !versions.into_iter().all(available) {
        return;
    }
    let Some(programs) = Programs::build() else { return };
    let _machine = Machine::alone().await;
    let programs = Arc::new(programs);
    let running = versions.map(|version| {
        let programs = Arc::clone(&programs);
        tokio::spawn(async move {
            let runs = run::all_drivers(version, &programs).await;
            // The other runs for minutes longer.
            runs.inspect_err(|error| eprintln!("{}: {error:#}", version.name()))
        })
    });
    let mut runs = Vec::new();
    for part in running {
        runs.extend(part.await.expect("no panic").expect("whole runs"));
    }
    let table = Table::new(runs);
    eprintln!("{table}");
    let wrong = table.wrong();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
