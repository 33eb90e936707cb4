//! The demands that a session has from another: of a caller whose session was dropped, or of clients
//! that another process served. Pure.
//!
//! An heir shares the past with all other heirs. It copies the record of a resource when it learns
//! something about that resource.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Session, record::Record};
use crate::api::{GroupResource, Scope};

// === impl Session ===

impl Session {
    /// Returns the session of clients that another process served before.
    ///
    /// A replica's content is newer than everything they saw, because its first list is consistent
    /// and came later. A cache in the apiserver may be older: forwarded reads stay consistent until
    /// a newer version was shown.
    pub fn of_unknown_past() -> Self {
        Self { past_unknown: true, ..Self::default() }
    }

    /// Returns a session with all demands of this one, which has not seen anything itself.
    #[must_use]
    pub fn heir(self: &Arc<Self>) -> Self {
        Self { past: Some(self.clone()), past_unknown: self.past_unknown, ..Self::default() }
    }

    /// Reports whether it has seen or written anything itself.
    pub fn has_lived(&self) -> bool {
        self.lived
    }

    /// Makes `heir` demand everything that this session demands beyond its own past, or more.
    pub fn bequeath(&self, heir: &mut Self, now: Instant) {
        heir.past_unknown |= self.past_unknown;
        let mut forgot = self.forgot || self.overflowed;
        for (resource, record) in &self.records {
            match heir.record_mut(resource) {
                Some(inherited) => record.bequeath(inherited, now),
                None => forgot = true,
            }
        }
        if !forgot && self.lost_at.is_none() {
            return;
        }
        heir.lose(forgot, now);
        for (resource, record) in &mut heir.records {
            if !self.records.contains_key(resource) {
                bar(Arc::make_mut(record), forgot, now);
            }
        }
    }

    /// Returns the first record of a resource: the inherited demands, and the barrier of what the
    /// session lost.
    pub(super) fn first_record(&self, resource: &GroupResource) -> Arc<Record> {
        let inherited = self.past.as_ref().map(|past| {
            past.records.get(resource).cloned().unwrap_or_else(|| past.first_record(resource))
        });
        let mut record = inherited.unwrap_or_default();
        if let Some(at) = self.lost_at {
            bar(Arc::make_mut(&mut record), self.forgot, at);
        }
        record
    }
}

/// Bars everything until a consistent read after `at`. If `forgot`, that includes reads that only
/// must not go back.
fn bar(record: &mut Record, forgot: bool, at: Instant) {
    record.sweep(Scope::All, at);
    if forgot {
        record.forget_shown(at);
    }
}
