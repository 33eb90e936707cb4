//! The bound of log lines about reviews.
//!
//! Any host that reaches the port causes such lines, unless the apiserver must prove its identity.
//! So they have a limit per minute, of which each network has half. Invariant: lines that are left
//! out are counted in the next one.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::events::Asker;
use crate::shares::Network;

/// The recent log lines about reviews.
pub struct Lines {
    asker: Asker,
    recent: Mutex<RecentLines>,
}

/// A log line that may be written.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of lines that were left out before it. `None` if there are none.
    pub left_out: Option<u64>,
}

#[derive(Default)]
struct RecentLines {
    /// The lines of the last minute, each with the network of its review.
    written: VecDeque<(Instant, Network)>,
    left_out: u64,
}

/// The maximum number of lines per minute; for one network half of it.
const PER_MINUTE_MAX: usize = 120;
const MINUTE: Duration = Duration::from_secs(60);

// === impl Lines ===

impl Lines {
    /// Creates the limit for reviews of this sender. The proven apiserver has none.
    pub fn new(asker: Asker) -> Self {
        Self { asker, recent: Mutex::default() }
    }

    /// Counts a line about a review of this network. `None` if it must be left out.
    pub fn take(&self, of: Network, now: Instant) -> Option<Line> {
        match self.asker {
            Asker::Proven => Some(Line { left_out: None }),
            Asker::Anybody => {
                self.recent.lock().unwrap_or_else(PoisonError::into_inner).take(of, now)
            }
        }
    }
}

// === impl RecentLines ===

impl RecentLines {
    fn take(&mut self, of: Network, now: Instant) -> Option<Line> {
        self.written.retain(|(at, _)| now.duration_since(*at) < MINUTE);
        let of_network = self.written.iter().filter(|(_, network)| *network == of).count();
        if self.written.len() >= PER_MINUTE_MAX || of_network >= PER_MINUTE_MAX / 2 {
            self.left_out += 1;
            return None;
        }
        self.written.push_back((now, of));
        let left_out = std::mem::take(&mut self.left_out);
        Some(Line { left_out: (left_out > 0).then_some(left_out) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(last: u8) -> Network {
        std::net::IpAddr::from([10, 0, 0, last]).into()
    }

    #[test]
    fn one_network_leaves_half_of_the_log_lines_to_the_others() {
        let (lines, began) = (Lines::new(Asker::Anybody), Instant::now());
        let written = |of, count: usize, now| {
            (0..count).filter(|_| lines.take(network(of), now).is_some()).count()
        };
        assert_eq!(written(1, 1000, began), PER_MINUTE_MAX / 2);
        let others: usize = (2..100).map(|of| written(of, 10, began)).sum();
        assert_eq!(others, PER_MINUTE_MAX / 2);
        assert_eq!(written(1, 1000, began + MINUTE), PER_MINUTE_MAX / 2, "the next minute");
    }

    #[test]
    fn the_next_log_line_counts_those_left_out() {
        let (lines, began) = (Lines::new(Asker::Anybody), Instant::now());
        for _ in 0..PER_MINUTE_MAX / 2 {
            assert_eq!(lines.take(network(1), began), Some(Line { left_out: None }));
        }
        for _ in 0..7 {
            assert_eq!(lines.take(network(1), began), None);
        }
        assert_eq!(lines.take(network(2), began), Some(Line { left_out: Some(7) }));
        assert_eq!(lines.take(network(2), began), Some(Line { left_out: None }));
    }

    #[test]
    fn no_log_line_about_the_proven_apiserver_is_left_out() {
        let (lines, now) = (Lines::new(Asker::Proven), Instant::now());
        assert!((0..10_000).all(|_| lines.take(network(1), now) == Some(Line { left_out: None })));
    }
}
