//! The generations of CustomResourceDefinitions: which specifications have changed. Pure.

use super::events::{Definition, Generation};
use crate::hash::HashMap;

/// The generation of each definition, by name.
#[derive(Default)]
pub(super) struct Generations(HashMap<Box<str>, Generation>);

/// The limit of remembered generations. A definition of unknown generation counts as changed.
const GENERATIONS_MAX: usize = 4096;

// === impl Generations ===

impl Generations {
    /// Notes a definition; reports whether its specification may have changed.
    pub(super) fn is_new(&mut self, definition: &Definition) -> bool {
        let Some(generation) = definition.generation.clone() else { return true };
        if self.0.len() >= GENERATIONS_MAX {
            self.0.clear();
        }
        let known = self.0.insert(definition.name.clone(), generation);
        known.as_ref() != definition.generation.as_ref()
    }

    /// Notes a list of all definitions. Returns the names of those that changed or ended since the
    /// last one. Before the first list nothing is known that could have changed.
    pub(super) fn list(&mut self, listed: Vec<Definition>) -> Vec<Box<str>> {
        let mut known = std::mem::take(&mut self.0);
        let is_first = known.is_empty();
        let mut changed = Vec::new();
        for Definition { name, generation, .. } in listed {
            let before = known.remove(&name);
            if !is_first && (before.is_none() || before != generation) {
                changed.push(name.clone());
            }
            if let Some(generation) = generation
                && self.0.len() < GENERATIONS_MAX
            {
                self.0.insert(name, generation);
            }
        }
        changed.extend(known.into_keys());
        changed
    }
}
