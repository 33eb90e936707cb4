//! The wider queries that replace many narrow ones. Pure.

use crate::{
    api::{Scope, query::Query},
    hash::HashMap,
};

/// Returns the replacements of too many siblings, best first: first without selectors, then of all
/// namespaces.
pub(super) fn wider(siblings: &[&Query], siblings_max: usize) -> Vec<Query> {
    let Some(first) = siblings.first().filter(|_| siblings.len() > siblings_max) else {
        return Vec::new();
    };
    let mut scopes: HashMap<&Scope, usize> = HashMap::default();
    for query in siblings {
        *scopes.entry(&query.scope).or_default() += 1;
    }
    let mut crowded: Vec<_> = scopes.into_iter().filter(|(_, count)| *count > 1).collect();
    crowded.sort_by(|(a, more), (b, less)| less.cmp(more).then_with(|| a.cmp(b)));
    if !crowded.is_empty() {
        let all = |scope: &Scope| Query::all(first.resource.clone(), scope.clone());
        return crowded.into_iter().map(|(scope, _)| all(scope)).collect();
    }
    let same = siblings
        .iter()
        .all(|query| (&query.labels, &query.fields) == (&first.labels, &first.fields));
    let everywhere = Query { scope: Scope::All, ..Query::clone(first) };
    vec![if same { everywhere } else { Query::all(first.resource.clone(), Scope::All) }]
}
