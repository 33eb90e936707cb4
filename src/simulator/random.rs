//! Reproducible random numbers: uids, generated names and durations from one seed.

use std::sync::{Mutex, PoisonError};

/// A small generator behind a lock. Its quality is enough for names, not for secrets.
pub(super) struct Random(Mutex<u64>);

/// The letters of the apiserver's name suffixes: no vowels, and none that are easily misread.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

// === impl Random ===

impl Random {
    /// Returns the generator of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// Returns the next number: splitmix64.
    pub(super) fn next(&self) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in [0, 1).
    pub(super) fn fraction(&self) -> f64 {
        f64::from(u32::try_from(self.next() >> 32).unwrap_or(0)) / 2f64.powi(32)
    }

    /// Returns a version 4 UUID.
    pub(super) fn uid(&self) -> String {
        let (high, low) = (u128::from(self.next()), u128::from(self.next()));
        uuid::Builder::from_random_bytes((high << 64 | low).to_be_bytes()).into_uuid().to_string()
    }

    /// Returns the suffix for `generateName`.
    pub(super) fn name_suffix(&self) -> String {
        let letter = |number: u64| {
            let index = usize::try_from(number % SUFFIX_LETTERS.len() as u64).unwrap_or(0);
            char::from(SUFFIX_LETTERS[index])
        };
        (0..SUFFIX_LENGTH).map(|_| letter(self.next() >> 8)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_uids_and_names() {
        let draw = |seed| {
            let random = Random::new(seed);
            (random.uid(), random.name_suffix())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_eq!(draw(7).0.len(), 36);
        assert!((0.0..1.0).contains(&Random::new(1).fraction()));
    }
}
