//! All runs in one table, and what is wrong with them.

use std::fmt;

use super::driver::Driver;
use super::run::{Run, Way};
use crate::rig::control_plane::Version;

/// Of the reads that reached the apiserver straight, so many may still do when Listless acts.
const LEFT_OVER_MAX: f64 = 0.02;
/// What comes of replicas themselves: a look at a quiet watch, a list begun anew.
const OWN_READS_MAX: u64 = 3;

/// Every run.
#[derive(Debug)]
pub struct Table(Vec<Run>);

// === impl Table ===

impl Table {
    /// A table of these runs.
    pub fn new(runs: Vec<Run>) -> Self {
        Self(runs)
    }

    /// Every broken promise, in words.
    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for run in &self.0 {
            let who =
                format!("{} on {}, {}", run.driver.name(), run.version.name(), run.way.name());
            wrong.extend(run.errors.iter().map(|error| format!("{who}: {error}")));
            if run.operations == 0 {
                wrong.push(format!("{who}: did nothing"));
            }
            if run.way == Way::Enforce {
                wrong.extend(self.not_spared(run).map(|what| format!("{who}: {what}")));
            }
        }
        wrong
    }

    fn not_spared(&self, run: &Run) -> Option<String> {
        let straight = self.find(run.version, run.driver, Way::Straight)?;
        let expected = straight.used.reads() as f64 / straight.operations as f64;
        let left = run.used.reads() as f64;
        let most = expected * run.operations as f64 * LEFT_OVER_MAX + OWN_READS_MAX as f64;
        (left > most).then(|| format!("{left} reads reached the apiserver, {most:.0} at most"))
    }

    fn find(&self, version: Version, driver: Driver, way: Way) -> Option<&Run> {
        let is = |run: &&Run| (run.version, run.driver, run.way) == (version, driver, way);
        self.0.iter().find(is)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "| control plane | driver | way | s | operations | LIST | GET | write | discovery \
             | other | apiserver CPU s | etcd CPU s | Listless CPU s |\n\
             | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        )?;
        for run in &self.0 {
            let used = &run.used;
            writeln!(
                out,
                "| {} | {} | {} | {:.0} | {} | {} | {} | {} | {} | {} | {:.2} | {:.2} | {:.2} |",
                run.version.name(),
                run.driver.name(),
                run.way.name(),
                run.window.as_secs_f64(),
                run.operations,
                used.lists,
                used.gets,
                used.writes,
                used.discovery,
                used.others,
                used.apiserver_seconds,
                used.etcd_seconds,
                run.listless_seconds,
            )?;
        }
        Ok(())
    }
}
