//! One checked rule: which resources and namespaces it matches, and what it says about them.

use std::{str::FromStr, sync::Arc, time::Duration};

use super::Start;
use crate::api::{GroupResource, GroupVersionResource, Scope, version::Freshness};

/// One checked rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it matches.
    pub resources: Vec<ResourceName>,
    /// The namespaces it matches; absent: all of them, and cluster-scoped resources.
    pub namespaces: Option<Vec<Arc<str>>>,
    /// When a replica may come to be.
    pub start: Start,
    /// How fresh an answer to an unsafe read must be.
    pub freshness: Freshness,
    /// How long a replica may answer after its link was lost.
    pub max_staleness: Duration,
}

/// How a rule names a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResourceName {
    /// `*`: every resource that is not reserved.
    Any,
    /// `pods`, `deployments.apps` or `deployments.v1.apps`; the version only chooses what an eager
    /// rule follows.
    Named(GroupVersionResource),
}

/// Why a text names no resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAResource {
    /// Nothing, or nothing between two dots.
    #[error("has an empty part")]
    EmptyPart,
    /// A slash.
    #[error("names a subresource; subresources are always forwarded")]
    Subresource,
    /// `*` beside other characters.
    #[error("uses \"*\" as a pattern; \"*\" stands alone and means every resource")]
    Pattern,
    /// An upper-case letter.
    #[error("has an upper-case letter; a resource is named by its lower-case plural, not its kind")]
    UpperCase,
    /// Anything else that no name may have.
    #[error("has a character other than lower-case letters, digits, \"-\" and \".\"")]
    BadCharacter,
}

/// How long a replica may answer after its link was lost, unless a rule says otherwise.
pub const MAX_STALENESS: Duration = Duration::from_secs(5);

/// The version an eager rule follows when the resource is named without one.
const DEFAULT_VERSION: &str = "v1";

// === impl Rule ===

impl Rule {
    /// Whether "*" is among its resources.
    pub fn names_any(&self) -> bool {
        self.resources.contains(&ResourceName::Any)
    }

    /// Whether it names this resource itself.
    pub fn names(&self, resource: &GroupResource) -> bool {
        self.resources.iter().any(|name| name.group_resource().as_ref() == Some(resource))
    }

    /// The scopes it speaks of, widest first.
    pub fn scopes(&self) -> Vec<Scope> {
        match &self.namespaces {
            None => vec![Scope::All],
            Some(namespaces) => namespaces.iter().cloned().map(Scope::Namespace).collect(),
        }
    }
}

// === impl ResourceName ===

impl ResourceName {
    /// The resource without its version; none for `*`.
    pub fn group_resource(&self) -> Option<GroupResource> {
        self.versioned().map(|resource| resource.group_resource())
    }

    /// The resource with the version to follow; none for `*`.
    pub fn versioned(&self) -> Option<GroupVersionResource> {
        match self {
            Self::Any => None,
            Self::Named(resource) => Some(resource.clone()),
        }
    }
}

impl FromStr for ResourceName {
    type Err = NotAResource;

    fn from_str(text: &str) -> Result<Self, NotAResource> {
        if text == "*" {
            return Ok(Self::Any);
        }
        check(text)?;
        let (resource, rest) = text.split_once('.').unwrap_or((text, ""));
        let (version, group) = match rest.split_once('.') {
            _ if is_version(rest) => (rest, ""),
            Some((first, group)) if is_version(first) => (first, group),
            _ => (DEFAULT_VERSION, rest),
        };
        Ok(Self::Named(GroupVersionResource::new(group, version, resource)))
    }
}

fn check(text: &str) -> Result<(), NotAResource> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if text.contains('/') {
        Err(NotAResource::Subresource)
    } else if text.contains('*') {
        Err(NotAResource::Pattern)
    } else if text.contains(|c: char| c.is_uppercase()) {
        Err(NotAResource::UpperCase)
    } else if text.split('.').any(str::is_empty) {
        Err(NotAResource::EmptyPart)
    } else if text.contains(|c| !allowed(c)) {
        Err(NotAResource::BadCharacter)
    } else {
        Ok(())
    }
}

/// Whether a text is shaped like an API version: `v1`, `v2beta1`.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else { return false };
    let after_major = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    if after_major.len() == rest.len() {
        return false;
    }
    let minor = after_major.strip_prefix("alpha").or_else(|| after_major.strip_prefix("beta"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    after_major.is_empty() || minor.is_some_and(digits)
}
