//! Storms: one client requests each of its objects, again and again.
//!
//! A resync of a controller's informer hands every object to its reconciler. The reconciler's reads
//! and writes arrive in a burst per period. They differ only in the object's name.

use super::{Facts, Found, Pattern, spoken};
use crate::{
    api::Verb,
    insight::shape::{Selection, Subject},
};

/// The minimum number of distinct objects in a storm.
const VALUES_MIN: u64 = 10;
/// The minimum average number of requests per object.
const ROUNDS_MIN: f64 = 1.5;
/// The maximum difference of two periods of the same storm, as a fraction.
const SAME_PERIOD: f64 = 0.15;

/// Returns one finding per client and period, at the most expensive reads, or at the writes without
/// reads.
pub(super) fn all(facts: &[Facts]) -> Vec<Found> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for account in (0..facts.len()).filter(|account| is_stormy(&facts[*account])) {
        let same = groups.iter_mut().find(|group| are_one(&facts[group[0]], &facts[account]));
        match same {
            Some(group) => group.push(account),
            None => groups.push(vec![account]),
        }
    }
    groups.into_iter().filter_map(|group| finding(facts, &group)).collect()
}

/// Reports whether each of many values is requested by few connections, once per period.
pub(super) fn is_stormy(facts: &Facts) -> bool {
    let values = facts.tally.values.count();
    let rounds = facts.requests() as f64 / values.max(1) as f64;
    let reads_or_writes = matches!(
        facts.shape.verb,
        Verb::Get | Verb::List | Verb::Update | Verb::Patch | Verb::Create | Verb::Delete
    ) && facts.shape.traits.subject == Subject::Objects;
    // Agents on many nodes each request their own.
    let one_client = facts.crowd.of_one_value <= facts.crowd.of_many
        || facts.crowd.of_one_value < super::reads::CONNECTIONS_MIN;
    let of_nodes = facts.shape.traits.selection == Selection::OfNode;
    facts.period.is_some()
        && reads_or_writes
        && values >= VALUES_MIN
        && rounds >= ROUNDS_MIN
        && one_client
        && !of_nodes
}

fn are_one(one: &Facts, other: &Facts) -> bool {
    let seconds = |facts: &Facts| facts.period.map_or(0.0, |period| period.seconds);
    let (first, second) = (seconds(one), seconds(other));
    one.shape.client() == other.shape.client()
        && (first - second).abs() <= SAME_PERIOD * first.max(second)
}

fn finding(facts: &[Facts], group: &[usize]) -> Option<Found> {
    let weight = |account: &&usize| {
        let facts = &facts[**account];
        (facts.is_read(), facts.tally.counts.cost.0 as u64, facts.requests())
    };
    let account = *group.iter().max_by_key(weight)?;
    let of = &facts[account];
    let period = of.period?;
    let seen = of.seen_seconds();
    let rounds = (seen / period.seconds).round() + 1.0;
    let mut evidence = format!(
        "{} requests for {} different objects or selections, each every {}: about {:.0} in each of \
         {rounds:.0} rounds",
        of.requests(),
        of.tally.values.count(),
        spoken(period.seconds),
        of.requests() as f64 / rounds,
    );
    let others = group.iter().filter(|other| **other != account);
    let others: Vec<String> = others.map(|other| named(&facts[*other])).collect();
    if !others.is_empty() {
        evidence += &format!("; together with {}", others.join(", "));
    }
    let seconds = Some(period.seconds);
    Some(Found { pattern: Pattern::ResyncStorm, account, seconds, evidence })
}

fn named(facts: &Facts) -> String {
    format!("{} {} {}", facts.requests(), facts.shape.verb.as_str(), facts.shape.resource)
}
