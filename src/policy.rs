//! Policy: what may be kept in memory, how fresh its answers must be, and what may be rewritten.
//!
//! Pure: compiled once from checked rules, then only looked up; the first matching rule wins.
//! Invariant: a confidential, lease, event or aggregated resource is used only when a rule names it
//! ("*" does not). Subresources are not its concern: they are never answered from memory.

mod reserved;
mod rule;

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{GroupResource, GroupVersionResource, Scope, query::Query, version::Freshness},
    hash::HashMap,
};

pub use reserved::is_reserved;
pub use rule::{MAX_STALENESS, NotAResource, ResourceName, Rule};

/// Whether decisions are acted upon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Answer from memory and rewrite as the rules say.
    #[default]
    Enforce,
    /// Forward everything unchanged, and account for what would have been done.
    Observe,
}

/// When a replica of a resource may come to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Start {
    /// Never: every read is forwarded.
    Never,
    /// When unsafe reads of the same query repeat.
    #[default]
    OnDemand,
    /// When Listless starts, and for as long as it runs.
    Eager,
}

/// What becomes of an unsafe read that must be forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Rewrite {
    /// It stays as it is.
    Keep,
    /// It asks for resourceVersion=0: whatever the apiserver's own cache holds.
    Any,
    /// It asks for at least what the session has seen, or for 0 when nothing is known.
    #[default]
    NotOlderThan,
}

/// Which part of the policy decided about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The rule with this index, from 0.
    Rule(usize),
    /// No rule names it, and it is one of those that "*" does not reach.
    Reserved,
    /// No rule matches it.
    Unmatched,
}

/// What the policy says about one resource in one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePolicy {
    /// When a replica may come to be.
    pub start: Start,
    /// How fresh an answer to an unsafe read must be.
    pub freshness: Freshness,
    /// How long a replica may answer after its link was lost.
    pub max_staleness: Duration,
    /// What becomes of an unsafe read that must be forwarded; `Keep` where rewriting would promise
    /// less than the level, or would touch what the rules say to leave alone.
    pub rewrite: Rewrite,
    /// Whether a rule names this resource itself rather than "*".
    pub named: bool,
    /// What decided.
    pub origin: Origin,
}

/// The compiled rules.
#[derive(Clone, Debug)]
pub struct Policy {
    mode: Mode,
    rewrite: Rewrite,
    named: HashMap<GroupResource, Candidates>,
    others: Candidates,
    eager: Vec<(GroupVersionResource, Scope)>,
}

/// What may apply to one resource, in the order of the rules; the last applies to any namespace.
#[derive(Clone, Debug)]
struct Candidates {
    by_namespace: Vec<(Vec<Arc<str>>, ResourcePolicy)>,
    otherwise: ResourcePolicy,
}

// === impl Policy ===

impl Policy {
    /// Compiles rules; the first that matches a resource and namespace wins.
    pub fn new(mode: Mode, rewrite: Rewrite, rules: &[Rule]) -> Self {
        let named = rules
            .iter()
            .flat_map(|rule| &rule.resources)
            .filter_map(ResourceName::group_resource)
            .map(|resource| {
                let candidates = Candidates::compile(rules, rewrite, Some(&resource));
                (resource, candidates)
            })
            .collect();
        let others = Candidates::compile(rules, rewrite, None);
        let mut policy = Self { mode, rewrite, named, others, eager: Vec::new() };
        policy.eager = policy.eager_collections(rules);
        policy
    }

    /// Whether decisions are acted upon.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What becomes of unsafe reads that must be forwarded, unless the resource says otherwise.
    pub fn rewrite(&self) -> Rewrite {
        self.rewrite
    }

    /// What applies to a resource; `namespace` is absent for all namespaces and for cluster-scoped
    /// resources, which only rules without `namespaces` match.
    pub fn resource(&self, resource: &GroupResource, namespace: Option<&str>) -> &ResourcePolicy {
        match self.named.get(resource) {
            Some(candidates) => candidates.first(namespace),
            None if is_reserved(resource) => &RESERVED,
            None => self.others.first(namespace),
        }
    }

    /// The queries to follow from the start; none while observing, when nothing is answered from them.
    pub fn eager(&self) -> Vec<Query> {
        let acted_upon = self.eager.iter().filter(|_| self.mode == Mode::Enforce);
        acted_upon.map(|(resource, scope)| Query::all(resource.clone(), scope.clone())).collect()
    }

    /// What the eager rules name, less what an earlier rule keeps from being eager.
    fn eager_collections(&self, rules: &[Rule]) -> Vec<(GroupVersionResource, Scope)> {
        let mut collections = Vec::new();
        for rule in rules.iter().filter(|rule| rule.start == Start::Eager) {
            for resource in rule.resources.iter().filter_map(ResourceName::versioned) {
                let group_resource = resource.group_resource();
                for scope in rule.scopes() {
                    let start = self.resource(&group_resource, scope.namespace()).start;
                    let collection = (resource.clone(), scope);
                    if start == Start::Eager && !collections.contains(&collection) {
                        collections.push(collection);
                    }
                }
            }
        }
        collections
    }
}

// === impl Candidates ===

impl Candidates {
    /// What the rules say about one resource, or about every resource that none of them names.
    fn compile(rules: &[Rule], rewrite: Rewrite, resource: Option<&GroupResource>) -> Self {
        let reserved = resource.is_some_and(is_reserved);
        let mut by_namespace = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let named = resource.is_some_and(|resource| rule.names(resource));
            if !named && (reserved || !rule.names_any()) {
                continue;
            }
            let policy = ResourcePolicy::of_rule(index, rule, named, rewrite);
            match &rule.namespaces {
                Some(namespaces) => by_namespace.push((namespaces.clone(), policy)),
                None => return Self { by_namespace, otherwise: policy },
            }
        }
        let unmatched = ResourcePolicy { origin: Origin::Unmatched, rewrite, ..RESERVED };
        Self { by_namespace, otherwise: if reserved { RESERVED } else { unmatched } }
    }

    fn first(&self, namespace: Option<&str>) -> &ResourcePolicy {
        let Some(namespace) = namespace else { return &self.otherwise };
        self.by_namespace
            .iter()
            .find(|(namespaces, _)| namespaces.iter().any(|candidate| **candidate == *namespace))
            .map_or(&self.otherwise, |(_, policy)| policy)
    }
}

// === impl ResourcePolicy ===

impl ResourcePolicy {
    fn of_rule(index: usize, rule: &Rule, named: bool, rewrite: Rewrite) -> Self {
        let left_alone = named && rule.start == Start::Never;
        let proven = matches!(rule.freshness, Freshness::MostRecent | Freshness::Bounded);
        let keep = left_alone || proven;
        Self {
            start: rule.start,
            freshness: rule.freshness,
            max_staleness: rule.max_staleness,
            rewrite: if keep { Rewrite::Keep } else { rewrite },
            named,
            origin: Origin::Rule(index),
        }
    }
}

// === impl Mode, Start and Rewrite ===

impl Mode {
    /// The configuration's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

impl Start {
    /// The configuration's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnDemand => "onDemand",
            Self::Eager => "eager",
        }
    }
}

impl Rewrite {
    /// The configuration's word, also the metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Any => "any",
            Self::NotOlderThan => "notOlderThan",
        }
    }
}

/// What applies to a reserved resource that no rule names.
const RESERVED: ResourcePolicy = ResourcePolicy {
    start: Start::Never,
    freshness: Freshness::Session,
    max_staleness: MAX_STALENESS,
    rewrite: Rewrite::Keep,
    named: false,
    origin: Origin::Reserved,
};

#[cfg(test)]
mod tests;
