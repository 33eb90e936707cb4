//! The few options of the harness, parsed without a library.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};

use crate::setup::PODS_MIN;

const USAGE: &str = "\
usage: cargo bench --bench proxy -- [--gate] [--cell ID]... [--seconds N] [--rounds N] [--pods N]
       [--connections N] [--samples N] [--churn N] [--program FILE]

  --gate           exit with an error when a gate is missed
  --cell ID        measure only this cell (P1 to P8, F1, PB1, PB2, T1, PG1, R1, R2, P15, P18 to P20,
                   account, forms, sidecar); repeat for more
  --seconds N      length of one measuring slot (default 3)
  --rounds N       slots on each side of a cell (default 5)
  --pods N         pods in the cluster (default 5000, the minimum)
  --connections N  connections of the closed-loop load (default 8)
  --samples N      latency samples on each side (default 3000)
  --churn N        pods that change each second while a cell is measured (default 0); only P6 and P8
                   have gates then
  --program FILE   measure this listless instead of the image's binary";

/// The names of the cells.
const CELLS: [&str; 22] = [
    "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "F1", "PB1", "PB2", "T1", "PG1", "R1", "R2",
    "P15", "P18", "P19", "P20", "account", "forms", "sidecar",
];

/// The cells and the length of the measurement.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) gate: bool,
    pub(crate) cells: Vec<String>,
    pub(crate) slot: Duration,
    pub(crate) rounds: u32,
    pub(crate) pods: u32,
    pub(crate) connections: usize,
    pub(crate) samples: usize,
    pub(crate) churn: u32,
    pub(crate) program: Option<PathBuf>,
}

// === impl Options ===

impl Options {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self {
            gate: false,
            cells: Vec::new(),
            slot: Duration::from_secs(3),
            rounds: 5,
            pods: PODS_MIN,
            connections: 8,
            samples: 3_000,
            churn: 0,
            program: None,
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().with_context(|| format!("{argument} what?"));
            match argument.as_str() {
                "--gate" => options.gate = true,
                "--cell" => options.cells.push(value()?),
                "--seconds" => options.slot = Duration::from_secs(value()?.parse()?),
                "--rounds" => options.rounds = value()?.parse()?,
                "--pods" => options.pods = value()?.parse()?,
                "--connections" => options.connections = value()?.parse()?,
                "--samples" => options.samples = value()?.parse()?,
                "--churn" => options.churn = value()?.parse()?,
                "--program" => options.program = Some(value()?.into()),
                // Cargo adds this one.
                "--bench" => {}
                _ => bail!("unknown argument {argument}\n{USAGE}"),
            }
        }
        if let Some(unknown) = options.cells.iter().find(|cell| !CELLS.contains(&cell.as_str())) {
            bail!("--cell {unknown}: there is no such cell\n{USAGE}");
        }
        if options.gate && options.program.is_some() {
            bail!("gates need the shipped binary: omit --program\n{USAGE}");
        }
        if let Some(missing) = options.program.iter().find(|program| !program.is_file()) {
            bail!("--program {}: there is no such file\n{USAGE}", missing.display());
        }
        if options.rounds == 0 || options.slot.is_zero() || options.pods < PODS_MIN {
            bail!("too little to measure: raise the values\n{USAGE}");
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, cell: &str) -> bool {
        self.cells.is_empty() || self.cells.iter().any(|wanted| wanted == cell)
    }
}
