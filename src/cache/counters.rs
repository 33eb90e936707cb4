//! The counters of the cache, for metrics and pages.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    api::GroupResource,
    metrics::{ReplicaCheck, ReplicaWatchEnd},
};

/// The counters; they only grow.
#[derive(Debug, Default)]
pub struct Counters {
    /// Lists requested from the apiserver, first ones and relists.
    pub lists: Count,
    /// Lists requested because events could not be resumed.
    pub relists: Count,
    /// Watches requested from the apiserver.
    pub watches: Count,
    /// Watches that followed an earlier one of the same replica.
    pub watch_restarts: Count,
    /// Watches that ended, by reason.
    pub watches_ended: WatchesEnded,
    /// Short watches, opened for the bookmark at their end.
    pub catch_ups: Count,
    /// Small consistent lists that prove a silent watch complete.
    pub probes: Count,
    /// Events applied.
    pub events: Count,
    /// Bookmarks applied.
    pub bookmarks: Count,
    /// Lists and watches that failed and were retried.
    pub failures: Count,
    /// Epochs: the versions went back permanently, as after a restore of etcd.
    pub epochs: Count,
    /// Consistency checks of replicas, by result.
    pub checks: Checks,
    /// Queries without a replica whose reads are no longer counted, because too many were.
    pub demands_dropped: Count,
    /// Snapshots with outstanding pages that were dropped because others came.
    pub outstanding_dropped: Count,
    /// Replicas started.
    pub started: Count,
    /// Replicas the apiserver refused.
    pub refused: Count,
    /// Replicas dropped because they did not fit into memory.
    pub dropped_for_memory: Count,
    /// Replicas stopped because they were not read.
    pub stopped_idle: Count,
    /// Replicas stopped because a wider one took over.
    pub stopped_widened: Count,
    /// Rows of Tables with a cell that tells a time and is not proven.
    pub unproven_cells: UnprovenCells,
}

/// The number of rows with such a cell, by resource and column, in the order of their first one.
#[derive(Debug, Default)]
pub struct UnprovenCells(Mutex<Vec<(GroupResource, Box<str>, u64)>>);

/// The number of watches by the reason of their end.
#[derive(Debug, Default)]
pub struct WatchesEnded([Count; ReplicaWatchEnd::ALL.len()]);

/// One number for each result of a consistency check.
#[derive(Debug, Default)]
pub struct Checks([Count; ReplicaCheck::ALL.len()]);

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

// === impl WatchesEnded ===

impl WatchesEnded {
    /// Returns every reason with its number.
    pub fn get(&self) -> [(ReplicaWatchEnd, u64); ReplicaWatchEnd::ALL.len()] {
        std::array::from_fn(|index| (ReplicaWatchEnd::ALL[index], self.0[index].get()))
    }

    /// The number of watches that ended neither as planned nor by us.
    pub fn interrupted(&self) -> u64 {
        let is_normal = |end| {
            matches!(
                end,
                ReplicaWatchEnd::Timeout
                    | ReplicaWatchEnd::Lagging
                    | ReplicaWatchEnd::Redefined
                    | ReplicaWatchEnd::Suspended
                    | ReplicaWatchEnd::Inconsistent
            )
        };
        self.get().into_iter().filter(|(end, _)| !is_normal(*end)).map(|(_, count)| count).sum()
    }

    pub(super) fn increment(&self, end: ReplicaWatchEnd) {
        self.0[end as usize].increment();
    }
}

// === impl Checks ===

impl Checks {
    /// Every result with its number.
    pub fn all(&self) -> [(ReplicaCheck, u64); ReplicaCheck::ALL.len()] {
        std::array::from_fn(|index| (ReplicaCheck::ALL[index], self.0[index].get()))
    }

    /// The number of one result.
    pub fn get(&self, result: ReplicaCheck) -> u64 {
        self.0[result as usize].get()
    }

    pub(super) fn increment(&self, result: ReplicaCheck) {
        self.0[result as usize].increment();
    }
}

/// The limit of resources and columns that are counted apart; further ones count as the last one.
const UNPROVEN_MAX: usize = 256;

// === impl UnprovenCells ===

impl UnprovenCells {
    /// Returns every resource and column with its number.
    pub fn all(&self) -> Vec<(GroupResource, Box<str>, u64)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn increment(&self, resource: GroupResource, column: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |(named, held, _): &(GroupResource, Box<str>, u64)| {
            *named == resource && **held == *column
        };
        match all.iter().position(is_same) {
            Some(index) => all[index].2 += 1,
            None if all.len() < UNPROVEN_MAX => {
                tracing::warn!(%resource, column, "a cell of a Table tells a time that is not proven");
                all.push((resource, column.into(), 1));
            }
            // The last one stands for all others.
            None => all[UNPROVEN_MAX - 1].2 += 1,
        }
    }
}

// === impl Count ===

impl Count {
    /// Returns the number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn increment(&self) {
        self.add(1);
    }
}
