//! The delay of an event through Listless against the direct watch, event by event.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{setup::Setup, watchers::Watchers, writer::Writer};

/// The rate in the target.
pub(crate) const EVENTS_PER_SECOND: f64 = 100.0;
const LENGTH: Duration = Duration::from_secs(20);
/// The number of objects. Concurrent writes must not wait for each other's objects.
const OBJECTS: u64 = 20;

/// The sorted delays behind the direct watch in milliseconds. Negative if the direct watch was
/// slower.
#[derive(Clone, Debug)]
pub(crate) struct Staleness(Vec<f64>);

/// Measures one watcher on each side.
pub(crate) async fn measure(setup: &Setup) -> Result<Staleness> {
    let writer = Writer::new(setup, "quick", OBJECTS, 1_000).await?;
    let target = writer.watch_from(&writer.settled(setup).await?);
    let mut straight = Watchers::open(&setup.direct, &target, 1, None).await?;
    let mut through = Watchers::open(&setup.listless.endpoint, &target, 1, Some("hit")).await?;
    setup.settle().await;
    let events = writer.write_for(LENGTH, EVENTS_PER_SECOND).await?;
    straight.have_received(events).await?;
    through.have_received(events).await?;
    let (straight, through) = (straight.first(), through.first());
    ensure!(straight.text == through.text, "the two watchers received different events");
    let behind = straight.at.iter().zip(&through.at).map(|(straight, through)| {
        let later = through.saturating_duration_since(*straight).as_secs_f64();
        (later - straight.saturating_duration_since(*through).as_secs_f64()) * 1e3
    });
    let mut behind: Vec<f64> = behind.collect();
    behind.sort_by(f64::total_cmp);
    Ok(Staleness(behind))
}

// === impl Staleness ===

impl Staleness {
    pub(crate) fn samples(&self) -> usize {
        self.0.len()
    }

    /// Returns the delay that this fraction does not exceed.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let index = (self.0.len() as f64 * share) as usize;
        self.0.get(index.min(self.0.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}
