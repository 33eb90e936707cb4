//! What operators and probes ask: alive, ready, metrics, what is held, and the page that shows it.
//!
//! Plain HTTP on two addresses: one for probes and scrapes, and one, on loopback unless told otherwise,
//! that also has the page and its data. It runs on a runtime of its own, so that the data path never
//! waits for it and it still answers when the data path does not. It only reads.

mod assets;
mod events;
mod explanation;
mod guard;
mod page;
mod parameters;
mod replicas;
mod report;
mod status;

use std::{convert::Infallible, sync::Arc, time::Duration};

use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use crate::{
    cache::ReplicaStatus,
    explain::{Explanation, Question},
    insight::report::{Apiserver, Report},
    lifecycle::{Draining, Heartbeat, Ready},
    metrics::{Limit, Metrics},
    places::{Bounds, Place, Places},
    tap::Tap,
    timeline::Timeline,
};

/// Which questions an address answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Whether it lives and is ready, and what was counted.
    Probes,
    /// Everything.
    Operators,
}

/// What the answers are made of.
pub struct Sources {
    /// Which parts are ready.
    pub ready: Ready,
    /// Whether the end has begun; no longer ready then.
    pub draining: Draining,
    /// Whether the data path still moves.
    pub heartbeat: Heartbeat,
    /// Reports whether clients' connections find a place.
    pub has_room: Box<dyn Fn() -> bool + Send + Sync>,
    /// What was counted.
    pub metrics: Metrics,
    /// By which names, besides IP addresses and localhost, browsers may ask.
    pub names: Vec<String>,
    /// What is held.
    pub replicas: Box<dyn Fn() -> Vec<ReplicaStatus> + Send + Sync>,
    /// Who asks what.
    pub report: Box<dyn Fn() -> Report + Send + Sync>,
    /// How it stands now.
    pub standing: Box<dyn Fn() -> Standing + Send + Sync>,
    /// What would happen to a request now.
    pub explain: Box<dyn Fn(Question<'_>) -> Explanation + Send + Sync>,
    /// What happened of late.
    pub timeline: Arc<Timeline>,
    /// The requests that are answered now.
    pub tap: Tap,
}

/// What stays the same, or changes with the configuration only.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// What the configuration asks for: `enforce` or `observe`.
    pub mode: &'static str,
    /// The apiserver behind it.
    pub upstream: String,
    /// State of that apiserver.
    pub apiserver: Apiserver,
    /// Time since it was started.
    pub up: Duration,
    /// Memory that replicas may hold.
    pub memory_limit_bytes: usize,
}

/// Connections of one address at a time, and those of one peer.
const BOUNDS: Bounds = Bounds { all_max: 256, per_peer_max: 32 };
/// How long a request's head may take, and a connection may idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection of probes and scrapes may last: it carries one request.
const PROBE_LIFETIME: Duration = Duration::from_secs(10);
/// How long to rest when the process has no file descriptor left.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// How long the data path may not move before it is taken for dead.
const HEARTBEAT_MAX: Duration = Duration::from_secs(30);

/// Serves one address until the task is dropped. Whoever connects finds a place: see [`Places`].
pub async fn serve(listener: TcpListener, audience: Audience, sources: Arc<Sources>) {
    let places = Places::new(BOUNDS);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Ok(place) = places.take(peer.ip()) else { continue };
                if place.made_room() {
                    sources.metrics.limit_reached(Limit::AdminConnections);
                }
                tokio::spawn(connection(stream, audience, sources.clone(), place));
            }
            Err(error) => {
                tracing::warn!(%error, "accepting an admin connection failed");
                if !places.shed() {
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    }
}

async fn connection(stream: TcpStream, audience: Audience, sources: Arc<Sources>, place: Place) {
    let asked = place.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = page::answer(&sources, audience, &request);
        let answer = match asked.begin() {
            Some(busy) => answer.map(|body| body.holding(busy)),
            None => answer,
        };
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    builder.keep_alive(audience == Audience::Operators);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    let lifetime = async {
        match audience {
            Audience::Probes => tokio::time::sleep(PROBE_LIFETIME).await,
            Audience::Operators => std::future::pending().await,
        }
    };
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::debug!(%error, "an admin connection ended early");
        },
        () = place.closed() => tracing::debug!("an admin connection made room for another"),
        () = lifetime => tracing::debug!("an admin connection lasted too long"),
    }
}
