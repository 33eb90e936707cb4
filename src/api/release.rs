//! Kubernetes releases, as `/version` and nodes name them.

use std::fmt;

/// A release: the second and third number of its version. The first is always 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

/// The first release whose watch cache usually answers a read without a resourceVersion.
pub const CONSISTENT_READS_FROM_CACHE: Release = Release { minor: 31, patch: 0 };

// === impl Release ===

impl Release {
    /// Parses a version such as `v1.36.3`, with any distributor's suffix.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().strip_prefix('v').unwrap_or(text).splitn(3, '.');
        let major = parts.next()?;
        let minor = number(parts.next()?)?;
        let patch = parts.next().and_then(number).unwrap_or_default();
        (major == "1").then_some(Self { minor, patch })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}.{}", self.minor, self.patch)
    }
}

/// Returns the number at the start of a text.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}
