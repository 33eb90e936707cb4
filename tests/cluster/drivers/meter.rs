//! What the control plane has been asked, by its own count, and what that cost it.
//!
//! All requests of the user `admin` count but the suite's own: the driver's, those of the informer
//! beside it, and those Listless makes of itself.

use anyhow::Result;

use crate::rig::control_plane::{Component, ControlPlane, RequestCounts};

/// The resources the drivers touch; nobody but they and Listless reads these.
const RESOURCES: [&str; 3] = ["pods", "configmaps", "statefulsets"];

/// All that was counted up to a moment.
#[derive(Clone, Debug)]
pub struct Reading {
    counts: RequestCounts,
    apiserver_seconds: f64,
    etcd_seconds: f64,
}

/// The difference of two readings.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// LISTs of the drivers' resources.
    pub lists: u64,
    /// GETs of objects of these resources.
    pub gets: u64,
    /// PUTs, PATCHes and POSTs of these resources.
    pub writes: u64,
    /// Discovery documents.
    pub discovery: u64,
    /// Everything else of the same user: watches, reviews, other resources, other paths.
    pub others: u64,
    /// Processor time of the apiserver.
    pub apiserver_seconds: f64,
    /// Processor time of etcd.
    pub etcd_seconds: f64,
}

// === impl Reading ===

impl Reading {
    /// Reads the meters now.
    pub async fn take(plane: &ControlPlane) -> Result<Self> {
        let counts = plane.request_counts().await?;
        Ok(Self {
            counts,
            apiserver_seconds: plane.cpu_seconds(Component::Apiserver)?,
            etcd_seconds: plane.cpu_seconds(Component::Etcd)?,
        })
    }

    /// What happened since an earlier reading.
    pub fn since(&self, before: &Self) -> Used {
        let grown = |count: &dyn Fn(&RequestCounts) -> u64| {
            count(&self.counts).saturating_sub(count(&before.counts))
        };
        let of = |verb: &'static str| {
            grown(&|counts| RESOURCES.iter().map(|resource| counts.ended(verb, resource)).sum())
        };
        let (lists, gets) = (of("LIST"), of("GET"));
        let writes = ["PUT", "PATCH", "APPLY", "POST"].into_iter().map(of).sum();
        let discovery = grown(&discovery);
        let admin = |counts: &RequestCounts| {
            counts.sum("authenticated_user_requests", &[("username", "admin")]) as u64
        };
        // The earlier reading counts in the later one.
        let all = grown(&admin).saturating_sub(1);
        Used {
            lists,
            gets,
            writes,
            discovery,
            others: all.saturating_sub(lists + gets + writes + discovery),
            apiserver_seconds: self.apiserver_seconds - before.apiserver_seconds,
            etcd_seconds: self.etcd_seconds - before.etcd_seconds,
        }
    }
}

/// The apiserver counts documents it has aggregated without group and resource.
fn discovery(counts: &RequestCounts) -> u64 {
    let labels = [("verb", "GET"), ("resource", ""), ("subresource", "")];
    counts.sum("apiserver_request_total", &labels) as u64
}

// === impl Used ===

impl Used {
    /// Everything that reached the apiserver.
    pub fn requests(&self) -> u64 {
        self.reads() + self.writes + self.others
    }

    /// What memory could spare the apiserver.
    pub fn reads(&self) -> u64 {
        self.lists + self.gets + self.discovery
    }
}
