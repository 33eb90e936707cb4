//! The sums of an account, which can be added up. Pure.

use super::{
    account::{Answer, Otherwise, Pace, Record},
    cost::{self, Micros, Work},
};
use crate::metrics::PollLimit;

/// The sums of an account, which can be added up.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Finished requests.
    pub requests: u64,
    /// Bytes of their responses.
    pub bytes: u64,
    /// Requests by [`Answer`], in its order.
    pub answers: [u64; 5],
    /// Requests by the reason why memory did not answer.
    pub reasons: Vec<(&'static str, u64)>,
    /// Responses 429 of Listless.
    pub refused: u64,
    /// Requests delayed by a limit on repeated polls.
    pub paced: u64,
    /// The part of `paced` that the limit on loops on responses from memory delayed.
    pub paced_from_memory: u64,
    /// Bytes of responses that came from memory or were shared.
    pub saved_bytes: u64,
    /// Requests that mode `enforce` would have saved.
    pub would_save: u64,
    /// Responses that could be compared with the one before.
    pub compared: u64,
    /// The compared responses that were identical.
    pub unchanged: u64,
    /// Writes whose response could be compared with the earlier object.
    pub writes_compared: u64,
    /// The compared writes that changed nothing.
    pub writes_in_vain: u64,
    /// Responses with a Retry-After.
    pub pushed_back: u64,
    /// Requests that came before the end of Retry-After.
    pub came_early: u64,
    /// Milliseconds of open watches.
    pub watched: u64,
    /// The actual or avoided cost for the apiserver and etcd.
    pub cost: (Micros, Micros),
    /// The avoided part of the cost.
    pub saved_cost: (Micros, Micros),
}

/// The maximum number of distinct reasons.
const REASONS_MAX: usize = 64;

// === impl Counts ===

impl Counts {
    /// Adds a request and the work it caused.
    pub(super) fn add_record(&mut self, record: &Record, work: Work) {
        self.requests += 1;
        self.bytes += record.bytes;
        self.answers[record.answer.index()] += 1;
        self.paced += u64::from(record.pace != Pace::Free);
        let from_memory = record.pace == Pace::Held(PollLimit::Memory);
        self.paced_from_memory += u64::from(from_memory);
        self.would_save += u64::from(record.otherwise == Otherwise::Saved);
        self.pushed_back += u64::from(record.retry_after.is_some());
        let cost = cost::of(work, record.bytes, record.encoding);
        let is_saved = match record.answer {
            Answer::Memory => true,
            Answer::Shared(reason) => {
                self.reason(reason, 1);
                true
            }
            Answer::Upstream(reason) => {
                self.reason(reason, 1);
                false
            }
            Answer::Closed => return,
            // The apiserver did no work, and the avoided work is unknown.
            Answer::Own(reason) => {
                self.refused += u64::from((400..500).contains(&record.code));
                return self.reason(reason, 1);
            }
        };
        self.cost = plus(self.cost, cost);
        if is_saved {
            self.saved_bytes += record.bytes;
            self.saved_cost = plus(self.saved_cost, cost);
        }
    }

    /// Adds another account's sums.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.answers.iter_mut().zip(other.answers).for_each(|(sum, more)| *sum += more);
        self.refused += other.refused;
        self.paced += other.paced;
        self.paced_from_memory += other.paced_from_memory;
        self.saved_bytes += other.saved_bytes;
        self.would_save += other.would_save;
        self.compared += other.compared;
        self.unchanged += other.unchanged;
        self.writes_compared += other.writes_compared;
        self.writes_in_vain += other.writes_in_vain;
        self.pushed_back += other.pushed_back;
        self.came_early += other.came_early;
        self.watched += other.watched;
        self.cost = plus(self.cost, other.cost);
        self.saved_cost = plus(self.saved_cost, other.saved_cost);
        other.reasons.iter().for_each(|(reason, count)| self.reason(reason, *count));
    }

    fn reason(&mut self, reason: &'static str, count: u64) {
        // The words are constants, so equal ones mostly share an address.
        if let Some((_, sum)) = self.reasons.iter_mut().find(|(known, _)| *known == reason) {
            *sum += count;
        } else if self.reasons.len() < REASONS_MAX {
            self.reasons.push((reason, count));
        }
    }
}

fn plus(one: (Micros, Micros), other: (Micros, Micros)) -> (Micros, Micros) {
    (one.0 + other.0, one.1 + other.1)
}
