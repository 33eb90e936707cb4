//! The recent history, second by second: client requests, upstream requests, and incidents.
//!
//! The data path does not write here: existing sums are read once a second, and their growth
//! becomes a point or a mark. The history is bounded, and time is passed in.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use tokio::sync::watch;

use crate::metrics::{Limit, Outcome, ServedBy, Totals, UpstreamCause};

/// The last minutes, second by second.
pub struct Timeline {
    lines: Mutex<Lines>,
    /// The number of points so far.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Lines {
    last: Option<Sums>,
    points: VecDeque<Point>,
    marks: VecDeque<Mark>,
}

/// The growing sums since the start, and the state of replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The sums over requests, limits and configuration files.
    pub totals: Totals,
    /// Lists after events that could not be resumed, for example after a 410.
    pub relists: u64,
    /// Permanent steps back of the apiserver's versions.
    pub epochs: u64,
    /// Replicas found to differ from the apiserver.
    pub differences: u64,
    /// Replicas dropped because they did not fit into memory.
    pub memory_drops: u64,
    /// Synced replicas whose watch is disconnected now.
    pub links_lost: u64,
    /// Outages of the apiserver.
    pub outages: Outages,
}

/// Outages of the apiserver since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// Outages that began, or continued with another cause.
    pub failing: u64,
    /// Outages that ended.
    pub recovered: u64,
    /// Cause of the latest one.
    pub cause: Option<UpstreamCause>,
}

/// One second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Point {
    /// Its end, in Unix time.
    pub at: u64,
    /// Answered client requests.
    pub client: u64,
    /// Client requests that memory answered, or that shared a response.
    pub saved: u64,
    /// Requests that the apiserver answered, from any originator.
    pub upstream: u64,
}

/// An incident within a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The end of that second, in Unix time.
    pub at: u64,
    /// The kind of the incident.
    pub kind: Incident,
    /// The number of occurrences.
    pub count: u64,
    /// The description.
    pub text: String,
}

/// The kind of an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Incident {
    /// An outage of the apiserver began, or its cause changed.
    Outage,
    /// An outage of the apiserver ended.
    OutageEnd,
    /// A replica relisted.
    Relist,
    /// The watch of a replica was disconnected.
    LinkLost,
    /// The apiserver's versions went back.
    EpochChange,
    /// A replica differed from the apiserver.
    ReplicaInconsistent,
    /// A replica was dropped to keep within the memory limit.
    MemoryDrop,
    /// A changed configuration file was applied.
    ConfigReload,
    /// A changed configuration file was refused.
    ConfigRefused,
    /// A limit was reached.
    BoundReached,
}

/// The whole history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// The seconds between two points.
    pub period_seconds: u64,
    /// The maximum number of points.
    pub points_max: usize,
    /// The points, the oldest first.
    pub points: Vec<Point>,
    /// The marks, the oldest first.
    pub marks: Vec<Mark>,
}

/// The maximum number of stored seconds.
pub const POINTS_MAX: usize = 15 * 60;

/// The maximum number of stored marks.
pub const MARKS_MAX: usize = 256;

// === impl Timeline ===

impl Timeline {
    /// Returns an empty history.
    pub fn new() -> Self {
        Self { lines: Mutex::default(), changes: watch::Sender::new(0) }
    }

    /// Adds the growth since the last call. The first call sets the baseline.
    pub fn add(&self, at: u64, sums: Sums) {
        let is_added = self.lines().add(at, &sums);
        if is_added {
            self.changes.send_modify(|points| *points += 1);
        }
    }

    /// Returns all points and marks after this second.
    pub fn since(&self, at: u64) -> Document {
        let lines = self.lines();
        Document {
            period_seconds: 1,
            points_max: POINTS_MAX,
            points: lines.points.iter().filter(|point| point.at > at).copied().collect(),
            marks: lines.marks.iter().filter(|mark| mark.at > at).cloned().collect(),
        }
    }

    /// Returns a receiver that notifies of every new point.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self::new()
    }
}

// === impl Lines ===

impl Lines {
    fn add(&mut self, at: u64, now: &Sums) -> bool {
        let failing = now.outages.cause.map(UpstreamCause::headline).unwrap_or_default();
        let Some(last) = self.last.replace(*now) else {
            // An outage may be older than the first look.
            self.mark(at, Incident::Outage, now.outages.failing, &failing);
            return false;
        };
        let grown = |of: fn(&Sums) -> u64| of(now).saturating_sub(of(&last));
        push(
            &mut self.points,
            POINTS_MAX,
            Point {
                at,
                client: grown(|sums| sums.totals.requests()),
                saved: grown(|sums| {
                    let by = |by| sums.totals.answered_by(by);
                    by(ServedBy::Cache) + by(ServedBy::Coalesced)
                }),
                upstream: grown(|sums| sums.totals.upstream_requests()),
            },
        );
        for (kind, count, text) in incidents(now, &last, &failing) {
            self.mark(at, kind, count, text);
        }
        for &limit in Limit::ALL {
            let of = |sums: &Sums| sums.totals.limits[limit as usize];
            let count = of(now).saturating_sub(of(&last));
            let text = format!("the limit {} was reached", limit.as_str());
            self.mark(at, Incident::BoundReached, count, &text);
        }
        true
    }

    fn mark(&mut self, at: u64, kind: Incident, count: u64, text: &str) {
        if count > 0 {
            let text = text.to_owned();
            push(&mut self.marks, MARKS_MAX, Mark { at, kind, count, text });
        }
    }
}

/// Returns the possible incidents of one second, each with its count.
fn incidents<'a>(now: &Sums, last: &Sums, failing: &'a str) -> [(Incident, u64, &'a str); 9] {
    let grown = |of: fn(&Sums) -> u64| of(now).saturating_sub(of(last));
    [
        (Incident::Outage, grown(|sums| sums.outages.failing), failing),
        (Incident::OutageEnd, grown(|sums| sums.outages.recovered), "apiserver reachable again"),
        (
            Incident::Relist,
            grown(|sums| sums.relists),
            "a replica relisted: its events had expired (410)",
        ),
        (
            Incident::LinkLost,
            grown(|sums| sums.links_lost),
            "the watch of a replica was disconnected",
        ),
        (
            Incident::EpochChange,
            grown(|sums| sums.epochs),
            "the versions of the apiserver went back",
        ),
        (
            Incident::ReplicaInconsistent,
            grown(|sums| sums.differences),
            "a replica differed from the apiserver and was listed again",
        ),
        (
            Incident::MemoryDrop,
            grown(|sums| sums.memory_drops),
            "a replica was dropped to keep within the memory limit",
        ),
        (
            Incident::ConfigReload,
            reloads(now, last, Outcome::Success),
            "a changed configuration file was applied",
        ),
        (
            Incident::ConfigRefused,
            reloads(now, last, Outcome::Failure),
            "a changed configuration file was refused",
        ),
    ]
}

fn reloads(now: &Sums, last: &Sums, outcome: Outcome) -> u64 {
    let of = |sums: &Sums| sums.totals.reloads[outcome as usize];
    of(now).saturating_sub(of(last))
}

/// Appends an item, and drops the oldest beyond the maximum.
fn push<T>(line: &mut VecDeque<T>, length_max: usize, item: T) {
    if line.len() == length_max {
        line.pop_front();
    }
    line.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Origin;

    fn sums(cache: u64, upstream: u64) -> Sums {
        let mut sums = Sums::default();
        sums.totals.answered[ServedBy::Cache as usize] = cache;
        sums.totals.upstream[Origin::Client as usize] = upstream;
        sums
    }

    #[test]
    fn a_point_is_the_growth_within_its_second() {
        let timeline = Timeline::new();
        let mut changes = timeline.follow();
        timeline.add(100, sums(5, 5));
        assert!(timeline.since(0).points.is_empty() && !changes.has_changed().unwrap());
        timeline.add(101, sums(12, 6));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        timeline.add(102, sums(12, 6));
        let expected = [
            Point { at: 101, client: 7, saved: 7, upstream: 1 },
            Point { at: 102, client: 0, saved: 0, upstream: 0 },
        ];
        assert_eq!(timeline.since(0).points, expected);
        assert_eq!(timeline.since(101).points, expected[1..]);
        assert!(timeline.since(0).marks.is_empty());
    }

    #[test]
    fn incidents_are_marked_with_their_number() {
        let timeline = Timeline::new();
        let mut now = sums(0, 0);
        (now.relists, now.links_lost) = (3, 1);
        timeline.add(1, now);
        (now.relists, now.links_lost, now.epochs, now.memory_drops) = (5, 0, 1, 2);
        now.differences = 1;
        now.totals.reloads = [1, 1];
        now.totals.limits[Limit::Watches as usize] = 4;
        timeline.add(2, now);
        now.links_lost = 2;
        timeline.add(3, now);
        let marks = timeline.since(0).marks;
        let found: Vec<_> = marks.iter().map(|mark| (mark.at, mark.kind, mark.count)).collect();
        let expected = [
            (2, Incident::Relist, 2),
            (2, Incident::EpochChange, 1),
            (2, Incident::ReplicaInconsistent, 1),
            (2, Incident::MemoryDrop, 2),
            (2, Incident::ConfigReload, 1),
            (2, Incident::ConfigRefused, 1),
            (2, Incident::BoundReached, 4),
            (3, Incident::LinkLost, 2),
        ];
        assert_eq!(found, expected);
        assert_eq!(marks[6].text, "the limit watches was reached");
    }

    #[test]
    fn an_outage_is_marked_with_its_cause_and_its_end() {
        let timeline = Timeline::new();
        timeline.add(1, sums(0, 0));
        let mut now = sums(0, 0);
        (now.outages.failing, now.outages.cause) = (1, Some(UpstreamCause::UntrustedIssuer));
        timeline.add(2, now);
        timeline.add(3, now);
        now.outages.recovered = 1;
        timeline.add(4, now);
        let marks = timeline.since(0).marks;
        let found: Vec<_> =
            marks.iter().map(|mark| (mark.at, mark.kind, mark.text.as_str())).collect();
        let cause = "apiserver not reachable: its certificate is signed by an unknown authority";
        let end = (4, Incident::OutageEnd, "apiserver reachable again");
        assert_eq!(found, [(2, Incident::Outage, cause), end]);
        let late = Timeline::new();
        late.add(4, now);
        assert_eq!(late.since(0).marks[0].text, cause, "an outage from before the first second");
    }

    #[test]
    fn old_points_are_dropped() {
        let timeline = Timeline::new();
        let mut now = sums(0, 0);
        for second in 0..=2 * POINTS_MAX as u64 {
            now.relists += 1;
            timeline.add(second, now);
        }
        let document = timeline.since(0);
        assert_eq!((document.points.len(), document.marks.len()), (POINTS_MAX, MARKS_MAX));
        assert_eq!(document.points.last().map(|point| point.at), Some(2 * POINTS_MAX as u64));
    }
}
