//! The keys of the objects that have a label, or a value of a field. Pure.
//!
//! Invariant: an object is found under the hash of each of its pairs. Two pairs with one hash are
//! found together, so every object is matched again. Indexes of successive snapshots share what did
//! not change.

use std::{
    collections::{HashMap, hash_map::Entry},
    slice,
    sync::Arc,
};

use super::object::Head;
use crate::{api::ObjectKey, hash::RandomState};

/// The keys of a snapshot's objects, by their labels and fields.
#[derive(Clone, Debug)]
pub struct Index {
    shards: Box<[Arc<Shard>]>,
    /// The memory held, estimated.
    bytes: usize,
}

/// The keys of each pair. A change copies one shard and the keys of one pair.
type Shard = HashMap<u64, Keys, RandomState>;

/// The keys of a pair.
#[derive(Clone, Debug)]
enum Keys {
    /// The only one: many pairs belong to one object, such as its address.
    One(ObjectKey),
    /// Two or more, in order.
    Several(Arc<Vec<ObjectKey>>),
    /// More than are held.
    TooMany,
}

const SHARDS: usize = 256;

/// The limit of keys of one pair: above it a pair says too little, and changes would be expensive.
const KEYS_MAX: usize = if cfg!(test) { 8 } else { 4096 };

/// The estimated table slot of a pair.
const PAIR_BYTES: usize = 48;

/// The estimated reference counts and allocator overhead of several keys.
const SEVERAL_BYTES: usize = 64;

// === impl Index ===

impl Default for Index {
    fn default() -> Self {
        Self { shards: vec![Arc::default(); SHARDS].into(), bytes: 0 }
    }
}

impl Index {
    /// Returns the memory held, estimated; keys are shared with objects.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.shards) + self.bytes
    }

    /// Returns the keys of the objects that have a pair, given by its hash, in order; `None` if there
    /// are too many.
    pub fn keys(&self, pair: u64) -> Option<&[ObjectKey]> {
        match self.shards[Self::shard(pair)].get(&pair) {
            None => Some(&[]),
            Some(Keys::One(key)) => Some(slice::from_ref(key)),
            Some(Keys::Several(keys)) => Some(keys),
            Some(Keys::TooMany) => None,
        }
    }

    /// Replaces an object, or adds or removes one.
    pub fn replace(&mut self, before: Option<&Head>, after: Option<&Head>) {
        for head in before.into_iter() {
            head.pairs().for_each(|pair| self.remove(pair.hash(), &head.key));
        }
        for head in after.into_iter() {
            head.pairs().for_each(|pair| self.insert(pair.hash(), &head.key));
        }
    }

    fn insert(&mut self, pair: u64, key: &ObjectKey) {
        let shard = Arc::make_mut(&mut self.shards[Self::shard(pair)]);
        let held = match shard.entry(pair) {
            Entry::Vacant(entry) => {
                self.bytes += PAIR_BYTES;
                entry.insert(Keys::One(key.clone()));
                return;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        if let Keys::One(only) = held
            && only != key
        {
            self.bytes += SEVERAL_BYTES + size_of::<ObjectKey>();
            *held = Keys::Several(Arc::new(vec![only.clone()]));
        }
        let Keys::Several(keys) = held else { return };
        // Lists come in the order of keys.
        let place = match keys.last() {
            Some(last) if last >= key => keys.binary_search(key),
            _ => Err(keys.len()),
        };
        let Err(place) = place else { return };
        if keys.len() == KEYS_MAX {
            self.bytes -= SEVERAL_BYTES + KEYS_MAX * size_of::<ObjectKey>();
            *held = Keys::TooMany;
            return;
        }
        Arc::make_mut(keys).insert(place, key.clone());
        self.bytes += size_of::<ObjectKey>();
    }

    fn remove(&mut self, pair: u64, key: &ObjectKey) {
        let shard = Arc::make_mut(&mut self.shards[Self::shard(pair)]);
        let Some(held) = shard.get_mut(&pair) else { return };
        match held {
            Keys::One(only) if only == key => {
                shard.remove(&pair);
                self.bytes -= PAIR_BYTES;
            }
            Keys::Several(keys) => {
                let Ok(place) = keys.binary_search(key) else { return };
                let keys = Arc::make_mut(keys);
                keys.remove(place);
                self.bytes -= size_of::<ObjectKey>();
                if let [only] = &**keys {
                    *held = Keys::One(only.clone());
                    self.bytes -= SEVERAL_BYTES + size_of::<ObjectKey>();
                }
            }
            Keys::One(_) | Keys::TooMany => {}
        }
    }

    fn shard(pair: u64) -> usize {
        (pair >> 56) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{
        fixture::Pod,
        pair::{Pair, PairKind},
    };

    fn pod(name: &'static str, app: &'static str) -> Arc<Head> {
        let pod = Pod { labels: vec![("app", app)], ..Pod::new("a", name, 1) };
        pod.object().head().clone()
    }

    fn found(index: &Index, app: &str) -> Vec<String> {
        let keys = index.keys(Pair::hash_of(PairKind::Label, "app", app)).expect("few");
        keys.iter().map(|key| key.name().to_owned()).collect()
    }

    #[test]
    fn objects_are_found_by_their_labels_as_they_change() {
        let empty = Index::default();
        let mut first = empty.clone();
        for name in ["q", "r", "p"] {
            first.replace(None, Some(&pod(name, "web")));
        }
        let mut second = first.clone();
        second.replace(Some(&pod("q", "web")), Some(&pod("q", "db")));
        second.replace(Some(&pod("p", "web")), None);
        assert_eq!(
            (found(&first, "web"), found(&first, "db")),
            (vec!["p".into(), "q".into(), "r".into()], vec![])
        );
        assert_eq!(
            (found(&second, "web"), found(&second, "db")),
            (vec!["r".into()], vec!["q".into()])
        );
        let shared =
            first.shards.iter().zip(&second.shards).filter(|(old, new)| Arc::ptr_eq(old, new));
        assert!(shared.count() >= SHARDS - 8, "a pod has a few pairs");
        for (name, app) in [("r", "web"), ("q", "db")] {
            second.replace(Some(&pod(name, app)), None);
        }
        assert_eq!((second.bytes(), found(&second, "web")), (empty.bytes(), vec![]));
    }

    /// A pair of one object takes less memory, so its keys are held in another way.
    #[test]
    fn the_memory_of_a_pair_depends_only_on_its_objects() {
        const NAMES: [&str; 3] = ["p", "q", "r"];
        let mut index = Index::default();
        let mut grown = Vec::new();
        for name in NAMES {
            grown.push(index.bytes());
            index.replace(None, Some(&pod(name, "web")));
        }
        for (count, name) in NAMES.into_iter().enumerate().rev() {
            assert_eq!(found(&index, "web"), NAMES[..=count]);
            index.replace(Some(&pod(name, "web")), None);
            assert_eq!(index.bytes(), grown[count], "{count} objects");
        }
    }

    #[test]
    fn an_object_stays_under_a_hash_that_it_keeps() {
        let mut index = Index::default();
        let pod = pod("p", "web");
        index.replace(None, Some(&pod));
        index.replace(None, Some(&pod));
        index.replace(Some(&pod), Some(&pod));
        assert_eq!(found(&index, "web"), ["p"]);
    }

    #[test]
    fn a_pair_of_too_many_objects_names_none() {
        const NAMES: [&str; KEYS_MAX + 1] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let mut index = Index::default();
        let web = Pair::hash_of(PairKind::Label, "app", "web");
        for name in NAMES {
            assert!(index.keys(web).is_some());
            index.replace(None, Some(&pod(name, "web")));
        }
        for name in NAMES {
            assert_eq!(index.keys(web), None);
            index.replace(Some(&pod(name, "web")), None);
        }
        assert_eq!(found(&index, "db"), Vec::<String>::new());
    }
}
