//! The report, as the admin address serves it and the command line reads it: names and units only.
//!
//! Fields may be added, but not removed. An unknown value is null, never a guess.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::detect::spoken;

/// The report: clients, their requests, the cost, the savings and the clients to fix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The mode: `enforce` or `observe`.
    pub mode: String,
    /// The version of Listless.
    pub version: String,
    /// The seconds since counting began.
    pub up_seconds: f64,
    /// State of the apiserver.
    #[serde(default)]
    pub apiserver: Apiserver,
    /// The sums over all requests.
    pub totals: Totals,
    /// The accounts, the most expensive first.
    pub polls: Vec<Poll>,
    /// The recommended fixes, the most expensive first.
    pub findings: Vec<Finding>,
    /// The reasons why memory did not answer, the most frequent first.
    #[serde(default)]
    pub reasons: Vec<ReasonTotal>,
    /// The requests without an account of their own.
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

/// The sums over all requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Totals {
    /// Finished requests of clients.
    pub requests: u64,
    /// Requests answered from memory.
    pub from_memory: u64,
    /// Requests answered with the response to an identical one.
    pub coalesced: u64,
    /// Requests delayed by a limit on repeated polls.
    pub paced: u64,
    /// The part of `paced` that the limit on loops on responses from memory delayed.
    pub paced_from_memory: u64,
    /// Requests that Listless refused: repeated too often, or with a broken body.
    pub refused: u64,
    /// Requests that the apiserver answered.
    pub forwarded: u64,
    /// Requests that Listless answered with an error.
    pub failed: u64,
    /// Requests whose client closed them before a response.
    pub client_closed: u64,
    /// All requests to the apiserver, including Listless's own.
    pub upstream_requests: u64,
    /// Requests answered from memory or shared, minus Listless's own.
    pub saved_requests: i64,
    /// The bytes of those responses, minus the bytes sent to replicas.
    pub saved_bytes: i64,
    /// In mode `observe`: requests that mode `enforce` would have saved.
    pub would_save_requests: u64,
    /// The estimated CPU time saved.
    pub estimate: Estimate,
}

/// The estimated CPU time saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Estimate {
    /// Seconds of kube-apiserver.
    pub apiserver_cpu_seconds: f64,
    /// Seconds of etcd.
    pub etcd_cpu_seconds: f64,
    /// The formula of the estimate.
    pub formula: String,
}

/// One account: requests with the same caller, user agent, verb, resource, scope and query shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Poll {
    /// The caller's name, if the configuration has `report.callers` and it is known: a user, or a
    /// service account as `namespace/name`.
    pub caller: String,
    /// The client's User-Agent, shortened.
    pub user_agent: String,
    /// The verb: `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// The resource, such as `pods`, `deployments.apps` or `pods/status`, or the class of another
    /// path.
    pub resource: String,
    /// The scope: `cluster`, `namespace`, `object`, or empty for other paths.
    pub scope: String,
    /// The query without its values.
    pub query: String,
    /// Finished requests.
    pub requests: u64,
    /// The rate over the last minute or two.
    pub rate_per_second: f64,
    /// The median time between two requests of one asker, if found.
    pub period_seconds: Option<f64>,
    /// The variation of that time, as a fraction of it.
    pub jitter: Option<f64>,
    /// Bytes of responses.
    pub bytes: u64,
    /// The fraction of compared responses that equal the one before.
    pub unchanged_share: Option<f64>,
    /// The estimated number of connections.
    pub clients: u64,
    /// The requests by the source of their response.
    pub answers: Answers,
    /// The number of requests by the reason why memory did not answer.
    pub reasons: BTreeMap<String, u64>,
    /// The requests answered from memory or shared.
    pub saved: Saved,
    /// The requests that mode `enforce` would have saved.
    pub would_save: WouldSave,
    /// The estimated cost for the apiserver and etcd, actual or avoided.
    pub cost: Cost,
    /// The risk: `none`, `low`, `medium` or `high`.
    pub risk: String,
    /// The ids of the findings.
    pub findings: Vec<String>,
}

/// The requests by the source of their response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answers {
    /// Memory.
    pub cache: u64,
    /// The response to an identical request.
    pub coalesced: u64,
    /// The apiserver.
    pub upstream: u64,
    /// Listless itself: errors and refusals.
    pub proxy: u64,
    /// None, because the client closed the request.
    pub client_closed: u64,
}

/// The requests that did not reach the apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Saved {
    /// Requests.
    pub requests: u64,
    /// Bytes of their responses.
    pub bytes: u64,
}

/// The requests that would not have reached the apiserver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WouldSave {
    /// Requests.
    pub requests: u64,
}

/// Estimated CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// Seconds of kube-apiserver.
    pub apiserver_cpu_seconds: f64,
    /// Seconds of etcd.
    pub etcd_cpu_seconds: f64,
}

/// A client behaviour to fix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Finding {
    /// The id of the pattern, such as `quorum-list-polling`.
    pub id: String,
    /// The pattern in words.
    pub title: String,
    /// The caller's name, as in [`Poll::caller`].
    pub caller: String,
    /// The client's User-Agent, shortened.
    pub user_agent: String,
    /// The client library, if recognised.
    pub library: String,
    /// The verb.
    pub verb: String,
    /// The resource.
    pub resource: String,
    /// The scope.
    pub scope: String,
    /// The query without its values.
    pub query: String,
    /// The period, if there is one.
    pub period_seconds: Option<f64>,
    /// The evidence, in numbers.
    pub evidence: String,
    /// The fix for that library.
    pub fix: String,
}

/// The requests of all polls that memory did not answer for one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReasonTotal {
    /// The word, as in `Cache-Status`.
    pub reason: String,
    /// Requests.
    pub requests: u64,
    /// The meaning, in one or two sentences.
    pub meaning: String,
    /// The remedy.
    pub remedy: String,
    /// The key of the configuration, or empty.
    pub configuration: String,
}

/// The requests without an account of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Others {
    /// The number of accounts that were closed or never opened for lack of room.
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

// === impl Poll ===

impl Poll {
    /// Returns the caller's name, if known, and the User-Agent.
    pub fn client(&self) -> String {
        client(&self.caller, &self.user_agent)
    }

    /// Returns the most frequent reason why memory did not answer, and its requests.
    pub fn main_reason(&self) -> Option<(&str, u64)> {
        let reasons = self.reasons.iter().rev();
        reasons.max_by_key(|(_, count)| **count).map(|(word, count)| (word.as_str(), *count))
    }
}

// === impl Finding ===

impl Finding {
    /// Returns the caller's name, if known, and the User-Agent.
    pub fn client(&self) -> String {
        client(&self.caller, &self.user_agent)
    }
}

fn client(caller: &str, user_agent: &str) -> String {
    let separator = if caller.is_empty() || user_agent.is_empty() { "" } else { " " };
    [caller, separator, user_agent].concat()
}

// === impl Report ===

impl Report {
    /// Returns the report as the admin address sends it.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("texts and numbers are JSON") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_names_are_stable() {
        let report = Report {
            polls: vec![Poll::default()],
            findings: vec![Finding::default()],
            reasons: vec![ReasonTotal::default()],
            ..Report::default()
        };
        let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        let names = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        assert_eq!(
            names(&value),
            [
                "apiserver",
                "findings",
                "mode",
                "others",
                "polls",
                "reasons",
                "totals",
                "upSeconds",
                "version"
            ]
        );
        let mut expected = [
            "caller",
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
            "caller",
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
        let expected = ["configuration", "meaning", "reason", "remedy", "requests"];
        assert_eq!(names(&value["reasons"][0]), expected);
    }

    #[test]
    fn the_field_names_of_the_totals_are_stable() {
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
    fn the_main_reason_is_the_most_frequent_and_then_the_first() {
        let reasons = [("behind", 3), ("limit", 7), ("pretty", 7)];
        let reasons = reasons.map(|(word, count)| (word.to_owned(), count)).into();
        assert_eq!(Poll { reasons, ..Poll::default() }.main_reason(), Some(("limit", 7)));
        assert_eq!(Poll::default().main_reason(), None);
    }

    #[test]
    fn a_serialized_report_can_be_parsed() {
        let poll = Poll { period_seconds: Some(3.0), requests: 7, ..Poll::default() };
        let report = Report { polls: vec![poll], mode: "enforce".into(), ..Report::default() };
        assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
    }
}
