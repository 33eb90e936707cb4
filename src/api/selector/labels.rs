//! Label selectors (S-SEL-01..05).

use std::{fmt, sync::Arc};

use super::{Labels, SelectorError, parser};

/// Requirements on an object's labels, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSelector(Arc<[Requirement]>);

/// One requirement on the value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Requirement {
    pub(super) key: Box<str>,
    pub(super) test: Test,
}

/// The test of a requirement; value sets are sorted, unique and not empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Test {
    /// The key is present with one of these values.
    In(Box<[Box<str>]>),
    /// The key is absent, or present with none of these values.
    NotIn(Box<[Box<str>]>),
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The key is present with an integer above this one.
    GreaterThan(i64),
    /// The key is present with an integer below this one.
    LessThan(i64),
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Returns the selector without requirements.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Parses a `labelSelector` parameter, already percent-decoded.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut requirements = parser::requirements(text)?;
        if requirements.is_empty() {
            return Ok(Self::everything());
        }
        requirements.sort_unstable();
        requirements.dedup();
        Ok(Self(requirements.into()))
    }

    /// Reports whether it selects an object with these labels.
    pub fn matches(&self, labels: &impl Labels) -> bool {
        self.0.iter().all(|requirement| requirement.test.accepts(labels.label(&requirement.key)))
    }

    /// Returns the memory of the requirements, estimated, in bytes.
    pub fn bytes(&self) -> usize {
        let values = |values: &[Box<str>]| values.iter().map(|v| size_of_val(v) + v.len()).sum();
        let bytes = |requirement: &Requirement| {
            let values: usize = match &requirement.test {
                Test::In(held) | Test::NotIn(held) => values(held),
                _ => 0,
            };
            size_of::<Requirement>() + requirement.key.len() + values
        };
        self.0.iter().map(bytes).sum()
    }

    /// Reports whether there are no requirements.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether each requirement follows from one of `other`'s: this selector then selects
    /// everything that `other` selects.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.0.iter().all(|weaker| {
            let (key, test) = (&weaker.key, &weaker.test);
            other.of_key(key).iter().any(|stronger| stronger.test.implies(test))
        })
    }

    /// Returns the (key, value) pairs that every selected object must have, for an index.
    pub fn pinned_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|requirement| match &requirement.test {
            Test::In(values) => match &**values {
                [value] => Some((&*requirement.key, &**value)),
                _ => None,
            },
            _ => None,
        })
    }

    /// Returns the keys, in byte order; a key with several requirements is repeated.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|requirement| &*requirement.key)
    }

    /// Returns the requirements on one key; they are adjacent, because requirements are sorted.
    fn of_key(&self, key: &str) -> &[Requirement] {
        let start = self.0.partition_point(|requirement| &*requirement.key < key);
        let length = self.0[start..].partition_point(|requirement| &*requirement.key == key);
        &self.0[start..start + length]
    }
}

impl fmt::Display for LabelSelector {
    /// Prints the canonical text: a `labelSelector` value before percent-encoding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            requirement.fmt(f)?;
        }
        Ok(())
    }
}

// === impl Requirement ===

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            Test::In(values) => match &**values {
                [value] => write!(f, "{key}={value}"),
                values => write!(f, "{key} in ({})", values.join(",")),
            },
            Test::NotIn(values) => match &**values {
                [value] => write!(f, "{key}!={value}"),
                values => write!(f, "{key} notin ({})", values.join(",")),
            },
            Test::Exists => f.write_str(key),
            Test::DoesNotExist => write!(f, "!{key}"),
            Test::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Test::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

// === impl Test ===

impl Test {
    /// Reports whether the test accepts a label value; `None` is an absent label (S-SEL-02).
    fn accepts(&self, value: Option<&str>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|value| contains(values, value)),
            Self::NotIn(values) => value.is_none_or(|value| !contains(values, value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
            Self::GreaterThan(bound) => integer(value).is_some_and(|number| number > *bound),
            Self::LessThan(bound) => integer(value).is_some_and(|number| number < *bound),
        }
    }

    /// Reports whether `weaker` accepts everything that this test accepts. It is never wrongly
    /// true.
    fn implies(&self, weaker: &Self) -> bool {
        match (self, weaker) {
            (Self::In(values), _) => values.iter().all(|value| weaker.accepts(Some(value))),
            (Self::DoesNotExist, _) => weaker.accepts(None),
            (_, Self::NotIn(values)) => !values.iter().any(|value| self.accepts(Some(value))),
            (Self::GreaterThan(_) | Self::LessThan(_), Self::Exists) => true,
            (Self::GreaterThan(bound), Self::GreaterThan(lower)) => bound >= lower,
            (Self::LessThan(bound), Self::LessThan(upper)) => bound <= upper,
            _ => self == weaker,
        }
    }
}

fn contains(sorted: &[Box<str>], value: &str) -> bool {
    sorted.binary_search_by(|candidate| (**candidate).cmp(value)).is_ok()
}

fn integer(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

#[cfg(test)]
mod tests;
