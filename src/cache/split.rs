//! The splitter of a LIST body into items while it arrives. Pure.
//!
//! It parses only the outer shape: the header up to `"items":[`, items that are objects separated
//! by single commas, and the trailer. Other modules check that each part is valid JSON. A body that
//! ends early or continues too long is an error here.

use memchr::memchr2;

/// A LIST body in progress.
#[derive(Debug)]
pub struct Splitter {
    state: SplitState,
    header: Vec<u8>,
    trailer: Vec<u8>,
    /// The start of an incomplete item.
    partial: Vec<u8>,
    nesting: Nesting,
    kind: ListKind,
    item_bytes_max: usize,
}

/// The kind of a list: the key of its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListKind {
    /// A list of objects.
    Items,
    /// A Table.
    Rows,
}

/// The reason why a body cannot be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// No items start within the first bytes.
    #[error("the list's header is too long")]
    HeaderTooLong,
    /// The list continues for too long after its items.
    #[error("the list's trailer is too long")]
    TrailerTooLong,
    /// An item is larger than the limit.
    #[error("an item of the list is too long")]
    ItemTooLong,
    /// An item is not an object.
    #[error("the list's items are not separated objects")]
    NotAnItem,
    /// The header or trailer is not UTF-8.
    #[error("the list is not UTF-8")]
    NotUtf8,
    /// The body ended within its items.
    #[error("the list ended early")]
    Truncated,
    /// The list is printed in a form that Listless cannot reproduce.
    #[error("a part of the list has an unknown printed form")]
    NotUnderstood,
}

/// The expected next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitState {
    Header,
    FirstItem,
    NextItem,
    Item,
    AfterItem,
    Trailer,
}

/// The nesting depth in objects, arrays and strings.
#[derive(Clone, Copy, Debug, Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

/// The limit of the header and trailer; real ones have about a hundred bytes.
const ENDS_BYTES_MAX: usize = 4096;

/// The limit of a Table's header, which defines its columns; real ones have a few thousand bytes.
const TABLE_HEADER_BYTES_MAX: usize = 64 * 1024;

// === impl Splitter ===

impl Splitter {
    /// Creates a splitter that rejects larger items.
    pub(super) fn new(item_bytes_max: usize) -> Self {
        Self {
            state: SplitState::Header,
            header: Vec::new(),
            trailer: Vec::new(),
            partial: Vec::new(),
            nesting: Nesting::default(),
            kind: ListKind::Items,
            item_bytes_max,
        }
    }

    /// Creates a splitter of a Table into rows.
    pub(super) fn of_rows(item_bytes_max: usize) -> Self {
        Self { kind: ListKind::Rows, ..Self::new(item_bytes_max) }
    }

    /// Accepts the bytes up to the first item; returns their number.
    pub(super) fn feed_header(&mut self, bytes: &[u8]) -> Result<usize, SplitError> {
        if self.state == SplitState::Header { self.header(bytes) } else { Ok(0) }
    }

    /// Returns the text before the first item, once it is complete.
    pub(super) fn complete_header(&self) -> Option<&str> {
        let is_complete = self.state != SplitState::Header;
        is_complete.then(|| str::from_utf8(&self.header).ok())?
    }

    /// Accepts the next bytes; passes on each item that they complete.
    pub(super) fn feed<E: From<SplitError>>(
        &mut self,
        mut bytes: &[u8],
        mut on_item: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(first) = bytes.first() {
            let taken = match (self.state, first) {
                (SplitState::Header, _) => self.header(bytes)?,
                (SplitState::FirstItem | SplitState::NextItem, b'{') => {
                    self.state = SplitState::Item;
                    0
                }
                (SplitState::FirstItem | SplitState::AfterItem, b']') => {
                    self.state = SplitState::Trailer;
                    0
                }
                (SplitState::AfterItem, b',') => {
                    self.state = SplitState::NextItem;
                    1
                }
                (SplitState::Item, _) => self.item(bytes, &mut on_item)?,
                (SplitState::Trailer, _) => self.trailer(bytes)?,
                _ => return Err(SplitError::NotAnItem.into()),
            };
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    /// Ends the body; returns header and trailer, with the brackets of `items`.
    pub(super) fn finish(self) -> Result<(String, String), SplitError> {
        if !matches!(self.state, SplitState::Header | SplitState::Trailer) {
            return Err(SplitError::Truncated);
        }
        let text = |bytes| String::from_utf8(bytes).map_err(|_| SplitError::NotUtf8);
        Ok((text(self.header)?, text(self.trailer)?))
    }

    fn header(&mut self, bytes: &[u8]) -> Result<usize, SplitError> {
        for (index, byte) in bytes.iter().enumerate() {
            self.header.push(*byte);
            self.nesting.step(*byte);
            if *byte == b'[' && self.opens_items() {
                self.state = SplitState::FirstItem;
                self.nesting = Nesting::default();
                return Ok(index + 1);
            }
            if self.header.len() > self.kind.header_bytes_max() {
                return Err(SplitError::HeaderTooLong);
            }
        }
        Ok(bytes.len())
    }

    /// Reports whether the bracket just read opens the value of the outermost object's key `items`,
    /// or `rows`.
    fn opens_items(&self) -> bool {
        let is_items = match self.kind {
            ListKind::Items => [&b"{\"items\":["[..], b",\"items\":["],
            ListKind::Rows => [&b"{\"rows\":["[..], b",\"rows\":["],
        };
        self.nesting.depth == 2
            && !self.nesting.in_string
            && is_items.iter().any(|end| self.header.ends_with(end))
    }

    fn item<E: From<SplitError>>(
        &mut self,
        bytes: &[u8],
        on_item: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let end = self.nesting.end_of_value(bytes);
        let length = end.unwrap_or(bytes.len());
        if self.partial.len() + length > self.item_bytes_max {
            return Err(SplitError::ItemTooLong.into());
        }
        if end.is_some() {
            self.state = SplitState::AfterItem;
            self.nesting = Nesting::default();
        }
        if end.is_some() && self.partial.is_empty() {
            on_item(&bytes[..length])?;
            return Ok(length);
        }
        self.partial.extend_from_slice(&bytes[..length]);
        if end.is_some() {
            on_item(&self.partial)?;
            self.partial.clear();
        }
        Ok(length)
    }

    fn trailer(&mut self, bytes: &[u8]) -> Result<usize, SplitError> {
        if self.trailer.len() + bytes.len() > ENDS_BYTES_MAX {
            return Err(SplitError::TrailerTooLong);
        }
        self.trailer.extend_from_slice(bytes);
        Ok(bytes.len())
    }
}

// === impl ListKind ===

impl ListKind {
    fn header_bytes_max(self) -> usize {
        match self {
            Self::Items => ENDS_BYTES_MAX,
            Self::Rows => TABLE_HEADER_BYTES_MAX,
        }
    }
}

// === impl Nesting ===

impl Nesting {
    /// Returns the end of the current value, if these bytes complete it.
    fn end_of_value(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut index = 0;
        while index < bytes.len() {
            if self.in_string && !self.escaped {
                match memchr2(b'"', b'\\', &bytes[index..]) {
                    Some(skipped) => index += skipped,
                    None => return None,
                }
            }
            self.step(bytes[index]);
            index += 1;
            if self.depth == 0 {
                return Some(index);
            }
        }
        None
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts = (String, Vec<String>, String);

    fn split(body: &str, chunk: usize) -> Result<Parts, SplitError> {
        let mut splitter = Splitter::new(64);
        let mut items = Vec::new();
        for chunk in body.as_bytes().chunks(chunk) {
            splitter.feed::<SplitError>(chunk, |item| {
                items.push(String::from_utf8_lossy(item).into_owned());
                Ok(())
            })?;
        }
        let (header, trailer) = splitter.finish()?;
        Ok((header, items, trailer))
    }

    #[test]
    fn items_are_split_at_any_chunk_boundary() {
        let body = concat!(
            r#"{"kind":"L","metadata":{"items":["no"],"x":"\"items\":["},"items":["#,
            r#"{"a":"}\"]"},{"b":[{},{"c":"\\"}]},{}"#,
            "],\"after\":[]}\n",
        );
        let (header, trailer) =
            (&body[..body.find(r#"{"a""#).expect("an item")], "],\"after\":[]}\n");
        for chunk in 1..=body.len() {
            let parts = split(body, chunk).expect("a list");
            assert_eq!(parts.0, header, "{chunk}");
            assert_eq!(parts.1, [r#"{"a":"}\"]"}"#, r#"{"b":[{},{"c":"\\"}]}"#, "{}"], "{chunk}");
            assert_eq!(parts.2, trailer, "{chunk}");
        }
    }

    #[test]
    fn an_empty_list_has_no_items() {
        let parts = split(r#"{"items":[]}"#, 3).expect("a list");
        assert_eq!(parts, (r#"{"items":["#.to_owned(), vec![], "]}".to_owned()));
    }

    #[test]
    fn broken_lists_are_errors() {
        let long = format!(r#"{{"items":[{{"a":"{}"}}]}}"#, "x".repeat(64));
        let header = format!(r#"{{"a":"{}"#, "x".repeat(ENDS_BYTES_MAX));
        let trailer = format!(r#"{{"items":[]{}"#, " ".repeat(ENDS_BYTES_MAX));
        for (body, error) in [
            (r#"{"items":[{"a":1},"#, SplitError::Truncated),
            (r#"{"items":[{"a":1"#, SplitError::Truncated),
            (r#"{"items":[{"a":1}"#, SplitError::Truncated),
            (r#"{"items":["#, SplitError::Truncated),
            (r#"{"items":[{},]}"#, SplitError::NotAnItem),
            (r#"{"items":[,{}]}"#, SplitError::NotAnItem),
            (r#"{"items":[{}{}]}"#, SplitError::NotAnItem),
            (r#"{"items":[1]}"#, SplitError::NotAnItem),
            (r#"{"items":[ {}]}"#, SplitError::NotAnItem),
            (long.as_str(), SplitError::ItemTooLong),
            (header.as_str(), SplitError::HeaderTooLong),
            (trailer.as_str(), SplitError::TrailerTooLong),
        ] {
            for chunk in [1, 7, body.len()] {
                assert_eq!(split(body, chunk), Err(error), "{body:.40} {chunk}");
            }
        }
    }

    #[test]
    fn an_error_of_the_reader_ends_the_split() {
        #[derive(Debug, PartialEq)]
        struct Stop;
        impl From<SplitError> for Stop {
            fn from(_: SplitError) -> Self {
                Self
            }
        }
        assert_eq!(Splitter::new(64).feed(br#"{"items":[{}"#, |_| Err(Stop)), Err(Stop));
    }
}
