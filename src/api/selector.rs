//! Label and field selectors: parse, match, print.
#![expect(unused_variables, missing_docs, reason = "stub")]

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LabelSelector(std::sync::Arc<[()]>);
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldSelector(std::sync::Arc<[()]>);
/// The parser's text, as the apiserver words it where known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub String);

/// Read access to an object's labels.
pub trait Labels {
    fn label(&self, key: &str) -> Option<&str>;
}
/// Read access to an object's modelled fields; a missing field reads as "" (S-SEL-11).
pub trait Fields {
    fn field(&self, path: &str) -> Option<&str>;
}

impl LabelSelector {
    pub fn everything() -> Self {
        todo!()
    }
    /// Full S-SEL-01..05 grammar; requirements are normalised (sorted, deduplicated, values sorted).
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        todo!()
    }
    pub fn matches(&self, labels: &impl Labels) -> bool {
        todo!()
    }
    pub fn is_everything(&self) -> bool {
        todo!()
    }
    pub fn is_subset_of(&self, other: &Self) -> bool {
        todo!()
    }
    /// A (key, value) pair every match must carry (`=`, `==`, or `in` with one value), for index use.
    pub fn pinned_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        std::iter::empty()
    }
}
impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
impl FieldSelector {
    pub fn everything() -> Self {
        todo!()
    }
    /// S-SEL-10 syntax only; which fields are known is `modelled_fields`.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        todo!()
    }
    pub fn matches(&self, fields: &impl Fields) -> bool {
        todo!()
    }
    pub fn is_everything(&self) -> bool {
        todo!()
    }
    pub fn is_subset_of(&self, other: &Self) -> bool {
        todo!()
    }
    /// The field paths named.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
    /// The value the field is required to equal, if any.
    pub fn pinned(&self, path: &str) -> Option<&str> {
        todo!()
    }
    pub fn pinned_pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        std::iter::empty()
    }
    pub fn name(name: &str) -> Self {
        todo!()
    }
}
impl std::fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
/// Whether every path of the selector is in the documented set for this resource (api-semantics 6.3).
/// Aliases (`spec.host`) resolve to canonical paths via `canonical_field`.
pub fn fields_are_modelled(resource: &super::GroupVersionResource, fields: &FieldSelector) -> bool {
    todo!()
}
/// The field values of one object, read from its JSON, for the paths modelled for its resource beyond
/// metadata.name and metadata.namespace, rendered as the server renders them; empty ones omitted.
pub fn field_paths(resource: &super::GroupVersionResource) -> &'static [&'static str] {
    todo!()
}
pub fn field_values(
    resource: &super::GroupVersionResource,
    object: &[u8],
) -> Vec<(&'static str, String)> {
    todo!()
}
