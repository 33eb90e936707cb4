//! Label and field selectors: parse, match, compare, print.
//!
//! Both kinds are normalised when parsed: sorted, without repetitions, `==` and one-valued `in` as
//! `=`. Selectors of equal meaning are mostly equal values, and a printed selector parses to the
//! same value. A selector that the apiserver would refuse does not parse. Its exact error text is
//! not reproduced, because such requests are forwarded (S-PRIME-02).

mod fields;
mod labels;
mod parser;

pub(crate) use self::fields::{NAME_PATH, NAMESPACE_PATH};
pub use self::{fields::FieldSelector, labels::LabelSelector};
pub use super::field::{canonical_fields, field_paths, field_values, fields_are_modelled};

/// The reason why a selector does not parse, worded like the apiserver's parser where that is
/// simple.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

/// Read access to an object's labels.
pub trait Labels {
    /// Returns the value of one label; `None` if the object does not have it.
    fn label(&self, key: &str) -> Option<&str>;
}

/// Read access to an object's modelled fields.
pub trait Fields {
    /// Returns the value of one field by its canonical path; `None` means "" (S-SEL-11).
    fn field(&self, path: &str) -> Option<&str>;
}

/// The limit of requirements in one selector; longer ones do not parse and are forwarded.
pub const REQUIREMENTS_MAX: usize = 64;
