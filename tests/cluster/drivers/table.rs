//! All runs in one table, and their errors.

use std::fmt;

use super::driver::Driver;
use super::run::{Run, Way};
use crate::rig::control_plane::Version;

/// The share of the reads without Listless that may still reach the apiserver in enforce mode.
const LEFT_OVER_MAX: f64 = 0.02;
/// The requests of the replicas themselves: a check of a quiet watch, a repeated list.
const OWN_READS_MAX: f64 = 3.0;
/// The discovery documents that kubectl reads,
const DOCUMENTS: f64 = 2.0;
/// and the interval of the requests that confirm them.
const CONFIRMED_SECONDS: f64 = 10.0;
/// The tolerated difference between predicted and real savings.
const PREDICTION_TOLERANCE: f64 = 0.05;

/// Every run.
#[derive(Debug)]
pub struct Table(Vec<Run>);

/// The savings of one driver for each of its operations.
#[derive(Clone, Copy, Debug)]
struct Savings {
    version: Version,
    driver: Driver,
    /// The requests that Listless predicted to save in observe mode.
    predicted: f64,
    /// The requests that it reported as saved in enforce mode.
    saved: f64,
    /// The reads that the apiserver itself counted less than without Listless.
    spared: f64,
}

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
            let who = run.who();
            wrong.extend(run.wrong.iter().map(|what| format!("{who}: {what}")));
            if run.operations == 0 {
                wrong.push(format!("{who}: did nothing"));
            }
            if run.way == Way::Enforce {
                wrong.extend(self.not_spared(run).map(|what| format!("{who}: {what}")));
            }
        }
        wrong.extend(self.savings().filter(|it| !it.is_predicted()).map(|it| format!("{it:?}")));
        wrong
    }

    fn not_spared(&self, run: &Run) -> Option<String> {
        let straight = self.find(run, Way::Straight)?;
        let expected = straight.per_operation(straight.requests.reads()) * run.operations as f64;
        let confirmed = DOCUMENTS * (run.window.as_secs_f64() / CONFIRMED_SECONDS + 1.0);
        let documents = confirmed.min(run.requests.discovery as f64);
        let left = run.requests.reads();
        let most = expected * LEFT_OVER_MAX + OWN_READS_MAX + documents;
        let reads = "reads reached the apiserver";
        let why = &run.forwarded;
        (left as f64 > most).then(|| format!("{left} {reads}, {most:.0} at most: {why:?}"))
    }

    fn savings(&self) -> impl Iterator<Item = Savings> {
        let enforced = self.0.iter().filter(|run| run.way == Way::Enforce);
        enforced.filter_map(|enforce| {
            let straight = self.find(enforce, Way::Straight)?;
            let observe = self.find(enforce, Way::Observe)?;
            let reached = |run: &Run| run.per_operation(run.requests.reads());
            Some(Savings {
                version: enforce.version,
                driver: enforce.driver,
                predicted: observe.per_operation(observe.would_save),
                saved: enforce.per_operation(enforce.saved),
                spared: reached(straight) - reached(enforce),
            })
        })
    }

    fn find(&self, like: &Run, way: Way) -> Option<&Run> {
        let wanted = (like.version, like.driver, way);
        self.0.iter().find(|run| (run.version, run.driver, run.way) == wanted)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "| control plane | driver | way | s | operations | LIST | GET | writes | discovery | other \
             | apiserver CPU s | etcd CPU s | Listless CPU s | p50 ms |\n\
             | --- | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |"
        )?;
        for run in &self.0 {
            let Run { operations, requests, cpu, listless, .. } = run;
            writeln!(
                out,
                "| {} | {} | {} | {:.0} | {operations} | {} | {} | {} | {} | {} | {:.2} | {:.2} \
                 | {listless:.2} | {} |",
                run.version.name(),
                run.driver.name(),
                run.way.name(),
                run.window.as_secs_f64(),
                requests.lists,
                requests.gets,
                requests.writes,
                requests.discovery,
                requests.others,
                cpu.apiserver,
                cpu.etcd,
                run.p50_millis.map_or_else(|| "–".to_owned(), |p50| format!("{p50:.1}")),
            )?;
        }
        writeln!(
            out,
            "\n| control plane | driver | predicted | saved | fewer at the apiserver |\n\
             | --- | --- | --: | --: | --: |"
        )?;
        for Savings { version, driver, predicted, saved, spared } in self.savings() {
            let (version, driver) = (version.name(), driver.name());
            writeln!(out, "| {version} | {driver} | {predicted:.3} | {saved:.3} | {spared:.3} |")?;
        }
        Ok(())
    }
}

// === impl Savings ===

impl Savings {
    fn is_predicted(&self) -> bool {
        let near = |it: f64| (self.predicted - it).abs() <= it * PREDICTION_TOLERANCE;
        self.saved > 0.0 && near(self.saved) && near(self.spared)
    }
}
