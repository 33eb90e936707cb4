//! The warnings that the apiserver attaches to every read of a resource, such as of a deprecated
//! version.
//!
//! A response from the cache repeats the warnings of the last list of a replica of the resource
//! (S-HDR-03): clients print them.

use std::sync::{Arc, PoisonError, RwLock};

use http::{HeaderMap, HeaderValue, header};

use crate::{api::GroupVersionResource, hash::HashMap};

/// The warnings per resource; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<RwLock<HashMap<GroupVersionResource, Vec<HeaderValue>>>>);

/// The limit of resources with warnings; an apiserver deprecates far fewer.
const RESOURCES_MAX: usize = 1024;

// === impl Warnings ===

impl Warnings {
    /// Stores the warnings of the apiserver's response to a read of this resource.
    pub fn learn(&self, resource: &GroupVersionResource, headers: &HeaderMap) {
        let received: Vec<_> = headers.get_all(header::WARNING).iter().cloned().collect();
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if known.get(resource).map_or(received.is_empty(), |known| *known == received) {
            return;
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if received.is_empty() {
            known.remove(resource);
        } else if known.len() < RESOURCES_MAX || known.contains_key(resource) {
            known.insert(resource.clone(), received);
        }
    }

    /// Adds the stored warnings to a response from the cache.
    pub fn repeat(&self, resource: &GroupVersionResource, headers: &mut HeaderMap) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return;
        }
        for warning in known.get(resource).into_iter().flatten() {
            headers.append(header::WARNING, warning.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_warnings_are_repeated_until_they_end() {
        let warnings = Warnings::default();
        let resource = GroupVersionResource::new("", "v1", "componentstatuses");
        let received = HeaderMap::from_iter([(
            header::WARNING,
            HeaderValue::from_static("299 - \"v1 ComponentStatus is deprecated in v1.19+\""),
        )]);
        let repeated = || {
            let mut headers = HeaderMap::new();
            warnings.repeat(&resource, &mut headers);
            headers
        };
        assert_eq!(repeated(), HeaderMap::new());
        warnings.learn(&resource, &received);
        assert_eq!(repeated(), received);
        warnings.learn(&resource, &HeaderMap::new());
        assert_eq!(repeated(), HeaderMap::new());
    }
}
