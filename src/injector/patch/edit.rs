//! Changes of a JSON document, as a list that can be sent or applied.
//!
//! Invariant: an [`Editor`] records all its changes. Its operations, applied in order to the
//! original document, give the final document.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value};

/// A position in a document (RFC 6901).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pointer(Vec<String>);

/// One change (RFC 6902).
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The position.
    pub path: Pointer,
    /// The action.
    pub action: Action,
}

/// The action of a change.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Adds a field, or inserts an element.
    Add(Value),
    /// Replaces the value.
    Replace(Value),
    /// Removes the value.
    Remove,
}

/// A document in the course of changes.
#[derive(Debug)]
pub(super) struct Editor {
    document: Value,
    operations: Vec<Operation>,
}

// === impl Pointer ===

impl Pointer {
    /// Returns the pointer to the document itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns the pointer to a field or an element of this value.
    #[must_use]
    pub fn child(&self, token: impl ToString) -> Self {
        let mut tokens = self.0.clone();
        tokens.push(token.to_string());
        Self(tokens)
    }

    /// Returns the position of `other` if its document is placed here.
    #[must_use]
    pub fn join(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Returns the field names and indices of the path.
    pub fn tokens(&self) -> &[String] {
        &self.0
    }

    /// Returns the parent and the name in it. `None` for the document itself.
    pub fn split_last(&self) -> Option<(Self, &str)> {
        let (last, parents) = self.0.split_last()?;
        Some((Self(parents.to_vec()), last))
    }

    /// Returns the value at this position.
    pub fn of<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(document, |value, token| match value {
            Value::Object(fields) => fields.get(token),
            Value::Array(elements) => elements.get(token.parse::<usize>().ok()?),
            _ => None,
        })
    }

    fn of_mut<'a>(&self, document: &'a mut Value) -> Option<&'a mut Value> {
        self.0.iter().try_fold(document, |value, token| match value {
            Value::Object(fields) => fields.get_mut(token),
            Value::Array(elements) => elements.get_mut(token.parse::<usize>().ok()?),
            _ => None,
        })
    }
}

impl<T: ToString> FromIterator<T> for Pointer {
    fn from_iter<I: IntoIterator<Item = T>>(tokens: I) -> Self {
        Self(tokens.into_iter().map(|token| token.to_string()).collect())
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

// === impl Operation ===

impl Operation {
    /// Returns the same change for a document in which its original one is at `place`.
    #[must_use]
    pub fn below(&self, place: &Pointer) -> Self {
        Self { path: place.join(&self.path), action: self.action.clone() }
    }

    /// Applies the change. It has no effect if the position does not exist.
    pub fn apply(&self, document: &mut Value) {
        let Some((parent, last)) = self.path.split_last() else {
            if let Action::Add(value) | Action::Replace(value) = &self.action {
                *document = value.clone();
            }
            return;
        };
        match parent.of_mut(document) {
            Some(Value::Object(fields)) => self.apply_to_field(fields, last),
            Some(Value::Array(elements)) => {
                if let Ok(index) = last.parse::<usize>() {
                    self.apply_to_element(elements, index);
                }
            }
            _ => {}
        }
    }

    fn apply_to_field(&self, fields: &mut Map<String, Value>, name: &str) {
        match &self.action {
            Action::Add(value) | Action::Replace(value) => {
                fields.insert(name.to_owned(), value.clone());
            }
            Action::Remove => {
                fields.remove(name);
            }
        }
    }

    fn apply_to_element(&self, elements: &mut Vec<Value>, index: usize) {
        match &self.action {
            Action::Add(value) if index <= elements.len() => elements.insert(index, value.clone()),
            Action::Replace(value) if index < elements.len() => elements[index] = value.clone(),
            Action::Remove if index < elements.len() => drop(elements.remove(index)),
            _ => {}
        }
    }
}

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, value) = match &self.action {
            Action::Add(value) => ("add", Some(value)),
            Action::Replace(value) => ("replace", Some(value)),
            Action::Remove => ("remove", None),
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("op", name)?;
        map.serialize_entry("path", &self.path.to_string())?;
        if let Some(value) = value {
            map.serialize_entry("value", value)?;
        }
        map.end()
    }
}

// === impl Editor ===

impl Editor {
    pub(super) fn new(document: &Value) -> Self {
        Self { document: document.clone(), operations: Vec::new() }
    }

    pub(super) fn document(&self) -> &Value {
        &self.document
    }

    pub(super) fn has_changed(&self) -> bool {
        !self.operations.is_empty()
    }

    pub(super) fn finish(self) -> Vec<Operation> {
        self.operations
    }

    pub(super) fn add(&mut self, path: Pointer, value: Value) {
        self.act(path, Action::Add(value));
    }

    pub(super) fn replace(&mut self, path: Pointer, value: Value) {
        self.act(path, Action::Replace(value));
    }

    pub(super) fn remove(&mut self, path: Pointer) {
        self.act(path, Action::Remove);
    }

    /// Sets a field to a value.
    pub(super) fn set(&mut self, path: Pointer, value: Value) {
        match path.of(&self.document) {
            Some(old) if *old == value => {}
            Some(_) => self.replace(path, value),
            None => self.add(path, value),
        }
    }

    /// Turns one object into another, field by field.
    pub(super) fn morph(&mut self, path: &Pointer, into: &Value) {
        let (Some(Value::Object(old)), Value::Object(new)) = (path.of(&self.document), into) else {
            return self.set(path.clone(), into.clone());
        };
        let gone: Vec<String> = old.keys().filter(|key| !new.contains_key(*key)).cloned().collect();
        for key in gone {
            self.remove(path.child(key));
        }
        for (key, value) in new {
            self.set(path.child(key), value.clone());
        }
    }

    /// Inserts elements into a list at `index`. Returns the earlier list if it was empty, because a
    /// removed and an empty field look alike afterwards.
    pub(super) fn insert(
        &mut self,
        list: &Pointer,
        index: usize,
        elements: Vec<Value>,
    ) -> Option<Value> {
        match list.of(&self.document) {
            Some(Value::Array(there)) if !there.is_empty() => {
                let index = index.min(there.len());
                for (offset, element) in elements.into_iter().enumerate() {
                    self.add(list.child(index + offset), element);
                }
                None
            }
            there => {
                let before = there.cloned();
                self.set(list.clone(), Value::Array(elements));
                before
            }
        }
    }

    /// Removes an empty list or map, unless it was empty from the start.
    pub(super) fn tidy(&mut self, path: Pointer, was: Option<&Value>) {
        let is_empty = match path.of(&self.document) {
            Some(Value::Array(elements)) => elements.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            _ => false,
        };
        match was {
            _ if !is_empty => {}
            Some(was) => self.set(path, was.clone()),
            None => self.remove(path),
        }
    }

    fn act(&mut self, path: Pointer, action: Action) {
        let operation = Operation { path, action };
        operation.apply(&mut self.document);
        self.operations.push(operation);
    }
}
