//! The headers that the apiserver adds to every read of a resource: warnings, such as of a deprecated
//! version, and the policy that asks browsers for TLS.
//!
//! A response from the cache repeats those of the last list of a replica of the resource (S-HDR-03).

use std::sync::{Arc, PoisonError, RwLock};

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{STRICT_TRANSPORT_SECURITY, WARNING},
};

use crate::{api::GroupVersionResource, hash::HashMap};

/// The headers per resource; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct RepeatedHeaders(Arc<RwLock<HashMap<GroupVersionResource, Headers>>>);

type Headers = Vec<(HeaderName, HeaderValue)>;

/// The limit of resources with such headers; an apiserver has far fewer resources.
const RESOURCES_MAX: usize = 1024;

// === impl RepeatedHeaders ===

impl RepeatedHeaders {
    /// Stores the headers of the apiserver's response to a read of this resource.
    pub fn learn(&self, resource: &GroupVersionResource, headers: &HeaderMap) {
        let of = |name: HeaderName| {
            let values = headers.get_all(&name).iter().cloned();
            values.map(|value| (name.clone(), value)).collect::<Headers>()
        };
        let received = [of(WARNING), of(STRICT_TRANSPORT_SECURITY)].concat();
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

    /// Adds the stored headers to a response from the cache.
    pub fn repeat(&self, resource: &GroupVersionResource, headers: &mut HeaderMap) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            return;
        }
        for (name, value) in known.get(resource).into_iter().flatten() {
            headers.append(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_headers_are_repeated_until_they_end() {
        let known = RepeatedHeaders::default();
        let resource = GroupVersionResource::new("", "v1", "componentstatuses");
        let warning =
            HeaderValue::from_static("299 - \"v1 ComponentStatus is deprecated in v1.19+\"");
        let policy = HeaderValue::from_static("max-age=31536000");
        let expected =
            HeaderMap::from_iter([(WARNING, warning), (STRICT_TRANSPORT_SECURITY, policy)]);
        let mut received = expected.clone();
        received.insert(http::header::DATE, HeaderValue::from_static("now"));
        let repeated = || {
            let mut headers = HeaderMap::new();
            known.repeat(&resource, &mut headers);
            headers
        };
        assert_eq!(repeated(), HeaderMap::new());
        known.learn(&resource, &received);
        assert_eq!(repeated(), expected);
        known.learn(&resource, &HeaderMap::new());
        assert_eq!(repeated(), HeaderMap::new());
    }
}
