//! One gzip member, joined from segments that were compressed apart. Pure.
//!
//! Invariant: a segment ends at a byte boundary, and refers to no text but its own and that right
//! before it. The checksum of the member is combined from those of its parts.

use std::collections::VecDeque;

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};

use crate::held_bytes::HeldBytes;

/// A compressed text.
#[derive(Debug)]
pub struct Segment {
    deflated: Bytes,
    crc: Crc,
}

/// The effort of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// As fast as one stream at level 1, and as small.
    Fast,
    /// About twice the time for about half the bytes.
    Thorough,
}

/// The compressors and their buffers, allocated at the first use.
#[derive(Debug, Default)]
pub struct Deflaters {
    fast: Option<Compress>,
    thorough: Option<Compress>,
    buffer: Vec<u8>,
    deflated: Vec<u8>,
    held: HeldBytes,
}

/// Adjacent segments with their common checksum.
#[derive(Debug)]
pub struct Joint {
    deflated: Vec<Bytes>,
    crc: Crc,
}

/// A member in progress.
#[derive(Debug)]
pub struct Member {
    chunks: VecDeque<Bytes>,
    /// The bytes after the last chunk.
    open: Vec<u8>,
    crc: Crc,
}

/// The size of the window of deflate: what lies further back cannot be referred to.
pub const WINDOW_BYTES: usize = 32 * 1024;

/// The header of a member: deflate, no flags, no time, fastest compression, unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];

/// The last block of a deflate stream, without text.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// The longest text of an uncompressed block.
const STORED_BYTES_MAX: usize = u16::MAX as usize;

/// The size of the buffer between a compressor and its output.
const BUFFER_BYTES: usize = 16 * 1024;

// === impl Segment ===

impl Segment {
    /// Returns the length of the text.
    pub fn text_bytes(&self) -> usize {
        self.crc.amount() as usize
    }

    /// Returns the length of the compressed text.
    pub fn bytes(&self) -> usize {
        self.deflated.len()
    }
}

// === impl Effort ===

impl Effort {
    fn level(self) -> Compression {
        Compression::new(match self {
            Self::Fast => 1,
            Self::Thorough => 4,
        })
    }
}

// === impl Deflaters ===

impl Deflaters {
    /// Creates compressors whose segments are counted.
    pub fn counting(held: HeldBytes) -> Self {
        Self { held, ..Self::default() }
    }

    /// Compresses a text of less than 4 GiB; `before` is the end of the text before it, and may be
    /// empty.
    pub fn segment(&mut self, effort: Effort, before: &[u8], text: &[u8]) -> Segment {
        let held = match effort {
            Effort::Fast => &mut self.fast,
            Effort::Thorough => &mut self.thorough,
        };
        let compress = held.get_or_insert_with(|| Compress::new(effort.level(), false));
        compress.reset();
        if !before.is_empty() {
            let start = before.len().saturating_sub(WINDOW_BYTES);
            compress.set_dictionary(&before[start..]).expect("a new stream takes a dictionary");
        }
        self.buffer.resize(BUFFER_BYTES, 0);
        self.deflated.clear();
        let mut rest = text;
        loop {
            let (read, written) = (compress.total_in(), compress.total_out());
            let flushed = compress.compress(rest, &mut self.buffer, FlushCompress::Sync);
            flushed.expect("the state of the compressor is valid");
            let read = (compress.total_in() - read) as usize;
            let written = (compress.total_out() - written) as usize;
            self.deflated.extend_from_slice(&self.buffer[..written]);
            rest = &rest[read..];
            // With room left in the buffer, the flush is complete.
            if rest.is_empty() && written < BUFFER_BYTES {
                break;
            }
        }
        let mut crc = Crc::new();
        crc.update(text);
        Segment { deflated: self.held.hold(Bytes::copy_from_slice(&self.deflated)), crc }
    }
}

// === impl Joint ===

impl Joint {
    /// Joins segments. Each must have been compressed after the one before it.
    pub fn of<'a>(segments: impl Iterator<Item = &'a Segment> + Clone) -> Self {
        let mut crc = Crc::new();
        segments.clone().for_each(|segment| crc.combine(&segment.crc));
        Self { deflated: segments.map(|segment| segment.deflated.clone()).collect(), crc }
    }

    /// Returns the number of segments.
    pub fn segments(&self) -> usize {
        self.deflated.len()
    }
}

// === impl Member ===

impl Member {
    /// Begins a member that will have about so many segments.
    pub fn new(segments: usize) -> Self {
        let chunks = VecDeque::with_capacity(segments + 2);
        Self { chunks, open: HEADER.to_vec(), crc: Crc::new() }
    }

    /// Appends a text without compression.
    pub fn store(&mut self, text: &[u8]) {
        for part in text.chunks(STORED_BYTES_MAX) {
            let length = part.len() as u16;
            self.open.push(0);
            self.open.extend_from_slice(&length.to_le_bytes());
            self.open.extend_from_slice(&(!length).to_le_bytes());
            self.open.extend_from_slice(part);
        }
        self.crc.update(text);
    }

    /// Appends a segment. The text before it must be the one it was compressed after.
    pub fn append(&mut self, segment: &Segment) {
        self.close();
        self.chunks.push_back(segment.deflated.clone());
        self.crc.combine(&segment.crc);
    }

    /// Appends joined segments. The first must have been compressed after an empty text.
    pub fn append_all(&mut self, joint: &Joint) {
        self.close();
        self.chunks.extend(joint.deflated.iter().cloned());
        self.crc.combine(&joint.crc);
    }

    /// Ends the member; returns its bytes.
    pub fn finish(mut self) -> VecDeque<Bytes> {
        self.end();
        self.close();
        self.chunks
    }

    fn end(&mut self) {
        self.open.extend_from_slice(&LAST_BLOCK);
        self.open.extend_from_slice(&self.crc.sum().to_le_bytes());
        self.open.extend_from_slice(&self.crc.amount().to_le_bytes());
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.chunks.push_back(std::mem::take(&mut self.open).into());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;

    /// Returns the text of exactly one member.
    pub(crate) fn unpacked(chunks: &VecDeque<Bytes>) -> Vec<u8> {
        let whole: Vec<u8> = chunks.iter().flatten().copied().collect();
        let (mut text, mut rest) = (Vec::new(), &whole[..]);
        flate2::bufread::GzDecoder::new(&mut rest).read_to_end(&mut text).expect("a member");
        assert!(rest.is_empty(), "{} bytes follow the member", rest.len());
        text
    }

    /// Text with repetitions near and far.
    fn texts() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let word = prop_oneof![
            "[a-c]{1,9}".prop_map(String::into_bytes),
            proptest::collection::vec(any::<u8>(), 0..40),
            (any::<u8>(), 0..70_000_usize).prop_map(|(byte, length)| vec![byte; length]),
        ];
        let text = proptest::collection::vec(word, 0..30).prop_map(|words| words.concat());
        proptest::collection::vec(text, 0..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn segments_and_stored_texts_are_one_member_of_the_whole_text(
            texts in texts(),
            kinds in proptest::collection::vec(0..3_u8, 8),
        ) {
            let (mut deflaters, mut member) = (Deflaters::default(), Member::new(texts.len()));
            let mut whole = Vec::new();
            for (text, kind) in texts.iter().zip(kinds) {
                match kind {
                    0 => member.store(text),
                    1 => member.append(&deflaters.segment(Effort::Fast, &whole, text)),
                    _ => member.append(&deflaters.segment(Effort::Thorough, &whole, text)),
                }
                whole.extend_from_slice(text);
            }
            prop_assert_eq!(unpacked(&member.finish()), whole);
        }
    }

    #[test]
    fn a_segment_that_fills_its_buffer_is_complete() {
        // Text that does not compress, of lengths around the size of the buffer.
        let mut state = 1_u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(2 * BUFFER_BYTES)
        .collect();
        let mut deflaters = Deflaters::default();
        for length in BUFFER_BYTES - 40..BUFFER_BYTES + 10 {
            let mut member = Member::new(2);
            for text in [&noise[..length], b"the end"] {
                member.append(&deflaters.segment(Effort::Fast, b"", text));
            }
            let expected = [&noise[..length], b"the end"].concat();
            assert_eq!(unpacked(&member.finish()), expected, "{length}");
        }
    }
}
