//! One row of a Table, split into its parts. Pure.
//!
//! A row is `{"cells":[…],"conditions":[…],"object":{…}}`; most have no conditions. Any other form
//! is not understood.

use std::ops::Range;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The parts of a row, as they stand in its bytes.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// The cells, in the order of the columns.
    pub cells: Vec<&'a str>,
    /// The row's object, or `null`.
    pub object: &'a str,
    /// The offset of the object.
    pub object_start: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape<'a> {
    #[serde(borrow)]
    cells: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    conditions: Option<&'a RawValue>,
    #[serde(borrow)]
    object: &'a RawValue,
}

const CELLS: &str = r#"{"cells":["#;
const CONDITIONS: &str = r#"],"conditions":["#;
const OBJECT: &str = r#","object":"#;

// === impl Parts ===

impl<'a> Parts<'a> {
    /// Splits a row; `None` if it is not one, or is printed in another form.
    pub(super) fn of(row: &'a str) -> Option<Self> {
        let Shape { cells, conditions, object } = serde_json::from_str(row).ok()?;
        let (object, cells) = (object.get(), cells.into_iter().map(RawValue::get));
        let cells: Vec<_> = cells.collect();
        let object_start = range(row, object)?.start;
        let is_usual = row.starts_with(CELLS)
            && row.get(..object_start)?.ends_with(OBJECT)
            && row.get(object_start + object.len()..)? == "}"
            && Self::are_usual(row, &cells, conditions.map(RawValue::get), object_start)?;
        is_usual.then_some(Self { cells, object, object_start })
    }

    /// Reports whether nothing but single commas lies between the parts.
    fn are_usual(
        row: &str,
        cells: &[&str],
        conditions: Option<&str>,
        object_start: usize,
    ) -> Option<bool> {
        let mut end = CELLS.len();
        for (index, cell) in cells.iter().enumerate() {
            let at = range(row, cell)?;
            if at.start != end + usize::from(index > 0) {
                return Some(false);
            }
            end = at.end;
        }
        let between = row.get(end..object_start)?.strip_suffix(OBJECT)?;
        Some(match conditions {
            None => between == "]",
            Some(conditions) => {
                let rest = between.strip_prefix(CONDITIONS);
                rest.is_some_and(|rest| conditions.strip_prefix('[') == Some(rest))
            }
        })
    }
}

/// Returns the place of a part within a whole that it borrows from.
pub(super) fn range(whole: &str, part: &str) -> Option<Range<usize>> {
    let start = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = start + part.len();
    (end <= whole.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_split_into_cells_and_object() {
        let cells = [r#""a,\"]""#, "3", "null", r#"[{"b":"}"}]"#];
        for between in ["", r#","conditions":[{"type":"Completed","status":"True"}]"#] {
            let object = r#"{"kind":"Pod","metadata":{"name":"object"}}"#;
            let row = format!(r#"{{"cells":[{}]{between},"object":{object}}}"#, cells.join(","));
            let parts = Parts::of(&row).expect("a row");
            assert_eq!((parts.cells.as_slice(), parts.object), (&cells[..], object));
            assert_eq!(&row[parts.object_start..row.len() - 1], object);
        }
        let none = Parts::of(r#"{"cells":[],"object":null}"#).expect("a row");
        assert_eq!((none.cells.len(), none.object), (0, "null"));
    }

    #[test]
    fn a_row_in_another_form_is_not_understood() {
        for row in [
            "",
            "{}",
            r#"{"cells":[1]}"#,
            r#"{"cells":[1],"object":{}"#,
            r#"{"cells":[1],"object":{},"x":1}"#,
            r#"{"object":{},"cells":[1]}"#,
            r#"{"cells":[1, 2],"object":{}}"#,
            r#"{"cells":[1 ],"object":{}}"#,
            r#"{"cells": [1],"object":{}}"#,
            r#"{"cells":[1],"object": {}}"#,
            r#"{"cells":[1],"object":{} }"#,
            r#"{"cells":[1],"conditions":null,"object":{}}"#,
            r#"{"cells":[1],"conditions":[] ,"object":{}}"#,
            r#"{"cells":[1],"object":{},"conditions":[]}"#,
            r#"{"cells":{},"object":{}}"#,
        ] {
            assert!(Parts::of(row).is_none(), "{row}");
        }
    }
}
