//! The messages of a client: pings and the close. A watch ignores all others.

/// A parser of client data. It stores at most one header and one control message.
#[derive(Debug, Default)]
pub struct Incoming {
    header: Vec<u8>,
    payload: Option<Payload>,
}

/// A client message that needs a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A ping. Its response has the same payload.
    Ping(Vec<u8>),
    /// The client closes.
    Close,
}

/// The error for data that a client may not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client violates the WebSocket protocol")]
pub struct Broken;

/// The payload of the current frame.
#[derive(Debug)]
struct Payload {
    opcode: u8,
    mask: [u8; 4],
    remaining: u64,
    /// The unmasked part of a control message so far.
    control: Vec<u8>,
}

const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
const CONTROL: u8 = 0x8;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const CONTROL_BYTES_MAX: u64 = 125;
const MASK_BYTES: usize = 4;

// === impl Incoming ===

impl Incoming {
    /// Parses a chunk and returns each message that needs a response.
    pub fn push(
        &mut self,
        mut bytes: &[u8],
        mut message: impl FnMut(Message),
    ) -> Result<(), Broken> {
        loop {
            let Some(payload) = &mut self.payload else {
                let Some((byte, rest)) = bytes.split_first() else { return Ok(()) };
                self.header.push(*byte);
                bytes = rest;
                self.payload = Payload::begin(&self.header)?;
                if self.payload.is_some() {
                    self.header.clear();
                }
                continue;
            };
            bytes = payload.take(bytes);
            if payload.remaining > 0 {
                return Ok(());
            }
            if let Some(ended) = self.payload.take().and_then(Payload::into_message) {
                message(ended);
            }
        }
    }
}

// === impl Payload ===

impl Payload {
    /// Returns the payload behind a complete header.
    fn begin(header: &[u8]) -> Result<Option<Self>, Broken> {
        let [first, second, rest @ ..] = header else { return Ok(None) };
        // A client masks all its data, and no extension was negotiated.
        if first & RESERVED != 0 || second & MASKED == 0 {
            return Err(Broken);
        }
        let length_bytes = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if rest.len() < length_bytes + MASK_BYTES {
            return Ok(None);
        }
        let (extended, mask) = rest.split_at(length_bytes);
        let remaining = match extended {
            [] => u64::from(second & !MASKED),
            extended => extended.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
        };
        let opcode = first & OPCODE;
        let whole = first & FINAL != 0 && remaining <= CONTROL_BYTES_MAX;
        if opcode & CONTROL != 0 && !whole {
            return Err(Broken);
        }
        let mask = <[u8; MASK_BYTES]>::try_from(mask).map_err(|_| Broken)?;
        Ok(Some(Self { opcode, mask, remaining, control: Vec::new() }))
    }

    /// Takes the bytes of this payload and returns the rest.
    fn take<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let here = bytes.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        let (piece, rest) = bytes.split_at(here);
        if self.opcode & CONTROL != 0 {
            for byte in piece {
                let mask = self.mask[self.control.len() % MASK_BYTES];
                self.control.push(byte ^ mask);
            }
        }
        self.remaining -= piece.len() as u64;
        rest
    }

    fn into_message(self) -> Option<Message> {
        match self.opcode {
            PING => Some(Message::Ping(self.control)),
            CLOSE => Some(Message::Close),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match u16::try_from(payload.len()).expect("short") {
            length @ 0..126 => frame.push(MASKED | length.to_be_bytes()[1]),
            length => {
                frame.push(MASKED | 126);
                frame.extend(length.to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    #[test]
    fn pings_and_the_close_are_found_in_any_split() {
        let stream = [
            frame(0x81, &[b'x'; 300]),
            frame(0x89, b"are you there"),
            frame(0x01, b"frag"),
            frame(0x8a, b"unasked"),
            frame(0x89, b""),
            frame(0x80, b"ment"),
            frame(0x88, &[3, 0xe8]),
        ]
        .concat();
        let expected =
            [Message::Ping(b"are you there".to_vec()), Message::Ping(Vec::new()), Message::Close];
        for size in 1..=stream.len() {
            let (mut incoming, mut seen) = (Incoming::default(), Vec::new());
            for piece in stream.chunks(size) {
                incoming.push(piece, |message| seen.push(message)).expect("well-formed");
            }
            assert_eq!(seen, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn invalid_client_data_is_refused() {
        let unmasked = vec![0x81, 1, b'x'];
        let compressed = frame(0xc1, b"x");
        let long_ping = frame(0x89, &[b'x'; 126]);
        let cut_ping = frame(0x09, b"x");
        for bytes in [unmasked, compressed, long_ping, cut_ping] {
            assert_eq!(Incoming::default().push(&bytes, |_| {}), Err(Broken), "{bytes:?}");
        }
    }
}
