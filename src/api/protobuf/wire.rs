//! Protobuf's wire format: fields of a message in memory, and their encoding (S-CT-20..23). Pure.
//!
//! Lengths must be encoded as short as possible, as the apiserver encodes them: what is parsed here
//! can be encoded again to the same bytes.

use super::MAGIC;

/// The fields of a message, in order.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    message: &'a [u8],
    /// The offset of the next field.
    at: usize,
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its number.
    pub number: u64,
    /// Its value.
    pub value: Value<'a>,
    /// The offset of its tag in the message.
    pub start: usize,
    /// The offset of its end in the message.
    pub end: usize,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number or a boolean.
    Number(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
    /// Four or eight bytes of fixed length.
    Fixed,
}

/// The bytes are not a message as the apiserver encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is malformed")]
pub struct Malformed;

/// The end of every envelope: an empty encoding and an empty media type (S-CT-20).
pub const UNKNOWN_END: [u8; 4] = [3 << 3 | 2, 0, 4 << 3 | 2, 0];

/// The longest number, in bytes.
const NUMBER_BYTES_MAX: usize = 10;

// === impl Fields ===

impl<'a> Fields<'a> {
    /// Returns the fields of a message.
    pub fn of(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    fn parse(&mut self) -> Result<Field<'a>, Malformed> {
        let start = self.at;
        let tag = self.number()?;
        let value = match tag & 7 {
            0 => Value::Number(self.number()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Malformed),
        };
        Ok(Field { number: tag >> 3, value, start, end: self.at })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed)?;
        let taken = self.message.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let rest = self.message.get(self.at..).unwrap_or_default();
        let (number, length) = number(rest)?.ok_or(Malformed)?;
        self.at += length;
        Ok(number)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.message.len() {
            return None;
        }
        let field = self.parse();
        if field.is_err() {
            self.at = self.message.len();
        }
        Some(field)
    }
}

// === impl Field ===

impl<'a> Field<'a> {
    /// Returns the bytes of a string, bytes or message.
    pub fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            Value::Number(_) | Value::Fixed => Err(Malformed),
        }
    }

    /// Returns the text of a string.
    pub fn text(&self) -> Result<&'a str, Malformed> {
        str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }
}

/// Parses a number at the start of some bytes; returns it with its length, or `None` if it is
/// incomplete.
pub fn number(bytes: &[u8]) -> Result<Option<(u64, usize)>, Malformed> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(NUMBER_BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        let shift = 7 * u32::try_from(index).map_err(|_| Malformed)?;
        if shift == 63 && bits > 1 {
            return Err(Malformed);
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            // A last byte of zero makes the number longer than it need be.
            let shortest = index == 0 || *byte != 0;
            return if shortest { Ok(Some((value, index + 1))) } else { Err(Malformed) };
        }
    }
    if bytes.len() >= NUMBER_BYTES_MAX { Err(Malformed) } else { Ok(None) }
}

/// Returns the encoded length of a number.
pub fn number_length(number: usize) -> usize {
    (number.max(1).ilog2() / 7 + 1) as usize
}

/// Returns the encoded length of a field with a one-byte tag and a value of this length.
pub fn field_length(length: usize) -> usize {
    1 + number_length(length) + length
}

/// Appends a number.
pub fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the tag of a field with a length, and a length.
pub fn put_head(out: &mut Vec<u8>, field: u8, length: usize) {
    out.push(field << 3 | 2);
    put_number(out, length as u64);
}

/// Appends a field whose value is bytes; its number is below 16.
pub fn put_bytes(out: &mut Vec<u8>, field: u8, value: &[u8]) {
    put_head(out, field, value.len());
    out.extend_from_slice(value);
}

/// Returns a field whose value is bytes; its number is below 16.
pub fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field_length(value.len()));
    put_bytes(&mut out, number, value);
    out
}

/// Returns the start of an envelope: its type, up to a content of this length (S-CT-20).
pub fn unknown_start(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let mut types = Vec::with_capacity(api_version.len() + kind.len() + 8);
    put_bytes(&mut types, 1, api_version.as_bytes());
    put_bytes(&mut types, 2, kind.as_bytes());
    let mut start = Vec::with_capacity(types.len() + 64);
    start.extend_from_slice(&MAGIC);
    put_bytes(&mut start, 1, &types);
    put_head(&mut start, 2, length);
    start
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_encoded_as_short_as_possible() {
        for (value, encoded) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut out = Vec::new();
            put_number(&mut out, value);
            assert_eq!(out, encoded);
            assert_eq!(number(&out), Ok(Some((value, encoded.len()))));
            assert_eq!(number_length(value as usize), encoded.len());
            assert_eq!(number(&out[..out.len() - 1]), Ok(None));
        }
        for odd in [&[0x80, 0][..], &[0xff; 10], &[0xff; 11]] {
            assert_eq!(number(odd), Err(Malformed), "{odd:?}");
        }
    }

    #[test]
    fn fields_are_returned_with_their_places() {
        let message = [field(1, b"ab"), vec![0x10, 5], field(3, b"")].concat();
        let fields: Vec<_> = Fields::of(&message).collect::<Result<_, _>>().expect("a message");
        let found: Vec<_> = fields
            .iter()
            .map(|field| (field.number, field.value, field.start..field.end))
            .collect();
        let expected = [
            (1, Value::Bytes(b"ab"), 0..4),
            (2, Value::Number(5), 4..6),
            (3, Value::Bytes(b""), 6..8),
        ];
        assert_eq!(found, expected);
        for odd in [&[0x0a, 2, 0][..], &[0x0a], &[0x0b], &[0x0d, 0, 0, 0], &[0x09]] {
            assert_eq!(Fields::of(odd).next(), Some(Err(Malformed)), "{odd:?}");
            assert_eq!(Fields::of(odd).count(), 1);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_rejected(bytes: Vec<u8>) {
            let covered = Fields::of(&bytes).take_while(Result::is_ok).flatten();
            let mut at = 0;
            for field in covered {
                prop_assert_eq!(field.start, at);
                prop_assert!(field.end > at && field.end <= bytes.len());
                at = field.end;
            }
        }
    }
}
