//! What clients do that hurts, found in the accounts. Pure: facts in, findings with numbers out.
//!
//! A well-behaved informer, which lists once and then watches with bookmarks, is found by none of these.
//! Every threshold has a name here and a line in docs/operate.md.

mod fixes;
mod reads;
mod storm;
mod watches;

use super::{
    account::Tally,
    kin::Habits,
    period::{Period, Told},
    shape::{Selection, Shape, Subject},
};
use crate::api::Verb;

pub use fixes::{fix, title};

/// What is known of one account when it is looked at.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What its requests have in common.
    pub shape: Shape,
    /// What was counted.
    pub tally: Tally,
    /// How the client's watches of the same go on.
    pub habits: Habits,
    /// The period of one asker.
    pub period: Option<Period>,
    /// Who asks for what.
    pub crowd: Crowd,
}

/// Connections of late that asked more than once, by what they asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Those that always asked for the same.
    pub of_one_value: usize,
    /// Those that asked for different things.
    pub of_many: usize,
}

/// A pattern that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Which one.
    pub pattern: Pattern,
    /// In which of the facts.
    pub account: usize,
    /// Its period.
    pub seconds: Option<f64>,
    /// What was seen.
    pub evidence: String,
}

/// A pattern of requests that hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Consistent LISTs, again and again.
    QuorumListPolling,
    /// Whole collections in one answer.
    UnpaginatedList,
    /// One object, read again and again.
    ObjectPolling,
    /// A LIST after the end of every watch.
    ListAfterWatchEnd,
    /// Many objects at once, again and again.
    ResyncStorm,
    /// Writes that change nothing.
    NoOpWrites,
    /// Watches that are not told how far they have come.
    WatchWithoutBookmarks,
    /// An expired version, asked for again.
    IgnoredExpiry,
    /// Requests sooner than told.
    IgnoredRetryAfter,
    /// Which resources there are, again and again.
    DiscoveryRefetch,
    /// The same poll from many connections.
    ManyProcesses,
}

// === impl Pattern ===

impl Pattern {
    /// All of them.
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

    /// As the report names it.
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

/// Everything that is found in these accounts.
pub fn all(facts: &[Facts]) -> Vec<Found> {
    let mut found = storm::all(facts);
    let stormy: Vec<bool> = facts.iter().map(storm::is_stormy).collect();
    for (account, facts) in facts.iter().enumerate() {
        if facts.shape.traits.subject == Subject::Heartbeat {
            continue;
        }
        let told = [
            (!stormy[account]).then(|| reads::quorum_list_polling(facts)).flatten(),
            (!stormy[account]).then(|| reads::object_polling(facts)).flatten(),
            reads::unpaginated_list(facts),
            reads::many_processes(facts),
            reads::no_op_writes(facts),
            reads::ignored_retry_after(facts),
            watches::without_bookmarks(facts),
        ];
        found.extend(told.into_iter().flatten().map(|(pattern, evidence)| {
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

    /// How many askers there seem to be.
    fn askers(&self) -> usize {
        match self.period.map(|period| period.told) {
            Some(Told::ByConnection(connections)) => connections,
            Some(Told::ByPattern(askers)) => askers,
            Some(Told::ByValue) | None => 1,
        }
    }

    /// Whether it asks for one object by name, with GET or with LIST.
    fn names_an_object(&self) -> bool {
        self.shape.traits.selection == Selection::Named
    }

    /// For how long it was seen.
    fn seen_seconds(&self) -> f64 {
        f64::from(self.tally.last.saturating_sub(self.tally.first)) / 1000.0
    }
}

/// Seconds as people say them.
pub fn spoken(seconds: f64) -> String {
    match seconds {
        s if s < 0.9995 => format!("{:.0} ms", s * 1000.0),
        s if s < 99.5 => format!("{} s", trimmed(s)),
        s if s < 5400.0 => format!("{} min", trimmed(s / 60.0)),
        s => format!("{} h", trimmed(s / 3600.0)),
    }
}

/// One digit after the point, if it is not a zero.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests;
