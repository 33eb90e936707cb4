//! The nouns of the API, in Kubernetes' own words.
//!
//! Pure vocabulary: nothing here depends on tokio, hyper or any other module of the crate.

pub mod continue_token;
pub mod credential;
pub mod field;
pub mod form;
pub mod learn;
pub mod media;
pub mod protobuf;
pub mod pushback;
pub mod query;
pub mod release;
pub mod request;
pub mod selector;
pub mod status;
pub mod url;
pub mod version;
pub mod watch;

use std::{fmt, sync::Arc};

/// The API group, version and plural resource name that a URL addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The API version, such as `v1`.
    pub version: Arc<str>,
    /// The plural resource name, such as `pods`.
    pub resource: Arc<str>,
}

/// A group and resource regardless of version: versions of it share storage and resource versions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group; empty for the core group.
    pub group: Arc<str>,
    /// The plural resource name.
    pub resource: Arc<str>,
}

/// The verb of a request, as in the apiserver's RequestInfo (S-URL-03).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Watch a collection or one object.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
    /// Any other HTTP method, or a non-resource request.
    Other,
}

/// The part of a resource's objects that a request or replica covers.
///
/// The URL alone does not distinguish a cluster-scoped resource from all namespaces of a namespaced
/// one; both are [`Scope::All`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Every namespace, or a cluster-scoped resource.
    All,
    /// One namespace.
    Namespace(Arc<str>),
}

/// The storage key of an object relative to its resource: `namespace/name`, or `name` alone.
///
/// Ordered by bytes, as the apiserver orders a LIST (S-LIST-60).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

// === impl GroupVersionResource ===

impl GroupVersionResource {
    /// Creates one from its three parts.
    pub fn new(group: &str, version: &str, resource: &str) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// Returns the same without the version.
    pub fn group_resource(&self) -> GroupResource {
        let (group, resource) = (self.group.clone(), self.resource.clone());
        // Both API groups serve the same stored events (S-WRITE-21).
        if &*resource == "events" && &*group == "events.k8s.io" {
            return GroupResource { group: "".into(), resource };
        }
        GroupResource { group, resource }
    }

    /// Returns the `apiVersion` of objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the URL path of the collection in this scope.
    pub fn collection_path(&self, scope: &Scope) -> String {
        let prefix = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match scope {
            Scope::All => format!("{prefix}/{}", self.resource),
            Scope::Namespace(namespace) => {
                format!("{prefix}/namespaces/{namespace}/{}", self.resource)
            }
        }
    }
}

impl fmt::Display for GroupVersionResource {
    /// Prints `pods.v1` or `deployments.v1.apps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

// === impl GroupResource ===

impl GroupResource {
    /// Creates one from its two parts.
    pub fn new(group: &str, resource: &str) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

impl fmt::Display for GroupResource {
    /// Prints `pods` or `deployments.apps`, as the apiserver's errors do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

// === impl Verb ===

impl Verb {
    /// Returns the apiserver's lower-case word, which is also the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Other => "other",
        }
    }

    /// Reports whether the verb can change objects.
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::Create | Self::Update | Self::Patch | Self::Delete | Self::DeleteCollection
        )
    }

    /// Reports whether the verb deletes objects.
    pub fn is_deletion(self) -> bool {
        matches!(self, Self::Delete | Self::DeleteCollection)
    }
}

// === impl Scope ===

impl Scope {
    /// Returns the namespace, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::All => None,
            Self::Namespace(namespace) => Some(namespace),
        }
    }

    /// Reports whether every object of `other` lies in this scope.
    pub fn contains(&self, other: &Self) -> bool {
        *self == Self::All || self == other
    }

    /// Returns the metric label: `namespace` or `cluster`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::All => "cluster",
            Self::Namespace(_) => "namespace",
        }
    }
}

// === impl ObjectKey ===

impl ObjectKey {
    /// Creates the key of `name` in `namespace`; an absent or empty namespace means cluster-scoped.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) if !namespace.is_empty() => Self(format!("{namespace}/{name}").into()),
            _ => Self(name.into()),
        }
    }

    /// Returns the key as one string, whose byte order is the LIST order.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the namespace part, if there is one.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// Returns the name part.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}
