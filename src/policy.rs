//! The policy: the resources that may be cached, the freshness of their responses, and the allowed
//! rewriting.
//!
//! Pure: it is compiled once from checked rules, then only looked up; the first matching rule wins.
//! Invariant: a confidential, lease, event or aggregated resource is cached only if a rule names it
//! ("*" does not). The policy does not cover subresources: they are never answered from the cache.

mod glob;
mod polls;
mod reserved;
mod rule;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    api::{GroupResource, form::Form, query::Query, version::Freshness},
    hash::HashMap,
};

pub use glob::{Glob, NotAGlob};
pub use polls::{RepeatAction, RepeatPolls, elects_leaders};
pub use reserved::is_reserved;
pub use rule::{
    CORE_RESOURCES, MAX_STALENESS, NotAResource, ReadVerb, Reads, ResourceName, Rule, Selectors,
    Subject,
};

/// The mode of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Answer from the cache and rewrite as the rules say.
    #[default]
    Enforce,
    /// Forward everything unchanged, and record the outcome in mode `enforce`.
    Observe,
}

/// The start of a resource's replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Start {
    /// Never: every read is forwarded.
    Never,
    /// When unsafe reads of the same query repeat.
    #[default]
    OnDemand,
    /// At the start of Listless, for as long as it runs.
    Eager,
}

/// The rewriting of an unsafe read that must be forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Rewrite {
    /// It stays unchanged.
    Keep,
    /// It asks for resourceVersion=0: the state of the apiserver's own cache.
    Any,
    /// It asks for at least the version that the session has seen, or for 0 if none is known.
    #[default]
    NotOlderThan,
}

/// The part of the policy that decided about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The rule with this index, from 0.
    Rule(usize),
    /// No rule names it, and "*" does not include it.
    Reserved,
    /// No rule matches it.
    Unmatched,
}

/// The policy for one resource in one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourcePolicy {
    /// The start of a replica.
    pub start: Start,
    /// The freshness of a response to an unsafe read.
    pub freshness: Freshness,
    /// The time for which a replica may answer after its link was lost.
    pub max_staleness: Duration,
    /// The rewriting of an unsafe read that must be forwarded. It is `Keep` if a rewriting would be
    /// weaker than the level, or if the rules exclude the resource.
    pub rewrite: Rewrite,
    /// The limits on polls that repeat; `None` without limits, or if the rules exclude the
    /// resource.
    pub repeat_polls: Option<RepeatPolls>,
    /// `true` if a rule names this resource itself instead of "*".
    pub named: bool,
    /// The part that decided.
    pub origin: Origin,
}

/// The defaults of all rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct General {
    /// The mode.
    pub mode: Mode,
    /// The rewriting of unsafe reads that must be forwarded.
    pub rewrite: Rewrite,
    /// The limits on polls that repeat.
    pub repeat_polls: RepeatPolls,
}

/// The compiled rules.
#[derive(Clone, Debug)]
pub struct Policy {
    general: General,
    named: HashMap<GroupResource, Candidates>,
    others: Candidates,
    eager: Vec<(Query, Form)>,
    heeds_user_agents: bool,
}

/// The policies that may apply to one resource, in the order of the rules; the last one applies to
/// any read.
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
        policy.eager = policy.eager_queries(rules);
        policy
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.general.mode
    }

    /// Reports whether a rule depends on the user agent.
    pub fn heeds_user_agents(&self) -> bool {
        self.heeds_user_agents
    }

    /// Returns the policy of a read.
    pub fn rules(&self, subject: &Subject<'_>) -> &ResourcePolicy {
        match self.candidates(subject.resource) {
            Some(candidates) => candidates.first(subject),
            None => &ResourcePolicy::LEFT_ALONE,
        }
    }

    /// Returns the queries to follow from the start, with the form of each.
    pub fn eager(&self) -> &[(Query, Form)] {
        &self.eager
    }

    fn candidates(&self, resource: &GroupResource) -> Option<&Candidates> {
        match self.named.get(resource) {
            Some(candidates) => Some(candidates),
            None if is_reserved(resource) => None,
            None => Some(&self.others),
        }
    }

    /// Reports whether a replica of the collection starts at once, by the rules that apply to every
    /// client's reads.
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

    /// Returns the collections that eager rules name, without those that an earlier rule excludes;
    /// the first rule that names one decides about its forms.
    fn eager_queries(&self, rules: &[Rule]) -> Vec<(Query, Form)> {
        let mut queries: Vec<(Query, Form)> = Vec::new();
        for rule in rules.iter().filter(|rule| rule.start == Start::Eager) {
            for resource in rule.resources.iter().filter_map(ResourceName::versioned) {
                let group_resource = resource.group_resource();
                for scope in rule.scopes() {
                    let starts = self.starts_eagerly(&group_resource, scope.namespace());
                    let query = Query::all(resource.clone(), scope);
                    if starts && !queries.iter().any(|(known, _)| *known == query) {
                        queries.extend(rule.forms.iter().map(|form| (query.clone(), *form)));
                    }
                }
            }
        }
        queries
    }
}

// === impl Candidates ===

impl Candidates {
    /// Returns the policies of one resource, or of every resource that no rule names.
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
    /// The policy of a reserved resource that no rule names.
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
    /// Returns the configuration's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

// === impl Start and Rewrite ===

impl Start {
    /// Returns the configuration's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::OnDemand => "onDemand",
            Self::Eager => "eager",
        }
    }
}

impl Rewrite {
    /// Returns the configuration's word, which is also the metric label.
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
