//! `resourceVersion`, its match, limits, pages, and other parameters of a list.

use super::super::case::{Memory, Pace};
use super::{Case, table};

const PODS: &str = "/api/v1/namespaces/shop/pods?";

const FROM_MEMORY: &[(&str, u16)] = &[
    ("resourceVersion=", 200),
    ("resourceVersion=0", 200),
    ("resourceVersion=0&resourceVersionMatch=NotOlderThan", 200),
    ("resourceVersion=0&labelSelector=app%3Dweb", 200),
    ("resourceVersion={after}", 200),
    ("resourceVersion={after}&resourceVersionMatch=NotOlderThan", 200),
    ("resourceVersion={before}", 200),
    ("resourceVersion={before}&resourceVersionMatch=NotOlderThan", 200),
    ("resourceVersion=1", 200),
    ("resourceVersion=1&resourceVersionMatch=", 200),
    ("resourceVersion=0&limit=5", 200),
    ("resourceVersion=0&limit=5&resourceVersionMatch=NotOlderThan", 200),
    ("limit=0", 200),
    ("timeoutSeconds=10", 200),
    ("timeout=10s", 200),
    ("watch=false", 200),
    ("watch=0", 200),
    ("allowWatchBookmarks=true", 200),
    ("continue=", 200),
    ("pretty=false", 200),
];

const FORWARDED: &[(&str, u16)] = &[
    ("resourceVersion={after}&resourceVersionMatch=Exact", 200),
    ("resourceVersion={before}&resourceVersionMatch=Exact", 200),
    ("resourceVersion={after}&resourceVersionMatch=Exact&limit=3", 200),
    ("resourceVersion={after}&limit=3", 200),
    ("resourceVersion={before}&limit=3", 200),
    ("unknown=parameter", 200),
    ("resourceVersion=0&shardSelector=x", 200),
];

const REFUSED: &[(&str, u16)] = &[
    ("resourceVersionMatch=NotOlderThan", 422),
    ("resourceVersionMatch=Exact", 422),
    ("resourceVersionMatch=Latest", 422),
    ("resourceVersion=0&resourceVersionMatch=Exact", 422),
    ("resourceVersion=1&resourceVersionMatch=exact", 422),
    ("resourceVersion=1&resourceVersionMatch=Latest", 422),
    ("sendInitialEvents=true", 422),
    ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=0", 422),
    ("continue=x&resourceVersionMatch=NotOlderThan", 422),
    ("continue=x&resourceVersion={after}", 400),
    ("continue=x", 400),
    ("continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi94XHUwMDAwIn0", 400),
    ("limit=abc", 400),
    ("limit=1.5", 400),
    ("limit=", 400),
    ("timeoutSeconds=abc", 400),
    ("timeout=abc", 400),
    ("timeout=10", 400),
    ("watch=true&resourceVersion=abc", 500),
    ("watch=true&labelSelector=((", 400),
    ("watch=true&fieldSelector=spec.x%3D1", 400),
    ("watch=true&resourceVersionMatch=NotOlderThan", 422),
];

/// Values that are no numbers: 400, on 1.30 still 500.
const NO_VERSIONS: &[&str] = &[
    "/api/v1/namespaces/shop/pods?resourceVersion=abc",
    "/api/v1/namespaces/shop/pods?resourceVersion=-1",
    "/api/v1/namespaces/shop/pods?resourceVersion=1.5",
    "/api/v1/namespaces/shop/pods?resourceVersion=18446744073709551616",
    "/api/v1/namespaces/shop/pods?resourceVersion=+5",
    "/api/v1/namespaces/shop/pods?resourceVersion=abc&resourceVersion=0",
    "/apis/shop.example.com/v1/widgets?resourceVersion=x",
    "/api/v1/nodes?resourceVersion=x",
    "/api/v1/configmaps?resourceVersion=x",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = table(PODS, Memory::Free, FROM_MEMORY);
    cases.extend(table(PODS, Memory::Never, FORWARDED));
    cases.extend(table(PODS, Memory::Never, REFUSED));
    let no_version = |target: &&str| Case::get(target).status(400).status_on_old(500);
    cases.extend(NO_VERSIONS.iter().map(no_version));
    // Spellings of a number that only some servers accept.
    cases.push(Case::get(&format!("{PODS}resourceVersion=007")));
    cases.extend(waiting());
    cases.extend(limits());
    cases.extend(kinds());
    cases.extend(repeated());
    cases
}

/// A version that the server has not reached: it waits three seconds, then gives up.
fn waiting() -> Vec<Case> {
    let future = |query: &str| {
        Case::get(&format!("{PODS}resourceVersion={{future}}{query}")).status(504).pace(Pace::Slow)
    };
    vec![
        future(""),
        future("&resourceVersionMatch=NotOlderThan"),
        future("&resourceVersionMatch=Exact").status_on_old(500),
        Case::get("/api/v1/namespaces/shop/pods/web-0?resourceVersion={future}")
            .status(504)
            .pace(Pace::Slow),
    ]
}

/// A whole response to a limited request is legal, but a difference.
fn limits() -> Vec<Case> {
    let cut = [
        ("limit=1", 200),
        ("limit=89", 200),
        ("limit=2&fieldSelector=status.phase%3DRunning", 200),
    ];
    let fitting = [
        ("limit=90", 200),
        ("limit=91", 200),
        ("limit=500", 200),
        ("limit=500&labelSelector=app%3Dweb", 200),
        ("limit=-1", 200),
    ];
    let mut cases = table(PODS, Memory::Free, &cut);
    cases.extend(table(PODS, Memory::Free, &fitting));
    cases
}

/// The same versions on an uncached kind, a custom one and one without a namespace.
fn kinds() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in ["/apis/shop.example.com/v1/widgets", "/api/v1/nodes", "/api/v1/configmaps"] {
        cases.push(Case::get(&format!("{path}?resourceVersion=0")));
        cases.push(Case::get(&format!("{path}?resourceVersion={{after}}")));
        let exact = format!("{path}?resourceVersion={{after}}&resourceVersionMatch=Exact");
        cases.push(Case::get(&exact).never());
    }
    let events = "/api/v1/namespaces/shop/events";
    cases.push(Case::get(&format!("{events}?resourceVersion=0")).never());
    cases.push(Case::get(&format!("{events}?resourceVersion=0&limit=2")).never());
    cases.push(Case::get(&format!("{events}?resourceVersion={{after}}")).never());
    cases.push(Case::get(&format!("{events}?resourceVersion={{future}}")).status(504));
    cases
}

/// The first of a repeated parameter counts.
fn repeated() -> Vec<Case> {
    vec![
        Case::get(&format!("{PODS}resourceVersion=0&resourceVersion=abc")),
        Case::get(&format!("{PODS}limit=2&limit=3")).never(),
    ]
}
