//! What Listless reports of a driver: whom it names, with which period, and what to change.

use std::fmt;

use anyhow::Result;
use serde::Deserialize;

use super::driver::Driver;
use super::tally::Tally;
use crate::rig::proxy_process::ProxyProcess;

/// How far from the driver's own period the one found may be.
const PERIOD_TOLERANCE: f64 = 0.1;

/// The report, as far as it is looked at.
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

/// What the report must say of a driver.
#[derive(Clone, Copy, Debug)]
pub struct Culprit {
    /// How its User-Agent begins.
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
    /// The verb, and how the resource or path it is about begins.
    pub of: (&'static str, &'static str),
    /// A word of what the library's users must change.
    pub fix: &'static str,
}

// === impl Report ===

impl Report {
    /// Asks for it.
    pub async fn read(proxy: &ProxyProcess) -> Result<Self> {
        Ok(serde_json::from_str(&proxy.admin("/api/v1/report").await?)?)
    }

    /// Requests of a client that were spared the apiserver.
    pub fn saved(&self, user_agent: &str) -> u64 {
        self.of(user_agent).map(|poll| poll.saved.requests).sum()
    }

    /// Requests of a client that would have been.
    pub fn would_save(&self, user_agent: &str) -> u64 {
        self.of(user_agent).map(|poll| poll.would_save.requests).sum()
    }

    fn of<'a>(&'a self, user_agent: &'a str) -> impl Iterator<Item = &'a Poll> {
        self.polls.iter().filter(move |poll| poll.user_agent.starts_with(user_agent))
    }

    /// Everything that is not said, or said wrongly.
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

    /// The patterns of a driver that are not said; when it comes does not matter.
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
