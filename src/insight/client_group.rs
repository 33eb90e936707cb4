//! The relation of one client's LISTs and watches: whether a watch resumes or relists, and whether
//! an expired version is requested again.
//!
//! Only a few queries of each client are tracked. A LIST costs one load unless its query was
//! watched.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The accounts of one client that read the same selection of a resource.
#[derive(Debug, Default)]
pub struct ClientGroup {
    /// `true` if any watch was opened.
    watched: AtomicBool,
    queries: Mutex<Vec<Followed>>,
}

/// The counts for the tracked queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    /// Watches opened after an earlier one of the same query.
    pub reopened: u64,
    /// The reopened watches that came after a LIST without a version.
    pub relisted: u64,
    /// Expired versions.
    pub expired: u64,
    /// Repeated requests for an expired version.
    pub insisted: u64,
}

/// One tracked query.
#[derive(Clone, Debug)]
struct Followed {
    query: u64,
    /// LISTs without a version since the last watch was opened.
    lists: u32,
    opened: u64,
    /// The expired version of the last watch or LIST.
    expired: Option<u64>,
    saw_expired: bool,
    habits: Habits,
}

/// The maximum number of tracked queries.
const QUERIES_MAX: usize = 8;
/// The maximum number of LISTs between two watches. More are a poll beside the watch.
const LISTS_MAX: u32 = 3;

// === impl ClientGroup ===

impl ClientGroup {
    /// Records a watch of this query from a version.
    pub fn opened(&self, query: u64, version: Option<u64>) {
        self.watched.store(true, Ordering::Relaxed);
        self.with(query, |followed| {
            followed.ask(version);
            if followed.opened > 0 {
                // A client that received 410 should list again.
                if !followed.saw_expired {
                    followed.habits.reopened += 1;
                    let listed = (1..=LISTS_MAX).contains(&followed.lists);
                    followed.habits.relisted += u64::from(listed);
                }
                followed.saw_expired = false;
            }
            (followed.opened, followed.lists) = (followed.opened + 1, 0);
        });
    }

    /// Records a LIST of this query.
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

    /// Records that the requested version has expired.
    pub fn expired(&self, query: u64, version: Option<u64>) {
        self.watched.store(true, Ordering::Relaxed);
        self.with(query, |followed| {
            followed.habits.expired += 1;
            (followed.expired, followed.saw_expired) = (version, true);
        });
    }

    /// Returns the counts so far.
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
        Self { query, lists: 0, opened: 0, expired: None, saw_expired: false, habits }
    }

    /// Records a request from a version.
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
    fn a_client_that_resumes_is_distinguished_from_one_that_relists() {
        let (polite, restless) = (ClientGroup::default(), ClientGroup::default());
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
        let client_group = ClientGroup::default();
        for round in 0..5 {
            client_group.opened(1, Some(round));
            (0..100).for_each(|_| client_group.listed(1, None));
        }
        assert_eq!(client_group.habits(), Habits { reopened: 4, ..Habits::default() });
    }

    #[test]
    fn a_relist_after_an_expired_version_is_not_counted() {
        let client_group = ClientGroup::default();
        for round in 0..4 {
            client_group.opened(1, Some(round));
            client_group.expired(1, Some(round));
            client_group.listed(1, None);
        }
        assert_eq!(client_group.habits(), Habits { expired: 4, ..Habits::default() });
    }

    #[test]
    fn a_repeated_request_for_an_expired_version_is_counted() {
        let client_group = ClientGroup::default();
        for _ in 0..4 {
            client_group.opened(1, Some(5));
            client_group.expired(1, Some(5));
        }
        assert_eq!(client_group.habits().insisted, 3);
        assert_eq!(client_group.habits().expired, 4);
    }

    #[test]
    fn the_number_of_tracked_queries_is_bounded() {
        let client_group = ClientGroup::default();
        (0..1000).for_each(|query| client_group.opened(query, None));
        assert_eq!(client_group.queries.lock().unwrap().len(), QUERIES_MAX);
    }
}
