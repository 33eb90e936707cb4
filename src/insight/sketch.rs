//! An estimate of distinct items in fixed memory (HyperLogLog).

/// A counter of distinct hashes, with an error of about ten per cent; nearly exact for few.
#[derive(Clone, Debug)]
pub struct Sketch([u8; REGISTERS]);

const REGISTERS: usize = 128;
const INDEX_BITS: u32 = REGISTERS.trailing_zeros();

// === impl Sketch ===

impl Sketch {
    /// Adds an item by its hash.
    pub fn add(&mut self, hash: u64) {
        let index = (hash % REGISTERS as u64) as usize;
        let rank = ((hash >> INDEX_BITS) | 1 << 56).trailing_zeros() + 1;
        self.0[index] = self.0[index].max(rank as u8);
    }

    /// Returns the estimated number of distinct items.
    pub fn count(&self) -> u64 {
        let registers = REGISTERS as f64;
        let empty = self.0.iter().filter(|rank| **rank == 0).count();
        let sum: f64 = self.0.iter().map(|rank| 0.5_f64.powi(i32::from(*rank))).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        if estimate <= 2.5 * registers && empty > 0 {
            return (registers * (registers / empty as f64).ln()).round() as u64;
        }
        estimate.round() as u64
    }
}

impl Default for Sketch {
    fn default() -> Self {
        Self([0; REGISTERS])
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn few_items_are_counted_nearly_exactly_and_many_roughly() {
        let hasher = foldhash::quality::FixedState::with_seed(7);
        let mut sketch = Sketch::default();
        assert_eq!(sketch.count(), 0);
        for number in 0..100_000_u64 {
            sketch.add(hasher.hash_one(number));
            let seen = number + 1;
            if [1, 3, 20, 50, 500, 5_000, 100_000].contains(&seen) {
                let off = sketch.count().abs_diff(seen) as f64 / seen as f64;
                assert!(off <= 0.25, "{seen}: {}", sketch.count());
            }
        }
    }
}
