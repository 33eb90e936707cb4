//! Detects harmful client behaviour in the accounts. Pure: facts in, findings with numbers out.
//!
//! No detector matches a well-behaved informer, which lists once and then watches with bookmarks.
//! Every threshold has a name here and a row in docs/operate.md.

mod fixes;
mod reads;
mod storm;
mod watches;

use super::{
    account::Tally,
    client_group::Habits,
    period::{Period, Separation},
    shape::{Selection, Shape, Subject},
};
use crate::api::Verb;

pub use fixes::{fix, title};

/// The facts of one account.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The common properties of its requests.
    pub shape: Shape,
    /// The counts.
    pub tally: Tally,
    /// The continuity of the client's watches.
    pub habits: Habits,
    /// The period of one asker.
    pub period: Option<Period>,
    /// The distribution of values over connections.
    pub crowd: Crowd,
}

/// Recent connections with several requests, by the values they requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Connections that always requested the same value.
    pub of_one_value: usize,
    /// Connections that requested several values.
    pub of_many: usize,
}

/// A detected pattern.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The pattern.
    pub pattern: Pattern,
    /// The index of the facts.
    pub account: usize,
    /// The period.
    pub seconds: Option<f64>,
    /// The evidence.
    pub evidence: String,
}

/// A harmful pattern of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Repeated consistent LISTs.
    QuorumListPolling,
    /// Whole collections in one response.
    UnpaginatedList,
    /// Repeated reads of one object.
    ObjectPolling,
    /// A LIST after the end of every watch.
    ListAfterWatchEnd,
    /// Periodic bursts over many objects.
    ResyncStorm,
    /// Writes that change nothing.
    NoOpWrites,
    /// Watches without bookmarks.
    WatchWithoutBookmarks,
    /// Repeated requests for an expired version.
    IgnoredExpiry,
    /// Requests before the end of Retry-After.
    IgnoredRetryAfter,
    /// Repeated discovery.
    DiscoveryRefetch,
    /// The same poll from many connections.
    ManyProcesses,
}

// === impl Pattern ===

impl Pattern {
    /// All patterns.
    pub const ALL: &'static [Self] = &[
        Self::QuorumListPolling,
        Self::UnpaginatedList,
        Self::ObjectPolling,
        Self::ListAfterWatchEnd,
        Self::ResyncStorm,
        Self::NoOpWrites,
        Self::WatchWithoutBookmarks,
        Self::IgnoredExpiry,
        Self::IgnoredRetryAfter,
        Self::DiscoveryRefetch,
        Self::ManyProcesses,
    ];

    /// Returns the name in the report.
    pub fn id(self) -> &'static str {
        match self {
            Self::QuorumListPolling => "quorum-list-polling",
            Self::UnpaginatedList => "unpaginated-list",
            Self::ObjectPolling => "object-polling",
            Self::ListAfterWatchEnd => "list-after-watch-end",
            Self::ResyncStorm => "resync-storm",
            Self::NoOpWrites => "no-op-writes",
            Self::WatchWithoutBookmarks => "watch-without-bookmarks",
            Self::IgnoredExpiry => "ignored-expiry",
            Self::IgnoredRetryAfter => "ignored-retry-after",
            Self::DiscoveryRefetch => "discovery-refetch",
            Self::ManyProcesses => "many-processes",
        }
    }
}

/// Returns all findings for these accounts.
pub fn all(facts: &[Facts]) -> Vec<Found> {
    let mut found = storm::all(facts);
    let stormy: Vec<bool> = facts.iter().map(storm::is_stormy).collect();
    for (account, facts) in facts.iter().enumerate() {
        if facts.shape.traits.subject == Subject::Heartbeat {
            continue;
        }
        let detected = [
            (!stormy[account]).then(|| reads::quorum_list_polling(facts)).flatten(),
            (!stormy[account]).then(|| reads::object_polling(facts)).flatten(),
            reads::unpaginated_list(facts),
            reads::many_processes(facts),
            reads::no_op_writes(facts),
            reads::ignored_retry_after(facts),
            watches::without_bookmarks(facts),
        ];
        found.extend(detected.into_iter().flatten().map(|(pattern, evidence)| {
            let seconds = facts.period.map(|period| period.seconds);
            Found { pattern, account, seconds, evidence }
        }));
    }
    found.extend(watches::habits(facts));
    found.extend(reads::discovery_refetch(facts));
    found
}

// === impl Facts ===

impl Facts {
    fn requests(&self) -> u64 {
        self.tally.counts.requests
    }

    fn is_read(&self) -> bool {
        matches!(self.shape.verb, Verb::Get | Verb::List)
            && self.shape.traits.subject == Subject::Objects
    }

    /// Returns the estimated number of clients.
    fn clients(&self) -> usize {
        match self.period.map(|period| period.separation) {
            Some(Separation::ByConnection(connections)) => connections,
            Some(Separation::ByPattern(clients)) => clients,
            Some(Separation::ByValue) | None => 1,
        }
    }

    /// Reports whether it requests one object by name, with GET or with LIST.
    fn names_an_object(&self) -> bool {
        self.shape.traits.selection == Selection::Named
    }

    /// Returns the time between the first and last request.
    fn seen_seconds(&self) -> f64 {
        self.tally.last.saturating_sub(self.tally.first) as f64 / 1000.0
    }
}

/// Formats seconds for people.
pub fn spoken(seconds: f64) -> String {
    match seconds {
        s if s < 0.9995 => format!("{:.0} ms", s * 1000.0),
        s if s < 99.5 => format!("{} s", trimmed(s)),
        s if s < 5400.0 => format!("{} min", trimmed(s / 60.0)),
        s => format!("{} h", trimmed(s / 3600.0)),
    }
}

/// Formats bytes for people.
fn size(bytes: u64) -> String {
    const KIB: f64 = 1024.0;
    match bytes as f64 {
        size if size < KIB => format!("{bytes} B"),
        size if size < KIB * KIB => format!("{:.0} KiB", size / KIB),
        size => format!("{} MiB", trimmed(size / KIB / KIB)),
    }
}

/// Formats one decimal place, omitted if it is zero.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests;
