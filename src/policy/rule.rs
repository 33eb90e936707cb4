//! One checked rule: which resources and namespaces it matches, and what it says about them.

use std::{str::FromStr, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Glob, RepeatPolls, Rewrite, Start};
use crate::api::{GroupResource, GroupVersionResource, Scope, Verb, version::Freshness};

/// One checked rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What it matches.
    pub resources: Vec<ResourceName>,
    /// Which reads of them.
    pub reads: Reads,
    /// When a replica may come to be.
    pub start: Start,
    /// How fresh an answer to an unsafe read must be.
    pub freshness: Freshness,
    /// How long a replica may answer after its link was lost.
    pub max_staleness: Duration,
    /// What becomes of an unsafe read that must be forwarded; absent: as generally.
    pub rewrite: Option<Rewrite>,
    /// What becomes of polls that repeat; absent: as generally.
    pub repeat_polls: Option<RepeatPolls>,
}

/// Which reads of a resource a rule matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// In these namespaces; absent: in all of them, and of cluster-scoped resources.
    pub namespaces: Option<Vec<Arc<str>>>,
    /// With these verbs; absent: with all.
    pub verbs: Option<Vec<ReadVerb>>,
    /// Of clients that call themselves so; absent: of all.
    pub user_agents: Option<Vec<Glob>>,
    /// With or without a selector.
    pub selectors: Selectors,
}

/// A verb that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReadVerb {
    /// One object.
    Get,
    /// A collection.
    List,
    /// What becomes of a collection.
    Watch,
}

/// Whether a read has a label or field selector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Selectors {
    /// It may have one or not.
    #[default]
    Any,
    /// It has one.
    Present,
    /// It has none.
    Absent,
}

/// A read, as far as rules tell reads apart.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// What it reads.
    pub resource: &'a GroupResource,
    /// The namespace; absent for all namespaces and for cluster-scoped resources.
    pub namespace: Option<&'a str>,
    /// How it reads.
    pub verb: Verb,
    /// What its client calls itself; empty when it does not say.
    pub user_agent: &'a [u8],
    /// Whether it has a selector.
    pub selects: bool,
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
    /// A name without a group that the core group does not have.
    #[error("is not in the core group; did you mean {0:?}?")]
    DidYouMean(&'static str),
    /// The same, with no name like it.
    #[error(
        "is not in the core group; write the plural with its group, such as deployments.apps, as \
         kubectl api-resources shows them"
    )]
    NotInCore,
}

/// How long a replica may answer after its link was lost, unless a rule says otherwise.
pub const MAX_STALENESS: Duration = Duration::from_secs(5);

/// The resources of the core group.
const CORE: &[&str] = &[
    "bindings",
    "componentstatuses",
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "serviceaccounts",
    "services",
];

/// kubectl's short names, with the names they stand for.
const SHORT_NAMES: &[(&str, &str)] = &[
    ("cj", "cronjobs.batch"),
    ("cm", "configmaps"),
    ("crd", "customresourcedefinitions.apiextensions.k8s.io"),
    ("deploy", "deployments.apps"),
    ("ds", "daemonsets.apps"),
    ("ep", "endpoints"),
    ("hpa", "horizontalpodautoscalers.autoscaling"),
    ("ing", "ingresses.networking.k8s.io"),
    ("job", "jobs.batch"),
    ("lease", "leases.coordination.k8s.io"),
    ("netpol", "networkpolicies.networking.k8s.io"),
    ("no", "nodes"),
    ("ns", "namespaces"),
    ("pdb", "poddisruptionbudgets.policy"),
    ("po", "pods"),
    ("pv", "persistentvolumes"),
    ("pvc", "persistentvolumeclaims"),
    ("role", "roles.rbac.authorization.k8s.io"),
    ("rs", "replicasets.apps"),
    ("sa", "serviceaccounts"),
    ("sc", "storageclasses.storage.k8s.io"),
    ("slice", "endpointslices.discovery.k8s.io"),
    ("sts", "statefulsets.apps"),
    ("svc", "services"),
];

/// The version an eager rule follows when the resource is named without one.
const DEFAULT_VERSION: &str = "v1";

// === impl Rule ===

impl Rule {
    /// A rule for every read of these, with everything else at its default.
    pub fn of(resources: Vec<ResourceName>) -> Self {
        Self {
            resources,
            reads: Reads::default(),
            start: Start::default(),
            freshness: Freshness::default(),
            max_staleness: MAX_STALENESS,
            rewrite: None,
            repeat_polls: None,
        }
    }

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
        match &self.reads.namespaces {
            None => vec![Scope::All],
            Some(namespaces) => namespaces.iter().cloned().map(Scope::Namespace).collect(),
        }
    }
}

// === impl Reads ===

impl Reads {
    /// Whether it matches every read.
    pub fn all(&self) -> bool {
        self.namespaces.is_none() && self.are_everybodys()
    }

    /// Whether it matches, in its namespaces, however and by whomever is read.
    pub fn are_everybodys(&self) -> bool {
        self.verbs.is_none() && self.user_agents.is_none() && self.selectors == Selectors::Any
    }

    /// Whether it matches this read.
    pub fn match_one(&self, subject: &Subject<'_>) -> bool {
        let namespace =
            |names: &Vec<Arc<str>>| names.iter().any(|name| subject.namespace == Some(&**name));
        let agent = |globs: &Vec<Glob>| globs.iter().any(|glob| glob.matches(subject.user_agent));
        let verb = |verbs: &Vec<ReadVerb>| verbs.iter().any(|verb| verb.is(subject.verb));
        self.namespaces.as_ref().is_none_or(namespace)
            && self.verbs.as_ref().is_none_or(verb)
            && self.selectors.allow(subject.selects)
            && self.user_agents.as_ref().is_none_or(agent)
    }
}

// === impl ReadVerb and Selectors ===

impl ReadVerb {
    fn is(self, verb: Verb) -> bool {
        match self {
            Self::Get => verb == Verb::Get,
            Self::List => verb == Verb::List,
            Self::Watch => verb == Verb::Watch,
        }
    }
}

impl Selectors {
    fn allow(self, selects: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Present => selects,
            Self::Absent => !selects,
        }
    }
}

// === impl Subject ===

impl<'a> Subject<'a> {
    /// Any read of a resource, made by nobody in particular.
    pub fn any(resource: &'a GroupResource, namespace: Option<&'a str>) -> Self {
        Self { resource, namespace, verb: Verb::List, user_agent: b"", selects: false }
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
        check_core(text)?;
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

/// Refuses a name without a group that no apiserver serves: only Kubernetes itself adds to the core group.
fn check_core(text: &str) -> Result<(), NotAResource> {
    let (resource, rest) = text.split_once('.').unwrap_or((text, ""));
    if CORE.contains(&resource) || !(rest.is_empty() || is_version(rest)) {
        return Ok(());
    }
    let short = SHORT_NAMES.iter().find(|(short, _)| *short == resource).map(|(_, name)| *name);
    let singular = |name: &&&str| {
        let plural = name.split('.').next().unwrap_or(name);
        plural == resource || plural.strip_suffix('s') == Some(resource)
    };
    let known = SHORT_NAMES.iter().map(|(_, name)| name).chain(CORE).find(singular).copied();
    Err(short.or(known).map_or(NotAResource::NotInCore, NotAResource::DidYouMean))
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
