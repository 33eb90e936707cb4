//! The requests to the control plane, by its own count, and their cost.
//!
//! All requests of the user `admin` count but the suite's own: those of the driver, of the informer
//! beside it, and of Listless itself.

use anyhow::Result;

use crate::rig::control_plane::{Component, ControlPlane, RequestCounts};

/// The resources that the drivers use; only they and Listless read these.
const RESOURCES: [&str; 3] = ["pods", "configmaps", "statefulsets"];

/// Requests that reached the apiserver between two counts.
#[derive(Clone, Copy, Debug)]
pub struct Requests {
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
}

/// Processor time, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// Time of the apiserver.
    pub apiserver: f64,
    /// Time of etcd.
    pub etcd: f64,
}

// === impl Requests ===

impl Requests {
    /// The requests between the two counts; `own` of those were the suite's.
    pub fn between(before: &RequestCounts, after: &RequestCounts, own: u64) -> Self {
        let grown =
            |count: &dyn Fn(&RequestCounts) -> u64| count(after).saturating_sub(count(before));
        let of = |verb: &'static str| {
            grown(&|counts| RESOURCES.iter().map(|resource| counts.ended(verb, resource)).sum())
        };
        let (lists, gets) = (of("LIST"), of("GET"));
        let writes = ["PUT", "PATCH", "APPLY", "POST"].into_iter().map(of).sum();
        let discovery = grown(&discovery);
        let admin = |counts: &RequestCounts| {
            counts.sum("authenticated_user_requests", &[("username", "admin")]) as u64
        };
        let others = grown(&admin).saturating_sub(own + lists + gets + writes + discovery);
        Self { lists, gets, writes, discovery, others }
    }

    /// The requests that memory could save the apiserver.
    pub fn reads(&self) -> u64 {
        self.lists + self.gets + self.discovery
    }
}

/// The apiserver counts the documents it has aggregated by their paths.
fn discovery(counts: &RequestCounts) -> u64 {
    let count = |path| {
        let labels = [("verb", "GET"), ("resource", ""), ("subresource", path)];
        counts.sum("apiserver_request_total", &labels)
    };
    ["api", "apis"].into_iter().map(count).sum::<f64>() as u64
}

// === impl Cpu ===

impl Cpu {
    /// The time used so far.
    pub fn used(plane: &ControlPlane) -> Result<Self> {
        let apiserver = plane.cpu_seconds(Component::Apiserver)?;
        Ok(Self { apiserver, etcd: plane.cpu_seconds(Component::Etcd)? })
    }

    /// The time used since then.
    pub fn since(self, before: Self) -> Self {
        Self { apiserver: self.apiserver - before.apiserver, etcd: self.etcd - before.etcd }
    }
}
