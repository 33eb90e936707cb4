//! What passing through adds: the same GET straight and through Listless, sample by sample in turn.
//!
//! The request carries a parameter nobody knows, so that Listless must forward it, and
//! `resourceVersion=0`, so that the apiserver answers from its own memory: the fastest direct GET
//! there is, hence the hardest to stay close to.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::{
    options::Options,
    setup::Setup,
    wire::{Connection, Endpoint},
};

const WARM_UP: usize = 200;

/// Sorted samples of both ways.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    pub(crate) direct: Vec<Duration>,
    pub(crate) through: Vec<Duration>,
}

struct Http2 {
    sender: http2::SendRequest<Empty<Bytes>>,
    authority: String,
    token: String,
}

/// Over one kept-alive HTTP/1.1 connection each.
pub(crate) fn http1(setup: &Setup, options: &Options) -> Result<Latency> {
    let target = target(setup);
    let (mut direct, mut through) =
        (Connection::open(&setup.direct)?, Connection::open(&setup.through)?);
    let (ask_direct, ask_through) = (setup.direct.request(&target), setup.through.request(&target));
    let wanted = direct.exchange(&ask_direct)?.body.to_vec();
    let mut latency = Latency::new();
    for sample in 0..options.samples + WARM_UP {
        for straight in [sample % 2 == 0, sample % 2 != 0] {
            let begun = Instant::now();
            let answer = if straight {
                direct.exchange(&ask_direct)?
            } else {
                through.exchange(&ask_through)?
            };
            let took = begun.elapsed();
            ensure!(answer.status == 200 && answer.body == wanted, "another answer");
            ensure!(
                straight || answer.cache_status().contains("fwd"),
                "not forwarded: {:?}",
                answer.cache_status()
            );
            latency.add(straight, took, sample);
        }
    }
    Ok(latency.sorted())
}

/// Over one HTTP/2 connection each.
pub(crate) async fn http2(setup: &Setup, options: &Options) -> Result<Latency> {
    let target = target(setup);
    let mut direct = Http2::open(&setup.direct).await?;
    let mut through = Http2::open(&setup.through).await?;
    let wanted = direct.exchange(&target).await?;
    let mut latency = Latency::new();
    for sample in 0..options.samples + WARM_UP {
        for straight in [sample % 2 == 0, sample % 2 != 0] {
            let begun = Instant::now();
            let side = if straight { &mut direct } else { &mut through };
            let body = side.exchange(&target).await?;
            let took = begun.elapsed();
            ensure!(body == wanted, "another answer");
            latency.add(straight, took, sample);
        }
    }
    Ok(latency.sorted())
}

fn target(setup: &Setup) -> String {
    format!("{}/pod-00007?resourceVersion=0&unknownToEverybody=1", setup.data.collection())
}

// === impl Latency ===

impl Latency {
    fn new() -> Self {
        Self { direct: Vec::new(), through: Vec::new() }
    }

    fn add(&mut self, straight: bool, took: Duration, sample: usize) {
        if sample >= WARM_UP {
            if straight { self.direct.push(took) } else { self.through.push(took) }
        }
    }

    fn sorted(mut self) -> Self {
        self.direct.sort();
        self.through.sort();
        self
    }

    /// A quantile of both ways in microseconds: direct, through.
    pub(crate) fn quantile(&self, share: f64) -> (f64, f64) {
        let of = |samples: &[Duration]| {
            let index = (samples.len() as f64 * share) as usize;
            samples.get(index.min(samples.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
        (micros(of(&self.direct)), micros(of(&self.through)))
    }
}

// === impl Http2 ===

impl Http2 {
    async fn open(endpoint: &Endpoint) -> Result<Self> {
        let tcp = TcpStream::connect(&endpoint.authority).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(endpoint.host().to_owned())?;
        let tls = TlsConnector::from(Arc::clone(&endpoint.tls(b"h2")?)).connect(name, tcp).await?;
        ensure!(tls.get_ref().1.alpn_protocol() == Some(b"h2"), "HTTP/2 was not agreed on");
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await?;
        tokio::spawn(connection);
        let (authority, token) = (endpoint.authority.clone(), endpoint.token.clone());
        Ok(Self { sender, authority, token })
    }

    async fn exchange(&mut self, target: &str) -> Result<Bytes> {
        self.sender.ready().await?;
        let uri = Uri::builder().scheme("https").authority(self.authority.as_str());
        let request = Request::get(uri.path_and_query(target).build()?)
            .header("user-agent", "listless-bench")
            .header("accept", "application/json")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Empty::new())?;
        let response = self.sender.send_request(request).await?;
        ensure!(response.status() == 200, "status {}", response.status());
        Ok(response.into_body().collect().await.context("the body broke off")?.to_bytes())
    }
}
