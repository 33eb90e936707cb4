//! A fleet: thousands of pods of about 9 KB, changed by one writer that records every version.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::rig::client::{Protocol, Request};
use crate::rig::control_plane::{ControlPlane, RequestCounts, User, Version};
use crate::rig::load_data::LoadData;
use crate::rig::proxy_process::ProxyProcess;
use crate::rig::wait::until_hit_at_last;

pub mod history;
pub mod pollers;
pub mod verdict;

/// The pods: 50 for each value of the label `poller`.
pub const DATA: LoadData =
    LoadData { namespace: "load", pods: 5000, pollers: 100, apps: 40, nodes: 0 };
/// The number of pollers; the pods of the other labels belong to the other writer.
pub const POLLERS: u32 = 20;
/// The maximum age of a response, as configured below.
pub const STALENESS_MAX: Duration = Duration::from_secs(5);

const CONFIGURATION: &str = "\
apiVersion: listless.dev/v1alpha1
kind: ProxyConfiguration
cache:
  rules:
    - resources: [pods]
      namespaces: [load]
      start: eager
      freshness: session
      maxStaleness: 5s
repeatPolls: {action: off}
";
const WARM_LIMIT: Duration = Duration::from_secs(60);

/// A control plane with the pods in it.
#[derive(Debug)]
pub struct Fleet {
    plane: ControlPlane,
    /// The apiserver's own requests when it starts.
    at_start: RequestCounts,
}

// === impl Fleet ===

impl Fleet {
    /// Starts a control plane and creates the pods.
    pub async fn load(version: Version) -> Result<Self> {
        let plane = ControlPlane::start(version).await?;
        let at_start = plane.request_counts().await?;
        DATA.load(&plane.client(User::Admin, Protocol::Http1)?).await?;
        Ok(Self { plane, at_start })
    }

    /// The control plane.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The requests of the apiserver's own parts just after its start.
    pub fn at_start(&self) -> &RequestCounts {
        &self.at_start
    }

    /// Starts Listless with a replica of the pods, and waits until it answers from memory; no LIST
    /// is sent for that.
    pub async fn proxy(&self) -> Result<ProxyProcess> {
        let kubeconfig = self.plane.kubeconfig(User::Admin)?;
        let proxy = ProxyProcess::start(&kubeconfig, Some(CONFIGURATION)).await?;
        let client = proxy.client(Protocol::Http1);
        let target = format!("{}/{}", DATA.collection(), DATA.name(0));
        let warm = until_hit_at_last(&client, &Request::get(&target), WARM_LIMIT).await;
        warm.with_context(|| proxy.log())?;
        Ok(proxy)
    }
}
