//! A minimal protobuf parser for the metadata of an object, list or Status, in a write's response
//! or a watch's event (S-CT-20..23).
//!
//! It parses chunks of any size and keeps only the facts. It knows the envelope, ObjectMeta,
//! ListMeta and Status; everything else is skipped by its length.

pub mod wire;

use std::mem;

use super::learn::{Facts, Slot, TEXT_BYTES_MAX, Unlearned};

/// The media type of the envelope.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of every envelope.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// The state of the parser.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    facts: Facts,
    /// The open messages, outermost first; at most six.
    frames: Vec<Frame>,
    state: ParserState,
    /// The number of bytes parsed so far.
    position: u64,
    varint: Varint,
    /// The current string.
    text: Vec<u8>,
    /// `true` once the object itself has arrived.
    complete: bool,
}

/// An open message and the position of its end.
#[derive(Clone, Copy, Debug)]
struct Frame {
    message: Message,
    end: u64,
}

/// A message with fields that are facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// `runtime.Unknown`, which wraps everything; it has no length.
    Envelope,
    TypeMeta,
    Object,
    /// The spec of a Namespace.
    NamespaceSpec,
    List,
    /// An item of a list.
    Item,
    /// The only list whose metadata is its second field (S-CT-22).
    PartialListV1Beta1,
    Status,
    ObjectMeta,
    ListMeta,
    Label,
    Details,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserState {
    /// In the magic bytes, after this many of them.
    Magic(usize),
    /// In a field's tag.
    Tag,
    /// In a number.
    Number {
        field: u64,
    },
    /// In the length of a string or message.
    Length {
        field: u64,
    },
    /// In a string that is kept, with its remaining bytes.
    Text {
        slot: Slot,
        left: u64,
    },
    /// In bytes that are skipped, with their number.
    Skip {
        left: u64,
    },
    Failed(Unlearned),
}

/// The action for a string or message.
enum Action {
    Enter(Message),
    Keep(Slot),
    Skip,
}

/// A number with seven bits in each byte, low bits first.
#[derive(Debug, Default)]
pub(super) struct Varint {
    value: u64,
    shift: u32,
}

// === impl Scanner ===

impl Scanner {
    /// Parses the next chunk.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while let Some(&byte) = bytes.first() {
            let taken = match self.state {
                ParserState::Failed(_) => return,
                ParserState::Skip { left } | ParserState::Text { left, .. } => {
                    let left = usize::try_from(left).unwrap_or(usize::MAX);
                    self.run(&bytes[..bytes.len().min(left)])
                }
                state => {
                    self.position += 1;
                    if let Err(reason) = self.step(state, byte) {
                        self.state = ParserState::Failed(reason);
                    }
                    1
                }
            };
            bytes = &bytes[taken..];
        }
    }

    /// Returns the facts parsed so far.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(super) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Reports whether the object was parsed, and nothing has started after it.
    pub(super) fn is_complete(&self) -> bool {
        let at_tag = matches!(self.state, ParserState::Tag) && self.varint.shift == 0;
        at_tag && self.complete && self.frames.len() == 1
    }

    /// Returns the facts, if the whole envelope was parsed.
    pub(super) fn finish(&mut self) -> Result<Facts, Unlearned> {
        match self.state {
            ParserState::Failed(reason) => Err(reason),
            _ if self.is_complete() => Ok(mem::take(&mut self.facts)),
            _ => Err(Unlearned::Truncated),
        }
    }

    /// Parses one byte of a tag, number or length.
    fn step(&mut self, state: ParserState, byte: u8) -> Result<(), Unlearned> {
        if let ParserState::Magic(seen) = state {
            if byte != MAGIC[seen] {
                return Err(Unlearned::Malformed);
            }
            self.state = ParserState::Magic(seen + 1);
            if seen + 1 == MAGIC.len() {
                self.frames.push(Frame { message: Message::Envelope, end: u64::MAX });
                self.state = ParserState::Tag;
            }
            return Ok(());
        }
        let Some(number) = self.varint.push(byte)? else { return Ok(()) };
        match state {
            ParserState::Tag => {
                let field = number >> 3;
                self.state = match number & 7 {
                    0 => ParserState::Number { field },
                    1 => ParserState::Skip { left: 8 },
                    2 => ParserState::Length { field },
                    5 => ParserState::Skip { left: 4 },
                    _ => return Err(Unlearned::Malformed),
                };
                Ok(())
            }
            ParserState::Number { field } => {
                match (self.message(), field) {
                    (Message::ObjectMeta, 10) => self.facts.grace = number != 0,
                    (Message::Status, 6) => self.facts.code = number,
                    _ => {}
                }
                self.next_field()
            }
            ParserState::Length { field } => self.field(field, number),
            _ => Err(Unlearned::Malformed),
        }
    }

    /// Parses a run of bytes inside a string or a skipped field; returns its length.
    fn run(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len() as u64;
        self.position += length;
        let result = match &mut self.state {
            ParserState::Skip { left } => {
                *left -= length;
                if *left == 0 { self.next_field() } else { Ok(()) }
            }
            ParserState::Text { slot, left } => {
                let slot = *slot;
                self.text.extend_from_slice(bytes);
                *left -= length;
                if *left == 0 { self.text_read(slot) } else { Ok(()) }
            }
            _ => Ok(()),
        };
        if let Err(reason) = result {
            self.state = ParserState::Failed(reason);
        }
        bytes.len()
    }

    /// Starts a string or message field of this length.
    fn field(&mut self, field: u64, length: u64) -> Result<(), Unlearned> {
        let end = self.position.checked_add(length).ok_or(Unlearned::Malformed)?;
        if self.frames.last().is_none_or(|frame| end > frame.end) {
            return Err(Unlearned::Malformed);
        }
        match self.action(field, length)? {
            Action::Enter(message) => {
                if let (Message::Item, Some(items)) = (message, &mut self.facts.items) {
                    items.begin(false);
                }
                self.frames.push(Frame { message, end });
                self.next_field()
            }
            Action::Keep(_) if length > TEXT_BYTES_MAX as u64 => Err(Unlearned::TooLarge),
            Action::Keep(slot) => {
                self.text.clear();
                if length == 0 {
                    return self.text_read(slot);
                }
                self.state = ParserState::Text { slot, left: length };
                Ok(())
            }
            Action::Skip if length == 0 => self.next_field(),
            Action::Skip => {
                self.state = ParserState::Skip { left: length };
                Ok(())
            }
        }
    }

    /// Returns the action for a field of the current message.
    fn action(&mut self, field: u64, length: u64) -> Result<Action, Unlearned> {
        Ok(match (self.message(), field) {
            (Message::Envelope, 1) => Action::Enter(Message::TypeMeta),
            (Message::Envelope, 2) => Action::Enter(self.body()?),
            // The encoding of the object inside the envelope; the apiserver leaves it empty.
            (Message::Envelope, 3) if length > 0 => return Err(Unlearned::UnknownEncoding),
            (Message::TypeMeta, 1) => Action::Keep(Slot::ApiVersion),
            (Message::TypeMeta, 2) => Action::Keep(Slot::Kind),
            (Message::Object | Message::Item, 1) => Action::Enter(Message::ObjectMeta),
            (Message::List, 2) | (Message::PartialListV1Beta1, 1) if self.facts.items.is_some() => {
                Action::Enter(Message::Item)
            }
            (Message::ListMeta, 3) => Action::Keep(Slot::Continue),
            (Message::Object, 2) if self.facts.is_namespace() => {
                Action::Enter(Message::NamespaceSpec)
            }
            (Message::List, 1) | (Message::PartialListV1Beta1, 2) => {
                Action::Enter(Message::ListMeta)
            }
            (Message::Status, 2) => Action::Keep(Slot::Status),
            (Message::Status, 5) => Action::Enter(Message::Details),
            (Message::ObjectMeta, 1) => Action::Keep(Slot::Name),
            (Message::ObjectMeta, 3) => Action::Keep(Slot::Namespace),
            (Message::ObjectMeta, 5) => Action::Keep(Slot::Uid),
            (Message::ObjectMeta, 6) | (Message::ListMeta, 2) => Action::Keep(Slot::Version),
            (Message::ObjectMeta, 9) => {
                self.facts.deletion = true;
                Action::Skip
            }
            (Message::ObjectMeta, 11) => Action::Enter(Message::Label),
            (Message::ObjectMeta, 14) | (Message::NamespaceSpec, 1) => {
                self.facts.finalizers = true;
                Action::Skip
            }
            (Message::Label, 1) => Action::Keep(Slot::LabelKey),
            (Message::Label, 2) => Action::Keep(Slot::LabelValue),
            (Message::Details, 1) => Action::Keep(Slot::DetailsName),
            (Message::Details, 6) => Action::Keep(Slot::DetailsUid),
            _ => Action::Skip,
        })
    }

    /// Returns the message inside the envelope, by the type before it.
    fn body(&mut self) -> Result<Message, Unlearned> {
        self.complete = true;
        let (api_version, kind) = (&*self.facts.api_version, &*self.facts.kind);
        Ok(match (api_version, kind) {
            (_, "") => return Err(Unlearned::Malformed),
            ("v1", "Status") => Message::Status,
            ("meta.k8s.io/v1beta1", "PartialObjectMetadataList") => Message::PartialListV1Beta1,
            (_, kind) if kind.ends_with("List") => Message::List,
            _ => Message::Object,
        })
    }

    fn text_read(&mut self, slot: Slot) -> Result<(), Unlearned> {
        let text = String::from_utf8(mem::take(&mut self.text));
        self.facts.set(slot, text.map_err(|_| Unlearned::Malformed)?)?;
        self.next_field()
    }

    /// Leaves the messages that end here and continues with the next tag.
    fn next_field(&mut self) -> Result<(), Unlearned> {
        while self.frames.last().is_some_and(|frame| frame.end == self.position) {
            let left = self.frames.pop().map(|frame| frame.message);
            if let (Some(Message::Item), Some(items)) = (left, &mut self.facts.items) {
                items.end();
            }
        }
        if self.frames.last().is_none_or(|frame| frame.end < self.position) {
            return Err(Unlearned::Malformed);
        }
        self.state = ParserState::Tag;
        Ok(())
    }

    fn message(&self) -> Message {
        self.frames.last().map_or(Message::Envelope, |frame| frame.message)
    }
}

// === impl ParserState ===

impl Default for ParserState {
    fn default() -> Self {
        Self::Magic(0)
    }
}

// === impl Varint ===

impl Varint {
    /// Adds a byte; returns the number, and restarts, after the last one.
    pub(super) fn push(&mut self, byte: u8) -> Result<Option<u64>, Unlearned> {
        if self.shift > 63 {
            return Err(Unlearned::Malformed);
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        Ok(Some(mem::take(self).value))
    }
}

#[cfg(test)]
pub(crate) mod tests;
