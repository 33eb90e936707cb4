//! The table of reads. Each file holds one aspect; together they must stay distinct.

use std::collections::BTreeSet;

use super::case::{Case, Memory};

mod callers;
mod discovery;
mod fields;
mod gets;
mod labels;
mod lists;
mod media;
mod pages;
mod paths;
mod versions;

/// Every case, in an order in which replicas warm up before they are needed.
pub fn all() -> Vec<Case> {
    let cases: Vec<Case> = [
        lists::cases(),
        labels::cases(),
        fields::cases(),
        versions::cases(),
        pages::cases(),
        media::cases(),
        gets::cases(),
        paths::cases(),
        discovery::cases(),
        callers::cases(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
    assert_eq!(names.len(), cases.len(), "two cases are the same");
    cases
}

/// Cases that differ in nothing but a value put after `prefix`, each with its status.
fn table(prefix: &str, memory: Memory, rows: &[(&str, u16)]) -> Vec<Case> {
    let case = |(value, status): &(&str, u16)| {
        let mut case = Case::get(&format!("{prefix}{value}"));
        case.memory = memory;
        case.status(*status)
    };
    rows.iter().map(case).collect()
}
