//! The state of a replica while events that arrived together are applied. Pure.

use std::sync::Arc;

use tokio::time::Instant;

use super::{event::WatchEvent, failure::ReflectorFailure};
use crate::{
    api::version::ResourceVersion,
    cache::{
        batch::Batch,
        bookmark::BookmarkForm,
        history::{Change, Event, History},
        store::Snapshot,
    },
};

/// The state that the events are applied to.
pub(super) struct Progress<'a> {
    /// The version that the events led to.
    pub(super) version: ResourceVersion,
    /// The objects at this version.
    pub(super) batch: Batch,
    history: &'a mut History,
    /// The number of events.
    pub(super) events: u64,
    /// The number of bookmarks.
    pub(super) bookmarks: u64,
    /// The form of the last one, if it was understood.
    pub(super) bookmark_form: Option<BookmarkForm>,
}

// === impl Progress ===

impl<'a> Progress<'a> {
    /// Begins with the published state and its history.
    pub(super) fn new(base: Arc<Snapshot>, history: &'a mut History) -> Self {
        let version = base.version().clone();
        let batch = Batch::of(base);
        Self { version, batch, history, events: 0, bookmarks: 0, bookmark_form: None }
    }

    /// Applies an event.
    pub(super) fn add(&mut self, event: WatchEvent, now: Instant) -> Result<(), ReflectorFailure> {
        match event {
            WatchEvent::Stored(object) => {
                self.advance(object.version())?;
                let before = self.batch.apply(object.clone());
                let change = if before.is_some() { Change::Modified } else { Change::Added };
                self.record(Event::new(self.version.clone(), change, object, before), now);
            }
            WatchEvent::Deleted(object) => {
                self.advance(object.version())?;
                // An object that is not held cannot have been shown: there is no event.
                if let Some(before) = self.batch.delete(object.key()) {
                    let (version, change) = (self.version.clone(), Change::Deleted);
                    self.record(Event::new(version, change, object, Some(before)), now);
                } else {
                    self.history.advance(self.version.clone());
                    self.events += 1;
                }
            }
            WatchEvent::Bookmark(version, form) => {
                self.advance(&version)?;
                self.bookmark_form = form;
                self.history.advance(version);
                self.history.evict(now);
                self.bookmarks += 1;
            }
            WatchEvent::Error(status) => return Err(ReflectorFailure::Status(status)),
        }
        Ok(())
    }

    fn advance(&mut self, version: &ResourceVersion) -> Result<(), ReflectorFailure> {
        if *version < self.version {
            return Err(ReflectorFailure::Backwards {
                seen: version.clone(),
                shown: self.version.clone(),
            });
        }
        self.version = version.clone();
        Ok(())
    }

    fn record(&mut self, event: Event, now: Instant) {
        self.history.push(event, now);
        self.events += 1;
    }
}
