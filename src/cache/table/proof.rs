//! The proof that a row's cells can be made again, given when the row arrives. Pure.
//!
//! A cell that tells the time since a timestamp must read as this module's rule makes it for some
//! moment of the row's arrival. A cell that looks like such a time and has no rule is not proven.

use super::{
    columns::{Columns, Rule, Source},
    human::{INVALID, Moment, human, reads_alike_until},
    row::{Parts, range},
    source::{Expected, contains_text},
};

/// The moments at which a row may have been printed, by the apiserver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first one.
    pub from: Moment,
    /// The last one.
    pub to: Moment,
}

/// The part of a row that changes with time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    /// Its offset in the row.
    pub start: u32,
    /// The offset of its end.
    pub end: u32,
    /// The timestamp that it counts from.
    pub since: Moment,
}

/// A cell that is not proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unproven {
    /// The index of its column.
    pub column: usize,
}

/// A text as Go prints it within JSON.
const INVALID_QUOTED: &str = r"\u003cinvalid\u003e";

/// The units of durations, as many printers write them.
const UNITS: [&str; 9] = ["ns", "us", "ms", "s", "m", "h", "d", "w", "y"];

/// Returns the parts of a row that change with time, in order.
pub(super) fn prove(
    row: &str,
    parts: &Parts<'_>,
    columns: &Columns,
    window: Window,
) -> Result<Box<[Age]>, Unproven> {
    let mut ages = Vec::new();
    if parts.cells.len() != columns.columns.len() {
        return Err(Unproven { column: parts.cells.len().min(columns.columns.len()) });
    }
    for (column, (cell, definition)) in parts.cells.iter().zip(&columns.columns).enumerate() {
        let unproven = Unproven { column };
        // Only a text can be a time.
        let Some(inner) = cell.strip_prefix('"').and_then(|cell| cell.strip_suffix('"')) else {
            continue;
        };
        let text: String = serde_json::from_str(cell).map_err(|_| unproven)?;
        match &definition.rule {
            Rule::Fixed => {}
            Rule::Watched if looks_like_time(&text) => return Err(unproven),
            Rule::Copied if looks_like_time(&text) && !contains_text(parts.object, &text) => {
                return Err(unproven);
            }
            Rule::Watched | Rule::Copied => {}
            Rule::Since(source) => {
                let Some(told) = told(source, inner) else { continue };
                let expected = source.of(parts.object).ok_or(unproven)?;
                if let Some(since) = expected.proven(told, &text, window).ok_or(unproven)? {
                    ages.push(Age::of(row, told, since).ok_or(unproven)?);
                }
            }
        }
    }
    Ok(ages.into())
}

/// Returns the part of a cell that tells a time; `None` if none of it does.
fn told<'a>(source: &Source, inner: &'a str) -> Option<&'a str> {
    if *source != Source::Restarts {
        return Some(inner);
    }
    if inner.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (count, rest) = inner.split_once(" (").unwrap_or(("", inner));
    let is_count = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    // A text of another form is compared as a whole, in vain.
    Some(rest.strip_suffix(" ago)").filter(|_| is_count).unwrap_or(inner))
}

/// Reports whether a text may be a time relative to now.
fn looks_like_time(text: &str) -> bool {
    let is_span = || {
        let mut rest = text;
        while !rest.is_empty() {
            let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            let units = number.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let unit = &number[..number.len() - units.len()];
            if number.len() == rest.len() || !UNITS.contains(&unit) {
                return false;
            }
            rest = units;
        }
        !text.is_empty()
    };
    text == INVALID || text.ends_with(" ago") || text.ends_with(" ago)") || is_span()
}

// === impl Expected ===

impl Expected {
    /// Returns the timestamp that a cell counts from, or that it is fixed; `None` if neither is
    /// proven: no timestamp or more than one reads like the cell.
    fn proven(&self, told: &str, text: &str, window: Window) -> Option<Option<Moment>> {
        if self.fixed.as_deref() == Some(text) {
            return Some(None);
        }
        let mut alike = self.since.iter().filter(|since| window.reads(told, **since));
        match (alike.next(), alike.next()) {
            (Some(since), None) => Some(Some(*since)),
            _ => None,
        }
    }
}

// === impl Window ===

impl Window {
    /// Reports whether the time since a timestamp has this form at some moment.
    fn reads(self, told: &str, since: Moment) -> bool {
        let (mut passed, last) = (self.from.since(since), self.to.since(since));
        loop {
            if quoted(&human(passed)) == told {
                return true;
            }
            let next = reads_alike_until(passed);
            // The longest time that can be counted has no next text.
            if next > last || next <= passed {
                return false;
            }
            passed = next;
        }
    }
}

// === impl Age ===

impl Age {
    fn of(row: &str, told: &str, since: Moment) -> Option<Self> {
        let place = range(row, told)?;
        let (start, end) = (u32::try_from(place.start).ok()?, u32::try_from(place.end).ok()?);
        Some(Self { start, end, since })
    }

    /// Appends the text of this part at a moment.
    pub(super) fn write(&self, out: &mut Vec<u8>, now: Moment) {
        out.extend_from_slice(quoted(&human(now.since(self.since))).as_bytes());
    }

    /// Returns a moment before which the text does not change.
    pub(super) fn alike_until(&self, now: Moment) -> Moment {
        match reads_alike_until(now.since(self.since)) {
            i64::MAX => Moment(i64::MAX),
            passed => self.since.plus(passed),
        }
    }
}

/// Returns a duration's short form as Go prints it within JSON.
fn quoted(human: &str) -> &str {
    if human == INVALID { INVALID_QUOTED } else { human }
}

#[cfg(test)]
#[path = "proof/tests.rs"]
mod tests;
