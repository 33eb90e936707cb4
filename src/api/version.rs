//! Resource versions, and what a read asks of them.
//!
//! Invariant: two versions are compared only within one group-resource (S-CONS-02).

use std::{cmp::Ordering, fmt, sync::Arc};

/// A resourceVersion: decimal, without leading zeros, above zero, of any length up to 39 digits.
///
/// Ordered by length, then bytes, so that versions beyond 64 bits still compare (KEP-5504).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Arc<str>);

/// Which version a LIST or GET asks for: "Semantics for get and list" of the API concepts page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VersionMatch {
    /// resourceVersion unset: the unsafe read.
    MostRecent,
    /// resourceVersion=0: whatever is there.
    Any,
    /// At least this version.
    NotOlderThan(ResourceVersion),
    /// Exactly this version (including the legacy `limit` with a version, S-LIST-25).
    Exact(ResourceVersion),
}

/// The configured level for reads with the version unset; `Session` is the default.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub enum Freshness {
    /// Linearizable: ask the apiserver, sharing identical concurrent requests.
    MostRecent,
    /// Read-your-writes and monotonic reads per client and resource type.
    #[default]
    Session,
    /// No older than `maxStaleness`, proven.
    Bounded,
    /// Whatever the replica holds, never going backwards.
    Any,
}

/// Why a string is not a resource version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a resource version: expected 1 to 39 decimal digits without a leading zero")]
pub struct NotAVersion;

const DIGITS_MAX: usize = 39;

// === impl ResourceVersion ===

impl ResourceVersion {
    /// Reads a version as objects and lists carry it; `0` is not one.
    pub fn parse(text: &str) -> Result<Self, NotAVersion> {
        let well_formed = !text.is_empty()
            && text.len() <= DIGITS_MAX
            && !text.starts_with('0')
            && text.bytes().all(|b| b.is_ascii_digit());
        if well_formed { Ok(Self(text.into())) } else { Err(NotAVersion) }
    }

    /// The digits, exactly as the apiserver sent them.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for ResourceVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Freshness ===

impl Freshness {
    /// The configuration's word, also the `detail` of a Cache-Status hit.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MostRecent => "mostRecent",
            Self::Session => "session",
            Self::Bounded => "bounded",
            Self::Any => "any",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> ResourceVersion {
        ResourceVersion::parse(text).expect("a version")
    }

    #[test]
    fn versions_are_ordered_as_numbers_of_any_length() {
        assert!(version("9") < version("10"));
        assert!(version("18446744073709551615") < version("18446744073709551616"));
        assert_eq!(version("7").cmp(&version("7")), Ordering::Equal);
    }

    #[test]
    fn malformed_versions_are_refused() {
        for text in ["", "0", "007", "-1", "1a", " 1", "١", &"9".repeat(40)] {
            assert_eq!(ResourceVersion::parse(text), Err(NotAVersion), "{text:?}");
        }
    }
}
