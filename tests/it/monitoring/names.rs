//! The names that an expression may use: the metrics of the table, recorded series, and the labels
//! of a scrape.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    promql::{self, Selector},
    rules::Rule,
};

/// Every name an expression may use.
pub(crate) struct Catalogue {
    metrics: BTreeMap<String, Metric>,
}

#[derive(Default)]
struct Metric {
    /// Its labels, with all their values where these are known.
    labels: BTreeMap<String, Option<BTreeSet<String>>>,
}

/// Labels that Prometheus or its operator adds to every series.
const OF_THE_TARGET: [&str; 5] = ["cluster", "namespace", "job", "pod", "instance"];

/// The apiserver's metrics that the rules use.
const OF_THE_APISERVER: [(&str, &[&str]); 4] = [
    ("apiserver_admission_webhook_fail_open_count", &["name", "type"]),
    ("apiserver_request_total", &["verb", "code", "scope", "resource", "subresource"]),
    ("apiserver_request_duration_seconds_count", &["verb", "scope", "resource", "subresource"]),
    ("apiserver_request_duration_seconds_bucket", &["verb", "scope", "subresource", "le"]),
];

// === impl Catalogue ===

impl Catalogue {
    /// Builds it from the table of metrics on its page, and from the rules that record series.
    pub(crate) fn new(rules: &[Rule]) -> Self {
        let mut catalogue = Self { metrics: exported(&listless::metrics::document()) };
        for (name, labels) in OF_THE_APISERVER {
            let labels = labels.iter().map(|label| ((*label).to_owned(), None)).collect();
            catalogue.metrics.insert(name.to_owned(), Metric { labels });
        }
        for rule in rules {
            let Some(name) = &rule.record else { continue };
            let grouped = promql::named(&rule.expr).grouped;
            let own = rule.labels.keys().cloned();
            let labels = grouped.into_iter().chain(own).map(|label| (label, None)).collect();
            catalogue.metrics.insert(name.clone(), Metric { labels });
        }
        catalogue
    }

    /// Names in an expression that do not exist.
    pub(crate) fn findings(&self, expression: &str) -> Vec<String> {
        let named = promql::named(expression);
        let mut findings: Vec<String> =
            named.selectors.iter().flat_map(|selector| self.unknown(selector)).collect();
        let known = self.labels_of(expression);
        let unknown = named.grouped.iter().filter(|label| !known.contains(*label));
        findings.extend(unknown.map(|label| format!("no label {label}")));
        if named.selectors.is_empty() {
            findings.push("names no metric".to_owned());
        }
        findings
    }

    /// Every label that the metrics of an expression have.
    pub(crate) fn labels_of(&self, expression: &str) -> BTreeSet<String> {
        let named = promql::named(expression);
        let metrics = named.selectors.iter().filter_map(|it| self.metrics.get(&it.metric));
        let own = metrics.flat_map(|metric| metric.labels.keys().cloned());
        own.chain(OF_THE_TARGET.map(str::to_owned)).collect()
    }

    fn unknown(&self, selector: &Selector) -> Vec<String> {
        let Some(metric) = self.metrics.get(&selector.metric) else {
            return vec![format!("no metric {}", selector.metric)];
        };
        let mut findings = Vec::new();
        for (label, operator, value) in &selector.matchers {
            let place = format!("{}{{{label}}}", selector.metric);
            match metric.labels.get(label) {
                None if OF_THE_TARGET.contains(&label.as_str()) => {}
                None => findings.push(format!("no label {place}")),
                Some(Some(values)) => {
                    let parts: Vec<&str> = if operator.contains('~') {
                        value.split('|').collect()
                    } else {
                        vec![value.as_str()]
                    };
                    let unknown = parts.into_iter().filter(|part| !values.contains(*part));
                    findings.extend(unknown.map(|part| format!("no value {part} of {place}")));
                }
                Some(None) => {}
            }
        }
        findings
    }
}

/// The metrics of the page, histograms as the series they are exported as.
fn exported(page: &str) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::new();
    let mut sections = page.split("\n### `");
    let common: BTreeMap<_, _> =
        sections.next().expect("an introduction").lines().filter_map(label).collect();
    for section in sections {
        let (name, text) = section.split_once('`').expect("a name in code");
        let mut labels: BTreeMap<_, _> = text.lines().filter_map(label).collect();
        let shared = text.lines().find_map(|line| line.strip_prefix("Labels: ")).unwrap_or("");
        for name in shared.split('`').skip(1).step_by(2) {
            let values = common.get(name).unwrap_or_else(|| panic!("{name} is not common"));
            labels.insert(name.to_owned(), values.clone());
        }
        if !text.trim_start().starts_with("Histogram") {
            metrics.insert(name.to_owned(), Metric { labels });
            continue;
        }
        for suffix in ["count", "sum", "bucket"] {
            let mut labels = labels.clone();
            if suffix == "bucket" {
                labels.insert("le".to_owned(), None);
            }
            metrics.insert(format!("{name}_{suffix}"), Metric { labels });
        }
    }
    assert!(metrics.len() > 40, "the page was read: {} metrics", metrics.len());
    metrics
}

/// Parses a line about a label; returns its values if the line contains only values.
fn label(line: &str) -> Option<(String, Option<BTreeSet<String>>)> {
    let (name, values) = line.strip_prefix("- `")?.split_once("`: ")?;
    let values = values.strip_suffix('.')?.split(", ");
    let values: Option<BTreeSet<String>> =
        values.map(|value| Some(value.strip_prefix('`')?.strip_suffix('`')?.to_owned())).collect();
    Some((name.to_owned(), values))
}

#[test]
fn names_that_do_not_exist_are_found() {
    let catalogue = Catalogue::new(&[]);
    let findings = |expression: &str| catalogue.findings(expression).len();
    assert_eq!(
        findings("rate(listless_requests_total{served_by=~\"cache|proxy\", job=\"a\"}[5m])"),
        0
    );
    assert_eq!(findings("sum by (le, job) (listless_request_duration_seconds_bucket)"), 0);
    assert_eq!(findings("listless_request_duration_seconds"), 1, "a histogram has three series");
    assert_eq!(findings("listless_requests"), 1);
    assert_eq!(findings("listless_requests_total{served=\"cache\"}"), 1);
    assert_eq!(findings("listless_requests_total{served_by=\"memory\"}"), 1);
    assert_eq!(findings("listless_requests_total{served_by=~\"cache|memory\"}"), 1);
    assert_eq!(findings("sum by (user) (listless_requests_total)"), 1);
    assert_eq!(findings("time()"), 1);
}
