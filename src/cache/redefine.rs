//! Objects whose bytes change while their versions stay: the affected replicas list again.

use super::{Cache, Inner, Query};
use crate::api::{GroupResource, field};

// === impl Cache ===

impl Cache {
    /// Notes that the definition of a resource has changed. The apiserver may return its objects
    /// with other bytes at the same versions. Its replicas list again.
    pub fn redefine(&self, resource: &GroupResource) {
        self.0.redefine(resource);
    }

    /// Notes that another server now serves a version of a group. Its replicas list again.
    pub fn redirect(&self, group: &str, version: &str) {
        self.0.redefine_if(|Query { resource, .. }| {
            *resource.group == *group && *resource.version == *version
        });
    }

    /// Notes that the apiserver may return any object with other bytes at the same version. Every
    /// replica lists again.
    pub fn redefine_all(&self) {
        self.0.outstanding.forget();
        self.0.redefine_if(|_| true);
    }

    /// Reports whether there is no replica.
    pub fn is_empty(&self) -> bool {
        self.0.set().members().next().is_none()
    }

    /// Reports whether there are replicas of custom resources, whose definitions may change.
    pub fn holds_custom(&self) -> bool {
        let is_custom = |query: &Query| !field::is_built_in_group(&query.resource.group);
        self.0.set().members().any(|member| is_custom(member.replica.query()))
    }
}

// === impl Inner ===

impl Inner {
    pub(super) fn redefine(&self, resource: &GroupResource) {
        self.redefine_if(|query| query.resource.group_resource() == *resource);
    }

    fn redefine_if(&self, concerns: impl Fn(&Query) -> bool) {
        let set = self.set();
        let concerned = set.members().filter(|member| concerns(member.replica.query()));
        concerned.for_each(|member| member.replica.redefine());
    }
}
