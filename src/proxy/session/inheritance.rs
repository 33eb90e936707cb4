//! The demands that a session has from another: of a caller whose session was dropped, or of clients
//! that another process served. Pure.

use tokio::time::Instant;

use super::Session;

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
    pub fn heir(&self) -> Self {
        Self { lived: false, ..self.clone() }
    }

    /// Reports whether it has seen or written anything itself.
    pub fn has_lived(&self) -> bool {
        self.lived
    }

    /// Makes `heir` demand everything that this session demands, or more.
    pub fn bequeath(&self, heir: &mut Self, now: Instant) {
        heir.overflowed |= self.overflowed;
        heir.past_unknown |= self.past_unknown;
        heir.lost_at = heir.lost_at.max(self.lost_at);
        for (resource, record) in &self.records {
            if let Some(inherited) = heir.record_mut(resource) {
                record.bequeath(inherited, now);
            }
        }
    }
}
