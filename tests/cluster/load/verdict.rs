//! Checks the pollers' records against the writes: exact states, no way back, no stale state.

use std::time::{Duration, Instant};

use super::STALENESS_MAX;
use super::history::{History, Items};
use super::pollers::{Observation, Outcome, Refusal};
use crate::differential::judge::Served;

/// The time that a proxy may need to notice, on a machine shared with the servers and their
/// clients.
const SLACK: Duration = Duration::from_millis(1500);

/// A time without an apiserver.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// The time of the kill.
    pub from: Instant,
    /// The time when it was ready again.
    pub until: Instant,
}

/// Every wrong response, in words.
pub fn wrong_answers(history: &History, seen: &[Observation]) -> Vec<String> {
    let mut wrong = Vec::new();
    for observation in seen {
        let Outcome::List { version, items, served } = &observation.outcome else { continue };
        let poller = observation.poller;
        if !history.allows(poller, *version, items) {
            let expected = history.expected(poller, *version);
            let missing = difference(&expected, items);
            let surplus = difference(items, &expected);
            wrong.push(format!(
                "poller {poller}: not the state at version {version} ({served:?}): missing \
                 {missing:?}, surplus {surplus:?}"
            ));
        }
        if let Some(before) = observation.sent.checked_sub(STALENESS_MAX + SLACK) {
            let newest = history.acknowledged_at(before);
            if *version < newest {
                wrong.push(format!(
                    "poller {poller}: version {version}, but {newest} was acknowledged more than \
                     {STALENESS_MAX:?} before ({served:?})"
                ));
            }
        }
    }
    wrong.extend(backward_steps(seen));
    wrong
}

/// The objects that only one of two states has, or that they have at different versions.
fn difference<'a>(one: &'a Items, other: &Items) -> Vec<(&'a String, &'a u64)> {
    one.iter().filter(|(name, version)| other.get(*name) != Some(version)).collect()
}

/// The lists of one query never go back. Each poller has its own query, and no object is in two of
/// them, so the pollers do not bind each other.
fn backward_steps(seen: &[Observation]) -> Vec<String> {
    let step = |later: &Observation, (version, served): (u64, &Served)| {
        let (floor, first) = shown_before(seen, later, Some(later.poller))?;
        (version < floor).then(|| {
            let poller = later.poller;
            format!("poller {poller}: version {version} ({served:?}) after {floor} ({first:?})")
        })
    };
    seen.iter().filter_map(|later| step(later, later.list()?)).collect()
}

/// Lists of one query at an older version than a list of another had before. They are right, for
/// only what a query selects decides; they tell how much the replica was behind what was forwarded.
pub fn steps_across(seen: &[Observation]) -> usize {
    let is_behind = |later: &&Observation| {
        let shown = shown_before(seen, later, None).map(|(floor, _)| floor);
        later.list().is_some_and(|(version, _)| Some(version) < shown)
    };
    seen.iter().filter(is_behind).count()
}

/// The newest version that one poller, or any, had received before a request, and its source.
fn shown_before<'a>(
    seen: &'a [Observation],
    later: &Observation,
    poller: Option<u32>,
) -> Option<(u64, &'a Served)> {
    let before = seen.iter().filter(|earlier| {
        poller.is_none_or(|poller| earlier.poller == poller) && earlier.received < later.sent
    });
    before.filter_map(Observation::list).max_by_key(|(version, _)| *version)
}

/// The errors of responses while there was no apiserver.
pub fn wrong_in_outage(outage: Outage, seen: &[Observation]) -> Vec<String> {
    let mut wrong = Vec::new();
    // A response in progress at the moment of the kill may come from either.
    for observation in seen.iter().filter(|observation| outage.covers(observation)) {
        let age = observation.sent.duration_since(outage.from);
        let complaint = match &observation.outcome {
            Outcome::List { served: Served::Hit, .. } if age <= STALENESS_MAX + SLACK => None,
            Outcome::List { served, .. } => Some(format!("a list ({served:?})")),
            Outcome::Refused(refusal) => refusal_complaint(refusal),
            Outcome::Failed(error) => Some(error.clone()),
        };
        wrong.extend(complaint.map(|complaint| format!("{age:.1?} into the outage: {complaint}")));
    }
    wrong
}

/// The errors in the refusal of a read that nobody can answer (S-ERR-02).
pub fn refusal_complaint(refusal: &Refusal) -> Option<String> {
    let right = refusal.status == 503
        && refusal.reason.as_deref() == Some("ServiceUnavailable")
        && refusal.cache_status
        && refusal.retry_after.as_ref().is_some_and(|text| text.parse::<u32>().is_ok());
    (!right).then(|| format!("{refusal:?}"))
}

// === impl Observation ===

impl Observation {
    /// The version and the source of its list.
    fn list(&self) -> Option<(u64, &Served)> {
        match &self.outcome {
            Outcome::List { version, served, .. } => Some((*version, served)),
            _ => None,
        }
    }
}

// === impl Outage ===

impl Outage {
    /// Reports whether an exchange lies wholly within the outage.
    pub fn covers(&self, observation: &Observation) -> bool {
        observation.sent > self.from && observation.received < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(sent: Instant, version: u64) -> Observation {
        let outcome = Outcome::List { served: Served::Hit, version, items: Items::new() };
        Observation { poller: 0, sent, received: sent + Duration::from_millis(1), outcome }
    }

    #[test]
    fn a_step_back_of_one_query_is_detected() {
        let now = Instant::now();
        let later = now + Duration::from_secs(1);
        assert!(backward_steps(&[list(now, 5), list(later, 5)]).is_empty());
        assert_eq!(backward_steps(&[list(now, 6), list(later, 5)]).len(), 1);
        // Two requests that run side by side may overtake each other.
        assert!(backward_steps(&[list(now, 6), list(now, 5)]).is_empty());
        // Another query has versions of its own.
        let other = Observation { poller: 1, ..list(later, 5) };
        assert!(backward_steps(&[list(now, 6), other.clone()]).is_empty());
        assert_eq!(steps_across(&[list(now, 6), other]), 1);
    }

    #[test]
    fn an_outage_allows_memory_for_a_while_and_then_proper_refusals() {
        let from = Instant::now();
        let outage = Outage { from, until: from + Duration::from_secs(30) };
        let early = list(from + Duration::from_secs(1), 5);
        let late = list(from + Duration::from_secs(10), 5);
        assert!(wrong_in_outage(outage, &[early]).is_empty());
        assert_eq!(wrong_in_outage(outage, std::slice::from_ref(&late)).len(), 1);
        let refusal = Refusal {
            status: 503,
            retry_after: Some("1".to_owned()),
            reason: Some("ServiceUnavailable".to_owned()),
            cache_status: true,
        };
        let with =
            |refusal: Refusal| Observation { outcome: Outcome::Refused(refusal), ..late.clone() };
        assert!(wrong_in_outage(outage, &[with(refusal.clone())]).is_empty());
        let wrong = [
            Refusal { status: 502, ..refusal.clone() },
            Refusal { retry_after: None, ..refusal.clone() },
            Refusal { reason: None, ..refusal.clone() },
            Refusal { cache_status: false, ..refusal },
        ];
        for refusal in wrong {
            assert_eq!(wrong_in_outage(outage, &[with(refusal)]).len(), 1);
        }
    }
}
