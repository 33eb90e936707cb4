//! All counters at one moment between two operations of a driver, so that they belong together.

use anyhow::Result;

use super::report::Report;
use super::tally::Tally;
use super::workload::Workload;
use crate::rig::control_plane::{ControlPlane, RequestCounts};
use crate::rig::proxy_process::ProxyProcess;

/// A driver that never pauses makes so many operations in a window that one more does not matter.
const ATTEMPTS_MAX: u64 = 20;

/// What everybody had counted.
#[derive(Clone, Debug)]
pub struct Moment {
    /// The driver.
    pub tally: Tally,
    /// The apiserver.
    pub counts: RequestCounts,
    /// Listless, if there is one.
    pub report: Option<Report>,
    /// How often the apiserver was asked to get here.
    pub attempts: u64,
}

// === impl Moment ===

impl Moment {
    /// Asks all until the driver has done nothing meanwhile.
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
