//! Resource versions, and the versions that reads ask for.
//!
//! Invariant: two versions are compared only within one group-resource (S-CONS-02).

use std::{cmp::Ordering, fmt, sync::Arc};

/// A resourceVersion: decimal, without leading zeros, above zero, with up to 39 digits.
///
/// The order is by length, then bytes: versions beyond 64 bits still compare (KEP-5504).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Digits);

/// The digits, in place for nearly every version, because every held object has one. Equal texts
/// are always stored in the same way, which makes them equal here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Digits {
    InPlace {
        length: u8,
        digits: [u8; IN_PLACE_MAX],
    },
    /// A pointer of one word; `Arc<str>` takes two.
    Shared(Arc<Box<str>>),
}

/// The version that a LIST or GET asks for: "Semantics for get and list" of the API concepts page.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VersionMatch {
    /// resourceVersion unset: the unsafe read.
    MostRecent,
    /// resourceVersion=0: any available version.
    Any,
    /// At least this version.
    NotOlderThan(ResourceVersion),
    /// Exactly this version (including the legacy `limit` with a version, S-LIST-25).
    Exact(ResourceVersion),
}

/// The configured level for reads without a version; `Session` is the default.
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
    /// Linearizable: forwarded; identical concurrent reads share one upstream request.
    MostRecent,
    /// Own writes are visible; objects and lists never go back, per session and resource type.
    #[default]
    Session,
    /// At most `maxStaleness` old, which is proven.
    Bounded,
    /// The replica's state, which never goes back.
    Any,
}

/// The reason why a string is not a resource version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a resource version: expected 1 to 39 decimal digits without a leading zero")]
pub struct NotAVersion;

const DIGITS_MAX: usize = 39;

/// The longest version in place, within the size of two pointers; no store counts further in its
/// life.
const IN_PLACE_MAX: usize = 14;

// === impl ResourceVersion ===

impl ResourceVersion {
    /// Parses the version of an object or list; `0` is not one.
    pub fn parse(text: &str) -> Result<Self, NotAVersion> {
        let well_formed = !text.is_empty()
            && text.len() <= DIGITS_MAX
            && !text.starts_with('0')
            && text.bytes().all(|b| b.is_ascii_digit());
        if well_formed { Ok(Self(Digits::new(text))) } else { Err(NotAVersion) }
    }

    /// Returns the digits, exactly as the apiserver sent them.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.0.as_bytes()).unwrap_or_default()
    }
}

impl Ord for ResourceVersion {
    fn cmp(&self, other: &Self) -> Ordering {
        let (ours, theirs) = (self.0.as_bytes(), other.0.as_bytes());
        ours.len().cmp(&theirs.len()).then_with(|| ours.cmp(theirs))
    }
}

impl PartialOrd for ResourceVersion {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Digits ===

impl Digits {
    fn new(text: &str) -> Self {
        match (u8::try_from(text.len()), text.len() <= IN_PLACE_MAX) {
            (Ok(length), true) => {
                let mut digits = [0; IN_PLACE_MAX];
                digits[..text.len()].copy_from_slice(text.as_bytes());
                Self::InPlace { length, digits }
            }
            _ => Self::Shared(Arc::new(text.into())),
        }
    }

    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::InPlace { length, digits } => &digits[..usize::from(*length)],
            Self::Shared(text) => text.as_bytes(),
        }
    }
}

// === impl Freshness ===

impl Freshness {
    /// Returns the configuration's word, which is also the `detail` of a Cache-Status hit.
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
    fn a_version_of_any_length_keeps_its_digits() {
        for length in 1..=DIGITS_MAX {
            let text = "1234567890".repeat(4)[..length].to_owned();
            let kept = version(&text);
            assert_eq!((kept.as_str(), kept.to_string()), (&*text, text.clone()));
            assert_eq!(kept, version(&text));
            assert!(kept < version(&"9".repeat(length)) || text == "9");
        }
        assert!(size_of::<ResourceVersion>() <= 2 * size_of::<usize>());
    }

    #[test]
    fn malformed_versions_are_rejected() {
        for text in ["", "0", "007", "-1", "1a", " 1", "١", &"9".repeat(40)] {
            assert_eq!(ResourceVersion::parse(text), Err(NotAVersion), "{text:?}");
        }
    }
}
