//! The reasons why workers ended, counted by a supervisor for the next worker. Pure.

use std::{fmt, os::unix::process::ExitStatusExt, process::ExitStatus, str::FromStr};

use crate::metrics::WorkerEnd;

/// The number of ended workers by reason, written as `exit=1,killed=2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends([u64; WorkerEnd::ALL.len()]);

/// The error for any other text.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a reason with a number; write it as exit=1")]
pub struct NotEnds(String);

/// The signal of a forced kill, and of a kernel that is short of memory.
const KILLED: i32 = rustix::process::Signal::KILL.as_raw();

/// Returns the reason of a worker that ended.
pub(super) fn of(status: ExitStatus) -> WorkerEnd {
    match status.signal() {
        None => WorkerEnd::Exit,
        Some(KILLED) => WorkerEnd::Killed,
        Some(_) => WorkerEnd::Signal,
    }
}

// === impl Ends ===

impl Ends {
    /// Adds one.
    pub fn add(&mut self, end: WorkerEnd) {
        self.0[end as usize] += 1;
    }

    /// Returns every reason with its number.
    pub fn all(&self) -> impl Iterator<Item = (WorkerEnd, u64)> {
        WorkerEnd::ALL.iter().copied().zip(self.0)
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (end, count)) in self.all().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(formatter, "{comma}{}={count}", end.as_str())?;
        }
        Ok(())
    }
}

impl FromStr for Ends {
    type Err = NotEnds;

    fn from_str(text: &str) -> Result<Self, NotEnds> {
        let mut ends = Self::default();
        for word in text.split(',') {
            let counted = word.split_once('=').and_then(|(name, count)| {
                let end = WorkerEnd::ALL.iter().find(|end| end.as_str() == name)?;
                Some((*end, count.parse().ok()?))
            });
            let (end, count) = counted.ok_or_else(|| NotEnds(word.to_owned()))?;
            ends.0[end as usize] = count;
        }
        Ok(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_reach_the_next_worker() {
        let mut ends = Ends::default();
        assert_eq!(ends.to_string().parse().ok(), Some(ends));
        for end in [WorkerEnd::Killed, WorkerEnd::Exit, WorkerEnd::Killed] {
            ends.add(end);
        }
        assert_eq!(ends.to_string().parse().ok(), Some(ends));
        assert_eq!("exit=1,killed=2".parse().ok(), Some(ends));
        for wrong in ["", "2", "exit", "exit=", "exit=x", "exit=-1", "nobody=1"] {
            assert!(wrong.parse::<Ends>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_status_gives_the_reason() {
        // As wait(2) encodes it: the code in the second byte, a signal in the first.
        let cases = [
            (0, WorkerEnd::Exit),
            (1 << 8, WorkerEnd::Exit),
            (9, WorkerEnd::Killed),
            (11, WorkerEnd::Signal),
        ];
        for (raw, end) in cases {
            assert_eq!(of(ExitStatus::from_raw(raw)), end, "{raw}");
        }
    }
}
