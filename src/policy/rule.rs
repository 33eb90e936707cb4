//! One checked rule: the resources and reads that it matches, and its settings.

use std::{str::FromStr, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Glob, RepeatPolls, Rewrite, Start};
use crate::api::{
    GroupResource, GroupVersionResource, Scope, Verb, form::Form, version::Freshness,
};

/// One checked rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The resources that it matches.
    pub resources: Vec<ResourceName>,
    /// The reads of them that it matches.
    pub reads: Reads,
    /// The start of a replica.
    pub start: Start,
    /// The forms of its eager replicas.
    pub forms: Vec<Form>,
    /// The freshness of a response to an unsafe read.
    pub freshness: Freshness,
    /// The time for which a replica may answer after its link was lost.
    pub max_staleness: Duration,
    /// The rewriting of an unsafe read that must be forwarded; absent: the default.
    pub rewrite: Option<Rewrite>,
    /// The limits on polls that repeat; absent: the default.
    pub repeat_polls: Option<RepeatPolls>,
}

/// The reads of a resource that a rule matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The namespaces; absent: all of them, and cluster-scoped resources.
    pub namespaces: Option<Vec<Arc<str>>>,
    /// The verbs; absent: all.
    pub verbs: Option<Vec<ReadVerb>>,
    /// The patterns of user agents; absent: all clients.
    pub user_agents: Option<Vec<Glob>>,
    /// The selectors.
    pub selectors: Selectors,
}

/// A verb that reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReadVerb {
    /// A read of one object.
    Get,
    /// A read of a collection.
    List,
    /// A watch of a collection.
    Watch,
}

/// The condition on a read's label and field selectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Selectors {
    /// Any read, with or without a selector.
    #[default]
    Any,
    /// Only with a selector.
    Present,
    /// Only without one.
    Absent,
}

/// The properties of a read that rules depend on.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The resource.
    pub resource: &'a GroupResource,
    /// The namespace; absent for all namespaces and for cluster-scoped resources.
    pub namespace: Option<&'a str>,
    /// The verb.
    pub verb: Verb,
    /// The user agent; empty if there is none.
    pub user_agent: &'a [u8],
    /// `true` if it has a selector.
    pub selects: bool,
}

/// A resource as a rule names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ResourceName {
    /// `*`: every resource that is not reserved.
    Any,
    /// `pods`, `deployments.apps` or `deployments.v1.apps`; the version only selects the version
    /// that an eager rule follows.
    Named(GroupVersionResource),
}

/// The reason why a text names no resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAResource {
    /// The text, or a part between two dots, is empty.
    #[error("has an empty part")]
    EmptyPart,
    /// It has a slash.
    #[error("names a subresource; subresources are always forwarded")]
    Subresource,
    /// It has `*` beside other characters.
    #[error("uses \"*\" as a pattern; \"*\" stands alone and means every resource")]
    Pattern,
    /// It has an upper-case letter.
    #[error("has an upper-case letter; a resource is named by its lower-case plural, not its kind")]
    UpperCase,
    /// It has another character that no name contains.
    #[error("has a character other than lower-case letters, digits, \"-\" and \".\"")]
    BadCharacter,
    /// It is a name without a group that the core group does not have; the payload is a similar
    /// name.
    #[error("is not in the core group; did you mean {0:?}?")]
    DidYouMean(&'static str),
    /// It is such a name, and no similar one is known.
    #[error(
        "is not in the core group; write the plural with its group, such as deployments.apps, as \
         kubectl api-resources shows them"
    )]
    NotInCore,
}

/// The default time for which a replica may answer after its link was lost.
pub const MAX_STALENESS: Duration = Duration::from_secs(5);

/// The resources of the core group.
pub const CORE_RESOURCES: &[&str] = &[
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

/// The short names of kubectl, with the names they stand for.
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
    /// Creates a rule for every read of these resources, with default settings.
    pub fn of(resources: Vec<ResourceName>) -> Self {
        Self {
            resources,
            reads: Reads::default(),
            start: Start::default(),
            forms: vec![Form::default()],
            freshness: Freshness::default(),
            max_staleness: MAX_STALENESS,
            rewrite: None,
            repeat_polls: None,
        }
    }

    /// Reports whether "*" is among its resources.
    pub fn names_any(&self) -> bool {
        self.resources.contains(&ResourceName::Any)
    }

    /// Reports whether it names this resource itself.
    pub fn names(&self, resource: &GroupResource) -> bool {
        self.resources.iter().any(|name| name.group_resource().as_ref() == Some(resource))
    }

    /// Returns its scopes, widest first.
    pub fn scopes(&self) -> Vec<Scope> {
        match &self.reads.namespaces {
            None => vec![Scope::All],
            Some(namespaces) => namespaces.iter().cloned().map(Scope::Namespace).collect(),
        }
    }
}

// === impl Reads ===

impl Reads {
    /// Reports whether it matches every read.
    pub fn all(&self) -> bool {
        self.namespaces.is_none() && self.are_everybodys()
    }

    /// Reports whether it matches every read within its namespaces, by every client.
    pub fn are_everybodys(&self) -> bool {
        self.verbs.is_none() && self.user_agents.is_none() && self.selectors == Selectors::Any
    }

    /// Reports whether it matches this read.
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
    /// Returns any read of a resource, without a client.
    pub fn any(resource: &'a GroupResource, namespace: Option<&'a str>) -> Self {
        Self { resource, namespace, verb: Verb::List, user_agent: b"", selects: false }
    }
}

// === impl ResourceName ===

impl ResourceName {
    /// Returns the resource without its version; `None` for `*`.
    pub fn group_resource(&self) -> Option<GroupResource> {
        self.versioned().map(|resource| resource.group_resource())
    }

    /// Returns the resource with the version to follow; `None` for `*`.
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

/// Refuses a name without a group that no apiserver serves: only Kubernetes itself adds to the core
/// group.
fn check_core(text: &str) -> Result<(), NotAResource> {
    let (resource, rest) = text.split_once('.').unwrap_or((text, ""));
    if CORE_RESOURCES.contains(&resource) || !(rest.is_empty() || is_version(rest)) {
        return Ok(());
    }
    let short = SHORT_NAMES.iter().find(|(short, _)| *short == resource).map(|(_, name)| *name);
    let singular = |name: &&&str| {
        let plural = name.split('.').next().unwrap_or(name);
        plural == resource || plural.strip_suffix('s') == Some(resource)
    };
    let known =
        SHORT_NAMES.iter().map(|(_, name)| name).chain(CORE_RESOURCES).find(singular).copied();
    Err(short.or(known).map_or(NotAResource::NotInCore, NotAResource::DidYouMean))
}

/// Reports whether a text has the form of an API version: `v1`, `v2beta1`.
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
