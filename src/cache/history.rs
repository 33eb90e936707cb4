//! The window of recent events of one replica. Pure.
//!
//! Invariant: events are in version order without a gap from `floor` (exclusive) to `latest`, so
//! a watch can start at any version in between and misses nothing. Bounded by count, bytes and age.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::object::Object;
use crate::api::{ObjectKey, version::ResourceVersion};

/// The recent events.
#[derive(Debug)]
pub struct History {
    bounds: Bounds,
    events: VecDeque<Recorded>,
    bytes: usize,
    /// The versions the window begins and ends at; None before the first list.
    window: Option<(ResourceVersion, ResourceVersion)>,
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// At most so many events.
    pub events_max: usize,
    /// At most so many bytes, estimated.
    pub bytes_max: usize,
    /// None older than this.
    pub age_max: Duration,
}

/// What happened to one object at one version.
#[derive(Debug)]
pub struct Event {
    /// The version of the collection after the event: the deletion's own for a deletion.
    pub version: ResourceVersion,
    /// What happened.
    pub change: Change,
    /// The object afterwards; for a deletion its last state at the deletion's version.
    pub object: Object,
    /// The object before, if there was one: what selectors matched then (S-WATCH-23).
    pub before: Option<Object>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was not there before.
    Added,
    /// It was there before.
    Modified,
    /// It is no longer there.
    Deleted,
}

/// Why a watch cannot start from the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Events after the version are no longer held.
    #[error("the version is older than the window of events")]
    TooOld,
    /// The version has not been reached.
    #[error("the version is newer than the window of events")]
    TooNew,
}

#[derive(Debug)]
struct Recorded {
    event: Arc<Event>,
    at: Instant,
    bytes: usize,
}

/// Reference counts and allocator overhead of one event, roughly.
const EVENT_OVERHEAD: usize = size_of::<Event>() + size_of::<Recorded>() + 32;

// === impl History ===

impl History {
    /// An empty window.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, events: VecDeque::new(), bytes: 0, window: None }
    }

    /// Begins anew at the version of a list: what lies before can no longer be told as events.
    pub fn reset(&mut self, version: ResourceVersion) {
        self.events.clear();
        self.bytes = 0;
        self.window = Some((version.clone(), version));
    }

    /// Adds the newest event.
    pub fn push(&mut self, event: Event, now: Instant) {
        self.advance(event.version.clone());
        let before = event.before.as_ref().map_or(0, held_bytes);
        let bytes = EVENT_OVERHEAD + held_bytes(&event.object) + before;
        self.bytes += bytes;
        self.events.push_back(Recorded { event: Arc::new(event), at: now, bytes });
        self.evict(now);
    }

    /// Notes that the collection is complete up to a version, as a bookmark tells.
    pub fn advance(&mut self, version: ResourceVersion) {
        match &mut self.window {
            Some((_, latest)) => *latest = version,
            None => self.window = Some((version.clone(), version)),
        }
    }

    /// Drops what is beyond the bounds.
    pub fn evict(&mut self, now: Instant) {
        while let Some(oldest) = self.events.front() {
            let too_old = now.saturating_duration_since(oldest.at) > self.bounds.age_max;
            let too_many = self.events.len() > self.bounds.events_max;
            if !(too_old || too_many || self.bytes > self.bounds.bytes_max) {
                break;
            }
            self.bytes -= oldest.bytes;
            if let Some((floor, _)) = &mut self.window {
                *floor = oldest.event.version.clone();
            }
            self.events.pop_front();
        }
    }

    /// The events after a version, oldest first.
    pub fn start_at<'a>(
        &'a self,
        version: &ResourceVersion,
    ) -> Result<impl Iterator<Item = &'a Arc<Event>> + use<'a>, StartError> {
        match &self.window {
            Some((floor, _)) if version < floor => Err(StartError::TooOld),
            Some((_, latest)) if version <= latest => {
                let first = self.events.partition_point(|held| held.event.version <= *version);
                Ok(self.events.range(first..).map(|held| &held.event))
            }
            _ => Err(StartError::TooNew),
        }
    }

    /// Memory held, estimated.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn held_bytes(object: &Object) -> usize {
    object.raw().len() + object.head_bytes()
}

// === impl Event ===

impl Event {
    /// The object's key.
    pub fn key(&self) -> &ObjectKey {
        self.object.key()
    }
}

#[cfg(test)]
#[path = "history/tests.rs"]
mod tests;
