//! The location of each field in the text, so that every problem can name its line, column and field.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{DuplicateKeyPolicy, Location, NonFiniteFloatPolicy, Spanned};

/// A line and a column, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigLocation {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: u64,
}

/// The fields of a text, in their order.
#[derive(Debug, Default)]
pub(super) struct FieldLocations {
    entries: Vec<Entry>,
    /// The bytes of all names.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    field: String,
    /// The start of the key, or of the element.
    start: ConfigLocation,
    value: ConfigLocation,
    absent: bool,
}

/// Any YAML.
enum Node {
    Null,
    Scalar,
    Sequence(Vec<Spanned<Self>>),
    Mapping(Vec<(Spanned<String>, Spanned<Self>)>),
}

/// The deepest nesting that a configuration may have. No field is deeper than eight.
pub(super) const DEPTH_MAX: usize = 16;

/// The limit of the bytes of all names: each repeats those around it. Fields beyond it have no location.
const NAMES_BYTES_MAX: usize = 1 << 20;

// === impl FieldLocations ===

impl FieldLocations {
    /// Parses the fields of a text. Empty if the text is not YAML.
    pub(super) fn read(text: &str) -> Self {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! { max_depth: DEPTH_MAX },
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        };
        let mut locations = Self::default();
        if let Ok(root) = serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options) {
            locations.add("", ConfigLocation::of(root.referenced), root);
        }
        locations
    }

    /// Returns the last field that starts at or before a location. The root's name is empty.
    pub(super) fn field_at(&self, location: ConfigLocation) -> &str {
        let begun = self.entries.iter().rev().find(|entry| entry.start <= location);
        begun.map_or("", |entry| &entry.field)
    }

    /// Returns the innermost field whose value starts at a location.
    pub(super) fn value_at(&self, location: ConfigLocation) -> &str {
        let begun = self.entries.iter().rev().find(|entry| entry.value == location);
        begun.map_or("", |entry| &entry.field)
    }

    /// Returns the location of a field's value, or of the nearest enclosing field.
    pub(super) fn location_of(&self, field: &str) -> Option<ConfigLocation> {
        let mut field = field;
        loop {
            if let Some(entry) = self.entries.iter().find(|entry| entry.field == field) {
                return Some(entry.value);
            }
            field = &field[..field.rfind(['.', '['])?];
        }
    }

    /// Returns the location of a field's key, or of the element's beginning.
    pub(super) fn start_of(&self, field: &str) -> Option<ConfigLocation> {
        self.entries.iter().find(|entry| entry.field == field).map(|entry| entry.start)
    }

    /// Returns the location of the document's beginning.
    pub(super) fn root(&self) -> Option<ConfigLocation> {
        self.entries.first().map(|entry| entry.value)
    }

    /// Returns fields without a value.
    pub(super) fn without_value(&self) -> impl Iterator<Item = (&str, ConfigLocation)> {
        let absent = self.entries.iter().filter(|entry| entry.absent && !entry.field.is_empty());
        absent.map(|entry| (entry.field.as_str(), entry.start))
    }

    fn add(&mut self, field: &str, start: ConfigLocation, node: Spanned<Node>) {
        if self.bytes > NAMES_BYTES_MAX {
            return;
        }
        self.bytes += field.len();
        let absent = matches!(node.value, Node::Null);
        let value = ConfigLocation::of(node.referenced);
        self.entries.push(Entry { field: field.to_owned(), start, value, absent });
        match node.value {
            Node::Null | Node::Scalar => {}
            Node::Sequence(elements) => {
                for (index, element) in elements.into_iter().enumerate() {
                    self.add(
                        &format!("{field}[{index}]"),
                        ConfigLocation::of(element.referenced),
                        element,
                    );
                }
            }
            Node::Mapping(pairs) => {
                for (key, value) in pairs {
                    self.add(&join(field, &key.value), ConfigLocation::of(key.referenced), value);
                }
            }
        }
    }
}

/// Joins the path of a field to its parent's.
pub(super) fn join(outer: &str, key: &str) -> String {
    if outer.is_empty() { key.to_owned() } else { format!("{outer}.{key}") }
}

// === impl ConfigLocation ===

impl ConfigLocation {
    pub(super) fn of(location: Location) -> Self {
        Self { line: location.line(), column: location.column() }
    }
}

// === impl Node ===

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Node::Sequence(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Node::Mapping(pairs))
    }
}
