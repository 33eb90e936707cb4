//! Just enough protobuf to learn from a write's answer or a watch's event: metadata of an object,
//! list or Status (S-CT-20..23).
//!
//! Reads the bytes in pieces of any size and keeps nothing but the facts. Knows no schema beyond
//! the envelope, ObjectMeta, ListMeta and Status; everything else is skipped by its length.

use super::learn::{Facts, Slot, TEXT_BYTES_MAX, Unlearned};

/// The media type of the envelope read here.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every enveloped object begins with.
const MAGIC: [u8; 4] = *b"k8s\0";

/// Where the scan stands.
#[derive(Debug, Default)]
pub(super) struct Scanner {
    facts: Facts,
    /// The messages entered and not yet left, outermost first; at most six.
    frames: Vec<Frame>,
    state: State,
    /// How many bytes have been read.
    position: u64,
    varint: Varint,
    /// The string being read.
    text: Vec<u8>,
    /// The object itself has come.
    complete: bool,
}

/// A message being read, and the position where it ends.
#[derive(Clone, Copy, Debug)]
struct Frame {
    message: Message,
    end: u64,
}

/// A message some of whose fields are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// `runtime.Unknown`, which wraps everything; has no length.
    Envelope,
    TypeMeta,
    Object,
    /// The spec of a Namespace.
    NamespaceSpec,
    List,
    /// An item of a list.
    Item,
    /// The one list whose metadata is its second field (S-CT-22).
    PartialListV1Beta1,
    Status,
    ObjectMeta,
    ListMeta,
    Label,
    Details,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the magic bytes, of which so many were seen.
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
    /// In a string that is kept, with so many bytes to come.
    Text {
        slot: Slot,
        left: u64,
    },
    /// In bytes of no interest, with so many to come.
    Skip {
        left: u64,
    },
    Failed(Unlearned),
}

/// What to do with a string or message.
enum Action {
    Enter(Message),
    Keep(Slot),
    Skip,
}

/// A number of seven bits a byte, low bits first.
#[derive(Debug, Default)]
pub(super) struct Varint {
    value: u64,
    shift: u32,
}

// === impl Scanner ===

impl Scanner {
    /// Reads the next piece.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while let Some(&byte) = bytes.first() {
            let taken = match self.state {
                State::Failed(_) => return,
                State::Skip { left } | State::Text { left, .. } => {
                    let left = usize::try_from(left).unwrap_or(usize::MAX);
                    self.run(&bytes[..bytes.len().min(left)])
                }
                state => {
                    self.position += 1;
                    if let Err(reason) = self.step(state, byte) {
                        self.state = State::Failed(reason);
                    }
                    1
                }
            };
            bytes = &bytes[taken..];
        }
    }

    /// The facts read so far.
    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    pub(super) fn facts_mut(&mut self) -> &mut Facts {
        &mut self.facts
    }

    /// Whether the object was read, and nothing has begun after it.
    pub(super) fn is_complete(&self) -> bool {
        let at_tag = matches!(self.state, State::Tag) && self.varint.shift == 0;
        at_tag && self.complete && self.frames.len() == 1
    }

    /// The facts, if the whole envelope was read.
    pub(super) fn finish(self) -> Result<Facts, Unlearned> {
        match self.state {
            State::Failed(reason) => Err(reason),
            _ if self.is_complete() => Ok(self.facts),
            _ => Err(Unlearned::Truncated),
        }
    }

    /// Reads one byte that decides something.
    fn step(&mut self, state: State, byte: u8) -> Result<(), Unlearned> {
        if let State::Magic(seen) = state {
            if byte != MAGIC[seen] {
                return Err(Unlearned::Malformed);
            }
            self.state = State::Magic(seen + 1);
            if seen + 1 == MAGIC.len() {
                self.frames.push(Frame { message: Message::Envelope, end: u64::MAX });
                self.state = State::Tag;
            }
            return Ok(());
        }
        let Some(number) = self.varint.push(byte)? else { return Ok(()) };
        match state {
            State::Tag => {
                let field = number >> 3;
                self.state = match number & 7 {
                    0 => State::Number { field },
                    1 => State::Skip { left: 8 },
                    2 => State::Length { field },
                    5 => State::Skip { left: 4 },
                    _ => return Err(Unlearned::Malformed),
                };
                Ok(())
            }
            State::Number { field } => {
                match (self.message(), field) {
                    (Message::ObjectMeta, 10) => self.facts.grace = number != 0,
                    (Message::Status, 6) => self.facts.code = number,
                    _ => {}
                }
                self.next_field()
            }
            State::Length { field } => self.field(field, number),
            _ => Err(Unlearned::Malformed),
        }
    }

    /// Reads a run of bytes inside a string or of no interest; returns how many.
    fn run(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len() as u64;
        self.position += length;
        let result = match &mut self.state {
            State::Skip { left } => {
                *left -= length;
                if *left == 0 { self.next_field() } else { Ok(()) }
            }
            State::Text { slot, left } => {
                let slot = *slot;
                self.text.extend_from_slice(bytes);
                *left -= length;
                if *left == 0 { self.text_read(slot) } else { Ok(()) }
            }
            _ => Ok(()),
        };
        if let Err(reason) = result {
            self.state = State::Failed(reason);
        }
        bytes.len()
    }

    /// Begins a string or message field of this length.
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
                self.state = State::Text { slot, left: length };
                Ok(())
            }
            Action::Skip if length == 0 => self.next_field(),
            Action::Skip => {
                self.state = State::Skip { left: length };
                Ok(())
            }
        }
    }

    /// What a field of the current message is for.
    fn action(&mut self, field: u64, length: u64) -> Result<Action, Unlearned> {
        Ok(match (self.message(), field) {
            (Message::Envelope, 1) => Action::Enter(Message::TypeMeta),
            (Message::Envelope, 2) => Action::Enter(self.body()?),
            // An encoding of the object inside the envelope; the apiserver leaves it empty.
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

    /// The message inside the envelope, as the type before it says.
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
        let text = String::from_utf8(std::mem::take(&mut self.text));
        self.facts.set(slot, text.map_err(|_| Unlearned::Malformed)?)?;
        self.next_field()
    }

    /// Leaves the messages that end here and goes on with the next tag.
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
        self.state = State::Tag;
        Ok(())
    }

    fn message(&self) -> Message {
        self.frames.last().map_or(Message::Envelope, |frame| frame.message)
    }
}

// === impl State ===

impl Default for State {
    fn default() -> Self {
        Self::Magic(0)
    }
}

// === impl Varint ===

impl Varint {
    /// Adds a byte; gives the number, and begins anew, when it was the last.
    pub(super) fn push(&mut self, byte: u8) -> Result<Option<u64>, Unlearned> {
        if self.shift > 63 {
            return Err(Unlearned::Malformed);
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        if byte & 0x80 != 0 {
            return Ok(None);
        }
        Ok(Some(std::mem::take(self).value))
    }
}

#[cfg(test)]
mod tests;
