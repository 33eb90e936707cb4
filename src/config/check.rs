//! From a file's shape to a checked configuration: every value within its bounds, every rule usable.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use super::{
    AccessLog, AuditFile, Config, RepeatPolls,
    problem::Problem,
    raw::{RawConfig, RuleSection},
};
use crate::policy::{Policy, ResourceName, Rule, Start, is_reserved};

const MEMORY_LIMIT_BYTES_MIN: u64 = 1 << 20;
const IDLE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
const MAX_STALENESS_MAX: Duration = Duration::from_secs(600);
const PER_SECOND_MAX: f64 = 1000.0;
const BURST: RangeInclusive<u32> = 1..=10_000;
/// Clients give up after 10 s.
const MAX_DELAY_MAX: Duration = Duration::from_secs(9);
/// A smaller file would be begun anew all the time.
const AUDIT_BYTES: RangeInclusive<u64> = 64 << 10..=1 << 40;
/// More than anyone writes by hand; keeps what is compiled small.
const RULES_MAX: usize = 1000;

// === impl RawConfig ===

impl RawConfig {
    /// The checked configuration, or everything that is wrong with this one.
    pub fn check(&self) -> Result<Config, Vec<Problem>> {
        let mut problems = Vec::new();
        self.check_amounts(&mut problems);
        let rules = self.check_rules(&mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Config {
            policy: Arc::new(Policy::new(self.mode, self.uncached_reads.rewrite, &rules)),
            memory_limit_bytes: usize::try_from(self.cache.memory_limit.0).unwrap_or(usize::MAX),
            idle_timeout: self.cache.idle_timeout.0,
            repeat_polls: RepeatPolls {
                per_second: self.repeat_polls.per_second,
                burst: self.repeat_polls.burst,
                action: self.repeat_polls.action,
                max_delay: self.repeat_polls.max_delay.0,
            },
            discovery_cache: self.discovery.cache,
            access_log: AccessLog { level: self.access_log.level, sample: self.access_log.sample },
            audit: (!self.audit.file.is_empty()).then(|| AuditFile {
                file: self.audit.file.as_str().into(),
                bytes_max: self.audit.max_bytes.0,
            }),
            warnings: idle_names(&rules),
            raw: self.clone(),
        })
    }

    fn check_amounts(&self, problems: &mut Vec<Problem>) {
        let mut demand = |holds: bool, field: &str, bounds: &str| {
            if !holds {
                problems.push(Problem::new(field, format!("must be {bounds}")));
            }
        };
        let (cache, polls) = (&self.cache, &self.repeat_polls);
        demand(cache.memory_limit.0 >= MEMORY_LIMIT_BYTES_MIN, "cache.memoryLimit", "at least 1Mi");
        let idle = IDLE_TIMEOUT.contains(&cache.idle_timeout.0);
        demand(idle, "cache.idleTimeout", "from 10s to 24h");
        let per_second = polls.per_second > 0.0 && polls.per_second <= PER_SECOND_MAX;
        demand(per_second, "repeatPolls.perSecond", "above 0 and at most 1000");
        demand(BURST.contains(&polls.burst), "repeatPolls.burst", "from 1 to 10000");
        demand(polls.max_delay.0 <= MAX_DELAY_MAX, "repeatPolls.maxDelay", "at most 9s");
        demand(cache.rules.len() <= RULES_MAX, "cache.rules", "at most 1000 rules");
        demand((0.0..=1.0).contains(&self.access_log.sample), "accessLog.sample", "from 0 to 1");
        let audited = AUDIT_BYTES.contains(&self.audit.max_bytes.0);
        demand(audited, "audit.maxBytes", "from 64Ki to 1024Gi");
    }

    fn check_rules(&self, problems: &mut Vec<Problem>) -> Vec<Rule> {
        let rules = self.cache.rules.iter().enumerate();
        rules.map(|(index, rule)| rule.check(&format!("cache.rules[{index}]"), problems)).collect()
    }
}

// === impl RuleSection ===

impl RuleSection {
    /// The checked rule; what could not be read is missing from it and among the problems.
    fn check(&self, field: &str, problems: &mut Vec<Problem>) -> Rule {
        let resources = self.check_resources(field, problems);
        let namespaces = self.check_namespaces(field, problems);
        if self.start == Start::Eager && resources.contains(&ResourceName::Any) {
            let message = "eager needs resources named one by one; \"*\" would follow everything";
            problems.push(Problem::new(format!("{field}.start"), message));
        }
        if self.max_staleness.0 > MAX_STALENESS_MAX {
            problems.push(Problem::new(format!("{field}.maxStaleness"), "must be at most 10m"));
        }
        Rule {
            resources,
            namespaces,
            start: self.start,
            freshness: self.freshness,
            max_staleness: self.max_staleness.0,
        }
    }

    fn check_resources(&self, field: &str, problems: &mut Vec<Problem>) -> Vec<ResourceName> {
        if self.resources.is_empty() {
            let message =
                "names nothing; expected names such as pods or deployments.apps, or \"*\"";
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
            let message = "names nothing; leave the key out for every namespace";
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
        return Some("\"*\" is no namespace; leave the key out for every namespace".to_owned());
    }
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let well_formed = (1..=LENGTH_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('-')
        && !name.ends_with('-');
    (!well_formed).then(|| {
        format!("{name:?} is no namespace; expected up to 63 lower-case letters, digits and \"-\"")
    })
}

/// Names in rules that an earlier rule leaves nothing to decide about.
fn idle_names(rules: &[Rule]) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        for (position, name) in rule.resources.iter().enumerate() {
            let decided = |earlier: &Rule| earlier.namespaces.is_none() && reaches(earlier, name);
            if let Some(earlier) = rules[..index].iter().position(decided) {
                let field = format!("cache.rules[{index}].resources[{position}]");
                let message = format!("never applies: cache.rules[{earlier}] decides before it");
                warnings.push(Problem::new(field, message));
            }
        }
    }
    warnings
}

fn reaches(rule: &Rule, name: &ResourceName) -> bool {
    match name.group_resource() {
        None => rule.names_any(),
        Some(resource) => rule.names(&resource) || (rule.names_any() && !is_reserved(&resource)),
    }
}
