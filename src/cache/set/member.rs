//! The attributes of one replica of the set.

use super::Member;
use crate::{
    api::{form::Form, query::Query},
    cache::replica::{Link, SyncState},
};

// === impl Member ===

impl Member {
    pub(super) fn query(&self) -> &Query {
        self.replica.query()
    }

    pub(super) fn form(&self) -> Form {
        self.replica.form()
    }

    /// Returns the rank; lower is better.
    pub(super) fn rank(&self) -> (u8, usize) {
        let published = self.replica.published();
        let state = match (published.state, published.link) {
            (SyncState::Synced, Link::Up) => 0,
            (SyncState::Synced, Link::Lost { .. }) => 1,
            (SyncState::Starting, _) => 2,
            (SyncState::Failing, _) => 3,
        };
        (state, published.snapshot.as_ref().map_or(0, |held| held.len()))
    }
}
