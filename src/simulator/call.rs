//! One parsed request for a resource.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Features,
    kind::ResourceType,
    options::{ListOptions, Purpose},
    route::{Parameters, Target},
    status::StatusFailure,
};
use crate::api::{ObjectKey, Verb};

/// A request for a resource that the simulator serves.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The verb.
    pub verb: Verb,
    /// The resource.
    pub kind: Arc<ResourceType>,
    /// The parts of the path.
    pub target: Target,
    /// The query.
    pub parameters: Parameters,
    /// The Content-Type without parameters, lower case.
    pub content_type: String,
    /// The whole body.
    pub body: Bytes,
}

// === impl Call ===

impl Call {
    /// Returns the storage key of the object in the path.
    pub(super) fn key(&self) -> ObjectKey {
        let namespace = self.namespace();
        ObjectKey::new(namespace, self.target.name.as_deref().unwrap_or_default())
    }

    /// Returns the namespace of this request's objects.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref().filter(|_| self.kind.namespaced)
    }

    /// Returns the checked list or watch options.
    pub(super) fn list_options(
        &self,
        features: Features,
        purpose: Purpose,
    ) -> Result<ListOptions, StatusFailure> {
        ListOptions::parse(&self.kind, &self.target, &self.parameters, purpose, features)
    }

    /// Reports whether the request is a dry run (`dryRun=All`).
    pub(super) fn dry_run(&self) -> bool {
        self.parameters.value("dryRun").is_some_and(|value| !value.is_empty())
    }
}
