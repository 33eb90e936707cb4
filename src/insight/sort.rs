//! The sort order of polls. Pure.

use std::{cmp::Ordering, str::FromStr};

use clap::ValueEnum;

use super::report::Poll;

/// The key by which polls are sorted, largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// The estimated CPU time of the apiserver, actual or avoided.
    #[default]
    Cost,
    /// The recent requests per second.
    Rate,
    /// Requests.
    Requests,
    /// Bytes of responses.
    Bytes,
    /// Requests that did not reach the apiserver.
    Saved,
    /// The shortest period.
    Period,
    /// The name of the client.
    UserAgent,
}

/// An unknown sort order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sort: use cost, rate, requests, bytes, saved, period or user-agent")]
pub struct UnknownSort;

// === impl Sort ===

impl Sort {
    /// Sorts polls. Equal ones keep their order.
    pub fn sort(self, polls: &mut [Poll]) {
        polls.sort_by(|one, other| self.compare(one, other));
    }

    fn compare(self, one: &Poll, other: &Poll) -> Ordering {
        let cost = |poll: &Poll| poll.cost.apiserver_cpu_seconds;
        let period = |poll: &Poll| poll.period_seconds.unwrap_or(f64::INFINITY);
        match self {
            Self::Cost => cost(other).total_cmp(&cost(one)),
            Self::Rate => other.rate_per_second.total_cmp(&one.rate_per_second),
            Self::Requests => other.requests.cmp(&one.requests),
            Self::Bytes => other.bytes.cmp(&one.bytes),
            Self::Saved => other.saved.requests.cmp(&one.saved.requests),
            Self::Period => period(one).total_cmp(&period(other)),
            Self::UserAgent => one.client().cmp(&other.client()),
        }
    }
}

impl FromStr for Sort {
    type Err = UnknownSort;

    fn from_str(text: &str) -> Result<Self, UnknownSort> {
        Self::value_variants()
            .iter()
            .find(|sort| sort.to_possible_value().is_some_and(|value| value.get_name() == text))
            .copied()
            .ok_or(UnknownSort)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_puts_the_largest_first() {
        let poll = |agent: &str, requests, period| Poll {
            user_agent: agent.to_owned(),
            requests,
            period_seconds: period,
            ..Poll::default()
        };
        let polls = [poll("b", 1, Some(3.0)), poll("a", 5, None), poll("c", 3, Some(1.0))];
        let sorted = |by: &str| -> String {
            let mut polls = polls.to_vec();
            by.parse::<Sort>().unwrap().sort(&mut polls);
            polls.into_iter().map(|poll| poll.user_agent).collect()
        };
        assert_eq!(sorted("requests"), "acb");
        assert_eq!(sorted("period"), "cba");
        assert_eq!(sorted("user-agent"), "abc");
        assert_eq!(sorted("cost"), "bac", "equal ones keep their order");
        assert_eq!("colour".parse::<Sort>(), Err(UnknownSort));
    }
}
