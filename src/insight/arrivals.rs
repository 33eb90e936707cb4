//! The arrival times of one account: a ring of the latest, and a sample of values. Memory is
//! bounded; nothing allocates once the buffers are full-grown.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One arrival. Hashes are shortened, so two values may collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Milliseconds since counting began. It wraps after seven weeks.
    pub at: u32,
    /// The hash of the requested object or selection.
    pub value: u16,
    /// The hash of the connection.
    pub client: u16,
}

/// The number of arrivals that all accounts together may still store.
#[derive(Debug)]
pub struct Budget(AtomicUsize);

/// The latest items, in a buffer that grows in steps.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    held: Vec<T>,
    next: usize,
    max: usize,
}

/// One sampled value.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampledValue {
    /// Its hash. Zero for an empty place.
    value: u32,
    at: u32,
    /// The hash of the last response.
    pub content: Option<u32>,
    /// The earliest allowed time of a retry.
    pub not_before: Option<u32>,
    /// The connection that received Retry-After.
    pub retry_client: u16,
    /// The number of other values that mapped to this place since.
    collisions: u16,
}

/// A sample of values.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<SampledValue>);

/// The result of a look-up in the sample.
#[derive(Debug)]
pub enum Followed<'a> {
    /// The value repeats after this many milliseconds.
    Again(u32, &'a mut SampledValue),
    /// The value is in the sample from now on.
    First(&'a mut SampledValue),
    /// The value is not in the sample.
    NotSampled,
}

/// The number of arrivals that every account may store outside the budget.
const RING_MIN: usize = 16;
/// The maximum number of sampled values of one account.
const VALUES_MAX: usize = 64;
/// The number of colliding values after which an idle value loses its place. A storm over 16 000
/// objects brings as many to each place.
const COLLISIONS_MAX: u16 = 256;

// === impl Budget ===

impl Budget {
    /// Returns a budget of this many arrivals.
    pub fn new(arrivals: usize) -> Self {
        Self(AtomicUsize::new(arrivals))
    }

    /// Takes `more` from the budget. Returns `false` if there is not enough.
    fn take(&self, more: usize) -> bool {
        let less = |left: usize| left.checked_sub(more);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Returns a ring's share to the budget.
    pub fn give_back<T>(&self, ring: &Ring<T>) {
        self.0.fetch_add(ring.held.capacity().saturating_sub(RING_MIN), Ordering::Relaxed);
    }
}

// === impl Ring ===

impl<T: Copy> Ring<T> {
    /// Returns an empty ring of at most `max` items.
    pub fn new(max: usize) -> Self {
        Self { held: Vec::new(), next: 0, max }
    }

    /// Adds an item. The oldest is dropped if there is no room.
    pub fn push(&mut self, latest: T, budget: &Budget) {
        if self.held.len() == self.held.capacity() {
            self.grow(budget);
        }
        if self.held.len() < self.held.capacity() {
            self.held.push(latest);
        } else if let Some(oldest) = self.held.get_mut(self.next) {
            *oldest = latest;
            self.next = (self.next + 1) % self.held.len();
        }
    }

    /// Returns all items, the oldest first.
    pub fn in_order(&self) -> Vec<T> {
        let (late, early) = self.held.split_at(self.next.min(self.held.len()));
        [early, late].concat()
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held.capacity() * size_of::<T>()
    }

    /// Grows fourfold, or by the rest of the budget.
    fn grow(&mut self, budget: &Budget) {
        let now = self.held.capacity();
        let wanted = (now * 4).clamp(RING_MIN, self.max);
        let free = now == 0;
        if wanted > now && (free || budget.take(wanted - now)) {
            // The wrapped items come before the others.
            self.held.rotate_left(self.next);
            self.next = 0;
            self.held.reserve_exact(wanted - now);
        }
    }
}

// === impl Values ===

impl Values {
    /// Records an arrival of a value.
    pub fn came(&mut self, hash: u64, at: u32) -> Followed<'_> {
        let value = ((hash >> 32) as u32).max(1);
        let mut index = self.index(value);
        if self.0.get(index).is_none_or(|place| place.value != 0 && place.value != value) {
            self.grow();
            index = self.index(value);
        }
        let Some(place) = self.0.get_mut(index) else { return Followed::NotSampled };
        if place.value == value {
            let gap = at.wrapping_sub(place.at);
            (place.at, place.collisions) = (at, 0);
            return Followed::Again(gap, place);
        }
        if place.value != 0 && place.collisions < COLLISIONS_MAX {
            place.collisions += 1;
            return Followed::NotSampled;
        }
        *place = SampledValue { value, at, ..SampledValue::default() };
        Followed::First(place)
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.0.capacity() * size_of::<SampledValue>()
    }

    fn index(&self, value: u32) -> usize {
        // The sizes are powers of two, so distinct places stay distinct.
        value as usize & self.0.len().saturating_sub(1)
    }

    /// Grows eightfold: one, eight, sixty-four.
    fn grow(&mut self) {
        let wanted = (self.0.len() * 8).clamp(1, VALUES_MAX);
        if wanted == self.0.len() {
            return;
        }
        let old = std::mem::replace(&mut self.0, vec![SampledValue::default(); wanted]);
        for place in old.into_iter().filter(|place| place.value != 0) {
            let index = self.index(place.value);
            self.0[index] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(at: u32) -> Arrival {
        Arrival { at, value: 1, client: 1 }
    }

    #[test]
    fn a_ring_holds_the_latest_in_order() {
        let budget = Budget::new(1000);
        let mut ring = Ring::new(100);
        for at in 0..250 {
            ring.push(arrival(at), &budget);
        }
        let times: Vec<u32> = ring.in_order().iter().map(|arrival| arrival.at).collect();
        assert_eq!(times, (150..250).collect::<Vec<_>>());
    }

    #[test]
    fn a_ring_grows_up_to_the_budget_and_gives_back() {
        let budget = Budget::new(60);
        let mut rings: Vec<Ring<Arrival>> = (0..3).map(|_| Ring::new(384)).collect();
        for at in 0..1000 {
            rings.iter_mut().for_each(|ring| ring.push(arrival(at), &budget));
        }
        let held: Vec<usize> = rings.iter().map(|ring| ring.in_order().len()).collect();
        assert_eq!(held, [64, 16, 16]);
        budget.give_back(&rings[0]);
        (1000..1064).for_each(|at| rings[1].push(arrival(at), &budget));
        assert_eq!(rings[1].in_order().len(), 64);
        assert_eq!(rings[1].in_order()[63], arrival(1063));
    }

    #[test]
    fn a_repeated_value_gives_its_interval_whatever_comes_between() {
        let mut values = Values::default();
        let spread = |value: u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut gaps = Vec::new();
        for round in 0..3_u32 {
            for value in 1..=2000 {
                if let Followed::Again(gap, _) = values.came(spread(value), round * 30_000) {
                    gaps.push(gap);
                }
            }
        }
        assert_eq!(values.0.len(), VALUES_MAX);
        assert!(gaps.len() >= 2 * 60, "{}", gaps.len());
        assert!(gaps.iter().all(|gap| *gap == 30_000));
    }

    #[test]
    fn an_idle_value_makes_room() {
        let mut values = Values::default();
        let spread = |value: u64| value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (1..=64).for_each(|value| {
            values.came(spread(value), 0);
        });
        for _ in 0..u32::from(COLLISIONS_MAX) {
            (1000..3000).for_each(|value| {
                values.came(spread(value), 0);
            });
        }
        let mut known = |value| matches!(values.came(spread(value), 0), Followed::Again(..));
        assert_eq!((1..=64).filter(|value| known(*value)).count(), 0);
    }
}
