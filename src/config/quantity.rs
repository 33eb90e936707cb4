//! Amounts of memory and durations, in Kubernetes notation.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes: `256Mi`, `1.5Gi`, `500M` or `1048576`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(pub u64);

/// A duration: `10m`, `1m30s`, `250ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// The reason why a text is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAnAmount {
    /// It is not a number of bytes.
    #[error(
        "{0:?} is not a quantity of bytes; use a number and Ki, Mi, Gi, k, M or G, such as 256Mi"
    )]
    Quantity(String),
    /// It is not a duration.
    #[error("{0:?} is not a duration; use numbers with h, m, s or ms, such as 10m, 1m30s or 250ms")]
    Span(String),
}

const QUANTITY_UNITS: [(&str, u64); 7] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("k", 1000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("", 1),
];

/// The units of durations, longer names first: `ms` is not `m` followed by `s`.
const SPAN_UNITS: [(&str, f64); 4] = [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];

/// The maximum duration. It is beyond any useful wait, and safe in computations with instants.
const SECONDS_MAX: f64 = 365.0 * 86_400.0;

// === impl Quantity ===

impl FromStr for Quantity {
    type Err = NotAnAmount;

    fn from_str(text: &str) -> Result<Self, NotAnAmount> {
        let refused = || NotAnAmount::Quantity(text.to_owned());
        let (number, unit) = split_number(text).ok_or_else(refused)?;
        let (_, factor) =
            QUANTITY_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refused)?;
        let bytes = match number.parse::<u64>() {
            Ok(number) => number.checked_mul(*factor).ok_or_else(refused)?,
            Err(_) => (number.parse::<f64>().map_err(|_| refused())? * *factor as f64) as u64,
        };
        if bytes > i64::MAX as u64 { Err(refused()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Quantity {
    /// Prints the largest binary unit that divides it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
        match binary.iter().find(|(_, factor)| self.0 != 0 && self.0.is_multiple_of(*factor)) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

// === impl Span ===

impl FromStr for Span {
    type Err = NotAnAmount;

    fn from_str(text: &str) -> Result<Self, NotAnAmount> {
        let refused = || NotAnAmount::Span(text.to_owned());
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        let (mut rest, mut seconds) = (text, 0.0);
        loop {
            let (number, after) = split_number(rest).ok_or_else(refused)?;
            let (unit, factor) =
                SPAN_UNITS.iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(refused)?;
            seconds += number.parse::<f64>().map_err(|_| refused())? * factor;
            rest = &after[unit.len()..];
            if rest.is_empty() {
                break;
            }
        }
        if seconds > SECONDS_MAX {
            return Err(refused());
        }
        // It rounds to milliseconds, so that the printed text parses to the same duration.
        Ok(Self(Duration::from_millis((seconds * 1000.0).round() as u64)))
    }
}

impl fmt::Display for Span {
    /// Prints hours, minutes, seconds and milliseconds, and omits zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = self.0.as_millis();
        let parts = [
            (milliseconds / 3_600_000, "h"),
            (milliseconds / 60_000 % 60, "m"),
            (milliseconds / 1000 % 60, "s"),
            (milliseconds % 1000, "ms"),
        ];
        if milliseconds == 0 {
            return f.write_str("0s");
        }
        parts.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, unit)| write!(f, "{n}{unit}"))
    }
}

/// Splits a leading decimal number off. Returns `None` without a leading digit.
fn split_number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    number.starts_with(|c: char| c.is_ascii_digit()).then_some((number, rest))
}

// === serde and schema, alike for both ===

macro_rules! as_text {
    ($name:ident, $pattern:literal, $bound:literal: $number:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                // YAML passes a bare number as text too.
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": ["string", "integer"],
                    "pattern": $pattern,
                    $bound: $number,
                })
            }
        }
    };
}

as_text!(Quantity, r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|k|M|G)?$", "minimum": 0);
// The only whole number without a unit is 0.
as_text!(Span, r"^(0|([0-9]+(\.[0-9]+)?(h|m|s|ms))+)$", "maximum": 0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_and_printed() {
        for (text, bytes, printed) in [
            ("256Mi", 256 << 20, "256Mi"),
            ("1024Ki", 1 << 20, "1Mi"),
            ("1.5Gi", 3 << 29, "1536Mi"),
            ("500M", 500_000_000, "500000000"),
            ("1", 1, "1"),
            ("0", 0, "0"),
        ] {
            let quantity: Quantity = text.parse().unwrap();
            assert_eq!((quantity.0, quantity.to_string().as_str()), (bytes, printed), "{text}");
        }
    }

    #[test]
    fn invalid_quantities_are_refused() {
        let huge = "99999999999999999999Gi";
        for text in ["", "Mi", "256MB", "256 Mi", "-1Mi", "1..5Gi", ".5Gi", "256mi", huge] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn durations_are_parsed_and_printed() {
        for (text, milliseconds, printed) in [
            ("10m", 600_000, "10m"),
            ("1m30s", 90_000, "1m30s"),
            ("90s", 90_000, "1m30s"),
            ("250ms", 250, "250ms"),
            ("1.5h", 5_400_000, "1h30m"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
        ] {
            let span: Span = text.parse().unwrap();
            let expected = (Duration::from_millis(milliseconds), printed);
            assert_eq!((span.0, span.to_string().as_str()), expected, "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in ["", "5", "s", "10 minutes", "10min", "-5s", "1d", "5s ", "1.2.3s", "9999999h"]
        {
            assert!(text.parse::<Span>().is_err(), "{text:?}");
        }
    }
}
