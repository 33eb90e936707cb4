//! One request for a resource, read once and passed to whoever answers it.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Features,
    kind::ResourceType,
    options::{ListOptions, Purpose},
    route::{Parameters, Target},
    status::Failure,
};
use crate::api::{ObjectKey, Verb};

/// A request for a resource the simulator serves.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// What it does.
    pub verb: Verb,
    /// The resource.
    pub kind: Arc<ResourceType>,
    /// The path's parts.
    pub target: Target,
    /// The query.
    pub parameters: Parameters,
    /// The Content-Type without parameters, lower case.
    pub content_type: String,
    /// The body, read whole.
    pub body: Bytes,
}

// === impl Call ===

impl Call {
    /// The storage key of the object the path names.
    pub(super) fn key(&self) -> ObjectKey {
        let namespace = self.namespace();
        ObjectKey::new(namespace, self.target.name.as_deref().unwrap_or_default())
    }

    /// The namespace objects of this request live in.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref().filter(|_| self.kind.namespaced)
    }

    /// The checked list or watch options.
    pub(super) fn list_options(
        &self,
        features: Features,
        purpose: Purpose,
    ) -> Result<ListOptions, Failure> {
        ListOptions::parse(&self.kind, &self.target, &self.parameters, purpose, features)
    }

    /// Whether nothing may be stored (`dryRun=All`).
    pub(super) fn dry_run(&self) -> bool {
        self.parameters.value("dryRun").is_some_and(|value| !value.is_empty())
    }
}
