//! Detectors for watches.

use super::{Facts, Found, Pattern, spoken};
use crate::{
    api::Verb,
    insight::{library::Library, shape::Subject},
};

/// The minimum number of reopened watches.
const REOPENED_MIN: u64 = 3;
/// The minimum fraction of them that came after a LIST.
const RELISTED_SHARE: f64 = 0.75;
/// The minimum number of watches without bookmarks. Fewer may be a person who looks.
const WATCHES_MIN: u64 = 3;
/// The minimum total duration of watches without bookmarks.
const WATCHED_SECONDS_MIN: f64 = 60.0;
/// The minimum number of requests for an expired version.
const INSISTED_MIN: u64 = 3;

pub(super) fn without_bookmarks(facts: &Facts) -> Option<(Pattern, String)> {
    let traits = facts.shape.traits;
    // kubectl watches for as long as a person looks.
    if traits.subject != Subject::WatchWithoutBookmarks || traits.library == Library::Kubectl {
        return None;
    }
    let watched = facts.tally.counts.watched as f64 / 1000.0;
    if facts.requests() < WATCHES_MIN || watched < WATCHED_SECONDS_MIN {
        return None;
    }
    let evidence = format!(
        "{} watches without allowWatchBookmarks, open for {} in all",
        facts.requests(),
        spoken(watched),
    );
    Some((Pattern::WatchWithoutBookmarks, evidence))
}

/// Returns findings about LISTs and watches together, each reported once at the watch.
pub(super) fn habits(facts: &[Facts]) -> Vec<Found> {
    let mut found = Vec::new();
    for (account, of) in facts.iter().enumerate() {
        let habits = of.habits;
        let is_watch = of.shape.verb == Verb::Watch;
        let seconds = of.period.map(|period| period.seconds);
        let share = habits.relisted as f64 / habits.reopened.max(1) as f64;
        if is_watch && habits.reopened >= REOPENED_MIN && share >= RELISTED_SHARE {
            let evidence = format!(
                "of {} watches opened after an earlier one, {} came after a LIST without \
                 resourceVersion",
                habits.reopened, habits.relisted,
            );
            found.push(Found { pattern: Pattern::ListAfterWatchEnd, account, seconds, evidence });
        }
        if is_watch && habits.insisted >= INSISTED_MIN {
            let evidence = format!(
                "a version expired {} times, and was requested again {} times",
                habits.expired, habits.insisted,
            );
            found.push(Found { pattern: Pattern::IgnoredExpiry, account, seconds, evidence });
        }
    }
    found
}
