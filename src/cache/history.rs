//! The window of recent events of one replica. Pure.
//!
//! Invariant: events are in version order without a gap from `floor` (exclusive) to `latest`: a
//! watch can start at any version in between and misses nothing. The window is bounded by count,
//! bytes and age. A follower holds a [`Cursor`]. Events are not kept for followers that fall behind
//! the window.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

pub use super::event::{Change, Event};
use crate::api::{query::Query, version::ResourceVersion};

/// The recent events.
#[derive(Debug)]
pub struct History {
    bounds: Bounds,
    events: VecDeque<Recorded>,
    bytes: usize,
    /// The number of the first event held, counted from the start of the process.
    first: u64,
    /// The number of breaks: no event leads from the state before a break to the one after it.
    generation: u32,
    /// The generation with which the current epoch began.
    epoch_began: u32,
    /// The first and last version of the window; `None` before the first list.
    window: Option<(ResourceVersion, ResourceVersion)>,
}

/// The bounds of the window.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The limit of events.
    pub events_max: usize,
    /// The limit of bytes, estimated; a single event may have more.
    pub bytes_max: usize,
    /// The age limit.
    pub age_max: Duration,
}

/// A position between two events. It counts events, not versions: several events may share one
/// version (S-WATCH-27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    generation: u32,
    next: u64,
}

/// The error of a watch from a version whose later events are not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the version is older than the window of events")]
pub struct TooOld;

/// The reason why a watch cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The next events are no longer held: the watch read too slowly.
    #[error("the next event has left the window")]
    Behind,
    /// A break: no event leads to the later state.
    #[error("the window has restarted")]
    Reset,
    /// An epoch has ended: the state that the watch led to is not a state of the current epoch.
    #[error("the versions have restarted")]
    Invalid,
}

#[derive(Debug)]
struct Recorded {
    event: Arc<Event>,
    at: Instant,
    bytes: usize,
}

// === impl History ===

impl History {
    /// Creates an empty window.
    pub fn new(bounds: Bounds) -> Self {
        let events = VecDeque::new();
        Self { bounds, events, bytes: 0, first: 0, generation: 0, epoch_began: 0, window: None }
    }

    /// Restarts at the version of a list: no event leads to it from the state before.
    pub fn reset(&mut self, version: ResourceVersion) {
        self.close();
        self.window = Some((version.clone(), version));
    }

    /// Closes the window: no watch can start here, and no follower can continue.
    pub fn close(&mut self) {
        self.first = self.end().next;
        self.events.clear();
        self.bytes = 0;
        self.generation = self.generation.wrapping_add(1);
        self.window = None;
    }

    /// Closes the window; what its followers received is no longer valid.
    pub fn end_epoch(&mut self) {
        self.close();
        self.epoch_began = self.generation;
    }

    /// Adds the newest event.
    pub fn push(&mut self, event: Event, now: Instant) {
        self.advance(event.version.clone());
        let bytes = size_of::<Recorded>() + event.bytes();
        self.bytes += bytes;
        self.events.push_back(Recorded { event: Arc::new(event), at: now, bytes });
        self.evict(now);
    }

    /// Notes that the collection is complete up to a version, as a bookmark states.
    pub fn advance(&mut self, version: ResourceVersion) {
        match &mut self.window {
            Some((_, latest)) => *latest = version,
            None => self.window = Some((version.clone(), version)),
        }
    }

    /// Drops the events above the bounds.
    pub fn evict(&mut self, now: Instant) {
        while let Some(oldest) = self.events.front() {
            let too_old = now.saturating_duration_since(oldest.at) > self.bounds.age_max;
            let too_many = self.events.len() > self.bounds.events_max;
            // The newest event is kept whatever its size: followers have not received it yet.
            let too_large = self.bytes > self.bounds.bytes_max && self.events.len() > 1;
            if !(too_old || too_many || too_large) {
                break;
            }
            self.bytes -= oldest.bytes;
            if let Some((floor, _)) = &mut self.window {
                *floor = oldest.event.version.clone();
            }
            self.events.pop_front();
            self.first += 1;
        }
    }

    /// Returns the lowest version at which a watch can start.
    pub fn oldest(&self) -> Option<&ResourceVersion> {
        self.window.as_ref().map(|(floor, _)| floor)
    }

    /// Returns the version up to which the events are complete.
    pub fn latest(&self) -> Option<&ResourceVersion> {
        self.window.as_ref().map(|(_, latest)| latest)
    }

    /// Returns the position after the newest event.
    pub fn end(&self) -> Cursor {
        Cursor { generation: self.generation, next: self.first + self.events.len() as u64 }
    }

    /// Returns the position after all held events up to a version. If the replica has not reached
    /// the version, more of them may come (S-WATCH-03).
    pub fn start_at(&self, version: &ResourceVersion) -> Result<Cursor, TooOld> {
        self.window.as_ref().filter(|(floor, _)| version >= floor).ok_or(TooOld)?;
        let before = self.events.partition_point(|held| held.event.version <= *version);
        Ok(Cursor { generation: self.generation, next: self.first + before as u64 })
    }

    /// Returns the events after a position, oldest first.
    pub fn after(&self, cursor: Cursor) -> Result<impl Iterator<Item = &Arc<Event>>, Lost> {
        if cursor.generation != self.generation {
            let is_valid = cursor.generation >= self.epoch_began;
            return Err(if is_valid { Lost::Reset } else { Lost::Invalid });
        }
        let skipped = cursor.next.checked_sub(self.first).ok_or(Lost::Behind)?;
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX).min(self.events.len());
        Ok(self.events.range(skipped..).map(|held| &held.event))
    }

    /// Returns the version of the last event within a span of versions that concerns a query, if
    /// there is one. The whole span must lie in the window.
    pub fn last_concerning<'a>(
        &'a self,
        query: &Query,
        after: &ResourceVersion,
        until: &'a ResourceVersion,
    ) -> Result<Option<&'a ResourceVersion>, TooOld> {
        let concerning = |event: &&Arc<Event>| event.seen_through(query).is_some();
        let last = self.within(after, until)?.filter(concerning).last();
        Ok(last.map(|event| &event.version))
    }

    /// Returns the events within a span of versions, oldest first. The whole span must lie in the
    /// window.
    pub fn within<'a>(
        &'a self,
        after: &ResourceVersion,
        until: &'a ResourceVersion,
    ) -> Result<impl Iterator<Item = &'a Arc<Event>>, TooOld> {
        self.latest().filter(|latest| *latest >= until).ok_or(TooOld)?;
        let first = self.start_at(after)?.next.saturating_sub(self.first);
        let first = usize::try_from(first).unwrap_or(usize::MAX).min(self.events.len());
        let events = self.events.range(first..).map(|held| &held.event);
        Ok(events.take_while(move |event| event.version <= *until))
    }

    /// Returns the memory held, estimated.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

// === impl Cursor ===

impl Cursor {
    /// Returns the position `events` events later.
    pub fn forward(self, events: usize) -> Self {
        Self { next: self.next + events as u64, ..self }
    }
}

#[cfg(test)]
#[path = "history/tests.rs"]
mod tests;
