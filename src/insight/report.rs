//! The report as the admin address gives it and the command line reads it: names and units only.
//!
//! Names may be added to it, not taken away. What is not known is null, never a guess.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::detect::spoken;

/// Who asks what, what it costs, what was saved, and whom to mend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `enforce` or `observe`.
    pub mode: String,
    /// Listless's own version.
    pub version: String,
    /// Since when it counts.
    pub up_seconds: f64,
    /// State of the apiserver.
    #[serde(default)]
    pub apiserver: Apiserver,
    /// All requests together.
    pub totals: Totals,
    /// The accounts, the dearest first.
    pub polls: Vec<Poll>,
    /// What should be mended, the dearest first.
    pub findings: Vec<Finding>,
    /// What was not told apart.
    pub others: Others,
}

/// State of the apiserver, as the last exchanges with it found it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Apiserver {
    /// `unknown` before the first exchange, `reachable`, `unreachable`, or `refusing` if it responds
    /// and does not serve Listless.
    pub state: String,
    /// Cause of the outage, as in the metrics.
    pub cause: Option<String>,
    /// The outage in words.
    pub message: Option<String>,
    /// Beginning of the outage, in Unix time.
    pub since: Option<u64>,
    /// Duration of the outage.
    pub for_seconds: Option<f64>,
    /// Exchanges that failed during the outage.
    pub failures: u64,
}

/// All requests together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Requests of clients that ended.
    pub requests: u64,
    /// Answered from memory.
    pub from_memory: u64,
    /// Answered with the answer to an identical one.
    pub coalesced: u64,
    /// Held by a limit on polls that repeat.
    pub paced: u64,
    /// Of these, held by the guard against loops on responses from memory.
    pub paced_from_memory: u64,
    /// Refused because they were repeated too often.
    pub refused: u64,
    /// Answered by the apiserver.
    pub forwarded: u64,
    /// Answered by Listless with an error.
    pub failed: u64,
    /// Not answered, because the client hung up before.
    pub client_closed: u64,
    /// All that was sent to the apiserver, what Listless asked for itself included.
    pub upstream_requests: u64,
    /// Answered from memory or shared, less what Listless asked for itself.
    pub saved_requests: i64,
    /// The bytes of those answers, less what replicas were sent.
    pub saved_bytes: i64,
    /// What mode `enforce` would have saved, where the mode is `observe`.
    pub would_save_requests: u64,
    /// What was saved in processor time: an estimate.
    pub estimate: Estimate,
}

/// Processor time saved, estimated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Estimate {
    /// Of kube-apiserver.
    pub apiserver_cpu_seconds: f64,
    /// Of etcd.
    pub etcd_cpu_seconds: f64,
    /// How it was estimated.
    pub formula: String,
}

/// One account: requests alike in user agent, verb, resource, scope and query shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Poll {
    /// The client's User-Agent, shortened.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// `pods`, `deployments.apps`, `pods/status`, or the class of a path that is no resource.
    pub resource: String,
    /// `cluster`, `namespace`, `object`, or nothing for what is no resource.
    pub scope: String,
    /// The query without its values.
    pub query: String,
    /// Requests that ended.
    pub requests: u64,
    /// Over the last minute or two.
    pub rate_per_second: f64,
    /// The time between two requests of one asker, as found (the median).
    pub period_seconds: Option<f64>,
    /// How much that time varies, as a share of it.
    pub jitter: Option<f64>,
    /// Bytes of answers.
    pub bytes: u64,
    /// The share of answers that said what the one before had said, of those that were compared.
    pub unchanged_share: Option<f64>,
    /// Connections seen, estimated.
    pub clients: u64,
    /// How they were answered.
    pub answers: Answers,
    /// Why they were not answered from memory: how often each reason was given.
    pub reasons: BTreeMap<String, u64>,
    /// What was answered from memory or shared.
    pub saved: Saved,
    /// What mode `enforce` would have saved.
    pub would_save: WouldSave,
    /// What the apiserver and etcd spent on it, or would have spent: an estimate.
    pub cost: Cost,
    /// `none`, `low`, `medium` or `high`.
    pub risk: String,
    /// The ids of what was found.
    pub findings: Vec<String>,
}

/// How requests were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answers {
    /// From memory.
    pub cache: u64,
    /// With the answer to an identical request.
    pub coalesced: u64,
    /// By the apiserver.
    pub upstream: u64,
    /// By Listless itself: errors and refusals.
    pub proxy: u64,
    /// By nothing, because the client hung up before.
    pub client_closed: u64,
}

/// What did not reach the apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Saved {
    /// Requests.
    pub requests: u64,
    /// Bytes of their answers.
    pub bytes: u64,
}

/// What would not have reached the apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WouldSave {
    /// Requests.
    pub requests: u64,
}

/// Processor time, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// Of kube-apiserver.
    pub apiserver_cpu_seconds: f64,
    /// Of etcd.
    pub etcd_cpu_seconds: f64,
}

/// Something a client does that should be mended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Finding {
    /// Which pattern it is, such as `quorum-list-polling`.
    pub id: String,
    /// The pattern in words.
    pub title: String,
    /// The client's User-Agent, shortened.
    pub user_agent: String,
    /// The client library, as far as it can be told.
    pub library: String,
    /// The verb.
    pub verb: String,
    /// The resource.
    pub resource: String,
    /// The scope.
    pub scope: String,
    /// The query without its values.
    pub query: String,
    /// The period, where there is one.
    pub period_seconds: Option<f64>,
    /// What was seen, in numbers.
    pub evidence: String,
    /// What to change, for that library.
    pub fix: String,
}

/// Requests of clients and queries that found no account of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Others {
    /// Accounts given up or never opened, because there were too many.
    pub accounts: u64,
    /// Their requests.
    pub requests: u64,
}

// === impl Apiserver ===

impl Apiserver {
    /// Returns the outage as one sentence without a full stop; none while there is none.
    pub fn outage(&self) -> Option<String> {
        let seconds = self.for_seconds.unwrap_or_default().round().max(1.0);
        let failed = match self.failures {
            1 => "1 request failed".to_owned(),
            failures => format!("{failures} requests failed"),
        };
        Some(format!("{}, for {} ({failed})", self.message.as_ref()?, spoken(seconds)))
    }
}

// === impl Report ===

impl Report {
    /// As the admin address sends it.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("texts and numbers are JSON") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_that_readers_rely_on() {
        let report = Report {
            polls: vec![Poll::default()],
            findings: vec![Finding::default()],
            ..Report::default()
        };
        let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        let names = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(
            names(&value),
            ["apiserver", "findings", "mode", "others", "polls", "totals", "upSeconds", "version"]
        );
        let mut expected = [
            "userAgent",
            "verb",
            "resource",
            "scope",
            "query",
            "requests",
            "ratePerSecond",
            "periodSeconds",
            "jitter",
            "bytes",
            "unchangedShare",
            "clients",
            "answers",
            "reasons",
            "saved",
            "wouldSave",
            "cost",
            "risk",
            "findings",
        ];
        expected.sort_unstable();
        assert_eq!(names(&value["polls"][0]), expected);
        let mut expected = [
            "id",
            "title",
            "userAgent",
            "library",
            "verb",
            "resource",
            "scope",
            "query",
            "periodSeconds",
            "evidence",
            "fix",
        ];
        expected.sort_unstable();
        assert_eq!(names(&value["findings"][0]), expected);
    }

    #[test]
    fn the_names_of_the_totals_are_those_that_readers_rely_on() {
        let report = serde_json::to_value(Report::default()).unwrap();
        let names: Vec<_> = report["totals"].as_object().unwrap().keys().cloned().collect();
        let mut expected = [
            "requests",
            "fromMemory",
            "coalesced",
            "paced",
            "pacedFromMemory",
            "refused",
            "forwarded",
            "failed",
            "clientClosed",
            "upstreamRequests",
            "savedRequests",
            "savedBytes",
            "wouldSaveRequests",
            "estimate",
        ];
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn what_is_sent_can_be_read_again() {
        let poll = Poll { period_seconds: Some(3.0), requests: 7, ..Poll::default() };
        let report = Report { polls: vec![poll], mode: "enforce".into(), ..Report::default() };
        assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
    }
}
