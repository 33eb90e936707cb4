//! Warnings the apiserver attaches to every read of a resource, such as of a deprecated version.
//!
//! What it said with its last own answer is said with ours (S-HDR-03): clients print it.

use std::sync::{Arc, PoisonError, RwLock};

use http::{HeaderMap, HeaderValue, header};

use crate::{api::GroupVersionResource, hash::HashMap};

/// The warnings per resource; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<RwLock<HashMap<GroupVersionResource, Vec<HeaderValue>>>>);

/// Resources with warnings that are remembered; an apiserver deprecates far fewer.
const RESOURCES_MAX: usize = 1024;

// === impl Warnings ===

impl Warnings {
    /// Takes over what the apiserver's answer to a read of this resource says.
    pub fn learn(&self, resource: &GroupVersionResource, headers: &HeaderMap) {
        let said: Vec<_> = headers.get_all(header::WARNING).iter().cloned().collect();
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if known.get(resource).map_or(said.is_empty(), |known| *known == said) {
            return;
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if said.is_empty() {
            known.remove(resource);
        } else if known.len() < RESOURCES_MAX || known.contains_key(resource) {
            known.insert(resource.clone(), said);
        }
    }

    /// Says the same in an answer of ours.
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
    fn what_was_said_last_is_repeated_until_it_is_no_longer_said() {
        let warnings = Warnings::default();
        let resource = GroupVersionResource::new("", "v1", "componentstatuses");
        let said = HeaderMap::from_iter([(
            header::WARNING,
            HeaderValue::from_static("299 - \"v1 ComponentStatus is deprecated in v1.19+\""),
        )]);
        let repeated = || {
            let mut headers = HeaderMap::new();
            warnings.repeat(&resource, &mut headers);
            headers
        };
        assert_eq!(repeated(), HeaderMap::new());
        warnings.learn(&resource, &said);
        assert_eq!(repeated(), said);
        warnings.learn(&resource, &HeaderMap::new());
        assert_eq!(repeated(), HeaderMap::new());
    }
}
