//! SHA-1, which the WebSocket handshake needs. No other module may use it.

const BLOCK_BYTES: usize = 64;
const LENGTH_BYTES: usize = 8;
const START: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];

/// Returns the digest of a short text.
pub(super) fn digest(text: &[u8]) -> [u8; 20] {
    let mut padded = text.to_vec();
    padded.push(0x80);
    while padded.len() % BLOCK_BYTES != BLOCK_BYTES - LENGTH_BYTES {
        padded.push(0);
    }
    padded.extend_from_slice(&(text.len() as u64 * 8).to_be_bytes());
    let state = padded.chunks_exact(BLOCK_BYTES).fold(START, mix);
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

fn mix(state: [u32; 5], block: &[u8]) -> [u32; 5] {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    for index in 16..80 {
        let word = words[index - 3] ^ words[index - 8] ^ words[index - 14] ^ words[index - 16];
        words[index] = word.rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = state;
    for (index, word) in words.into_iter().enumerate() {
        let (chosen, constant) = match index {
            0..20 => ((b & c) | (!b & d), 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = [a.rotate_left(5), chosen, e, constant, word]
            .into_iter()
            .fold(0_u32, u32::wrapping_add);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    let mixed = [a, b, c, d, e];
    std::array::from_fn(|index| state[index].wrapping_add(mixed[index]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standards_examples_are_digested() {
        let hex =
            |text: &[u8]| digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(
            hex(b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "84983e441c3bd26ebaae4aa1f95129e5e54670f1"
        );
    }
}
