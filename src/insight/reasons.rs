//! The forward reasons with their meaning and remedy. Pure.
//!
//! The table `reasons.md` is the only source: the report uses it, and `docs/answers.md` repeats it.

use std::{collections::BTreeMap, sync::LazyLock};

use super::report::ReasonTotal;

/// One row of the table, as plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reason {
    word: &'static str,
    meaning: String,
    remedy: String,
    configuration: String,
}

const TABLE: &str = include_str!("reasons.md");

static REASONS: LazyLock<Vec<Reason>> = LazyLock::new(|| TABLE.lines().filter_map(row).collect());

/// Returns the reasons that occurred, the most frequent first.
pub(super) fn totals<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<ReasonTotal> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    counts.into_iter().for_each(|(word, count)| *sums.entry(word).or_default() += count);
    let mut totals: Vec<_> = sums.into_iter().map(|(word, count)| total(word, count)).collect();
    totals.sort_by_key(|total| std::cmp::Reverse(total.requests));
    totals
}

fn total(word: &str, requests: u64) -> ReasonTotal {
    let known = REASONS.iter().find(|reason| reason.word == word);
    let texts = known.map(|reason| [&reason.meaning, &reason.remedy, &reason.configuration]);
    let [meaning, remedy, configuration] = match texts {
        Some(texts) => texts.map(Clone::clone),
        // The other words are those of errors.
        None => ["Listless responded with an error or a refusal.", "Look at the log.", ""]
            .map(str::to_owned),
    };
    ReasonTotal { reason: word.to_owned(), requests, meaning, remedy, configuration }
}

/// Parses a row; its first cell is a word in backquotes.
fn row(line: &'static str) -> Option<Reason> {
    let line = line.strip_prefix("| `")?;
    let mut cells = line.trim_end_matches('|').split('|').map(str::trim);
    let word = cells.next()?.trim_end_matches('`');
    let mut next = || cells.next().map(plain).unwrap_or_default();
    Some(Reason { word, meaning: next(), remedy: next(), configuration: next().replace('`', "") })
}

/// Replaces links by their text and file.
fn plain(cell: &str) -> String {
    let mut parts = cell.split('[');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once("](").and_then(|(text, rest)| Some((text, rest.split_once(')')?))) {
            Some((text, (target, rest))) => {
                let file = target.split('#').next().unwrap_or(target).trim_start_matches("../");
                out += &format!("{text} in {file}{rest}");
            }
            None => out += &format!("[{part}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_meaning_and_a_remedy() {
        assert!(REASONS.len() > 40, "{}", REASONS.len());
        for reason in REASONS.iter() {
            assert!(reason.meaning.ends_with('.') && reason.remedy.ends_with('.'), "{reason:?}");
            let text = format!("{reason:?}");
            assert!(!text.contains("](") && !text.contains('|'), "{text}");
        }
    }

    #[test]
    fn reasons_are_summed_and_the_most_frequent_is_first() {
        let totals = totals([("behind", 2), ("no-progress", 9), ("behind", 10), ("odd", 1)]);
        let words: Vec<_> = totals.iter().map(|it| (it.reason.as_str(), it.requests)).collect();
        assert_eq!(words, [("behind", 12), ("no-progress", 9), ("odd", 1)]);
        assert_eq!(totals[0].configuration, "cache.rules[].freshness");
        assert_eq!(totals[1].remedy, "See ListlessReplicaUnproven in docs/alerts.md.");
        assert_eq!(totals[2].remedy, "Look at the log.");
    }
}
