//! The report of Listless about a driver: its name, its period, and the change to make.

use std::fmt;

use anyhow::Result;
use serde::Deserialize;

use super::driver::Driver;
use super::tally::Tally;
use crate::rig::proxy_process::ProxyProcess;

/// The tolerated difference between the reported period and the driver's own.
const PERIOD_TOLERANCE: f64 = 0.1;

/// The parts of the report that the test reads.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    polls: Vec<Poll>,
    findings: Vec<Finding>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Poll {
    user_agent: String,
    saved: Requests,
    would_save: Requests,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Requests {
    requests: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Finding {
    id: String,
    user_agent: String,
    library: String,
    verb: String,
    resource: String,
    period_seconds: Option<f64>,
    evidence: String,
    fix: String,
}

/// The expected report about a driver.
#[derive(Clone, Copy, Debug)]
pub struct Culprit {
    /// The beginning of its User-Agent.
    pub user_agent: &'static str,
    /// The library.
    pub library: &'static str,
    /// The patterns that must be found.
    pub findings: &'static [Pattern],
}

/// One pattern.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Its id.
    pub id: &'static str,
    /// The verb, and the beginning of the resource or path.
    pub of: (&'static str, &'static str),
    /// A word of the remedy for the library's users.
    pub fix: &'static str,
}

// === impl Report ===

impl Report {
    /// Requests the report.
    pub async fn read(proxy: &ProxyProcess) -> Result<Self> {
        Ok(serde_json::from_str(&proxy.admin("/api/v1/report").await?)?)
    }

    /// The requests of a client that the apiserver was saved.
    pub fn saved(&self, user_agent: &str) -> u64 {
        self.of(user_agent).map(|poll| poll.saved.requests).sum()
    }

    /// The requests of a client that the apiserver would have been saved.
    pub fn would_save(&self, user_agent: &str) -> u64 {
        self.of(user_agent).map(|poll| poll.would_save.requests).sum()
    }

    fn of<'a>(&'a self, user_agent: &'a str) -> impl Iterator<Item = &'a Poll> {
        self.polls.iter().filter(move |poll| poll.user_agent.starts_with(user_agent))
    }

    /// Every missing or wrong statement.
    pub fn wrong(&self, driver: Driver, tally: &Tally) -> Vec<String> {
        let culprit = driver.culprit();
        let mut wrong: Vec<String> = culprit
            .findings
            .iter()
            .filter_map(|pattern| self.misses(&culprit, pattern, Some(tally.period_seconds)))
            .collect();
        let others =
            self.findings.iter().filter(|it| !it.user_agent.starts_with(culprit.user_agent));
        wrong.extend(others.map(|finding| format!("somebody else is found: {finding}")));
        wrong
    }

    /// The patterns of a driver that are missing; their order does not matter.
    pub fn not_named(&self, driver: Driver) -> Vec<String> {
        let culprit = driver.culprit();
        let patterns = culprit.findings.iter();
        patterns.filter_map(|pattern| self.misses(&culprit, pattern, None)).collect()
    }

    fn misses(&self, culprit: &Culprit, pattern: &Pattern, period: Option<f64>) -> Option<String> {
        let about = |it: &&Finding| {
            it.id == pattern.id
                && it.user_agent.starts_with(culprit.user_agent)
                && it.verb == pattern.of.0
                && it.resource.starts_with(pattern.of.1)
        };
        let Some(found) = self.findings.iter().find(about) else {
            let all: Vec<String> = self.findings.iter().map(ToString::to_string).collect();
            return Some(format!("{pattern:?} is not found among {all:#?}"));
        };
        let near = |period: f64| {
            let is_near = |it: f64| (it - period).abs() <= period * PERIOD_TOLERANCE;
            found.period_seconds.is_some_and(is_near)
        };
        let right = found.library == culprit.library
            && found.fix.contains(pattern.fix)
            && period.is_none_or(near);
        (!right).then(|| format!("{found} is not {pattern:?} of {culprit:?} every {period:.2?} s"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, user_agent, library, verb, resource, evidence, fix, .. } = self;
        let period = self.period_seconds.unwrap_or(f64::NAN);
        write!(
            out,
            "{id}: {user_agent} ({library}) {verb} {resource} every {period:.2} s: {evidence} {fix}"
        )
    }
}
