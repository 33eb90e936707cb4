//! Immutable snapshots of one query's objects. Pure.
//!
//! Invariant: a snapshot is exactly the collection at one resource version (S-LIST-67).

use crate::api::{ObjectKey, query::Query, version::ResourceVersion};

use super::{object::Object, render::ListBody};
use bytes::Bytes;
use std::collections::VecDeque;

/// The state of one query at one resource version.
#[derive(Debug)]
pub struct Snapshot {
    version: ResourceVersion,
}

impl Snapshot {
    /// The version the whole snapshot is at.
    pub fn version(&self) -> &ResourceVersion {
        &self.version
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory held, estimated honestly: raw bytes and overhead.
    pub fn bytes(&self) -> usize {
        todo!()
    }

    /// The object at a key.
    pub fn object(&self, _key: &ObjectKey) -> Option<&Object> {
        todo!()
    }

    /// The objects a query selects, in LIST order.
    pub fn select(&self, _query: &Query) -> Vec<&Object> {
        todo!()
    }

    /// The apiserver's LIST body, byte for byte.
    pub fn list_body(&self, _query: &Query) -> ListBody {
        todo!()
    }

    /// The apiserver's GET body, byte for byte.
    pub fn object_body(&self, _object: &Object) -> VecDeque<Bytes> {
        todo!()
    }
}
