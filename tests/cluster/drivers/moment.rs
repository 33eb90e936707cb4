//! All counters at one moment between two operations of a driver, so that they match.

use anyhow::Result;

use super::report::Report;
use super::tally::Tally;
use super::workload::Workload;
use crate::rig::control_plane::{ControlPlane, RequestCounts};
use crate::rig::proxy_process::ProxyProcess;

/// The limit on attempts. A driver that never pauses makes so many operations in a window that one
/// more makes no difference.
const ATTEMPTS_MAX: u64 = 20;

/// The counts of every party.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The driver.
    pub tally: Tally,
    /// The apiserver.
    pub counts: RequestCounts,
    /// Listless, if there is one.
    pub report: Option<Report>,
    /// The number of requests to the apiserver for this moment.
    pub attempts: u64,
}

// === impl Moment ===

impl Moment {
    /// Reads all counters until the driver has done nothing meanwhile.
    pub async fn take(
        plane: &ControlPlane,
        proxy: Option<&ProxyProcess>,
        workload: &mut Workload,
    ) -> Result<Self> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let before = workload.tally().await?;
            let counts = plane.request_counts().await?;
            let report = match proxy {
                Some(proxy) => Some(Report::read(proxy).await?),
                None => None,
            };
            let tally = workload.tally().await?;
            if tally.operations == before.operations || attempts == ATTEMPTS_MAX {
                return Ok(Self { tally, counts, report, attempts });
            }
        }
    }
}
