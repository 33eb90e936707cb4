//! The replay of events on an earlier snapshot, up to a later version. Pure.
//!
//! The result is exactly the state at that version, whatever has happened since. There is no result
//! if an event in between is no longer held.

use std::sync::Arc;

use super::{
    batch::Batch,
    history::{Change, Event, History},
    store::Snapshot,
};
use crate::api::version::ResourceVersion;

/// Returns the state at `to`, which is not before that of `from`.
pub(super) fn replay(
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;
    use crate::cache::{
        fixture::{Pod, list, query, snapshot, text, version},
        history::Bounds,
    };

    fn pod(name: &str, at: u64) -> Pod {
        Pod::new("a", name, at)
    }

    /// Returns the events after a list at 10 of `p` and `q`, at four versions.
    fn history(events_max: usize) -> History {
        let age_max = Duration::from_secs(60);
        let mut history = History::new(Bounds { events_max, bytes_max: 100_000, age_max });
        history.reset(version(10));
        let (p, q) = (pod("p", 5).object(), pod("q", 6).object());
        for (at, change, name, before) in [
            (11, Change::Added, "o", None),
            (12, Change::Modified, "p", Some(p)),
            (13, Change::Deleted, "q", Some(q)),
            (14, Change::Modified, "o", Some(pod("o", 11).object())),
        ] {
            let event = Event::new(version(at), change, pod(name, at).object(), before);
            history.push(event, Instant::now());
        }
        history.advance(version(20));
        history
    }

    #[test]
    fn every_version_of_the_window_is_replayed() {
        let (history, from) = (history(8), snapshot(None, 10, &[pod("p", 5), pod("q", 6)]));
        let (o, p, q) = (pod("o", 11), pod("p", 12), pod("q", 6));
        let later = pod("o", 14);
        for (to, pods) in [
            (10, vec![pod("p", 5), q.clone()]),
            (11, vec![o.clone(), pod("p", 5), q.clone()]),
            (12, vec![o.clone(), p.clone(), q]),
            (13, vec![o, p.clone()]),
            (14, vec![later.clone(), p.clone()]),
            (17, vec![later.clone(), p.clone()]),
            (20, vec![later, p]),
        ] {
            let replayed = replay(&history, from.clone(), &version(to)).expect("within the window");
            assert_eq!(text(replayed.list_body(&query(None, "", "")).chunks), list(to, &pods));
        }
    }

    #[test]
    fn versions_outside_the_window_have_no_snapshot() {
        let from = snapshot(None, 10, &[pod("p", 5), pod("q", 6)]);
        assert!(replay(&history(8), from.clone(), &version(9)).is_none(), "back in time");
        assert!(replay(&history(8), from.clone(), &version(21)).is_none(), "yet to come");
        assert!(replay(&history(3), from, &version(14)).is_none(), "an event has left the window");
    }
}
