//! The added latency: the same GET directly and through Listless, alternating sample by sample.
//!
//! The request has an unknown parameter, so Listless must forward it, and `resourceVersion=0`, so
//! the apiserver answers from its own memory. That is the fastest direct GET, and so the strictest
//! comparison.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use http_body_util::BodyExt;

use crate::{cell::Baselines, http2::Http2, options::Options, setup::Setup, wire::Connection};

const WARM_UP: usize = 200;

/// The sorted samples of each way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latency {
    direct: Vec<Duration>,
    through: Vec<Duration>,
    /// Samples through a bare relay, and through nginx. Empty if there is none.
    relayed: Vec<Duration>,
    nginx: Vec<Duration>,
}

/// A quantile of each way, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantile {
    pub(crate) direct: f64,
    pub(crate) through: f64,
    pub(crate) relayed: f64,
    pub(crate) nginx: f64,
}

/// A way to the apiserver.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Direct,
    Through,
    Relayed,
    Nginx,
}

/// Measures with one kept-alive HTTP/1.1 connection each.
pub(crate) fn http1(setup: &Setup, baselines: &Baselines, options: &Options) -> Result<Latency> {
    let target = target(setup);
    let nginx = baselines.nginx.iter().map(|nginx| (Way::Nginx, &nginx.endpoint));
    let mut ways = [
        (Way::Direct, &setup.direct),
        (Way::Through, &setup.through),
        (Way::Relayed, &baselines.bare.endpoint),
    ]
    .into_iter()
    .chain(nginx)
    .map(|(way, endpoint)| (way, endpoint.request(&target), Connection::open(endpoint)))
    .collect::<Vec<_>>();
    let mut latency = Latency::default();
    let mut wanted = None;
    for sample in 0..options.samples + WARM_UP {
        for (way, request, connection) in &mut ways {
            let connection = connection.as_mut().map_err(|error| anyhow!("{error:#}"))?;
            let begun = Instant::now();
            let answer = connection.exchange(request)?;
            let took = begun.elapsed();
            let wanted = wanted.get_or_insert_with(|| answer.body.to_vec());
            ensure!(answer.status == 200 && answer.body == wanted, "another answer");
            ensure!(
                *way == Way::Direct || answer.cache_status().contains("fwd"),
                "not forwarded: {:?}",
                answer.cache_status()
            );
            latency.add(*way, took, sample);
        }
        // The order changes, so that no way always follows the same other.
        ways.rotate_left(1);
    }
    Ok(latency.sorted())
}

/// Measures with one HTTP/2 connection each.
pub(crate) async fn http2(setup: &Setup, options: &Options) -> Result<Latency> {
    let target = target(setup);
    let mut direct = Http2::open(&setup.direct).await?;
    let mut through = Http2::open(&setup.through).await?;
    let wanted = body(&mut direct, &target).await?;
    let mut latency = Latency::default();
    for sample in 0..options.samples + WARM_UP {
        for straight in [sample % 2 == 0, sample % 2 != 0] {
            let begun = Instant::now();
            let side = if straight { &mut direct } else { &mut through };
            let found = body(side, &target).await?;
            let took = begun.elapsed();
            ensure!(found == wanted, "another answer");
            latency.add(if straight { Way::Direct } else { Way::Through }, took, sample);
        }
    }
    Ok(latency.sorted())
}

async fn body(connection: &mut Http2, target: &str) -> Result<Bytes> {
    let body = connection.get(target).await?.into_body();
    Ok(body.collect().await.context("the body ended early")?.to_bytes())
}

fn target(setup: &Setup) -> String {
    format!("{}/pod-00007?resourceVersion=0&unknownToEverybody=1", setup.data.collection())
}

/// Returns a quantile of sorted samples in microseconds. Zero for no samples.
pub(crate) fn quantile(sorted: &[Duration], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    let sample = sorted.get(index.min(sorted.len().saturating_sub(1)));
    sample.copied().unwrap_or_default().as_secs_f64() * 1e6
}

// === impl Latency ===

impl Latency {
    fn add(&mut self, way: Way, took: Duration, sample: usize) {
        if sample < WARM_UP {
            return;
        }
        match way {
            Way::Direct => self.direct.push(took),
            Way::Through => self.through.push(took),
            Way::Relayed => self.relayed.push(took),
            Way::Nginx => self.nginx.push(took),
        }
    }

    fn sorted(mut self) -> Self {
        for samples in [&mut self.direct, &mut self.through, &mut self.relayed, &mut self.nginx] {
            samples.sort();
        }
        self
    }

    pub(crate) fn samples(&self) -> usize {
        self.direct.len()
    }

    pub(crate) fn quantile(&self, share: f64) -> Quantile {
        let of = |samples: &[Duration]| quantile(samples, share);
        Quantile {
            direct: of(&self.direct),
            through: of(&self.through),
            relayed: of(&self.relayed),
            nginx: of(&self.nginx),
        }
    }
}
