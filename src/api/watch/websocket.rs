//! The parser of a server's WebSocket frames (RFC 6455, section 5.2).

use super::Opaque;

/// The state of the parser between two chunks.
#[derive(Debug, Default)]
pub(super) struct Frames {
    header: Vec<u8>,
    /// The rest of the current frame's payload, with its kind; `None` while a header is parsed.
    payload: Option<Payload>,
    /// The kind of the current message, which its first frame names.
    message: Message,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Message {
    /// UTF-8 text.
    #[default]
    Text,
    /// Any bytes.
    Binary,
}

#[derive(Clone, Copy, Debug)]
struct Payload {
    remaining: u64,
    opcode: u8,
    ends_message: bool,
}

const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;

// === impl Frames ===

impl Frames {
    /// Passes each chunk of a message to `message`, with the message's kind if it ends with the
    /// chunk.
    pub(super) fn push(
        &mut self,
        mut bytes: &[u8],
        mut message: impl FnMut(&[u8], Option<Message>) -> Result<(), Opaque>,
    ) -> Result<(), Opaque> {
        loop {
            let Some(payload) = &mut self.payload else {
                let Some((byte, rest)) = bytes.split_first() else { return Ok(()) };
                self.header.push(*byte);
                bytes = rest;
                self.payload = parse(&self.header)?;
                if self.payload.is_some() {
                    self.header.clear();
                }
                continue;
            };
            let here = bytes.len().min(usize::try_from(payload.remaining).unwrap_or(usize::MAX));
            let (piece, rest) = bytes.split_at(here);
            payload.remaining -= piece.len() as u64;
            let Payload { remaining, opcode, ends_message } = *payload;
            match opcode {
                TEXT => self.message = Message::Text,
                BINARY => self.message = Message::Binary,
                _ => {}
            }
            if matches!(opcode, CONTINUATION | TEXT | BINARY) {
                let ended = ends_message && remaining == 0;
                message(piece, ended.then_some(self.message))?;
            }
            bytes = rest;
            if remaining > 0 {
                return Ok(());
            }
            self.payload = None;
        }
    }
}

/// Returns the frame that this header starts, once it is complete.
fn parse(header: &[u8]) -> Result<Option<Payload>, Opaque> {
    let [first, second, extended @ ..] = header else { return Ok(None) };
    if first & RESERVED != 0 || second & MASKED != 0 {
        return Err(Opaque::Form);
    }
    let remaining = match (second, extended) {
        (126, [high, low]) => u64::from(u16::from_be_bytes([*high, *low])),
        (127, extended) if extended.len() == 8 => {
            extended.iter().fold(0, |length, byte| length << 8 | u64::from(*byte))
        }
        (126 | 127, _) => return Ok(None),
        (length, _) => u64::from(*length),
    };
    Ok(Some(Payload { remaining, opcode: first & OPCODE, ends_message: first & FINAL != 0 }))
}
