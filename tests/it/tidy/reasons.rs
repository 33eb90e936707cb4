//! The table of forward reasons: its words are those of the source, and `docs/answers.md` repeats
//! it.

use std::collections::BTreeSet;

use super::paper::text_of;

/// The files whose `as_str` gives forward reasons, and the types they belong to.
const SOURCES: [(&str, &str); 3] = [
    ("src/proxy/decide/reason.rs", "impl ForwardReason {"),
    ("src/api/request/not_modelled.rs", "impl NotModelled {"),
    ("src/api/media.rs", "impl UnmodelledMedia {"),
];

const DOCUMENT: &str = "docs/answers.md";

/// The table, with links that start at its own folder.
const TABLE: &str = "src/insight/reasons.md";

/// Compares the table in the document with the source, or writes it.
#[track_caller]
pub(crate) fn hold() {
    let document = text_of(DOCUMENT);
    let wanted = with_table(&document, &text_of(TABLE).replace("](../../docs/", "]("));
    if std::env::var_os("LISTLESS_UPDATE").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCUMENT);
        std::fs::write(path, &wanted).expect("the file can be written");
    } else {
        let hint = "LISTLESS_UPDATE=1 cargo test --test it tidy";
        assert!(document == wanted, "{DOCUMENT}: not the table of {TABLE}: {hint}");
    }
}

/// Replaces the table below `## Forward reasons`.
fn with_table(document: &str, table: &str) -> String {
    let at = document.find("\n## Forward reasons\n").expect("the heading");
    let from = at + document[at..].find("\n| ").expect("a table") + 1;
    let to = document[from..].find("\n\n").map_or(document.len(), |end| from + end + 1);
    format!("{}{table}{}", &document[..from], &document[to..])
}

/// Words of the source without a row, and rows without a word, from one table per document.
pub(crate) fn differences(document: &str) -> Vec<String> {
    let words = SOURCES.iter().flat_map(|(path, start)| words(&text_of(path), start)).collect();
    compare(&words, &rows(document))
}

fn compare(words: &BTreeSet<String>, rows: &BTreeSet<String>) -> Vec<String> {
    let missing = words.difference(rows).map(|word| format!("{word}: not in the table"));
    let gone = rows.difference(words).map(|word| format!("{word}: not in the source"));
    missing.chain(gone).collect()
}

/// The literals that `as_str` returns.
fn words(source: &str, start: &str) -> BTreeSet<String> {
    let (_, rest) = source.split_once(start).unwrap_or_else(|| panic!("no {start}"));
    let (_, rest) = rest.split_once("fn as_str(self)").expect("an `as_str`");
    let body = rest.split("\n    }\n").next().unwrap_or(rest);
    body.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The first cells of the table below `## Forward reasons`.
fn rows(document: &str) -> BTreeSet<String> {
    let (_, section) = document.split_once("\n## Forward reasons\n").expect("the heading");
    let section = section.split("\n## ").next().unwrap_or(section);
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    cells.map(str::to_owned).collect()
}

#[test]
fn only_the_table_below_the_heading_is_replaced() {
    let page = "| x |\n\n## Forward reasons\n\nText.\n\n| a |\n| b |\n\n## Next\n";
    let expected = "| x |\n\n## Forward reasons\n\nText.\n\n| c |\n\n## Next\n";
    assert_eq!(with_table(page, "| c |\n"), expected);
}

#[test]
fn a_reason_without_a_row_and_a_row_without_a_reason_are_found() {
    let source = "impl A {\n    fn as_str(self) {\n        \"one\" \"two\"\n    }\n}\n";
    let page = "\n## Forward reasons\n\n| `two` | a |\n| `three` | b |\n\n## Next\n| `one` | c |\n";
    let found = compare(&words(source, "impl A {"), &rows(page));
    assert_eq!(found, ["one: not in the table", "three: not in the source"]);
}
