//! Turns a file's shape into a checked configuration: every value within its limits, every rule
//! usable.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use super::{
    AccessLog, AuditFile, Config,
    problem::Problem,
    raw::{RawConfig, RepeatPollsSection, RuleRepeatPollsSection, RuleSection},
};
use crate::{
    limit::Rate,
    policy::{General, Policy, RepeatPolls, ResourceName, Rule, is_reserved},
};

const MEMORY_LIMIT_BYTES_MIN: u64 = 1 << 20;

/// The lowest limit of kept responses, for one body.
const RESPONSE_LIMIT_BYTES_MIN: u64 = 1 << 20;
const IDLE_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(24 * 3600);
const PER_SECOND_MAX: f64 = 1000.0;
const FROM_MEMORY_PER_SECOND: RangeInclusive<u32> = 1..=1_000_000;
const BURST: RangeInclusive<u32> = 1..=10_000;
/// The maximum delay of a poll. Clients time out after 10 s, and the response needs time too.
const MAX_DELAY_MAX: Duration = Duration::from_secs(8);
/// The limits of the audit file's size. A smaller file would rotate all the time.
const AUDIT_BYTES: RangeInclusive<u64> = 64 << 10..=1 << 40;
/// The maximum number of rules, which bounds the compiled policy.
const RULES_MAX: usize = 1000;

// === impl RawConfig ===

impl RawConfig {
    /// Returns the checked configuration, or all its problems.
    pub fn check(&self) -> Result<Config, Vec<Problem>> {
        let mut problems = Vec::new();
        self.check_amounts(&mut problems);
        let rules = self.check_rules(&mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        let general = General {
            mode: self.mode,
            rewrite: self.uncached_reads.rewrite,
            repeat_polls: self.repeat_polls.compiled(),
        };
        Ok(Config {
            policy: Arc::new(Policy::new(&general, &rules)),
            memory_limit_bytes: usize::try_from(self.cache.memory_limit.0).unwrap_or(usize::MAX),
            uncompressed_limit_bytes: usize::try_from(self.cache.uncompressed_limit.0)
                .unwrap_or(usize::MAX),
            response_limit_bytes: usize::try_from(self.cache.response_limit.0)
                .unwrap_or(usize::MAX),
            idle_timeout: self.cache.idle_timeout.0,
            check_share: self.observe.check_share,
            discovery_cache: self.discovery.cache,
            report_callers: self.report.callers,
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
        let cache = &self.cache;
        demand(cache.memory_limit.0 >= MEMORY_LIMIT_BYTES_MIN, "cache.memoryLimit", "at least 1Mi");
        let responses = cache.response_limit.0 >= RESPONSE_LIMIT_BYTES_MIN;
        demand(responses, "cache.responseLimit", "at least 1Mi");
        let idle = IDLE_TIMEOUT.contains(&cache.idle_timeout.0);
        demand(idle, "cache.idleTimeout", "from 10s to 24h");
        let share = (0.0..=1.0).contains(&self.observe.check_share);
        demand(share, "observe.checkShare", "from 0 to 1");
        demand(cache.rules.len() <= RULES_MAX, "cache.rules", "at most 1000 rules");
        demand((0.0..=1.0).contains(&self.access_log.sample), "accessLog.sample", "from 0 to 1");
        let audited = AUDIT_BYTES.contains(&self.audit.max_bytes.0);
        demand(audited, "audit.maxBytes", "from 64Ki to 1024Gi");
        self.repeat_polls.check("repeatPolls", problems);
    }

    fn check_rules(&self, problems: &mut Vec<Problem>) -> Vec<Rule> {
        let rules = self.cache.rules.iter().enumerate();
        let check = |(index, rule): (usize, &RuleSection)| {
            rule.check(&format!("cache.rules[{index}]"), &self.repeat_polls, problems)
        };
        rules.map(check).collect()
    }
}

// === impl RepeatPollsSection and RuleRepeatPollsSection ===

impl RepeatPollsSection {
    pub(super) fn check(&self, field: &str, problems: &mut Vec<Problem>) {
        let mut demand = |holds: bool, key: &str, bounds: &str| {
            if !holds {
                problems.push(Problem::new(format!("{field}.{key}"), format!("must be {bounds}")));
            }
        };
        let per_second = self.per_second > 0.0 && self.per_second <= PER_SECOND_MAX;
        demand(per_second, "perSecond", "above 0 and at most 1000");
        demand(BURST.contains(&self.burst), "burst", "from 1 to 10000");
        demand(self.max_delay.0 <= MAX_DELAY_MAX, "maxDelay", "at most 8s");
        let from_memory = FROM_MEMORY_PER_SECOND.contains(&self.from_memory_per_second);
        demand(from_memory, "fromMemoryPerSecond", "from 1 to 1000000");
    }

    /// Returns the checked settings.
    pub(super) fn compiled(&self) -> RepeatPolls {
        RepeatPolls {
            rate: Rate::new(self.per_second, self.burst),
            action: self.action,
            max_delay: self.max_delay.0,
            from_memory: Rate::new(self.from_memory_per_second.into(), self.from_memory_per_second),
        }
    }
}

impl RuleRepeatPollsSection {
    /// Fills unset keys from the file's general section.
    pub(super) fn over(&self, general: &RepeatPollsSection) -> RepeatPollsSection {
        RepeatPollsSection {
            per_second: self.per_second.unwrap_or(general.per_second),
            burst: self.burst.unwrap_or(general.burst),
            action: self.action.unwrap_or(general.action),
            max_delay: self.max_delay.unwrap_or(general.max_delay),
            from_memory_per_second: self
                .from_memory_per_second
                .unwrap_or(general.from_memory_per_second),
        }
    }
}

/// Returns warnings for names in rules that can never apply because of an earlier rule.
fn idle_names(rules: &[Rule]) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        for (position, name) in rule.resources.iter().enumerate() {
            let decided = |earlier: &Rule| earlier.reads.all() && reaches(earlier, name);
            if let Some(earlier) = rules[..index].iter().position(decided) {
                let field = format!("cache.rules[{index}].resources[{position}]");
                let message = format!(
                    "never applies: cache.rules[{earlier}] matches first; remove \
                                       this name or move the rule up"
                );
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
