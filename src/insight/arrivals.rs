//! When the requests of one account came: a ring of the latest, and a sample of values followed each
//! by itself. Fixed memory, however many come; no allocation once grown.

use std::sync::atomic::{AtomicUsize, Ordering};

/// One request in time. Hashes are cut short: two that meet are taken for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Milliseconds since the counting began; wraps after seven weeks.
    pub at: u32,
    /// Which object or selection it asked for.
    pub value: u16,
    /// On which connection.
    pub client: u16,
}

/// How many arrivals all accounts together may still remember.
#[derive(Debug)]
pub struct Budget(AtomicUsize);

/// The latest of something, in a buffer that grows in steps.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    held: Vec<T>,
    next: usize,
    max: usize,
}

/// One value of those that are followed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Its hash; zero where there is none.
    value: u32,
    at: u32,
    /// What the last answer said.
    pub content: Option<u32>,
    /// Before then it was told not to come again.
    pub not_before: Option<u32>,
    /// Who was told so.
    pub told: u16,
    /// Other values that came to this place since.
    collisions: u16,
}

/// A sample of values.
#[derive(Clone, Debug, Default)]
pub struct Values(Vec<Place>);

/// What is known of a value that came again.
#[derive(Debug)]
pub enum Followed<'a> {
    /// It came so many milliseconds after the last time.
    Again(u32, &'a mut Place),
    /// It is followed from now on.
    First(&'a mut Place),
    /// Others are followed.
    NotSampled,
}

/// Arrivals of which every account may remember this many beyond the budget.
const RING_MIN: usize = 16;
/// Values of one account that are followed.
const VALUES_MAX: usize = 64;
/// So many other values must come before one that stays away loses its place. A storm over 16 000
/// objects brings as many to each place.
const COLLISIONS_MAX: u16 = 256;

// === impl Budget ===

impl Budget {
    /// For so many arrivals.
    pub fn new(arrivals: usize) -> Self {
        Self(AtomicUsize::new(arrivals))
    }

    /// Takes `more`, if there are so many.
    fn take(&self, more: usize) -> bool {
        let less = |left: usize| left.checked_sub(more);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Gives back what a ring took.
    pub fn give_back<T>(&self, ring: &Ring<T>) {
        self.0.fetch_add(ring.held.capacity().saturating_sub(RING_MIN), Ordering::Relaxed);
    }
}

// === impl Ring ===

impl<T: Copy> Ring<T> {
    /// An empty one that will hold at most `max`.
    pub fn new(max: usize) -> Self {
        Self { held: Vec::new(), next: 0, max }
    }

    /// Adds the latest; the oldest goes when there is no room.
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

    /// All of them, the oldest first.
    pub fn in_order(&self) -> Vec<T> {
        let (late, early) = self.held.split_at(self.next.min(self.held.len()));
        [early, late].concat()
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held.capacity() * size_of::<T>()
    }

    /// Four times the room, or what the budget has left to give.
    fn grow(&mut self, budget: &Budget) {
        let now = self.held.capacity();
        let wanted = (now * 4).clamp(RING_MIN, self.max);
        let free = now == 0;
        if wanted > now && (free || budget.take(wanted - now)) {
            // Those that wrapped stand before those that did not.
            self.held.rotate_left(self.next);
            self.next = 0;
            self.held.reserve_exact(wanted - now);
        }
    }
}

// === impl Values ===

impl Values {
    /// Notes that a value came.
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
        *place = Place { value, at, ..Place::default() };
        Followed::First(place)
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Place>()
    }

    fn index(&self, value: u32) -> usize {
        // The sizes are powers of two, so that places that were apart stay apart.
        value as usize & self.0.len().saturating_sub(1)
    }

    /// Eight times the room: one, eight, sixty-four.
    fn grow(&mut self) {
        let wanted = (self.0.len() * 8).clamp(1, VALUES_MAX);
        if wanted == self.0.len() {
            return;
        }
        let old = std::mem::replace(&mut self.0, vec![Place::default(); wanted]);
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
    fn a_ring_grows_no_further_than_the_budget_and_gives_back() {
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
    fn a_value_that_comes_again_tells_its_gap_whatever_comes_between() {
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
    fn a_value_that_stays_away_makes_room() {
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
