//! `docs/shown.md` against what there is: nothing it names is missing, and nothing is missing in it.

use std::collections::BTreeSet;

use listless::injector::patch::SkipReason;

use super::{files, golden, read};

/// A row of a table: what the first cell names, and what the others do.
struct Row {
    subject: String,
    shown_by: Vec<String>,
}

fn text(path: &str) -> String {
    read(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
}

/// What stands between backticks.
fn names(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The rows below a heading.
fn rows(document: &str, heading: &str) -> Vec<Row> {
    let section = document.split("\n## ").find(|section| section.starts_with(heading));
    let lines = section.expect("the heading").lines().filter(|line| line.starts_with("| "));
    lines
        .skip(2)
        .map(|line| {
            let (subject, shown_by) = line[2..].split_once(" | ").expect("two cells");
            Row { subject: subject.replace('`', ""), shown_by: names(shown_by) }
        })
        .collect()
}

fn subjects(rows: &[Row]) -> BTreeSet<&str> {
    rows.iter().map(|row| row.subject.as_str()).collect()
}

fn pods() -> BTreeSet<String> {
    let stem = |path: &std::path::PathBuf| path.file_stem()?.to_str().map(str::to_owned);
    files(&golden("inject"), "yaml").iter().filter_map(stem).collect()
}

#[test]
fn every_reason_and_annotation_is_shown_by_a_pod_that_has_it() {
    let document = text("docs/shown.md");
    let (reasons, annotations) =
        (rows(&document, "Reasons to leave a pod alone"), rows(&document, "Annotations"));
    let all: BTreeSet<&str> = SkipReason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(subjects(&reasons), all);
    let settings = text("src/injector/patch/settings.rs");
    let quoted = settings.split('"').filter(|text| text.starts_with("listless.dev/"));
    let known: BTreeSet<&str> = quoted.filter(|text| !text.contains(' ')).collect();
    assert_eq!(subjects(&annotations), known);

    let pods = pods();
    let tests = text("src/injector/patch/tests.rs");
    for row in reasons.iter().filter(|row| row.subject != "malformed") {
        assert!(!row.shown_by.is_empty(), "{}", row.subject);
        for pod in &row.shown_by {
            let path = golden("inject").join(format!("{pod}.skip"));
            assert!(read(&path).starts_with(&format!("{}:", row.subject)), "{pod}");
        }
    }
    let malformed = reasons.iter().find(|row| row.subject == "malformed").expect("a row");
    assert!(malformed.shown_by.iter().all(|name| tests.contains(&format!("fn {name}("))));
    for row in &annotations {
        for pod in &row.shown_by {
            assert!(pods.contains(pod), "{pod}");
            let is_about = pod == "skip-shared-processes"
                || read(&golden("inject").join(format!("{pod}.yaml"))).contains(&row.subject);
            assert!(is_about, "{pod} says nothing of {}", row.subject);
        }
    }
}

#[test]
fn every_scenario_of_the_node_is_listed_once() {
    let document = text("docs/shown.md");
    let listed: Vec<String> =
        rows(&document, "On a real node").into_iter().flat_map(|row| row.shown_by).collect();
    let source = text("tests/node/scenarios.rs");
    let played = source.split_once("\nscenarios! {").expect("a list").1;
    let played: BTreeSet<&str> = played
        .lines()
        .map_while(|line| (line != "}").then_some(line))
        .filter_map(|line| line.trim().trim_end_matches(',').split_once("::"))
        .map(|(_, name)| name)
        .collect();
    assert_eq!(listed.iter().map(String::as_str).collect::<BTreeSet<_>>(), played);
    assert_eq!(listed.len(), played.len());
}
