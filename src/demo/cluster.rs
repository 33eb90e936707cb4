//! The simulated cluster: an apiserver over TLS on its own threads, with its pods and their
//! changes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use tokio::{
    net::TcpListener,
    runtime::Runtime,
    task::AbortHandle,
    time::{MissedTickBehavior, interval},
};

use super::{
    Cluster, Scale,
    pod::{PodNumber, pod},
    processor,
};
use crate::{
    api::GroupResource,
    simulator::{Counters, Settings, Simulator, User},
    tls::{self, Authority, Names},
};

/// The name of the threads whose CPU time counts as the apiserver's. The kernel keeps 15 bytes.
const THREAD_NAME: &str = "demo-apiserver";
const THREADS: usize = 2;

/// The token of the simulated cluster. It is valid nowhere else.
const TOKEN: &str = "demo-token-of-the-simulated-cluster";

/// The size of the event history: enough for watches to resume, and small enough for a laptop.
const HISTORY_CHANGES_MAX: usize = 2000;

/// A running simulated cluster. Dropping it ends everything.
pub(super) struct SimulatedCluster {
    simulator: Simulator,
    address: SocketAddr,
    ca_pem: String,
    churn: AbortHandle,
    runtime: Option<Runtime>,
}

/// The work of the apiserver so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Reads: GET, LIST, WATCH and every path that is no resource.
    pub reads: u64,
    /// Writes over HTTP.
    pub writes: u64,
    /// Bytes of response bodies.
    pub bytes: u64,
    /// CPU time of its threads.
    pub processor: Option<Duration>,
}

// === impl SimulatedCluster ===

impl SimulatedCluster {
    /// Starts the cluster with all its pods.
    pub(super) async fn start(scale: &Scale) -> anyhow::Result<Self> {
        let simulator = Simulator::new(Settings {
            history_changes_max: HISTORY_CHANGES_MAX,
            ..Settings::default()
        });
        simulator.admit(TOKEN, User::admin("demo"));
        fill(&simulator, scale);
        let (server, ca_pem) = certificate()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(THREAD_NAME)
            .enable_all()
            .build()
            .context("cannot start the simulated apiserver's threads")?;
        let (serving, bind) = (simulator.clone(), (Ipv4Addr::LOCALHOST, 0));
        let (bound, listening) = tokio::sync::oneshot::channel();
        runtime.spawn(async move {
            let listener = TcpListener::bind(bind).await;
            let address = listener.as_ref().map(TcpListener::local_addr);
            let _ = bound.send(match address {
                Ok(Ok(address)) => Ok(address),
                Ok(Err(error)) => Err(error),
                Err(error) => Err(std::io::Error::new(error.kind(), error.to_string())),
            });
            if let Ok(listener) = listener {
                serving.serve_tls(listener, server).await;
            }
        });
        let address = listening.await?.context("cannot bind a port for the simulated apiserver")?;
        let churn = tokio::spawn(churn(simulator.clone(), scale.clone())).abort_handle();
        Ok(Self { simulator, address, ca_pem, churn, runtime: Some(runtime) })
    }

    /// Returns the address and credentials.
    pub(super) fn endpoint(&self) -> Cluster {
        Cluster { address: self.address, ca_pem: self.ca_pem.clone(), token: TOKEN.to_owned() }
    }

    /// Returns the work so far.
    pub(super) fn work(&self) -> Work {
        let Counters { requests, writes, bytes, .. } = self.simulator.counters();
        Work {
            reads: requests - writes,
            writes,
            bytes,
            processor: processor::time_of_threads(THREAD_NAME),
        }
    }

    /// Returns the simulator, for scripted faults.
    #[cfg(test)]
    pub(super) fn simulator(&self) -> &Simulator {
        &self.simulator
    }
}

impl Drop for SimulatedCluster {
    fn drop(&mut self) {
        self.churn.abort();
        if let Some(runtime) = self.runtime.take() {
            // Waiting for its threads here could block an asynchronous caller.
            runtime.shutdown_background();
        }
    }
}

// === impl Work ===

impl Work {
    /// Returns the work since an earlier moment.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            bytes: self.bytes - earlier.bytes,
            processor: self
                .processor
                .zip(earlier.processor)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

fn fill(simulator: &Simulator, scale: &Scale) {
    for app in 0..scale.apps {
        for replica in 0..scale.pods_per_app {
            simulator.put(&pods(), pod(PodNumber { app, replica }, 0));
        }
    }
}

/// Changes the status of one pod after another, except pods with a marker.
async fn churn(simulator: Simulator, scale: Scale) {
    let mut beats = interval(Duration::from_secs(1) / scale.writes_per_second.max(1));
    beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let changeable = scale.apps * (scale.pods_per_app - 1);
    for change in 1_u64.. {
        beats.tick().await;
        // A stride without a common divisor visits all pods in scattered order.
        let index = usize::try_from(change).unwrap_or(0).wrapping_mul(STRIDE) % changeable.max(1);
        let number = PodNumber { app: index % scale.apps, replica: 1 + index / scale.apps };
        simulator.put(&pods(), pod(number, change));
    }
}

const STRIDE: usize = 7919;

fn certificate() -> anyhow::Result<(tls::Server, String)> {
    let now = SystemTime::now();
    let authority = Authority::generate(now)?;
    let leaf = authority.issue(&Names::of_apiserver(""), now)?;
    Ok((tls::Server::new(leaf)?, authority.pem().to_owned()))
}

/// Returns the TLS configuration for a client of either server.
pub(super) fn client_config(ca_pem: &str) -> anyhow::Result<Arc<rustls::ClientConfig>> {
    Ok(Arc::new(tls::client_config(ca_pem.as_bytes())?))
}
