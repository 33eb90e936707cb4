//! Rules, alerts and dashboard use exported metrics, are explained and tested, and are up to date.
//!
//! `tests/cluster/prometheus.rs` shows that Prometheus accepts them.

mod dashboard;
mod names;
mod promql;
mod rules;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use dashboard::Dashboard;
use listless::metrics::Limit;
use names::Catalogue;
use rules::{Rule, RuleTests};

/// The rule files; the last is about the apiserver's own metrics.
const RULE_FILES: [&str; 3] = ["rules.yaml", "alerts.yaml", "apiserver-budget.yaml"];
const HINT: &str = "out of date: LISTLESS_UPDATE=1 cargo test --test it monitoring";
/// The parts of an alert's section, in this order.
const SECTIONS: [&str; 3] = ["**Means.**", "**Look at.**", "**Do.**"];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text_of(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn config(file: &str) -> String {
    text_of(&format!("config/monitoring/{file}"))
}

fn every_rule() -> Vec<Rule> {
    RULE_FILES.iter().flat_map(|file| rules::parse(&config(file))).collect()
}

fn alerts() -> Vec<Rule> {
    every_rule().into_iter().filter(|rule| rule.alert.is_some()).collect()
}

fn source() -> Dashboard {
    Dashboard::parse(&config("dashboard.yaml"))
}

/// Fails with every finding at once.
#[track_caller]
fn none(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

/// Compares a file with its expected content, or writes it.
#[track_caller]
fn up_to_date(path: &str, wanted: &str) {
    if std::env::var_os("LISTLESS_UPDATE").is_some() {
        fs::write(repository(path), wanted).expect("the file can be written");
    }
    assert!(text_of(path) == wanted, "{path} is {HINT}");
}

#[test]
fn every_metric_and_label_in_a_rule_exists() {
    let all = every_rule();
    let catalogue = Catalogue::new(&all);
    let mut findings = Vec::new();
    for rule in &all {
        let found = catalogue.findings(&rule.expr);
        findings.extend(found.into_iter().map(|finding| format!("{}: {finding}", rule.name())));
    }
    none(&findings);
}

#[test]
fn every_label_in_an_alerts_text_exists() {
    let all = every_rule();
    let catalogue = Catalogue::new(&all);
    let mut findings = Vec::new();
    for rule in all.iter().filter(|rule| rule.alert.is_some()) {
        let known = catalogue.labels_of(&rule.expr);
        let spoken = rule.annotations.values().flat_map(|text| rules::template_labels(text));
        let unknown = spoken.filter(|label| !known.contains(label));
        findings.extend(unknown.map(|label| format!("{}: no label {label}", rule.name())));
    }
    none(&findings);
}

#[test]
fn recorded_series_are_named_by_level_metric_and_operation_and_recorded_once() {
    let mut seen = BTreeSet::new();
    for rule in every_rule() {
        let Some(name) = &rule.record else { continue };
        assert!(name.starts_with("listless:") && name.matches(':').count() == 2, "{name}");
        assert!(seen.insert((name.clone(), rule.labels.clone())), "{name} twice");
    }
    assert!(seen.len() > 10, "the files were read: {seen:?}");
}

#[test]
fn every_alert_has_a_summary_a_severity_and_a_runbook() {
    let page = text_of("docs/alerts.md");
    let address = "https://github.com/listless-dev/listless/blob/main/docs/alerts.md#";
    for alert in alerts() {
        let name = alert.name();
        let annotation = |key: &str| {
            alert.annotations.get(key).unwrap_or_else(|| panic!("{name} has no {key}")).as_str()
        };
        assert!(annotation("summary").ends_with('.'), "{name}");
        assert!(annotation("description").ends_with('.'), "{name}");
        assert_eq!(annotation("runbook_url"), format!("{address}{}", name.to_lowercase()));
        let lasts = alert.lasting.is_some() || alert.expr.contains('[');
        assert!(lasts, "{name} looks at a single moment");
        let severity = alert.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        let section = section(&page, name).unwrap_or_else(|| panic!("{name} is not on the page"));
        let places = SECTIONS.map(|part| section.find(part));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{name}: {places:?}");
    }
}

/// Returns the text below a heading of the second or third level.
fn section<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("## {name}\n"))?;
    Some(rest.split_once("\n##").map_or(rest, |(section, _)| section))
}

#[test]
fn the_page_of_alerts_has_no_section_of_a_removed_alert() {
    let known: BTreeSet<String> = alerts().iter().map(|rule| rule.name().to_owned()).collect();
    let page = text_of("docs/alerts.md");
    let headings = page.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    let named =
        headings.filter(|heading| heading.starts_with("Listless") && !heading.contains(' '));
    let named: BTreeSet<String> = named.map(str::to_owned).collect();
    assert_eq!(named, known);
}

#[test]
fn the_page_of_alerts_explains_every_bound() {
    let page = text_of("docs/alerts.md");
    let section = section(&page, "ListlessBoundReached").expect("a section");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let rows = rows.map(|(limit, _)| limit).filter(|limit| *limit != "limit");
    let told: BTreeSet<&str> = rows.collect();
    let known = Limit::ALL.iter().map(|limit| limit.as_str()).collect();
    assert_eq!(told, known);
}

#[test]
fn every_alert_has_a_firing_test_and_a_quiet_test() {
    let files = ["tests.yaml", "days.tests.yaml"].map(|file| RuleTests::parse(&config(file)));
    assert!(files.iter().all(|file| file.rule_files == RULE_FILES), "the tests are about these");
    let tests = RuleTests::all(files);
    let findings = alerts().iter().flat_map(|alert| tests.lacking(alert)).collect::<Vec<_>>();
    none(&findings);
}

#[test]
fn an_alert_without_a_quiet_case_or_a_firing_one_is_found() {
    let rules = "groups:\n- name: a\n  rules:\n  - {alert: A, expr: up, labels: {long: 1h}}\n";
    let rule = rules::parse(rules).remove(0);
    let lacking = |cases: &str| {
        let text = format!("rule_files: []\ntests:\n- alert_rule_test:\n{cases}");
        RuleTests::parse(&text).lacking(&rule).len()
    };
    let fires = "  - {alertname: A, exp_alerts: [{exp_labels: {long: 1h, job: a}}]}\n";
    let another = "  - {alertname: A, exp_alerts: [{exp_labels: {long: 6h}}]}\n";
    let quiet = "  - {alertname: A, exp_alerts: []}\n";
    assert_eq!(lacking(&format!("{fires}{quiet}")), 0);
    assert_eq!(lacking(&format!("{another}{quiet}")), 1);
    assert_eq!(lacking(fires), 1);
    assert_eq!(lacking("  - {alertname: B, exp_alerts: []}\n"), 2);
}

#[test]
fn the_dashboard_is_written_from_its_source() {
    up_to_date("config/monitoring/dashboard.json", &source().grafana());
}

#[test]
fn every_metric_and_label_of_the_dashboard_exists() {
    let all = every_rule();
    let catalogue = Catalogue::new(&all);
    let mut findings = Vec::new();
    for panel in source().panels() {
        for query in &panel.queries {
            let expression = query.chosen(|_| "a".to_owned());
            let mut found = catalogue.findings(&expression);
            let known = catalogue.labels_of(&expression);
            let spoken = rules::legend_labels(&query.legend);
            let unknown = spoken.into_iter().filter(|label| !known.contains(label));
            found.extend(unknown.map(|label| format!("no label {label} for the legend")));
            if !query.expr.contains("{CHOSEN") {
                found.push(format!("{} does not heed the variables", query.expr));
            }
            findings.extend(found.into_iter().map(|it| format!("{}: {it}", panel.title)));
        }
    }
    none(&findings);
}

#[test]
fn the_dashboard_has_a_row_for_each_subject_and_every_panel_answers_a_question() {
    let source = source();
    let rows: Vec<&str> = source.rows.iter().map(|row| row.title.as_str()).collect();
    let wanted = [
        "On call",
        "Savings",
        "Clients",
        "Latency",
        "Forwards",
        "Repeated polls and mode observe",
        "Discovery",
        "Replicas",
        "Apiserver, as seen by Listless",
        "Process",
    ];
    assert_eq!(rows, wanted);
    assert_eq!(source.rows[0].panels.len(), 8, "what a person on call sees at once");
    let mut titles = BTreeSet::new();
    for panel in source.panels() {
        assert!(titles.insert(&panel.title), "{} twice", panel.title);
        assert!(panel.answers.contains('?'), "{}", panel.title);
    }
}

#[test]
fn the_page_on_operation_lists_every_recorded_series() {
    let page = text_of("docs/operate.md");
    for rule in every_rule() {
        let Some(name) = rule.record else { continue };
        // Windows are listed once.
        let stem = name.split("ratio_rate").next().unwrap_or_default();
        assert!(page.contains(&format!("`{stem}")), "{name} is not explained");
    }
}
