//! The URL grammar of resource requests (S-URL-01, S-URL-02, S-URL-04, S-URL-05, S-URL-08).

use std::{borrow::Cow, sync::Arc};

use super::super::{GroupVersionResource, Scope};
use super::parameters::decode;

/// The parts of a resource request's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) prefix: Option<Prefix>,
    pub(super) resource: GroupVersionResource,
    pub(super) scope: Scope,
    pub(super) name: Option<Arc<str>>,
    pub(super) subresource: Option<Arc<str>>,
    /// `true` if Listless does not answer this form of the path itself.
    pub(super) unusual: bool,
}

/// A deprecated word before the resource that determines the verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    Watch,
    Proxy,
}

/// The longest name of an object, a resource or a group.
pub(super) const NAME_BYTES_MAX: usize = 253;

// === impl Path ===

impl Path {
    /// Parses a percent-encoded path; `None` if it addresses no resource.
    pub(super) fn parse(encoded: &str) -> Option<Self> {
        let (decoded, lossless) = match decode(encoded, false)? {
            Cow::Borrowed(bytes) => (String::from_utf8_lossy(bytes), true),
            Cow::Owned(bytes) => (Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()), false),
        };
        let mut path = Self::from_segments(decoded.trim_matches('/').split('/'))?;
        path.unusual |= !lossless || !decoded.is_ascii() || has_odd_segments(&decoded);
        Some(path)
    }

    /// Reports whether a part is longer than any name may be.
    pub(super) fn is_oversized(&self) -> bool {
        let GroupVersionResource { group, version, resource } = &self.resource;
        let optional = [self.scope.namespace(), self.name.as_deref()];
        let parts =
            [&**group, &**version, &**resource].into_iter().chain(optional.into_iter().flatten());
        parts.map(str::len).any(|bytes| bytes > NAME_BYTES_MAX)
    }

    fn from_segments<'a>(mut segments: impl Iterator<Item = &'a str>) -> Option<Self> {
        let group = match segments.next()? {
            "api" => "",
            "apis" => segments.next()?,
            _ => return None,
        };
        let version = segments.next()?;
        let mut first = segments.next()?;
        let prefix = match first {
            "watch" => Some(Prefix::Watch),
            "proxy" => Some(Prefix::Proxy),
            _ => None,
        };
        if prefix.is_some() {
            first = segments.next()?;
        }
        let mut namespace = None;
        let (mut resource, mut name, mut subresource) = (first, segments.next(), segments.next());
        let mut unusual = prefix.is_some();
        if let ("namespaces", Some(parent)) = (first, name) {
            namespace = Some(parent);
            // `status` and `finalize` belong to the Namespace itself.
            if let Some(inner) = subresource.filter(|part| !matches!(*part, "status" | "finalize"))
            {
                (resource, name, subresource) = (inner, segments.next(), segments.next());
                // A namespace contains no Namespaces; the apiserver returns the error.
                unusual |= inner == "namespaces";
            }
        }
        let subresource = subresource.filter(|_| prefix != Some(Prefix::Proxy));
        Some(Self {
            prefix,
            resource: GroupVersionResource::new(group, version, resource),
            scope: present(namespace).map_or(Scope::All, Scope::Namespace),
            name: present(name),
            subresource: present(subresource),
            unusual,
        })
    }
}

fn present(segment: Option<&str>) -> Option<Arc<str>> {
    segment.filter(|segment| !segment.is_empty()).map(Arc::from)
}

/// Reports whether there is an empty or dot segment anywhere, the end included.
fn has_odd_segments(path: &str) -> bool {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split('/').any(|segment| matches!(segment, "" | "." | ".."))
}
