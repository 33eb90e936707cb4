//! A row with the notes that its answers need, in one buffer. Pure.
//!
//! The notes stand before the row: the place of its object and of the object's metadata, and the
//! parts that change with time. An answer parses no JSON of a built-in type.

use std::ops::Range;

use serde_json::value::RawValue;

use super::{
    human::Moment,
    proof::{Age, Unproven},
    row::{Parts, range},
};
use crate::{
    api::{form::Form, version::ResourceVersion},
    cache::{metadata::is_converted, object::json_at},
};

/// A row and its notes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed<'a> {
    /// The row as the apiserver printed it.
    row: &'a [u8],
    head: Notes,
    ages: &'a [u8],
}

/// The notes of fixed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Notes {
    /// The offset of the object in the row.
    object: u32,
    /// The place of the metadata of a built-in type's object; empty for custom resources, and where
    /// the apiserver's own row of metadata has other annotations.
    metadata: (u32, u32),
    /// The number of ages, or the column of a cell that is not proven.
    ages: Result<u8, Unproven>,
}

/// The bytes of [`Notes`], and of an [`Age`].
const NOTES_BYTES: usize = 14;
const AGE_BYTES: usize = 16;

/// The first byte of the notes: every cell is proven, or one is not. The second byte is the number of
/// ages, or the column.
const PROVEN: u8 = 0;
const NOT_PROVEN: u8 = 1;

/// The text between the start of a built-in type's object and its metadata.
const METADATA: &str = r#","metadata":"#;

// === impl Packed ===

impl<'a> Packed<'a> {
    /// Packs a row.
    pub(super) fn pack(
        row: &str,
        parts: &Parts<'_>,
        ages: Result<&[Age], Unproven>,
    ) -> Option<Vec<u8>> {
        let object = u32::try_from(parts.object_start).ok()?;
        let metadata = match typed_metadata(row, parts) {
            Some(place) => (u32::try_from(place.start).ok()?, u32::try_from(place.end).ok()?),
            None => (0, 0),
        };
        let count = match ages {
            Ok(ages) => Ok(u8::try_from(ages.len()).ok()?),
            Err(unproven) => Err(unproven),
        };
        let mut out = Vec::with_capacity(NOTES_BYTES + row.len() + 2 * AGE_BYTES);
        Notes { object, metadata, ages: count }.write(&mut out);
        for age in ages.unwrap_or_default() {
            out.extend_from_slice(&age.start.to_le_bytes());
            out.extend_from_slice(&age.end.to_le_bytes());
            out.extend_from_slice(&age.since.0.to_le_bytes());
        }
        out.extend_from_slice(row.as_bytes());
        Some(out)
    }

    /// Reads a packed row.
    pub(super) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (notes, rest) = bytes.split_at_checked(NOTES_BYTES)?;
        let head = Notes::read(notes)?;
        let (ages, row) =
            rest.split_at_checked(usize::from(head.ages.unwrap_or_default()) * AGE_BYTES)?;
        Some(Self { row, head, ages })
    }

    /// Returns the column of the first cell that is not proven.
    pub(super) fn unproven(&self) -> Option<usize> {
        self.head.ages.err().map(|Unproven { column }| column)
    }

    /// Returns the parts that change with time, in order.
    pub(super) fn ages(&self) -> impl Iterator<Item = Age> {
        self.ages.chunks_exact(AGE_BYTES).map(|age| Age {
            start: u32::from_le_bytes([age[0], age[1], age[2], age[3]]),
            end: u32::from_le_bytes([age[4], age[5], age[6], age[7]]),
            since: Moment(i64::from_le_bytes([
                age[8], age[9], age[10], age[11], age[12], age[13], age[14], age[15],
            ])),
        })
    }

    /// Returns the row up to its object.
    pub(super) fn before_object(&self) -> Option<&'a [u8]> {
        self.row.get(..self.head.object as usize)
    }

    /// Returns the object.
    pub(super) fn object(&self) -> Option<&'a [u8]> {
        self.row.get(self.head.object as usize..self.row.len().checked_sub(1)?)
    }

    /// Returns the metadata of a built-in type's object.
    pub(super) fn metadata(&self) -> Option<&'a [u8]> {
        let (start, end) = self.head.metadata;
        (end > 0).then(|| self.row.get(start as usize..end as usize))?
    }

    /// Returns the same row with another version in its object, packed.
    pub(super) fn at_version(&self, version: &ResourceVersion) -> Option<Vec<u8>> {
        let object = self.object()?;
        let changed = json_at(object, version)?;
        let mut head = self.head;
        if head.metadata.1 > 0 {
            // The version is a part of the metadata.
            let end = (head.metadata.1 as usize + changed.len()).checked_sub(object.len())?;
            head.metadata.1 = u32::try_from(end).ok()?;
        }
        let (before, rest) = self.row.split_at_checked(head.object as usize)?;
        let after = rest.get(object.len()..)?;
        let mut out = Vec::with_capacity(NOTES_BYTES + self.ages.len() + self.row.len() + 24);
        head.write(&mut out);
        for part in [self.ages, before, &changed, after] {
            out.extend_from_slice(part);
        }
        Some(out)
    }
}

// === impl Notes ===

impl Notes {
    fn write(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&match self.ages {
            Ok(count) => [PROVEN, count],
            Err(Unproven { column }) => [NOT_PROVEN, u8::try_from(column).unwrap_or(u8::MAX)],
        });
        for number in [self.object, self.metadata.0, self.metadata.1] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let ages = match bytes {
            [PROVEN, count, ..] => Ok(*count),
            [NOT_PROVEN, column, ..] => Err(Unproven { column: usize::from(*column) }),
            _ => return None,
        };
        Some(Self { ages, object: number(2)?, metadata: (number(6)?, number(10)?) })
    }
}

/// Returns the place of the metadata in a row of a built-in type: its third member.
fn typed_metadata(row: &str, parts: &Parts<'_>) -> Option<Range<usize>> {
    parts.object.strip_prefix(r#"{"kind":"#)?;
    let start = parts.object.find(METADATA)? + METADATA.len();
    let mut values = serde_json::Deserializer::from_str(parts.object.get(start..)?).into_iter();
    let metadata: &RawValue = values.next()?.ok()?;
    range(row, metadata.get()).filter(|_| !is_converted(metadata.get().as_bytes(), Form::Json))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(object: &str, ages: Result<&[Age], Unproven>) -> (String, Vec<u8>) {
        let row = format!(r#"{{"cells":["p","5m"],"object":{object}}}"#);
        let parts = Parts::of(&row).expect("a row");
        let packed = Packed::pack(&row, &parts, ages).expect("packed");
        (row, packed)
    }

    #[test]
    fn a_packed_row_is_read_as_it_was() {
        let metadata = r#"{"name":"p","resourceVersion":"9"}"#;
        let typed =
            format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{{}}}}"#);
        let custom =
            format!(r#"{{"apiVersion":"a.io/v1","kind":"Thing","metadata":{metadata},"a":1}}"#);
        let age = Age { start: 15, end: 17, since: Moment(-3) };
        for (object, noted) in [(&typed, Some(metadata)), (&custom, None)] {
            let (row, bytes) = packed(object, Ok(&[age]));
            let read = Packed::of(&bytes).expect("a packed row");
            assert_eq!((read.row, read.object()), (row.as_bytes(), Some(object.as_bytes())));
            assert_eq!(read.before_object(), Some(&br#"{"cells":["p","5m"],"object":"#[..]));
            assert_eq!(read.metadata(), noted.map(str::as_bytes));
            assert_eq!(read.unproven(), None);
            assert_eq!(read.ages().collect::<Vec<_>>(), [age]);
        }
        let (row, bytes) = packed(&typed, Err(Unproven { column: 1 }));
        let read = Packed::of(&bytes).expect("a packed row");
        let notes = (read.row, read.unproven(), read.ages().count());
        assert_eq!(notes, (row.as_bytes(), Some(1), 0));
        assert!(Packed::of(&bytes[..NOTES_BYTES - 1]).is_none());
    }

    #[test]
    fn only_the_objects_own_version_is_replaced() {
        let object = |version: &str| {
            format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"p","annotations":{{"a":"\"resourceVersion\":\"9\""}},"resourceVersion":"{version}"}},"spec":{{"resourceVersion":"9"}}}}"#
            )
        };
        let age = Age { start: 15, end: 17, since: Moment(5) };
        let (_, held) = packed(&object("9"), Ok(&[age]));
        let (_, expected) = packed(&object("1234"), Ok(&[age]));
        let version = ResourceVersion::parse("1234").expect("a version");
        let moved = Packed::of(&held).and_then(|held| held.at_version(&version));
        assert_eq!(moved, Some(expected));
    }
}
