//! The paths that the apiserver serves, as far as a replica shows. Pure.

use crate::{
    api::{Scope, query::Query},
    cache::store::Snapshot,
};

/// Reports whether the apiserver serves the read's path at all. A URL does not show whether its
/// resource is namespaced. The wrong form is a 404 of another shape than the 404 of an object
/// (S-URL-12).
pub(super) fn is_path_known(
    query: &Query,
    named: bool,
    replica: &Query,
    snapshot: &Snapshot,
) -> bool {
    match (&query.scope, &replica.scope) {
        (Scope::Namespace(_), Scope::Namespace(_)) => true,
        (Scope::Namespace(_), Scope::All) => snapshot.is_namespaced() == Some(true),
        (Scope::All, _) if !named => true,
        (Scope::All, _) => snapshot.is_namespaced() == Some(false),
    }
}
