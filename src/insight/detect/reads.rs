//! Detectors for polls and for other patterns of one account.

use std::collections::BTreeMap;

use super::{Facts, Found, Pattern, size, spoken};
use crate::{
    api::Verb,
    insight::{
        cost::RequestedVersion,
        shape::{Selection, Subject},
    },
};

/// The minimum number of requests of a poll.
const POLLS_MIN: u64 = 6;
/// The maximum period of a harmful poll.
const POLL_SECONDS_MAX: f64 = 600.0;
/// The maximum period of a poll of one object.
const OBJECT_SECONDS_MAX: f64 = 60.0;
/// The minimum number of requests of a poll without a period,
const IRREGULAR_MIN: u64 = 60;
/// and its minimum rate per second.
const IRREGULAR_PER_SECOND: f64 = 0.5;
/// The minimum size of a large LIST.
const LARGE_BYTES: u64 = 1024 * 1024;
/// The minimum number of large LISTs.
const LARGE_MIN: u64 = 3;
/// The minimum number of connections with the same poll.
pub(super) const CONNECTIONS_MIN: usize = 5;
/// The minimum number of writes without a change.
const IN_VAIN_MIN: u64 = 10;
/// Their minimum fraction of the compared writes.
const IN_VAIN_SHARE: f64 = 0.5;
/// The minimum number of early retries,
const EARLY_MIN: u64 = 3;
/// and their minimum fraction of the responses with Retry-After.
const EARLY_SHARE: f64 = 0.5;
/// The minimum number of repeated discovery requests.
const REFETCHES_MIN: u64 = 10;

type Detected = Option<(Pattern, String)>;

pub(super) fn quorum_list_polling(facts: &Facts) -> Detected {
    let consistent = facts.shape.traits.version == RequestedVersion::Unset;
    let list = facts.shape.verb == Verb::List && facts.is_read();
    if !list || !consistent || facts.names_an_object() {
        return None;
    }
    let how = polls(facts, POLL_SECONDS_MAX)?;
    let each = facts.tally.counts.bytes / facts.requests().max(1);
    let evidence = format!(
        "{} LISTs without resourceVersion {how}, {} each{}",
        facts.requests(),
        size(each),
        unchanged(facts),
    );
    Some((Pattern::QuorumListPolling, evidence))
}

pub(super) fn object_polling(facts: &Facts) -> Detected {
    if !facts.is_read() || !facts.names_an_object() {
        return None;
    }
    let how = polls(facts, OBJECT_SECONDS_MAX)?;
    let verb = if facts.shape.verb == Verb::Get { "GETs" } else { "LISTs of one name" };
    let objects = facts.tally.values.count().max(1);
    // A few reads of each of many objects are not a poll of one object.
    if facts.requests() < objects * POLLS_MIN / 2 {
        return None;
    }
    let evidence =
        format!("{} {verb} of {objects} object(s) {how}{}", facts.requests(), unchanged(facts));
    Some((Pattern::ObjectPolling, evidence))
}

pub(super) fn unpaginated_list(facts: &Facts) -> Detected {
    let traits = facts.shape.traits;
    let whole = traits.selection == Selection::Whole && traits.version == RequestedVersion::Unset;
    if facts.shape.verb != Verb::List || !whole || facts.requests() < LARGE_MIN {
        return None;
    }
    let each = facts.tally.counts.bytes / facts.requests();
    (each >= LARGE_BYTES).then(|| {
        let evidence = format!(
            "{} LISTs of a whole collection in one response, {} each",
            facts.requests(),
            size(each)
        );
        (Pattern::UnpaginatedList, evidence)
    })
}

pub(super) fn many_processes(facts: &Facts) -> Detected {
    let period = facts.period.filter(|period| period.seconds <= POLL_SECONDS_MAX)?;
    if !facts.is_read() || facts.requests() < POLLS_MIN {
        return None;
    }
    let values = facts.tally.values.count();
    let connections = facts.crowd.of_one_value;
    let own_selection = connections >= CONNECTIONS_MIN && facts.crowd.of_many * 4 <= connections;
    let of_nodes =
        facts.shape.traits.selection == Selection::OfNode && values >= CONNECTIONS_MIN as u64;
    if !own_selection && !of_nodes {
        return None;
    }
    let evidence = format!(
        "{} connections poll {values} selection(s) of the same kind, each every {}",
        connections.max(1),
        spoken(period.seconds),
    );
    Some((Pattern::ManyProcesses, evidence))
}

pub(super) fn no_op_writes(facts: &Facts) -> Detected {
    let counts = &facts.tally.counts;
    let share = counts.writes_in_vain as f64 / counts.writes_compared.max(1) as f64;
    if counts.writes_in_vain < IN_VAIN_MIN || share < IN_VAIN_SHARE {
        return None;
    }
    let period = facts
        .period
        .map_or(String::new(), |p| format!(", each object every {}", spoken(p.seconds)));
    let evidence = format!(
        "{} of {} compared writes did not change the resourceVersion{period}",
        counts.writes_in_vain, counts.writes_compared,
    );
    Some((Pattern::NoOpWrites, evidence))
}

pub(super) fn ignored_retry_after(facts: &Facts) -> Detected {
    let counts = &facts.tally.counts;
    let share = counts.came_early as f64 / counts.pushed_back.max(1) as f64;
    if counts.came_early < EARLY_MIN || share < EARLY_SHARE {
        return None;
    }
    let evidence = format!(
        "{} requests came before the Retry-After of the last response had passed; {} responses had \
         one",
        counts.came_early, counts.pushed_back,
    );
    Some((Pattern::IgnoredRetryAfter, evidence))
}

/// Returns one finding per client, at its most requested path.
pub(super) fn discovery_refetch(facts: &[Facts]) -> Vec<Found> {
    let mut clients: BTreeMap<_, Vec<(u64, usize)>> = BTreeMap::new();
    for (account, facts) in facts.iter().enumerate() {
        if facts.shape.traits.subject == Subject::Discovery {
            let again = facts.requests().saturating_sub(facts.tally.values.count());
            clients.entry(facts.shape.client()).or_default().push((again, account));
        }
    }
    let refetches = clients.into_values().filter_map(|paths| {
        let again: u64 = paths.iter().map(|(again, _)| again).sum();
        let (_, account) = paths.into_iter().max()?;
        (again >= REFETCHES_MIN).then(|| Found {
            pattern: Pattern::DiscoveryRefetch,
            account,
            seconds: facts[account].period.map(|period| period.seconds),
            evidence: format!("{again} repeated discovery requests"),
        })
    });
    refetches.collect()
}

/// Describes the rate of a poll. `None` if it is not a poll.
fn polls(facts: &Facts, seconds_max: f64) -> Option<String> {
    if facts.requests() < POLLS_MIN {
        return None;
    }
    if let Some(period) = facts.period {
        let clients = match facts.clients() {
            0 | 1 => String::new(),
            clients => format!(" by each of about {clients} clients"),
        };
        let every = format!("every {}{clients}", spoken(period.seconds));
        return (period.seconds <= seconds_max).then_some(every);
    }
    let per_second = facts.requests() as f64 / facts.seen_seconds().max(1.0);
    let many = facts.requests() >= IRREGULAR_MIN && per_second >= IRREGULAR_PER_SECOND;
    many.then(|| format!("at {per_second:.1} a second, without a period"))
}

fn unchanged(facts: &Facts) -> String {
    let counts = &facts.tally.counts;
    if counts.compared == 0 {
        return String::new();
    }
    let share = 100.0 * counts.unchanged as f64 / counts.compared as f64;
    format!(", {share:.0} % of them unchanged")
}
