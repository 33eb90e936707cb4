//! The fields that a field selector may name per resource, and their values in an object
//! (S-SEL-12).
//!
//! Built-in kinds have a fixed set. Of custom resources, only name and namespace are known: their
//! `selectableFields` are in the definition, which is not parsed here. A field that is not in the
//! table is not modelled, and the request is forwarded (S-SEL-22).

mod kinds;
mod numbers;

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use self::kinds::{Kind, find, is_in_table, kind_of};
pub use self::{
    kinds::{BUILT_IN_GROUPS, is_built_in_group},
    numbers::protobuf_field_values,
};
use super::{GroupVersionResource, Scope, selector::FieldSelector};

/// The values found so far, one entry per path of the kind.
type Values = Vec<Option<String>>;

/// The parser of one value of the object: it follows the keys of a path and skips all others.
struct Node<'a> {
    kind: &'static Kind,
    values: &'a mut Values,
    /// The paths (one bit each) that begin with the keys followed so far.
    candidates: u32,
    /// The length of those keys and their dots.
    offset: usize,
}

/// The result of a key.
enum Step {
    /// The paths that continue below this key.
    Into { candidates: u32, offset: usize },
    /// No path contains this key.
    Skip,
}

struct Key {
    kind: &'static Kind,
    candidates: u32,
    offset: usize,
}

/// Reports whether every path of the selector is in the documented set for this resource.
///
/// `metadata.namespace` of a custom resource counts as modelled here, although a cluster-scoped one
/// refuses it; [`canonical_fields`] knows the scope and is stricter.
pub fn fields_are_modelled(resource: &GroupVersionResource, fields: &FieldSelector) -> bool {
    fields.paths().all(|path| canonical_path(resource, true, path).is_some())
}

/// Returns the selector with canonical paths instead of aliases (`spec.host`); `None` if a path is
/// not modelled for this resource in this scope.
pub fn canonical_fields(
    resource: &GroupVersionResource,
    scope: &Scope,
    fields: &FieldSelector,
) -> Option<FieldSelector> {
    let namespaced = scope.namespace().is_some();
    fields.with_paths(|path| canonical_path(resource, namespaced, path))
}

/// Returns the canonical paths modelled for a resource, without `metadata.name` and
/// `metadata.namespace`.
pub fn field_paths(resource: &GroupVersionResource) -> &'static [&'static str] {
    kind_of(resource).map_or(&[], |kind| kind.paths)
}

/// Returns the values of [`field_paths`] in one object's JSON, as the server renders them, without
/// empty ones.
pub fn field_values(resource: &GroupVersionResource, object: &[u8]) -> Vec<(&'static str, String)> {
    let Some(kind) = kind_of(resource) else { return Vec::new() };
    let mut values: Values = vec![None; kind.paths.len()];
    let root = Node { kind, values: &mut values, candidates: u32::MAX, offset: 0 };
    // The values parsed from a malformed object are kept; the store refuses such objects anyway.
    root.deserialize(&mut serde_json::Deserializer::from_slice(object)).ok();
    rendered(kind, values)
}

/// Returns the non-empty values, with those that replace an empty one and those of absent fields.
fn rendered(kind: &Kind, mut values: Values) -> Vec<(&'static str, String)> {
    for (path, source) in kind.fallbacks {
        let (Some(index), Some(source)) = (kind.index(path), kind.index(source)) else { continue };
        if values[index].as_deref().unwrap_or_default().is_empty() {
            values[index] = values[source].clone();
        }
    }
    let rendered = kind.paths.iter().zip(values).filter_map(|(path, value)| {
        let value = value.or_else(|| find(kind.defaults, path).map(str::to_owned))?;
        (!value.is_empty()).then_some((*path, value))
    });
    rendered.collect()
}

fn canonical_path<'a>(
    resource: &GroupVersionResource,
    namespaced: bool,
    path: &'a str,
) -> Option<&'a str> {
    if path == "metadata.name" {
        return Some(path);
    }
    let Some(kind) = kind_of(resource) else {
        // A version of a kind that the table lists only in other versions is not known well enough.
        let known = !is_in_table(resource) && (is_built_in_group(&resource.group) || namespaced);
        return (path == "metadata.namespace" && known).then_some(path);
    };
    if path == "metadata.namespace" {
        return kind.namespace.then_some(path);
    }
    let path = find(kind.aliases, path).unwrap_or(path);
    kind.paths.contains(&path).then_some(path)
}

// === impl Key ===

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Step;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Step, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Step;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Step, E> {
        let mut candidates = 0;
        for (index, path) in self.kind.paths.iter().enumerate() {
            let rest = self.kind.place(path).get(self.offset..).unwrap_or_default();
            let follows = self.candidates & (1 << index) != 0
                && rest.strip_prefix(key).is_some_and(|r| r.is_empty() || r.starts_with('.'));
            candidates |= u32::from(follows) << index;
        }
        if candidates == 0 || key.is_empty() || key.contains('.') {
            return Ok(Step::Skip);
        }
        Ok(Step::Into { candidates, offset: self.offset + key.len() + 1 })
    }
}

// === impl Node ===

impl Node<'_> {
    /// Stores a scalar for the paths that end here.
    fn store(self, value: impl FnOnce() -> String) {
        let ends = |index: &usize| {
            let place = self.kind.place(self.kind.paths[*index]);
            self.candidates & (1 << index) != 0 && place.len() + 1 == self.offset
        };
        if let Some(index) = (0..self.values.len()).find(ends) {
            self.values[index] = Some(value());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { kind, values, candidates, offset } = self;
        while let Some(step) = map.next_key_seed(Key { kind, candidates, offset })? {
            match step {
                Step::Into { candidates, offset } => {
                    map.next_value_seed(Node { kind, values, candidates, offset })?;
                }
                Step::Skip => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        while sequence.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.store(|| value.to_owned());
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.store(|| value.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.store(|| value.to_string());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.store(|| value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
