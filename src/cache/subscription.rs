//! A reader that follows a replica's events, without a queue of its own.
//!
//! Invariant: it gets the state at its start and every event after it, each once; otherwise it gets
//! the error that it lost its position. It holds only a cursor and the query.

use std::sync::Arc;

use bytes::Bytes;

pub use super::bookmark::Mark;
use super::{
    bookmark::BookmarkForm,
    expired::{json_error, protobuf_error},
    form::Envelope,
    history::{Change, Cursor, Event, Lost, TooOld},
    replica::{Attached, Published, Replica},
    store::{Position, Snapshot},
    table::table_line,
};
use crate::{
    api::{form::Form, media::Representation, query::Query, version::ResourceVersion},
    notify::Follower,
};

/// A position in a replica's events.
pub struct Subscription {
    replica: Attached,
    query: Query,
    representation: Representation,
    envelope: Arc<Envelope>,
    /// `true` once the columns of a Table were sent.
    has_columns: bool,
    tick: Follower<()>,
    cursor: Cursor,
    /// The rest of the initial state that is still to be sent.
    initial: Option<(Arc<Snapshot>, Position)>,
    started_at: ResourceVersion,
    /// The start version, if the replica had not reached it: the reader already has that state.
    ahead: Option<ResourceVersion>,
    /// `true` if the reader's version is gone.
    expired: bool,
}

/// The start of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The whole state, then the events after it.
    State,
    /// The events after this version.
    After(ResourceVersion),
    /// The events from now on.
    Now,
    /// No event: the version is of a state that the apiserver's storage has lost.
    Expired,
}

/// The reason why a reader cannot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The version is not in the window of events.
    #[error(transparent)]
    Start(#[from] TooOld),
    /// The replica has changed since the decision.
    #[error("the replica has ended or restarted")]
    Gone,
    /// An object of the replica cannot be printed in this form.
    #[error("an object cannot be printed in the requested representation")]
    Unprintable,
}

/// The next item for a reader.
#[derive(Debug)]
pub enum Next {
    /// An object of the initial state, as a line of a watch.
    Object(Bytes),
    /// The end of the initial state, at this version.
    InitialEnd(ResourceVersion),
    /// An event.
    Event {
        /// The event.
        event: Arc<Event>,
        /// The change as the query sees it.
        seen: Change,
        /// The line of a watch for it.
        line: Bytes,
    },
    /// Everything up to this version was sent.
    CaughtUp(ResourceVersion),
    /// The reader cannot continue.
    Lost(Lost),
}

/// The number of events that are examined before the lock of the history is released.
const SCAN_MAX: usize = 256;

// === impl Subscription ===

impl Subscription {
    /// Starts at the replica's current state, which must not be before `seen`.
    pub fn open(
        replica: &Arc<Replica>,
        seen: &Snapshot,
        epoch: u32,
        query: Query,
        representation: Representation,
        begin: &Begin,
    ) -> Result<Self, OpenError> {
        if representation != Representation::Object && !replica.prints_metadata() {
            return Err(OpenError::Unprintable);
        }
        let tick = replica.subscribe();
        // The published state agrees with the history while it is locked.
        let history = replica.history();
        let view = replica.view();
        let snapshot = view.snapshot.clone().filter(|now| now.version() >= seen.version());
        let snapshot = snapshot.filter(|_| view.epoch == epoch).ok_or(OpenError::Gone)?;
        let (cursor, started_at) = match begin {
            Begin::After(version) => (history.start_at(version)?, version.clone()),
            Begin::State | Begin::Now | Begin::Expired => {
                (history.end(), snapshot.version().clone())
            }
        };
        let ahead = (started_at > *snapshot.version()).then(|| started_at.clone());
        let envelope = snapshot.envelope().clone();
        let initial = (*begin == Begin::State).then(|| (snapshot, Position::default()));
        let replica = replica.attach();
        Ok(Self {
            replica,
            query,
            representation,
            envelope,
            has_columns: false,
            tick,
            cursor,
            initial,
            started_at,
            ahead,
            expired: *begin == Begin::Expired,
        })
    }

    /// Returns the start version.
    pub fn started_at(&self) -> &ResourceVersion {
        &self.started_at
    }

    /// Reports whether what the reader received is no longer valid, so that it must list again.
    pub fn is_invalid(&self) -> bool {
        self.expired
            || matches!(self.replica.get().history().after(self.cursor), Err(Lost::Invalid))
    }

    /// Returns the next item, if it is available.
    pub fn take(&mut self) -> Next {
        if self.expired {
            return Next::Lost(Lost::Invalid);
        }
        if let Some((snapshot, position)) = &mut self.initial {
            if let Some((object, after)) = snapshot.next(&self.query, *position) {
                *position = after;
                let line = match self.representation {
                    Representation::Table(table) => self.envelope.table().and_then(|envelope| {
                        let raw = object.raw();
                        let row = (&*raw, object.version());
                        let now = self.replica.get().clock().now();
                        table_line(envelope, Change::Added, row, table, !self.has_columns, now)
                    }),
                    other => self.envelope.event(Change::Added, &object.raw(), other),
                };
                self.has_columns = true;
                return match line {
                    Some(line) => Next::Object(line),
                    None => self.unprintable(),
                };
            }
            let version = snapshot.version().clone();
            self.initial = None;
            return Next::InitialEnd(version);
        }
        loop {
            match self.scan() {
                Ok(Scan::Found(event, seen)) => {
                    let line = match self.representation {
                        Representation::Table(table) => {
                            let now = self.replica.get().clock().now();
                            let shown = (table, !self.has_columns);
                            event.table_line(seen, shown, &self.envelope, now)
                        }
                        other => event.line(seen, other, &self.envelope),
                    };
                    self.has_columns = true;
                    return match line {
                        Some(line) => Next::Event { event, seen, line },
                        None => self.unprintable(),
                    };
                }
                Ok(Scan::End(version)) => return Next::CaughtUp(version),
                Ok(Scan::More) => {}
                Err(lost) => return Next::Lost(lost),
            }
        }
    }

    /// Ends the subscription; later ones that need the same form cannot open.
    fn unprintable(&self) -> Next {
        if self.representation != Representation::Object {
            self.replica.get().cannot_print_metadata();
        }
        Next::Lost(Lost::Reset)
    }

    /// Skips events that the query does not see, up to the next one it sees.
    fn scan(&mut self) -> Result<Scan, Lost> {
        let history = self.replica.get().history();
        let mut passed = 0;
        let ahead = self.ahead.as_ref();
        let found = history.after(self.cursor)?.take(SCAN_MAX).find_map(|event| {
            passed += 1;
            let is_new = ahead.is_none_or(|ahead| event.version > *ahead);
            let seen = is_new.then(|| event.seen_through(&self.query))?;
            seen.map(|seen| (event.clone(), seen))
        });
        self.cursor = self.cursor.forward(passed);
        Ok(match (found, history.latest()) {
            (Some((event, seen)), _) => Scan::Found(event, seen),
            (None, Some(version)) if self.cursor == history.end() => {
                let version = version.clone();
                drop(history);
                match self.replica.get().successor().cloned() {
                    Some(successor) => self.go_over(&successor, version)?,
                    None => Scan::End(version),
                }
            }
            (None, Some(_)) => Scan::More,
            (None, None) => return Err(Lost::Reset),
        })
    }

    /// Continues at another replica, from a version up to which everything was sent.
    fn go_over(
        &mut self,
        successor: &Arc<Replica>,
        version: ResourceVersion,
    ) -> Result<Scan, Lost> {
        if self.representation != Representation::Object && !successor.prints_metadata() {
            return Err(Lost::Reset);
        }
        let is_alike = |snapshot: &Arc<Snapshot>| *snapshot.envelope() == self.envelope;
        if self.envelope.table().is_some()
            && !successor.published().snapshot.as_ref().is_some_and(is_alike)
        {
            return Err(Lost::Reset);
        }
        self.tick = successor.subscribe();
        self.cursor = successor.history().start_at(&version).map_err(|TooOld| Lost::Reset)?;
        self.replica = successor.attach();
        // The successor may not have reached the version yet.
        self.ahead = self.ahead.take().max(Some(version.clone()));
        self.started_at = self.started_at.clone().max(version);
        Ok(Scan::More)
    }

    /// Waits until a publication after the last wait.
    pub async fn changed(&mut self) {
        self.tick.changed().await;
    }

    /// Returns the current state of the replica.
    pub fn published(&self) -> Arc<Published> {
        let replica = self.replica.get();
        replica.successor().unwrap_or(replica).published()
    }

    /// Returns the line of a bookmark; `None` if its form is unknown.
    pub fn bookmark(&mut self, version: &ResourceVersion, mark: Mark) -> Option<Bytes> {
        let learned = self.replica.get().bookmark();
        let (envelope, with_columns) = (&self.envelope, !self.has_columns);
        let line = BookmarkForm::event(
            learned.as_deref(),
            envelope,
            (self.representation, with_columns),
            version,
            mark,
        );
        self.has_columns |= line.is_some();
        line
    }

    /// Returns the error that makes a client list again.
    pub fn expired_error(&self) -> Bytes {
        match self.representation.form(self.envelope.form()) {
            Form::Protobuf => protobuf_error(),
            Form::Json | Form::Table => json_error(),
        }
    }
}

enum Scan {
    Found(Arc<Event>, Change),
    /// There are no more events up to this version.
    End(ResourceVersion),
    /// The scan limit was reached.
    More,
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::{
        api::{
            GroupVersionResource, Scope,
            media::{MetadataVersion, Partial},
        },
        cache::testing::{pods, replica},
    };

    #[tokio::test]
    async fn an_error_has_the_form_of_the_events_before_it() {
        let query = Query::all(GroupVersionResource::new("", "v1", "pods"), Scope::All);
        let (replica, seen) = (replica(query.clone(), Instant::now()), pods(50, &[]));
        replica.publish(|published| published.snapshot = Some(seen.clone()));
        let metadata =
            |form| Representation::Metadata(Partial { version: MetadataVersion::V1, form });
        for (representation, is_json) in [
            (Representation::Object, true),
            (metadata(Form::Json), true),
            (metadata(Form::Protobuf), false),
        ] {
            let open = |begin| {
                Subscription::open(&replica, &seen, 0, query.clone(), representation, begin)
            };
            let error = open(&Begin::Now).expect("a watch").expired_error();
            assert_eq!(error.starts_with(b"{"), is_json, "{representation:?}");
        }
    }
}
