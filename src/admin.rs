//! The admin server: health checks, metrics, replicas, reports and the status page.
//!
//! It serves plain HTTP on two addresses. One is for probes and scrapes. The other also has the
//! page and its data, and listens on loopback by default. The server has its own runtime: the data
//! path never waits for it, and it answers when the data path does not. It only reads.

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
    connection_limit::{Bounds, ConnectionLimit, ConnectionSlot},
    explain::{ExplainedRequest, Explanation},
    insight::report::{Apiserver, Report},
    lifecycle::{Draining, Heartbeat, Ready},
    metrics::{Limit, Metrics},
    tap::Tap,
    timeline::Timeline,
};

/// The set of paths that an address answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Health checks and metrics.
    Probes,
    /// All paths.
    Operators,
}

/// The sources of the data that the admin server shows.
pub struct Sources {
    /// The readiness of each part.
    pub ready: Ready,
    /// The drain flag. A draining process is not ready.
    pub draining: Draining,
    /// The heartbeat of the data path.
    pub heartbeat: Heartbeat,
    /// Reports whether the listener can accept another client connection.
    pub has_room: Box<dyn Fn() -> bool + Send + Sync>,
    /// The metrics of this process.
    pub metrics: Metrics,
    /// The host names that browsers may use, besides IP addresses and localhost.
    pub names: Vec<String>,
    /// Returns the state of each replica.
    pub replicas: Box<dyn Fn() -> Vec<ReplicaStatus> + Send + Sync>,
    /// Returns the report on clients and their requests.
    pub report: Box<dyn Fn() -> Report + Send + Sync>,
    /// Returns the current settings and uptime.
    pub process_status: Box<dyn Fn() -> ProcessStatus + Send + Sync>,
    /// Explains the outcome of a request.
    pub explain: Box<dyn Fn(ExplainedRequest<'_>) -> Explanation + Send + Sync>,
    /// The recent history, second by second.
    pub timeline: Arc<Timeline>,
    /// The stream of requests as they are answered.
    pub tap: Tap,
}

/// Values that are constant, or change only with the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessStatus {
    /// The configured mode: `enforce` or `observe`.
    pub mode: &'static str,
    /// The address of the apiserver.
    pub upstream: String,
    /// State of that apiserver.
    pub apiserver: Apiserver,
    /// The time since the process started.
    pub up: Duration,
    /// The memory limit of all replicas together.
    pub memory_limit_bytes: usize,
}

/// The limits of one address, in all and per peer. A connection carries one request at a time.
const BOUNDS: Bounds =
    Bounds { all_max: 256, per_peer_max: 32, requests_max: 256, requests_per_peer_max: 32 };
/// The timeout for a request's head, and for an idle connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum lifetime of a probe connection. It carries one request.
const PROBE_LIFETIME: Duration = Duration::from_secs(10);
/// The pause after the process runs out of file descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// The heartbeat age at which the data path counts as dead.
const HEARTBEAT_MAX: Duration = Duration::from_secs(30);

/// Serves one address until the task is dropped. A new connection evicts an old one when all slots
/// are taken: see [`ConnectionLimit`].
pub async fn serve(listener: TcpListener, audience: Audience, sources: Arc<Sources>) {
    let slots = ConnectionLimit::new(BOUNDS);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Ok(slot) = slots.take(peer.ip()) else { continue };
                if slot.made_room() {
                    sources.metrics.limit_reached(Limit::AdminConnections);
                }
                tokio::spawn(connection(stream, audience, sources.clone(), slot));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                slots.shed();
                // The descriptor is free only after the task of the closed connection has run.
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    audience: Audience,
    sources: Arc<Sources>,
    slot: ConnectionSlot,
) {
    let asked = slot.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = page::answer(&sources, audience, &request);
        let answer = match asked.begin() {
            Ok(busy) => answer.map(|body| body.holding(busy)),
            Err(_) => answer,
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
        () = slot.closed() => tracing::debug!("closed an admin connection to make room for another"),
        () = lifetime => tracing::debug!("closed an admin connection at its maximum lifetime"),
    }
}
