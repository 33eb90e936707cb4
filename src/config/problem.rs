//! What is wrong with a configuration, said so that it can be mended without looking anything up.

use std::fmt;

use serde_saphyr::Error as YamlError;

use super::{
    document::{choices, schema},
    places::{Place, Places, join},
};

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, if it is anywhere in particular.
    pub place: Option<Place>,
    /// The path of the field, such as `cache.rules[0].start`; empty for the whole file.
    pub field: String,
    /// What is wrong and what would be right, without a full stop.
    pub message: String,
}

const UNKNOWN_FIELD: &str = "unknown field";
const REPEATED_KEY: &str = "is written twice";

/// How many letters may differ for a word to be taken for a misspelling.
const SUGGESTION_DISTANCE_MAX: usize = 3;

// === impl Problem ===

impl Problem {
    /// Something wrong with a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: None, field: field.into(), message: message.into() }
    }

    /// The same, with its place looked up.
    pub(super) fn placed(mut self, places: &Places) -> Self {
        self.place = self.place.or_else(|| places.place_of(&self.field));
        self
    }

    /// The same, with the place of the field in another text.
    pub(super) fn moved(self, places: &Places) -> Self {
        let is_key = self.message.starts_with(UNKNOWN_FIELD);
        let place = if is_key { places.start_of(&self.field) } else { None };
        let place = place.or_else(|| places.place_of(&self.field)).or_else(|| places.root());
        Self { place, ..self }
    }

    /// Reports whether a key is written twice, which a reader that takes the last one does not see.
    pub(super) fn is_repeated_key(&self) -> bool {
        self.message == REPEATED_KEY
    }

    /// What the YAML parser or serde found wrong.
    pub(super) fn from_yaml(error: &YamlError, places: &Places) -> Self {
        let error = error.without_snippet();
        let place = error.location().map(Place::of);
        let field_here = || place.map_or("", |place| places.field_at(place)).to_owned();
        let (field, message) = match error {
            YamlError::Eof { .. } => {
                let message =
                    "the file is empty; \"listless config default\" prints one to begin with";
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
                let container = place.map_or("", |place| places.value_at(place));
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
                (String::new(), "more than one document; expected a single one".to_owned())
            }
            YamlError::Message { msg, .. } => (field_here(), msg.clone()),
            other => (field_here(), without_location(other)),
        };
        Self { place, field, message }
    }
}

impl fmt::Display for Problem {
    /// Prints `7:5: cache.rules[0].start: unknown value …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}

/// Says what is allowed instead of a word that is not, and which of it may have been meant.
fn unknown(what: &str, word: &str, allowed: &[&'static str]) -> String {
    let list = allowed.join(", ");
    let expected = if allowed.len() == 1 { "expected" } else { "expected one of" };
    let hint = match suggestion(word, allowed) {
        Some(meant) => format!("; did you mean {meant:?}?"),
        None => String::new(),
    };
    format!("{what} {word:?}, {expected} {list}{hint}")
}

/// Says in plain words what the parser wanted of a field.
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

/// The keys of a field's path, without indices.
fn keys(field: &str) -> Vec<&str> {
    field.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect()
}

/// The parser's own words, less the location that is printed in front.
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

/// The edit distance (Levenshtein).
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
    fn a_misspelt_word_is_recognised_and_a_different_one_is_not() {
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
