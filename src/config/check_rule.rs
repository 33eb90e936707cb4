//! The check of one rule.

use std::{sync::Arc, time::Duration};

use super::{
    problem::Problem,
    raw::{RepeatPollsSection, RuleSection},
};
use crate::{
    api::{field::is_built_in_group, form::Form, version::Freshness},
    policy::{Glob, ReadVerb, Reads, RepeatPolls, ResourceName, Rewrite, Rule, Start},
};

const MAX_STALENESS_MAX: Duration = Duration::from_secs(600);
/// The maximum number of patterns. Every read is compared with each of them.
const USER_AGENTS_MAX: usize = 64;

// === impl RuleSection ===

impl RuleSection {
    /// Returns the checked rule. Invalid parts are left out and added to the problems.
    pub(super) fn check(
        &self,
        field: &str,
        general: &RepeatPollsSection,
        problems: &mut Vec<Problem>,
    ) -> Rule {
        let resources = self.check_resources(field, problems);
        let reads = Reads {
            namespaces: self.check_namespaces(field, problems),
            verbs: self.check_verbs(field, problems),
            user_agents: self.check_user_agents(field, problems),
            selectors: self.selectors,
        };
        if self.start == Start::Eager && resources.contains(&ResourceName::Any) {
            let message = "eager needs resources by name; \"*\" would cache every resource";
            problems.push(Problem::new(format!("{field}.start"), message));
        }
        if self.start == Start::Eager && !reads.are_everybodys() {
            let message = "eager applies to every read; remove verbs, userAgents and selectors, or use \
                 another start";
            problems.push(Problem::new(format!("{field}.start"), message));
        }
        let forms = self.check_forms(field, &resources, problems);
        self.check_rewrite(field, problems);
        if self.max_staleness.0 > MAX_STALENESS_MAX {
            problems.push(Problem::new(format!("{field}.maxStaleness"), "must be at most 10m"));
        }
        Rule {
            resources,
            reads,
            start: self.start,
            forms,
            freshness: self.freshness,
            max_staleness: self.max_staleness.0,
            rewrite: self.rewrite,
            repeat_polls: self.check_repeat_polls(field, general, problems),
        }
    }

    fn check_forms(
        &self,
        field: &str,
        resources: &[ResourceName],
        problems: &mut Vec<Problem>,
    ) -> Vec<Form> {
        let Some(forms) = &self.forms else { return vec![Form::default()] };
        let is_custom = |name: &ResourceName| {
            name.group_resource().is_some_and(|resource| !is_built_in_group(&resource.group))
        };
        let message = if forms.is_empty() {
            Some("is empty; remove the key for json")
        } else if self.start != Start::Eager {
            Some("only an eager rule has forms; other replicas have the form that is read")
        } else if forms.contains(&Form::Protobuf) && resources.iter().any(is_custom) {
            Some("custom resources have no protobuf; name them in a rule of their own")
        } else {
            None
        };
        problems.extend(message.map(|message| Problem::new(format!("{field}.forms"), message)));
        forms.clone()
    }

    fn check_rewrite(&self, field: &str, problems: &mut Vec<Problem>) {
        let weaker = self.rewrite.is_some_and(|rewrite| rewrite != Rewrite::Keep);
        if weaker && matches!(self.freshness, Freshness::MostRecent | Freshness::Bounded) {
            let message = format!(
                "must be keep if freshness is {}, which a rewritten read would not have",
                self.freshness.as_str()
            );
            problems.push(Problem::new(format!("{field}.rewrite"), message));
        }
    }

    fn check_repeat_polls(
        &self,
        field: &str,
        general: &RepeatPollsSection,
        problems: &mut Vec<Problem>,
    ) -> Option<RepeatPolls> {
        let polls = self.repeat_polls.as_ref()?;
        let mut found = Vec::new();
        general.check("", &mut found);
        if !found.is_empty() {
            // This problem is already reported.
            return None;
        }
        let polls = polls.over(general);
        polls.check(&format!("{field}.repeatPolls"), &mut found);
        let compiled = found.is_empty().then(|| polls.compiled());
        problems.append(&mut found);
        compiled
    }

    fn check_verbs(&self, field: &str, problems: &mut Vec<Problem>) -> Option<Vec<ReadVerb>> {
        let verbs = self.verbs.as_ref()?;
        if verbs.is_empty() {
            let message = "is empty; remove the key for get, list and watch";
            problems.push(Problem::new(format!("{field}.verbs"), message));
        }
        Some(verbs.clone())
    }

    fn check_user_agents(&self, field: &str, problems: &mut Vec<Problem>) -> Option<Vec<Glob>> {
        let patterns = self.user_agents.as_ref()?;
        if patterns.is_empty() {
            let message = "is empty; remove the key for every client";
            problems.push(Problem::new(format!("{field}.userAgents"), message));
        }
        if patterns.len() > USER_AGENTS_MAX {
            let message = format!("must be at most {USER_AGENTS_MAX} patterns");
            problems.push(Problem::new(format!("{field}.userAgents"), message));
        }
        let mut globs = Vec::new();
        for (index, pattern) in patterns.iter().enumerate() {
            match pattern.parse() {
                Ok(glob) => globs.push(glob),
                Err(reason) => {
                    let field = format!("{field}.userAgents[{index}]");
                    problems.push(Problem::new(field, format!("{pattern:?} {reason}")));
                }
            }
        }
        Some(globs)
    }

    fn check_resources(&self, field: &str, problems: &mut Vec<Problem>) -> Vec<ResourceName> {
        if self.resources.is_empty() {
            let message = "is empty; use names such as pods or deployments.apps, or \"*\"";
            problems.push(Problem::new(format!("{field}.resources"), message));
        }
        let mut names = Vec::new();
        for (index, text) in self.resources.iter().enumerate() {
            match text.parse() {
                Ok(name) => names.push(name),
                Err(reason) => {
                    let field = format!("{field}.resources[{index}]");
                    problems.push(Problem::new(field, format!("{text:?} {reason}")));
                }
            }
        }
        names
    }

    fn check_namespaces(&self, field: &str, problems: &mut Vec<Problem>) -> Option<Vec<Arc<str>>> {
        let namespaces = self.namespaces.as_ref()?;
        if namespaces.is_empty() {
            let message = "is empty; remove the key for every namespace";
            problems.push(Problem::new(format!("{field}.namespaces"), message));
        }
        for (index, namespace) in namespaces.iter().enumerate() {
            if let Some(message) = namespace_problem(namespace) {
                problems.push(Problem::new(format!("{field}.namespaces[{index}]"), message));
            }
        }
        Some(namespaces.iter().map(|namespace| namespace.as_str().into()).collect())
    }
}

fn namespace_problem(name: &str) -> Option<String> {
    const LENGTH_MAX: usize = 63;
    if name == "*" {
        return Some("\"*\" is not a namespace; remove the key for every namespace".to_owned());
    }
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let well_formed = (1..=LENGTH_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-');
    (!well_formed).then(|| {
        format!("{name:?} is not a namespace; use up to 63 lower-case letters, digits and \"-\"")
    })
}
