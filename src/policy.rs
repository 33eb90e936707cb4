//! Policy: what may be kept in memory, how fresh its answers must be, and what may be rewritten.
//!
//! Pure: compiled once from checked rules, then only looked up; the first matching rule wins.
//! Invariant: a confidential, lease, event or aggregated resource is used only when a rule names it
//! ("*" does not). Subresources are not its concern: they are never answered from memory.

mod glob;
mod polls;
mod reserved;
mod rule;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{GroupResource, GroupVersionResource, Scope, query::Query, version::Freshness},
    hash::HashMap,
};

pub use glob::{Glob, NotAGlob};
pub use polls::{RepeatAction, RepeatPolls, elects_leaders};
pub use reserved::is_reserved;
pub use rule::{
    MAX_STALENESS, NotAResource, ReadVerb, Reads, ResourceName, Rule, Selectors, Subject,
};

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
    /// What becomes of polls that repeat; `None` where nothing does, or the rules say to leave the
    /// resource alone.
    pub repeat_polls: Option<RepeatPolls>,
    /// Whether a rule names this resource itself rather than "*".
    pub named: bool,
    /// What decided.
    pub origin: Origin,
}

/// What holds unless a rule says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct General {
    /// Whether decisions are acted upon.
    pub mode: Mode,
    /// What becomes of unsafe reads that must be forwarded.
    pub rewrite: Rewrite,
    /// What becomes of polls that repeat.
    pub repeat_polls: RepeatPolls,
}

/// The compiled rules.
#[derive(Clone, Debug)]
pub struct Policy {
    general: General,
    named: HashMap<GroupResource, Candidates>,
    others: Candidates,
    eager: Vec<(GroupVersionResource, Scope)>,
    heeds_user_agents: bool,
}

/// What may apply to one resource, in the order of the rules; the last applies to any read.
#[derive(Clone, Debug)]
struct Candidates {
    by_read: Vec<(Reads, ResourcePolicy)>,
    otherwise: ResourcePolicy,
}

// === impl Policy ===

impl Policy {
    /// Compiles rules; the first that matches a read wins.
    pub fn new(general: &General, rules: &[Rule]) -> Self {
        let named = rules
            .iter()
            .flat_map(|rule| &rule.resources)
            .filter_map(ResourceName::group_resource)
            .map(|resource| {
                let candidates = Candidates::compile(rules, general, Some(&resource));
                (resource, candidates)
            })
            .collect();
        let others = Candidates::compile(rules, general, None);
        let heeds_user_agents = rules.iter().any(|rule| rule.reads.user_agents.is_some());
        let (general, eager) = (*general, Vec::new());
        let mut policy = Self { general, named, others, eager, heeds_user_agents };
        policy.eager = policy.eager_collections(rules);
        policy
    }

    /// Whether decisions are acted upon.
    pub fn mode(&self) -> Mode {
        self.general.mode
    }

    /// Whether it matters what a client calls itself.
    pub fn heeds_user_agents(&self) -> bool {
        self.heeds_user_agents
    }

    /// What applies to a read.
    pub fn rules(&self, subject: &Subject<'_>) -> &ResourcePolicy {
        match self.candidates(subject.resource) {
            Some(candidates) => candidates.first(subject),
            None => &ResourcePolicy::LEFT_ALONE,
        }
    }

    /// The queries to follow from the start.
    pub fn eager(&self) -> Vec<Query> {
        let collections = self.eager.iter();
        collections.map(|(resource, scope)| Query::all(resource.clone(), scope.clone())).collect()
    }

    fn candidates(&self, resource: &GroupResource) -> Option<&Candidates> {
        match self.named.get(resource) {
            Some(candidates) => Some(candidates),
            None if is_reserved(resource) => None,
            None => Some(&self.others),
        }
    }

    /// Whether a replica of the collection starts at once, by what holds for everybody's reads.
    fn starts_eagerly(&self, resource: &GroupResource, namespace: Option<&str>) -> bool {
        let subject = Subject::any(resource, namespace);
        let candidates = self.candidates(resource);
        let rules = candidates.map(|candidates| {
            let everybodys = |(reads, _): &&(Reads, _)| reads.are_everybodys();
            let mut by_read = candidates.by_read.iter().filter(everybodys);
            let found = by_read.find(|(reads, _)| reads.match_one(&subject));
            found.map_or(&candidates.otherwise, |(_, rules)| rules)
        });
        rules.is_some_and(|rules| rules.start == Start::Eager)
    }

    /// What the eager rules name, less what an earlier rule keeps from being eager.
    fn eager_collections(&self, rules: &[Rule]) -> Vec<(GroupVersionResource, Scope)> {
        let mut collections = Vec::new();
        for rule in rules.iter().filter(|rule| rule.start == Start::Eager) {
            for resource in rule.resources.iter().filter_map(ResourceName::versioned) {
                let group_resource = resource.group_resource();
                for scope in rule.scopes() {
                    let starts = self.starts_eagerly(&group_resource, scope.namespace());
                    let collection = (resource.clone(), scope);
                    if starts && !collections.contains(&collection) {
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
    fn compile(rules: &[Rule], general: &General, resource: Option<&GroupResource>) -> Self {
        let reserved = resource.is_some_and(is_reserved);
        let mut by_read = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let named = resource.is_some_and(|resource| rule.names(resource));
            if !named && (reserved || !rule.names_any()) {
                continue;
            }
            let policy = ResourcePolicy::of_rule(index, rule, named, general);
            if rule.reads.all() {
                return Self { by_read, otherwise: policy };
            }
            by_read.push((rule.reads.clone(), policy));
        }
        let unmatched = ResourcePolicy {
            origin: Origin::Unmatched,
            rewrite: general.rewrite,
            repeat_polls: acting(general.repeat_polls),
            ..ResourcePolicy::LEFT_ALONE
        };
        Self { by_read, otherwise: if reserved { ResourcePolicy::LEFT_ALONE } else { unmatched } }
    }

    fn first(&self, subject: &Subject<'_>) -> &ResourcePolicy {
        let found = self.by_read.iter().find(|(reads, _)| reads.match_one(subject));
        found.map_or(&self.otherwise, |(_, policy)| policy)
    }
}

// === impl ResourcePolicy ===

impl ResourcePolicy {
    /// What applies to a reserved resource that no rule names.
    pub const LEFT_ALONE: Self = Self {
        start: Start::Never,
        freshness: Freshness::Session,
        max_staleness: MAX_STALENESS,
        rewrite: Rewrite::Keep,
        repeat_polls: None,
        named: false,
        origin: Origin::Reserved,
    };

    fn of_rule(index: usize, rule: &Rule, named: bool, general: &General) -> Self {
        let left_alone = named && rule.start == Start::Never;
        let proven = matches!(rule.freshness, Freshness::MostRecent | Freshness::Bounded);
        let keep = left_alone || proven;
        let general_rewrite = if keep { Rewrite::Keep } else { general.rewrite };
        let general_polls = (!left_alone).then_some(general.repeat_polls);
        Self {
            start: rule.start,
            freshness: rule.freshness,
            max_staleness: rule.max_staleness,
            rewrite: rule.rewrite.unwrap_or(general_rewrite),
            repeat_polls: rule.repeat_polls.or(general_polls).and_then(acting),
            named,
            origin: Origin::Rule(index),
        }
    }
}

fn acting(polls: RepeatPolls) -> Option<RepeatPolls> {
    (polls.action != RepeatAction::Off).then_some(polls)
}

// === impl Mode ===

impl Mode {
    /// The configuration's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

// === impl Start and Rewrite ===

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

#[cfg(test)]
mod tests;
