//! What relaying costs and adds at an operator's pace. Between two requests each server falls asleep and
//! others use its caches, so that a request costs more than under full load.

use std::time::Duration;

use anyhow::Result;

use crate::{
    cell::Baselines,
    expected::Expected,
    latency,
    load::{self, Meter},
    options::Options,
    setup::Setup,
    wire::Endpoint,
};

/// The requests per second on all connections together.
pub(crate) const RATE: u32 = 200;

/// The numbers of connections with which it is measured.
pub(crate) const CONNECTIONS: [usize; 2] = [1, 20];

/// The same requests to each server, round by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paced {
    pub(crate) connections: usize,
    pub(crate) direct: Pace,
    pub(crate) listless: Pace,
    /// Nothing where the machine has no nginx.
    pub(crate) nginx: Option<Pace>,
}

/// All rounds of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    cpu_seconds: f64,
    /// The time of each response since its request was due.
    took: Vec<Duration>,
}

/// Measures the requests of a cell that must be forwarded.
pub(crate) fn measure(
    direct: &Expected,
    connections: usize,
    setup: &Setup,
    baselines: &Baselines,
    options: &Options,
) -> Result<Paced> {
    let relayed = Expected { cache_status: Some("fwd"), ..direct.clone() };
    let run = |pace: &mut Pace, endpoint: &Endpoint, expected: &Expected, meter: Meter<'_>| {
        let (slot, took) = load::paced(endpoint, expected, connections, RATE, options.slot, meter)?;
        pace.cpu_seconds += slot.cpu_seconds[0];
        pace.took.extend(took);
        anyhow::Ok(())
    };
    let nginx = baselines.nginx.as_ref();
    let mut paced =
        Paced { connections, nginx: nginx.map(|_| Pace::default()), ..Paced::default() };
    for _ in 0..options.rounds {
        run(&mut paced.direct, &setup.direct, direct, &|| Ok([setup.apiserver_cpu()?, 0.0]))?;
        if let (Some(pace), Some(nginx)) = (&mut paced.nginx, nginx) {
            run(pace, &nginx.endpoint, &relayed, &|| Ok([nginx.cpu_seconds()?, 0.0]))?;
        }
        let meter = || Ok([setup.listless_cpu()?, 0.0]);
        run(&mut paced.listless, &setup.through, &relayed, &meter)?;
    }
    Ok(paced)
}

// === impl Pace ===

impl Pace {
    /// Returns the CPU time per request in microseconds.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.took.len() as f64
    }

    /// Returns a quantile of the times in microseconds.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.took.clone();
        sorted.sort();
        latency::quantile(&sorted, share)
    }
}
