//! Field selectors (S-SEL-10, S-SEL-11): syntax and matching.
//!
//! The module `api::field` knows the fields of each resource.

use std::{fmt, sync::Arc};

use super::{Fields, REQUIREMENTS_MAX, SelectorError};

/// Requirements on an object's fields, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldSelector(Arc<[Term]>);

/// One requirement: the field at a path equals a value, or differs from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Term {
    path: Box<str>,
    operator: Operator,
    value: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Operator {
    Equals,
    NotEquals,
}

/// The path of an object's name.
pub(crate) const NAME_PATH: &str = "metadata.name";

/// The path of an object's namespace.
pub(crate) const NAMESPACE_PATH: &str = "metadata.namespace";

// === impl FieldSelector ===

impl FieldSelector {
    /// Returns the selector without requirements.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Returns the memory of the requirements, estimated, in bytes.
    pub fn bytes(&self) -> usize {
        let bytes = |term: &Term| size_of::<Term>() + term.path.len() + term.value.len();
        self.0.iter().map(bytes).sum()
    }

    /// Returns the selector of the objects with this name.
    pub fn name(name: &str) -> Self {
        let (path, operator) = (NAME_PATH.into(), Operator::Equals);
        Self([Term { path, operator, value: name.into() }].into())
    }

    /// Returns the same selector, for objects of this name only.
    pub fn and_name(&self, name: &str) -> Self {
        Self(self.0.iter().chain(&*Self::name(name).0).cloned().collect())
    }

    /// Parses a `fieldSelector` parameter, already percent-decoded. It checks only the syntax: any
    /// path parses.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split_terms(text).filter(|part| !part.is_empty()) {
            if terms.len() == REQUIREMENTS_MAX {
                return Err(SelectorError(format!("more than {REQUIREMENTS_MAX} requirements")));
            }
            terms.push(Term::parse(part)?);
        }
        Ok(Self::normalised(terms))
    }

    /// Reports whether it selects an object with these fields.
    pub fn matches(&self, fields: &impl Fields) -> bool {
        self.0.iter().all(|term| {
            let equal = fields.field(&term.path).unwrap_or_default() == &*term.value;
            equal == (term.operator == Operator::Equals)
        })
    }

    /// Reports whether there are no requirements.
    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Reports whether each requirement follows from one of `other`'s: this selector then selects
    /// everything that `other` selects.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.0.iter().all(|weaker| other.0.iter().any(|stronger| stronger.implies(weaker)))
    }

    /// Returns the field paths, in byte order; a path with several requirements is repeated.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|term| &*term.path)
    }

    /// Returns the value that the field must equal, if any; the first in byte order of several.
    pub fn pinned(&self, path: &str) -> Option<&str> {
        self.pinned_pairs().find(|(pinned, _)| *pinned == path).map(|(_, value)| value)
    }

    /// Returns the (path, value) pairs that every selected object must have, for an index.
    pub fn pinned_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let equals = self.0.iter().filter(|term| term.operator == Operator::Equals);
        equals.map(|term| (&*term.path, &*term.value))
    }

    /// Returns the same selector with each path replaced; `None` if one has no replacement.
    pub(crate) fn with_paths<'a>(
        &'a self,
        mut canonical: impl FnMut(&'a str) -> Option<&'a str>,
    ) -> Option<Self> {
        let mut terms = Vec::with_capacity(self.0.len());
        let mut changed = false;
        for term in self.0.iter() {
            let path = canonical(&term.path)?;
            changed |= path != &*term.path;
            terms.push(Term { path: path.into(), ..term.clone() });
        }
        Some(if changed { Self::normalised(terms) } else { self.clone() })
    }

    fn normalised(mut terms: Vec<Term>) -> Self {
        if terms.is_empty() {
            return Self::everything();
        }
        terms.sort_unstable();
        terms.dedup();
        Self(terms.into())
    }
}

impl fmt::Display for FieldSelector {
    /// Prints the canonical text: a `fieldSelector` value before percent-encoding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            term.fmt(f)?;
        }
        Ok(())
    }
}

// === impl Term ===

impl Term {
    fn parse(text: &str) -> Result<Self, SelectorError> {
        // The leftmost `=` is the operator; a `!` just before it is a part of it.
        let Some(position) = text.find('=') else {
            return Err(SelectorError(format!("invalid selector: can't understand '{text}'")));
        };
        let (path, value) = (&text[..position], &text[position + 1..]);
        let (path, operator, value) = match path.strip_suffix('!') {
            Some(path) => (path, Operator::NotEquals, value),
            None => (path, Operator::Equals, value.strip_prefix('=').unwrap_or(value)),
        };
        Ok(Self { path: path.into(), operator, value: unescape(value)?.into() })
    }

    /// Reports whether everything that satisfies this term satisfies `weaker`, too.
    fn implies(&self, weaker: &Self) -> bool {
        if self.path != weaker.path {
            return false;
        }
        match (self.operator, weaker.operator) {
            (Operator::Equals, Operator::NotEquals) => self.value != weaker.value,
            _ => self == weaker,
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        f.write_str(match self.operator {
            Operator::Equals => "=",
            Operator::NotEquals => "!=",
        })?;
        for character in self.value.chars() {
            if matches!(character, '\\' | ',' | '=') {
                f.write_str("\\")?;
            }
            write!(f, "{character}")?;
        }
        Ok(())
    }
}

/// Splits at commas without a backslash before them.
fn split_terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |character| {
        let splits = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        splits
    })
}

/// Decodes `\\`, `\,` and `\=`; any other escape, or an unescaped one of these, is an error.
fn unescape(text: &str) -> Result<String, SelectorError> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                _ => return Err(SelectorError("invalid escape sequence".to_owned())),
            },
            ',' | '=' => {
                return Err(SelectorError(format!("unescaped character in value: {character}")));
            }
            plain => value.push(plain),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
