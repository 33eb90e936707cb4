//! The parser of the facts in JSON that arrives in chunks of any size.
//!
//! It follows keys only into the few objects with facts, and skips every other value by counting
//! brackets outside strings. It checks the structure only where it follows it.

use std::mem;

use memchr::memchr2;

use super::{Facts, Slot, TEXT_BYTES_MAX, Unlearned};

/// The state of the parser.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    facts: Facts,
    /// The open objects that are followed, outermost first; at most six.
    places: Vec<JsonPlace>,
    state: ParserState,
    /// The key of the next value.
    key: String,
    /// The current string, still escaped.
    raw: Vec<u8>,
}

/// An object whose keys are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JsonPlace {
    Root,
    Metadata,
    Labels,
    Details,
    /// The spec of a Namespace.
    Spec,
    /// The array of a list's items, or of a Table's rows.
    Items {
        rows: bool,
    },
    Item,
    Row,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    /// Before the root object.
    #[default]
    Start,
    /// After `{`: a key or `}`.
    FirstKey,
    /// After `,`: a key.
    NextKey,
    /// Inside a string that is kept; `escaped` after a backslash.
    Text {
        purpose: Purpose,
        escaped: bool,
    },
    /// After a key.
    Colon,
    /// After the colon.
    Value,
    /// Inside a number or literal.
    Scalar,
    /// Inside a value that is skipped.
    Skip {
        depth: usize,
        quoted: bool,
        escaped: bool,
    },
    /// In the array of items, before or after one of them.
    Elements,
    /// In `finalizers`, before its first element or its end.
    Finalizers,
    /// After a value: `,` or `}`.
    AfterValue,
    /// After the root object.
    Done,
    Failed(Unlearned),
}

/// The purpose of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Key,
    Fact(Slot),
}

// === impl Scanner ===

impl Scanner {
    /// Parses the next chunk.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = match self.state {
                ParserState::Text { purpose, escaped } => self.text(purpose, escaped, bytes),
                ParserState::Skip { depth, quoted, escaped } => {
                    self.skip(depth, quoted, escaped, bytes)
                }
                ParserState::Failed(_) => return,
                state => self.token(state, bytes),
            };
        }
    }

    /// Returns the facts parsed so far.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(super) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Reports whether the whole object was parsed.
    pub(super) fn is_complete(&self) -> bool {
        self.state == ParserState::Done
    }

    /// Returns the facts, if the whole object was parsed.
    pub(super) fn finish(&mut self) -> Result<Facts, Unlearned> {
        match self.state {
            ParserState::Done => Ok(mem::take(&mut self.facts)),
            ParserState::Failed(reason) => Err(reason),
            _ => Err(Unlearned::Truncated),
        }
    }

    /// Parses one byte between strings.
    fn token<'a>(&mut self, state: ParserState, bytes: &'a [u8]) -> &'a [u8] {
        let Some((&byte, rest)) = bytes.split_first() else { return bytes };
        if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') && state != ParserState::Scalar {
            return rest;
        }
        self.state = match (state, byte) {
            (ParserState::Start, b'{') => self.enter(JsonPlace::Root),
            (ParserState::FirstKey | ParserState::NextKey, b'"') => self.begin(Purpose::Key),
            (ParserState::FirstKey | ParserState::AfterValue, b'}') => self.leave(),
            (ParserState::Colon, b':') => ParserState::Value,
            (ParserState::Value, _) => self.value(byte),
            (ParserState::Scalar, b',' | b'}' | b' ' | b'\t' | b'\r' | b'\n') => {
                self.state = self.scalar();
                return bytes;
            }
            (ParserState::Scalar, _) if self.raw.len() < TEXT_BYTES_MAX => {
                self.raw.push(byte);
                ParserState::Scalar
            }
            (ParserState::AfterValue, b',') => ParserState::NextKey,
            (ParserState::Elements, b',') => ParserState::Elements,
            (ParserState::Elements, b'{') => match self.places.last() {
                Some(JsonPlace::Items { rows: true }) => self.enter(JsonPlace::Row),
                _ => self.enter(JsonPlace::Item),
            },
            (ParserState::Elements, b']') => {
                self.places.pop();
                ParserState::AfterValue
            }
            (ParserState::Finalizers, b']') => ParserState::AfterValue,
            (ParserState::Finalizers, _) => {
                self.facts.finalizers = true;
                self.state = ParserState::Skip { depth: 1, quoted: false, escaped: false };
                return bytes;
            }
            _ => ParserState::Failed(Unlearned::Malformed),
        };
        rest
    }

    /// Returns the state after the first byte of a value, for the key before it.
    fn value(&mut self, byte: u8) -> ParserState {
        let Some(&place) = self.places.last() else {
            return ParserState::Failed(Unlearned::Malformed);
        };
        match (byte, place, &*self.key) {
            (b'{', JsonPlace::Root | JsonPlace::Item, "metadata") => {
                self.enter(JsonPlace::Metadata)
            }
            (b'{', JsonPlace::Row, "object") => self.enter(JsonPlace::Item),
            (b'[', JsonPlace::Root, "items" | "rows") if self.facts.items.is_some() => {
                self.places.push(JsonPlace::Items { rows: self.key == "rows" });
                ParserState::Elements
            }
            (b'{', JsonPlace::Root, "details") => self.enter(JsonPlace::Details),
            (b'{', JsonPlace::Metadata, "labels") => self.enter(JsonPlace::Labels),
            (b'{', JsonPlace::Root, "spec") if self.facts.is_namespace() => {
                self.enter(JsonPlace::Spec)
            }
            (b'[', JsonPlace::Metadata | JsonPlace::Spec, "finalizers") => ParserState::Finalizers,
            (b'{' | b'[', ..) => ParserState::Skip { depth: 1, quoted: false, escaped: false },
            (b'"', _, key) => match slot(place, key) {
                Some(slot) => self.begin(Purpose::Fact(slot)),
                None => {
                    self.facts.deletion |=
                        place == JsonPlace::Metadata && key == "deletionTimestamp";
                    ParserState::Skip { depth: 0, quoted: true, escaped: false }
                }
            },
            (b'}' | b']' | b',' | b':', ..) => ParserState::Failed(Unlearned::Malformed),
            _ => {
                self.raw.clear();
                self.raw.push(byte);
                ParserState::Scalar
            }
        }
    }

    fn enter(&mut self, place: JsonPlace) -> ParserState {
        if let Some(items) = &mut self.facts.items {
            match place {
                JsonPlace::Row => items.begin_row(),
                JsonPlace::Item => items.begin(self.places.last() == Some(&JsonPlace::Row)),
                _ => {}
            }
        }
        self.places.push(place);
        ParserState::FirstKey
    }

    fn leave(&mut self) -> ParserState {
        if let (Some(JsonPlace::Item), Some(items)) = (self.places.pop(), &mut self.facts.items) {
            items.end();
        }
        match self.places.last() {
            None => ParserState::Done,
            Some(JsonPlace::Items { .. }) => ParserState::Elements,
            Some(_) => ParserState::AfterValue,
        }
    }

    fn begin(&mut self, purpose: Purpose) -> ParserState {
        self.raw.clear();
        ParserState::Text { purpose, escaped: false }
    }

    /// Continues in a string that is kept.
    fn text<'a>(&mut self, purpose: Purpose, escaped: bool, bytes: &'a [u8]) -> &'a [u8] {
        let (length, end) = string_end(escaped, bytes);
        if self.raw.len() + length > TEXT_BYTES_MAX {
            self.state = ParserState::Failed(Unlearned::TooLarge);
            return &[];
        }
        self.raw.extend_from_slice(&bytes[..length]);
        self.state = match end {
            End::Quote => self.text_read(purpose).unwrap_or_else(ParserState::Failed),
            End::Open { escaped } => ParserState::Text { purpose, escaped },
        };
        &bytes[length + usize::from(end == End::Quote)..]
    }

    fn text_read(&mut self, purpose: Purpose) -> Result<ParserState, Unlearned> {
        let text = unescape(&self.raw)?;
        match purpose {
            Purpose::Key => {
                if self.places.last() == Some(&JsonPlace::Labels) {
                    self.facts.set(Slot::LabelKey, text.clone())?;
                }
                self.key = text;
                Ok(ParserState::Colon)
            }
            Purpose::Fact(slot) => {
                self.facts.set(slot, text)?;
                Ok(ParserState::AfterValue)
            }
        }
    }

    /// Ends a number or literal; only one of them is a fact.
    fn scalar(&mut self) -> ParserState {
        let in_metadata = self.places.last() == Some(&JsonPlace::Metadata);
        if in_metadata && self.key == "deletionGracePeriodSeconds" {
            self.facts.grace = !matches!(&*self.raw, b"0" | b"null");
        }
        ParserState::AfterValue
    }

    /// Continues in a value that is skipped.
    fn skip<'a>(
        &mut self,
        mut depth: usize,
        mut quoted: bool,
        mut escaped: bool,
        mut bytes: &'a [u8],
    ) -> &'a [u8] {
        loop {
            if quoted {
                let (length, end) = string_end(escaped, bytes);
                if let End::Open { escaped } = end {
                    self.state = ParserState::Skip { depth, quoted, escaped };
                    return &[];
                }
                bytes = &bytes[length + 1..];
                (quoted, escaped) = (false, false);
            } else {
                let is_mark = |byte: &u8| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']');
                let Some(index) = bytes.iter().position(is_mark) else {
                    self.state = ParserState::Skip { depth, quoted, escaped };
                    return &[];
                };
                match bytes[index] {
                    b'"' => quoted = true,
                    b'{' | b'[' => depth += 1,
                    _ => depth -= 1,
                }
                bytes = &bytes[index + 1..];
            }
            if depth == 0 && !quoted {
                self.state = ParserState::AfterValue;
                return bytes;
            }
        }
    }
}

/// The end of a string within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At the closing quote.
    Quote,
    /// At the end of the chunk; `escaped` after a backslash.
    Open { escaped: bool },
}

/// Returns the number of bytes before the closing quote, and the end.
fn string_end(mut escaped: bool, bytes: &[u8]) -> (usize, End) {
    let mut position = 0;
    loop {
        if escaped {
            if position == bytes.len() {
                return (position, End::Open { escaped });
            }
            position += 1;
            escaped = false;
        }
        match memchr2(b'"', b'\\', &bytes[position..]) {
            None => return (bytes.len(), End::Open { escaped }),
            Some(offset) if bytes[position + offset] == b'"' => {
                return (position + offset, End::Quote);
            }
            Some(offset) => {
                position += offset + 1;
                escaped = true;
            }
        }
    }
}

/// Returns the fact that the string under a key is.
fn slot(place: JsonPlace, key: &str) -> Option<Slot> {
    Some(match (place, key) {
        (JsonPlace::Root, "apiVersion") => Slot::ApiVersion,
        (JsonPlace::Root, "kind") => Slot::Kind,
        (JsonPlace::Root, "status") => Slot::Status,
        (JsonPlace::Metadata, "name") => Slot::Name,
        (JsonPlace::Metadata, "namespace") => Slot::Namespace,
        (JsonPlace::Metadata, "uid") => Slot::Uid,
        (JsonPlace::Metadata, "resourceVersion") => Slot::Version,
        (JsonPlace::Metadata, "continue") => Slot::Continue,
        (JsonPlace::Labels, _) => Slot::LabelValue,
        (JsonPlace::Details, "name") => Slot::DetailsName,
        (JsonPlace::Details, "uid") => Slot::DetailsUid,
        _ => return None,
    })
}

/// Returns the text of a JSON string, without its quotes.
fn unescape(raw: &[u8]) -> Result<String, Unlearned> {
    if !raw.contains(&b'\\') {
        return String::from_utf8(raw.to_vec()).map_err(|_| Unlearned::Malformed);
    }
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice(&quoted).map_err(|_| Unlearned::Malformed)
}
