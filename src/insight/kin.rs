//! How the LISTs and watches of one client belong together: whether a watch goes on where the last one
//! ended, or lists again, and whether an expired version is asked for again.
//!
//! Followed for a few queries of each kin; others are not. A LIST costs one load unless its query was
//! watched.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The accounts of one client that read the same selection of a resource.
#[derive(Debug, Default)]
pub struct Kin {
    /// Whether there is any watch to relate to.
    watched: AtomicBool,
    queries: Mutex<Vec<Followed>>,
}

/// What was seen of the queries followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// Watches opened after an earlier one of the same query.
    pub reopened: u64,
    /// Of these, those before which the query was listed without a version.
    pub relisted: u64,
    /// Times a version was said to have expired.
    pub expired: u64,
    /// Times it was asked for again.
    pub insisted: u64,
}

/// One query of those that are followed.
#[derive(Clone, Debug)]
struct Followed {
    query: u64,
    /// LISTs without a version since the last watch was opened.
    lists: u32,
    opened: u64,
    /// The version the last watch or LIST was told had expired.
    expired: Option<u64>,
    told_expired: bool,
    habits: Habits,
}

/// Queries followed.
const QUERIES_MAX: usize = 8;
/// More LISTs than these between two watches are a poll beside the watch, not its beginning.
const LISTS_MAX: u32 = 3;

// === impl Kin ===

impl Kin {
    /// A watch of this query was opened, from this version on.
    pub fn opened(&self, query: u64, version: Option<u64>) {
        self.watched.store(true, Ordering::Relaxed);
        self.with(query, |followed| {
            followed.ask(version);
            if followed.opened > 0 {
                // Who was told to list again does well to do so.
                if !followed.told_expired {
                    followed.habits.reopened += 1;
                    let listed = (1..=LISTS_MAX).contains(&followed.lists);
                    followed.habits.relisted += u64::from(listed);
                }
                followed.told_expired = false;
            }
            (followed.opened, followed.lists) = (followed.opened + 1, 0);
        });
    }

    /// It was listed.
    pub fn listed(&self, query: u64, version: Option<u64>) {
        if !self.watched.load(Ordering::Relaxed) {
            return;
        }
        self.with(query, |followed| {
            followed.ask(version);
            if version.is_none() {
                followed.lists = followed.lists.saturating_add(1);
            }
        });
    }

    /// The version it asked for was said to have expired.
    pub fn expired(&self, query: u64, version: Option<u64>) {
        self.watched.store(true, Ordering::Relaxed);
        self.with(query, |followed| {
            followed.habits.expired += 1;
            (followed.expired, followed.told_expired) = (version, true);
        });
    }

    /// What was seen so far.
    pub fn habits(&self) -> Habits {
        let queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        queries.iter().fold(Habits::default(), |sum, followed| Habits {
            reopened: sum.reopened + followed.habits.reopened,
            relisted: sum.relisted + followed.habits.relisted,
            expired: sum.expired + followed.habits.expired,
            insisted: sum.insisted + followed.habits.insisted,
        })
    }

    fn with(&self, query: u64, act: impl FnOnce(&mut Followed)) {
        let mut queries = self.queries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(followed) = queries.iter_mut().find(|followed| followed.query == query) {
            return act(followed);
        }
        if queries.len() < QUERIES_MAX {
            queries.push(Followed::of(query));
            if let Some(followed) = queries.last_mut() {
                act(followed);
            }
        }
    }
}

// === impl Followed ===

impl Followed {
    fn of(query: u64) -> Self {
        let habits = Habits::default();
        Self { query, lists: 0, opened: 0, expired: None, told_expired: false, habits }
    }

    /// It is asked for from a version on.
    fn ask(&mut self, version: Option<u64>) {
        if version.is_some() && self.expired == version {
            self.habits.insisted += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_goes_on_where_it_was_is_told_from_one_that_lists_again() {
        let (polite, restless) = (Kin::default(), Kin::default());
        for round in 0..5 {
            if round == 0 {
                polite.listed(1, None);
            }
            polite.opened(1, Some(10 + round));
            restless.listed(1, None);
            restless.opened(1, Some(10 + round));
        }
        let reopened = Habits { reopened: 4, ..Habits::default() };
        assert_eq!(polite.habits(), reopened);
        // The first LIST came before any watch.
        assert_eq!(restless.habits(), Habits { relisted: 4, ..reopened });
    }

    #[test]
    fn a_poll_beside_a_watch_is_no_list_after_its_end() {
        let kin = Kin::default();
        for round in 0..5 {
            kin.opened(1, Some(round));
            (0..100).for_each(|_| kin.listed(1, None));
        }
        assert_eq!(kin.habits(), Habits { reopened: 4, ..Habits::default() });
    }

    #[test]
    fn who_was_told_to_list_again_may() {
        let kin = Kin::default();
        for round in 0..4 {
            kin.opened(1, Some(round));
            kin.expired(1, Some(round));
            kin.listed(1, None);
        }
        assert_eq!(kin.habits(), Habits { expired: 4, ..Habits::default() });
    }

    #[test]
    fn an_expired_version_that_is_asked_for_again_is_seen() {
        let kin = Kin::default();
        for _ in 0..4 {
            kin.opened(1, Some(5));
            kin.expired(1, Some(5));
        }
        assert_eq!(kin.habits().insisted, 3);
        assert_eq!(kin.habits().expired, 4);
    }

    #[test]
    fn only_so_many_queries_are_followed() {
        let kin = Kin::default();
        (0..1000).for_each(|query| kin.opened(query, None));
        assert_eq!(kin.queries.lock().unwrap().len(), QUERIES_MAX);
    }
}
