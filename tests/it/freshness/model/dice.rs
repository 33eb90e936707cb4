//! Random numbers that a seed reproduces.

/// A generator of small numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

// === impl Dice ===

impl Dice {
    /// Returns a generator; the same seed gives the same numbers.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1))
    }

    /// Returns another generator, independent of the later numbers of this one.
    pub(crate) fn another(&mut self) -> Self {
        Self::new(self.next())
    }

    /// A number below `sides`.
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.next() % sides
    }

    /// A number from `from` to `to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.roll(to - from + 1)
    }

    /// Returns `true` in this many of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }

    /// Returns one of several.
    pub(crate) fn one_of<T: Copy>(&mut self, several: &[T]) -> T {
        several[usize::try_from(self.roll(several.len() as u64)).expect("an index")]
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
