//! The freshness that a replica proves, and whether that is enough for a session. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::{ForwardReason, Level};
use crate::{
    api::{
        query::Query,
        version::{Freshness, VersionMatch},
    },
    cache::{Link, Published, View},
    proxy::session::{Held, Imminence, Session, Verdict},
};

/// The time without an event or bookmark after which a replica proves nothing; bookmarks come each
/// minute.
pub(super) const PROGRESS_MAX: Duration = Duration::from_secs(90);

/// The time that a replica needs to reopen its watch. It does so every few minutes, and its
/// followers lose no event.
const REOPENING: Duration = Duration::from_secs(2);

/// Returns the time until which a replica's events count as complete, unless more arrive.
pub fn proven_until(published: &Published, max_staleness: Duration) -> Option<Instant> {
    let progress = published.proven_at? + PROGRESS_MAX;
    Some(match published.link {
        Link::Up => progress,
        Link::Lost { since } => progress.min(since + max_staleness.max(REOPENING)),
    })
}

/// Returns the reason why the replica does not prove that it is current, if it does not.
pub(super) fn unproven(
    view: &View,
    max_staleness: Duration,
    now: Instant,
) -> Option<ForwardReason> {
    if let Link::Lost { since } = view.link
        && now.saturating_duration_since(since) > max_staleness
    {
        return Some(ForwardReason::LinkLost);
    }
    let progress = view.proven_at.map(|at| now.saturating_duration_since(at));
    match progress {
        Some(age) if age <= PROGRESS_MAX => None,
        _ => Some(ForwardReason::NoProgress),
    }
}

/// Decides whether the session may see a replica's state by a request at this level.
pub(super) fn verdict(
    query: &Query,
    level: Level,
    version: &VersionMatch,
    max_staleness: Duration,
    held: Held<'_>,
    session: &Session,
    now: Instant,
) -> Verdict {
    match (level, version) {
        (Level::NotOlderThan, VersionMatch::NotOlderThan(version))
            if held.snapshot.version() < version =>
        {
            Verdict::Behind(version.clone(), Imminence::Likely)
        }
        (
            Level::Any | Level::NotOlderThan | Level::Exact | Level::Configured(Freshness::Any),
            _,
        ) => session.judge_monotonic(query, held, now),
        (Level::Configured(Freshness::Bounded), _) => {
            let since = now.checked_sub(max_staleness).unwrap_or(now);
            match session.judge(query, held, now) {
                Verdict::Satisfied if !session.is_proven_since(query, held, since) => {
                    Verdict::Barred
                }
                verdict => verdict,
            }
        }
        (Level::Configured(_), _) => session.judge(query, held, now),
    }
}
