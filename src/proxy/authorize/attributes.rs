//! The attributes of an access review: `authorization.k8s.io/v1` ResourceAttributes. Pure.

use std::sync::Arc;

use serde::Serialize;

use crate::{
    api::{
        GroupVersionResource, Scope, Verb,
        request::{Read, ResourceRequest},
    },
    proxy::identify::Caller,
};

/// The `authorization.k8s.io/v1` ResourceAttributes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Attributes {
    pub(super) verb: &'static str,
    pub(super) group: Arc<str>,
    pub(super) version: Arc<str>,
    pub(super) resource: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Arc<str>>,
}

// === impl Attributes ===

impl Attributes {
    /// Returns the attributes of `verb` on a resource; without a name, on all of its objects in the
    /// scope.
    pub fn new(
        verb: Verb,
        resource: &GroupVersionResource,
        scope: &Scope,
        name: Option<&str>,
    ) -> Self {
        Self {
            verb: verb.as_str(),
            group: resource.group.clone(),
            version: resource.version.clone(),
            resource: resource.resource.clone(),
            namespace: scope.namespace().map(Into::into),
            name: name.map(Into::into),
        }
    }

    /// Returns the attributes of a read by this caller.
    ///
    /// For a bearer, these are the attributes that the apiserver itself would check (S-AUTHZ-03),
    /// without selectors: a caller who may read all objects may read some. Listless's own user
    /// filled the replica. Its review is for all objects of the scope, and one review serves many
    /// reads.
    pub fn of_read(caller: Caller, request: &ResourceRequest, read: &Read) -> Self {
        let verb = if read.name.is_some() { Verb::Get } else { Verb::List };
        match caller {
            Caller::Bearer(_) => {
                Self::new(verb, &request.resource, &request.scope, read.review_name())
            }
            Caller::Own | Caller::Other(_) => {
                Self::new(verb, &read.query.resource, &read.query.scope, None)
            }
        }
    }
}
