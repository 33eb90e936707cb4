//! What relaying costs and adds at an operator's pace. Between two requests each server falls asleep and
//! others use its caches, so that a request costs more than under full load.

use std::time::Duration;

use anyhow::Result;

use crate::{
    cell::{Baselines, micros_per_request},
    expected::Expected,
    latency,
    load::{self, Meter},
    nginx::Nginx,
    options::Options,
    setup::{IdleLoad, Setup},
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
    /// CPU time per request in microseconds, per round.
    cpu: Vec<f64>,
    /// The time of each response since its request was due, sorted.
    took: Vec<Duration>,
}

/// Measures the requests of a cell that must be forwarded, on the servers in turn, then in the
/// opposite order.
pub(crate) fn measure(
    direct: &Expected,
    connections: usize,
    setup: &Setup,
    baselines: &Baselines,
    options: &Options,
    idle: IdleLoad,
) -> Result<Paced> {
    let relayed = &Expected { cache_status: Some("fwd"), ..direct.clone() };
    let nginx = baselines.nginx.as_ref();
    let apiserver_meter = || Ok([setup.apiserver_cpu()?, 0.0]);
    let listless_meter = || Ok([setup.listless_cpu()?, 0.0]);
    let nginx_meter = || Ok([nginx.map_or(Ok(0.0), Nginx::cpu_seconds)?, 0.0]);
    let mut paced =
        Paced { connections, nginx: nginx.map(|_| Pace::default()), ..Paced::default() };
    let Paced { direct: at_apiserver, listless: at_listless, nginx: at_nginx, .. } = &mut paced;
    let mut ways: Vec<(&mut Pace, &Endpoint, &Expected, f64, Meter<'_>)> = vec![
        (at_apiserver, &setup.direct, direct, idle.apiserver, &apiserver_meter),
        (at_listless, &setup.through, relayed, idle.listless, &listless_meter),
    ];
    if let (Some(pace), Some(nginx)) = (at_nginx, nginx) {
        ways.push((pace, &nginx.endpoint, relayed, 0.0, &nginx_meter));
    }
    for _ in 0..options.rounds {
        for (pace, endpoint, expected, idle, meter) in &mut ways {
            let (slot, took) =
                load::paced(endpoint, expected, connections, RATE, options.slot, *meter)?;
            pace.cpu.push(micros_per_request(&slot, 0, *idle));
            pace.took.extend(took);
        }
        ways.reverse();
    }
    for (pace, ..) in ways {
        pace.took.sort();
    }
    Ok(paced)
}

// === impl Pace ===

impl Pace {
    /// Returns the mean CPU time per request in microseconds: the clock of one round is too coarse.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu.iter().sum::<f64>() / self.cpu.len() as f64
    }

    /// Returns the times at p50 and p99 in microseconds.
    pub(crate) fn quantiles(&self) -> [f64; 2] {
        [0.5, 0.99].map(|share| latency::quantile(&self.took, share))
    }
}
