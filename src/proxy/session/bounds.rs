//! The memory of a session, and the ways to make it smaller. Pure.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Session, record::Record};
use crate::api::GroupResource;

// === impl Session ===

impl Session {
    /// Replaces the facts about single objects by floors of their whole resource. If more than
    /// `bytes_max` is left, whole resources are forgotten: all that have no record are then barred.
    pub fn coarsen(&mut self, bytes_max: usize, now: Instant) {
        for record in self.records.values_mut() {
            Arc::make_mut(record).collapse(now);
        }
        if self.bytes() > bytes_max {
            self.forget(bytes_max, now);
        }
    }

    /// Forgets resources of which nothing was shown, such as those that do not exist. If more than
    /// `bytes_max` is left, it forgets others until half of that is free. Those with an open watch
    /// that cannot be parsed are kept.
    fn forget(&mut self, bytes_max: usize, now: Instant) {
        self.records.retain(|_, record| record.is_shown() || is_blind(record));
        let (mut left, mut forgot) = (self.bytes(), self.overflowed);
        let bytes_max = if left > bytes_max { bytes_max / 2 } else { bytes_max };
        self.records.retain(|resource, record| {
            let keeps = left <= bytes_max || is_blind(record);
            if !keeps {
                left -= bytes(resource, record);
                forgot = true;
            }
            keeps
        });
        self.lose(forgot, now);
    }

    /// Bars all resources without a record until a consistent read after `now`. If `forgot`, that
    /// includes reads that only must not go back.
    pub(super) fn lose(&mut self, forgot: bool, now: Instant) {
        self.lost_at = Some(now);
        self.forgot |= forgot;
    }

    /// Returns the number of expectations and barriers, for the metrics.
    pub fn barriers(&self) -> usize {
        self.records.values().map(|record| record.barriers()).sum()
    }

    /// Returns the memory held, estimated, without that of inherited state.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(|(resource, record)| bytes(resource, record)).sum()
    }
}

fn bytes(resource: &GroupResource, record: &Record) -> usize {
    resource.group.len() + resource.resource.len() + record.bytes()
}

fn is_blind(record: &Record) -> bool {
    !record.blind_watches.is_empty()
}
