//! Rules of the API: each citation leads to `docs/semantics.md`, and each rule there is in use.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;

/// The document that lists the rules.
pub(crate) const RULES: &str = "docs/semantics.md";

/// The underscores from which a name without its module is that of a test.
const TEST_UNDERSCORES_MIN: usize = 3;

/// The start of a metric's name, which has as many.
const METRIC: &str = "listless_";

/// A citation of one rule or, with `last`, of a range within one area.
#[derive(Debug, PartialEq, Eq)]
struct Citation<'a> {
    area: &'a str,
    first: &'a str,
    last: Option<&'a str>,
}

/// Malformed or unlisted citations, and listed rules that nothing cites and no test shows. A range
/// ends in two dots and the number of its last rule.
pub(crate) fn citations(
    sources: &[Source],
    document: &Source,
    tests: &BTreeSet<String>,
) -> Vec<String> {
    let rules = listed(document);
    let ids: BTreeSet<&str> = rules.keys().map(String::as_str).collect();
    let mut cited = BTreeSet::new();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path != document.path) {
        for (at, found) in in_text(&source.text) {
            let place = format!("{}:{}", source.path, source.line(at));
            match found.map(|citation| covered(&citation, &ids)) {
                Ok(Ok(rules)) => cited.extend(rules),
                Ok(Err(missing)) => findings.push(format!("{place}: {missing} is not in {RULES}")),
                Err(text) => findings.push(format!("{place}: {text} is no citation of a rule")),
            }
        }
    }
    let unused = rules.iter().filter(|(id, row)| {
        !cited.contains(id.as_str()) && !names(row).any(|name| tests.contains(name))
    });
    findings
        .extend(unused.map(|(id, _)| format!("{RULES}: nothing cites {id}, and no test shows it")));
    findings
}

/// Rules out of order or listed twice, anchors that differ from their rule, and tests that do not exist.
pub(crate) fn document(document: &Source, tests: &BTreeSet<String>) -> Vec<String> {
    let mut findings = Vec::new();
    let mut before = "";
    for (index, line) in document.text.lines().enumerate() {
        let place = format!("{}:{}", document.path, index + 1);
        let unknown = names(line).filter(|name| !tests.contains(*name));
        findings.extend(unknown.map(|name| format!("{place}: no such test: {name}")));
        let Some((anchor, id)) = row(line) else { continue };
        if id <= before {
            findings.push(format!("{place}: {id} stands after {before}"));
        }
        if anchor != id.to_lowercase() {
            findings.push(format!("{place}: the anchor {anchor} is not that of {id}"));
        }
        before = id;
    }
    findings
}

/// Paths of tests in the code spans of a document whose last name is no test.
pub(crate) fn absent_tests(document: &Source, tests: &BTreeSet<String>) -> Vec<String> {
    let spans = document.text.split('`').skip(1).step_by(2);
    let paths = spans.filter(|span| {
        let is_path = span.contains("::") || span.matches('_').count() >= TEST_UNDERSCORES_MIN;
        is_path
            && !span.starts_with(METRIC)
            && span.chars().all(|c| c.is_ascii_lowercase() || "_:0123456789".contains(c))
    });
    let absent =
        paths.filter(|path| path.rsplit("::").next().is_none_or(|name| !tests.contains(name)));
    absent.map(|path| format!("{}: no such test: {path}", document.path)).collect()
}

/// Comments that name a document or a section that a reader of this repository cannot find.
pub(crate) fn absent_documents(sources: &[Source], documents: &[Source]) -> Vec<String> {
    let known: BTreeSet<&str> = documents.iter().map(|source| file_name(&source.path)).collect();
    let mut findings = Vec::new();
    for source in sources {
        for (index, (line, code)) in source.text.lines().zip(source.code.lines()).enumerate() {
            let Some(at) = line.find("//").filter(|at| code[*at..].trim().is_empty()) else {
                continue;
            };
            let comment = &line[at..];
            let place = format!("{}:{}", source.path, index + 1);
            let words = comment.split(|c: char| !(c.is_alphanumeric() || "-_./".contains(c)));
            let papers = words.map(|word| file_name(word.trim_end_matches('.')));
            let gone = papers.filter(|name| name.ends_with(".md") && !known.contains(name));
            findings.extend(gone.map(|name| format!("{place}: there is no {name}")));
            if comment.contains('§') && !comment.contains("RFC ") {
                findings.push(format!("{place}: a section of no named standard"));
            }
        }
    }
    findings
}

/// The names of all tests in these sources.
pub(crate) fn tests(sources: &[Source]) -> BTreeSet<String> {
    let all = sources.iter().flat_map(|source| {
        let functions = source.functions().into_iter();
        functions.filter(|function| source.is_test(function.line)).map(|function| function.name)
    });
    all.collect()
}

/// Every rule of the document with its line.
fn listed(document: &Source) -> BTreeMap<String, &str> {
    document.text.lines().filter_map(|line| Some((row(line)?.1.to_owned(), line))).collect()
}

/// The anchor and the id of a table row that states a rule.
fn row(line: &str) -> Option<(&str, &str)> {
    let (anchor, rest) = line.strip_prefix("| <a id=\"")?.split_once("\"></a>")?;
    Some((anchor, rest.split(' ').next()?))
}

/// Code spans that can only be names of tests.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |span: &&str| {
        span.contains('_') && span.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
    };
    line.split('`').skip(1).step_by(2).filter(is_name)
}

/// Every citation with its place; an error is the text of one that is malformed.
fn in_text(text: &str) -> Vec<(usize, Result<Citation<'_>, &str>)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("S-") {
        let joined = text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '-' | '_'));
        if !joined && text[at + 2..].starts_with(|c: char| c.is_ascii_uppercase()) {
            found.push((at, parse(&text[at..])));
        }
    }
    found
}

/// Reads the citation at the start of a text.
fn parse(text: &str) -> Result<Citation<'_>, &str> {
    let end = text.find(|c: char| c.is_whitespace() || ",;:)]\"`".contains(c));
    let word = text[..end.unwrap_or(text.len())].trim_end_matches('.');
    let parsed = word[2..].split_once('-').map(|(area, numbers)| {
        let (first, last) = numbers.split_once("..").map_or((numbers, None), |(a, b)| (a, Some(b)));
        Citation { area, first, last }
    });
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    parsed
        .filter(|citation| citation.area.bytes().all(|byte| byte.is_ascii_uppercase()))
        .filter(|citation| is_number(citation.first) && citation.last.is_none_or(is_number))
        .ok_or(word)
}

/// The listed rules that a citation means, or the first that is missing.
fn covered<'a>(citation: &Citation<'_>, ids: &BTreeSet<&'a str>) -> Result<Vec<&'a str>, String> {
    let id = |number: &str| format!("S-{}-{number}", citation.area);
    let (first, last) = (id(citation.first), id(citation.last.unwrap_or(citation.first)));
    for end in [&first, &last] {
        if !ids.contains(end.as_str()) {
            return Err(end.clone());
        }
    }
    Ok(ids.iter().copied().filter(|id| (first.as_str()..=last.as_str()).contains(id)).collect())
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An area, in two pieces so that this file cites nothing.
    const URL: &str = concat!("S-", "URL");

    /// Rules by their numbers in one area, each with a test of this name.
    fn paper(rules: &[(&str, &str)]) -> Source {
        let rows = rules.iter().map(|(number, test)| {
            format!("| <a id=\"s-url-{number}\"></a>{URL}-{number} | It is. | `{test}` |\n")
        });
        Source::new(RULES, &rows.collect::<String>())
    }

    fn known() -> BTreeSet<String> {
        BTreeSet::from(["a_is_b".to_owned()])
    }

    /// The findings in a comment with this citation, `@` standing for the area.
    fn cited(comment: &str, paper: &Source) -> Vec<String> {
        let text = format!("// One\n/// Two ({})\n", comment.replace('@', URL));
        citations(&[Source::new("src/a.rs", &text)], paper, &known())
    }

    #[test]
    fn a_citation_of_an_unknown_rule_is_found() {
        let paper = paper(&[("01", "-"), ("02", "-"), ("05", "-")]);
        assert!(cited("@-01..05", &paper).is_empty());
        assert!(cited("@-01, @-02, RFC 1 §2, TLS-1.2 and @-05.", &paper).is_empty());
        for wrong in ["@-03, @-01..05", "@-01..05, @-02..04", "@-01..05, @-*", "@-01..05, @-1"] {
            let found = cited(wrong, &paper);
            assert_eq!(found.len(), 1, "{wrong}: {found:?}");
            assert!(found[0].starts_with("src/a.rs:2: "), "{found:?}");
        }
    }

    #[test]
    fn a_rule_that_nothing_cites_and_no_test_shows_is_found() {
        assert_eq!(cited("@-01", &paper(&[("01", "-"), ("02", "is_gone")])).len(), 1);
        assert_eq!(cited("@-01", &paper(&[("01", "-"), ("02", "a_is_b")])).len(), 0);
    }

    #[test]
    fn a_document_out_of_order_or_with_a_test_that_is_gone_is_found() {
        let found = |rules: &[(&str, &str)]| document(&paper(rules), &known()).len();
        assert_eq!(found(&[("01", "a_is_b"), ("02", "–")]), 0);
        assert_eq!(found(&[("01", "a_is_c")]), 1);
        assert_eq!(found(&[("02", "a_is_b"), ("01", "a_is_b")]), 1);
        assert_eq!(found(&[("01", "a_is_b"), ("01", "a_is_b")]), 1);
    }

    #[test]
    fn a_document_that_is_not_here_is_found() {
        let documents = [Source::new("docs/a.md", "")];
        let found =
            |text: &str| absent_documents(&[Source::new("src/a.rs", text)], &documents).len();
        assert_eq!(found("// See docs/a.md, a.md and RFC 9112 §2.\nlet b = \"// b.md\";\n"), 0);
        assert_eq!(found("/// As docs/b.md says.\n"), 1);
        assert_eq!(found("/// As (b.md rule 5).\n"), 1);
        assert_eq!(found("/// As it says (§16).\n"), 1);
    }

    #[test]
    fn only_functions_under_a_test_attribute_are_tests() {
        let text = "#[test]\nfn a() {}\n\nfn b() {}\n\n#[tokio::test(start_paused = true)]\nasync fn c() {}\n";
        let found = tests(&[Source::new("tests/it/a.rs", text)]);
        assert_eq!(found, BTreeSet::from(["a".to_owned(), "c".to_owned()]));
    }
}
