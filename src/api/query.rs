//! A query: the objects that a reflector follows and a read selects.

use super::{
    GroupVersionResource, Scope,
    selector::{FieldSelector, LabelSelector},
};

/// A resource, a scope and selectors. Two equal queries select the same objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// The resource.
    pub resource: GroupVersionResource,
    /// One namespace or all of them.
    pub scope: Scope,
    /// Label requirements; all must hold.
    pub labels: LabelSelector,
    /// Field requirements; all must hold.
    pub fields: FieldSelector,
}

// === impl Query ===

impl Query {
    /// Returns the query of every object of a resource in a scope.
    pub fn all(resource: GroupVersionResource, scope: Scope) -> Self {
        Self {
            resource,
            scope,
            labels: LabelSelector::everything(),
            fields: FieldSelector::everything(),
        }
    }

    /// Reports whether a replica of this query holds every object that `other` selects: its scope
    /// contains the other's, and its requirements are a subset of the other's.
    pub fn covers(&self, other: &Self) -> bool {
        self.resource == other.resource
            && self.scope.contains(&other.scope)
            && self.labels.is_subset_of(&other.labels)
            && self.fields.is_subset_of(&other.fields)
    }

    /// Returns the memory of the selectors, estimated, in bytes.
    pub fn selector_bytes(&self) -> usize {
        self.labels.bytes() + self.fields.bytes()
    }

    /// Reports whether objects of a resource have the fields that this query selects by: those of the
    /// other API group of events have others.
    pub fn can_select_among(&self, resource: &GroupVersionResource) -> bool {
        self.resource == *resource || self.fields.is_everything()
    }

    /// Reports whether the query has neither label nor field requirements.
    pub fn selects_all(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}
