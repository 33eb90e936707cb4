//! An earlier snapshot brought to a later version by the window of events. Pure.
//!
//! What it makes is what a reader would have been shown at exactly that version, whatever has come
//! since; nothing, if an event in between is no longer held.

use std::sync::Arc;

use super::{
    batch::Batch,
    history::{Change, Event, History},
    store::Snapshot,
};
use crate::api::version::ResourceVersion;

/// The state at `to`, which is not before that of `from`.
pub(super) fn roll(
    history: &History,
    from: Arc<Snapshot>,
    to: &ResourceVersion,
) -> Option<Snapshot> {
    if to < from.version() || history.latest()? < to {
        return None;
    }
    let cursor = history.start_at(from.version()).ok()?;
    let events: Vec<&Arc<Event>> =
        history.after(cursor).ok()?.take_while(|event| event.version <= *to).collect();
    let mut batch = Batch::of(from);
    for event in events {
        match event.change {
            Change::Added | Change::Modified => batch.apply(event.object.clone()),
            Change::Deleted => batch.delete(event.key()),
        };
    }
    Some(batch.finish(to.clone()))
}
