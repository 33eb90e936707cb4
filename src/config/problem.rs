//! A problem of a configuration. Its message says how to fix it.

use std::fmt;

use serde_saphyr::Error as YamlError;

use super::{
    document::{choices, schema},
    locations::{ConfigLocation, FieldLocations, join},
};

/// One problem and its location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The location in the file, if known.
    pub location: Option<ConfigLocation>,
    /// The path of the field, such as `cache.rules[0].start`. Empty for the whole file.
    pub field: String,
    /// The problem and the expected value, without a full stop.
    pub message: String,
}

const UNKNOWN_FIELD: &str = "unknown field";
const REPEATED_KEY: &str = "is set twice; remove one";

/// The maximum edit distance at which a word is taken as a misspelling.
const SUGGESTION_DISTANCE_MAX: usize = 3;

// === impl Problem ===

impl Problem {
    /// Returns a problem of a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { location: None, field: field.into(), message: message.into() }
    }

    /// Adds the location of the field.
    pub(super) fn located(mut self, locations: &FieldLocations) -> Self {
        self.location = self.location.or_else(|| locations.location_of(&self.field));
        self
    }

    /// The same, with the location of the field in another text.
    pub(super) fn moved(self, locations: &FieldLocations) -> Self {
        let is_key = self.message.starts_with(UNKNOWN_FIELD);
        let location = if is_key { locations.start_of(&self.field) } else { None };
        let location =
            location.or_else(|| locations.location_of(&self.field)).or_else(|| locations.root());
        Self { location, ..self }
    }

    /// Reports whether a key is written twice, which a reader that takes the last one does not see.
    pub(super) fn is_repeated_key(&self) -> bool {
        self.message == REPEATED_KEY
    }

    /// Converts an error of the YAML parser or of serde.
    pub(super) fn from_yaml(error: &YamlError, locations: &FieldLocations) -> Self {
        let error = error.without_snippet();
        let location = error.location().map(ConfigLocation::of);
        let field_here = || location.map_or("", |location| locations.field_at(location)).to_owned();
        let (field, message) = match error {
            YamlError::Eof { .. } => {
                let message =
                    "the file is empty; print a default one with \"listless config default\"";
                (String::new(), message.to_owned())
            }
            YamlError::SerdeUnknownField { field, expected, .. } => {
                let here = field_here();
                let here = if here.is_empty() { field.clone() } else { here };
                (here, unknown(UNKNOWN_FIELD, field, expected))
            }
            YamlError::SerdeUnknownVariant { variant, expected, .. } => {
                (field_here(), unknown("unknown value", variant, expected))
            }
            YamlError::SerdeMissingField { field, .. } => {
                let container = location.map_or("", |location| locations.value_at(location));
                (join(container, field), "is required".to_owned())
            }
            YamlError::DuplicateMappingKey { .. } => (field_here(), REPEATED_KEY.to_owned()),
            YamlError::Unexpected { expected, .. }
            | YamlError::InvalidScalar { ty: expected, .. } => {
                let here = field_here();
                let message = format!("expected {}", plain(&here, expected));
                (here, message)
            }
            YamlError::ExternallyTaggedEnumExpectedScalarOrMapping { .. } => {
                let here = field_here();
                let message = format!("expected {}", plain(&here, "one word"));
                (here, message)
            }
            YamlError::MultipleDocuments { .. } => {
                (String::new(), "has more than one document; use a single one".to_owned())
            }
            YamlError::Message { msg, .. } => (field_here(), msg.clone()),
            other => (field_here(), without_location(other)),
        };
        Self { location, field, message }
    }
}

impl fmt::Display for Problem {
    /// Prints `7:5: cache.rules[0].start: unknown value …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(ConfigLocation { line, column }) = self.location {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Names the allowed words and the probable one.
fn unknown(what: &str, word: &str, allowed: &[&'static str]) -> String {
    let list = allowed.join(", ");
    let expected = if allowed.len() == 1 { "expected" } else { "expected one of" };
    let hint = match suggestion(word, allowed) {
        Some(meant) => format!("; did you mean {meant:?}?"),
        None => String::new(),
    };
    format!("{what} {word:?}, {expected} {list}{hint}")
}

/// Names the type that the parser expects of a field.
fn plain(field: &str, expected: &str) -> String {
    let allowed = choices(&schema(), &keys(field));
    if !allowed.is_empty() {
        return format!("one of {}", allowed.join(", "));
    }
    let words = match expected {
        "sequence start" => "a list",
        "mapping start" => "a mapping with keys and values",
        "string scalar" => "a text",
        "floating point" => "a number",
        "boolean" => "true or false",
        "u32" => "a whole number from 0",
        other => other,
    };
    words.to_owned()
}

/// Returns the keys of a field's path, without indices.
fn keys(field: &str) -> Vec<&str> {
    field.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect()
}

/// Returns the parser's message without the location, which is printed in front.
fn without_location(error: &YamlError) -> String {
    let text = error.to_string();
    let end = text.rfind(" at line ").unwrap_or(text.len());
    format!("not valid YAML: {}", &text[..end])
}

fn suggestion(word: &str, allowed: &[&'static str]) -> Option<&'static str> {
    let word = word.to_lowercase();
    let distances = allowed.iter().map(|&known| (distance(&word, &known.to_lowercase()), known));
    let (nearest, known) = distances.min_by_key(|(distance, _)| *distance)?;
    let limit = SUGGESTION_DISTANCE_MAX.min(known.len().div_ceil(2));
    (nearest <= limit).then_some(known)
}

/// Returns the edit distance (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, from_char) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to_char) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(from_char != *to_char);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_is_recognised_and_a_different_word_is_not() {
        let allowed = ["never", "onDemand", "eager"];
        for (word, meant) in [
            ("nevr", Some("never")),
            ("ondemand", Some("onDemand")),
            ("on-demand", Some("onDemand")),
            ("egaer", Some("eager")),
            ("always", None),
            ("", None),
        ] {
            assert_eq!(suggestion(word, &allowed), meant, "{word:?}");
        }
    }

    #[test]
    fn edit_distances_are_counted_in_letters() {
        for (from, to, expected) in
            [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("für", "fur", 1)]
        {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }
}
