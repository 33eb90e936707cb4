//! Allowed dependencies: control and data paths, pure modules, and the few places with I/O.
//!
//! The tables below are the dependency rules of ARCHITECTURE.md in a form that can fail.

use std::collections::BTreeMap;

use super::source::Source;

/// The names that a module, and everything below it, may not use. Every matching row holds, not
/// only the one with the longest prefix.
const FORBIDDEN: &[(&str, &[&str])] = &[
    // The vocabulary uses nothing else of the crate.
    ("api", &["crate::!api"]),
    // The data path does not use its administration, and no part of the product is simulated.
    ("proxy", &["crate::admin", "crate::injector", "crate::app", "crate::cli", "crate::simulator"]),
    ("cache", &["crate::proxy", "crate::admin", "crate::app", "crate::cli", "crate::simulator"]),
    ("upstream", &["crate::proxy", "crate::cache", "crate::admin", "crate::app", "crate::cli"]),
    ("policy", &["crate::proxy", "crate::cache", "crate::upstream", "crate::admin", "crate::app"]),
    ("limit", &["crate::proxy", "crate::cache", "crate::upstream", "crate::admin", "crate::app"]),
    ("injector", &["crate::cache", "crate::proxy", "crate::app", "crate::cli"]),
    ("check", &["crate::cache", "crate::proxy", "crate::app", "crate::cli", "crate::admin"]),
    ("config", &["crate::proxy", "crate::upstream", "crate::admin", "crate::app", "crate::cli"]),
    (
        "insight",
        &[
            "crate::proxy",
            "crate::cache",
            "crate::upstream",
            "crate::admin",
            "crate::app",
            "crate::cli",
        ],
    ),
    ("audit", &["crate::proxy", "crate::upstream", "crate::app", "crate::cli", "crate::simulator"]),
    ("metrics", &["crate::proxy", "crate::upstream", "crate::app", "crate::cli"]),
    ("lifecycle", &["crate::proxy", "crate::cache", "crate::upstream", "crate::app", "crate::cli"]),
    ("admin", &["crate::app", "crate::cli", "crate::simulator"]),
    // The command line starts processes and demos, and neither knows of it.
    ("app", &["crate::cli", "crate::demo", "crate::simulator"]),
    ("demo", &["crate::cli"]),
    ("simulator", &["crate::proxy", "crate::cache", "crate::app", "crate::cli", "crate::admin"]),
    // Only the reflector, and the pool it is given, talk to the apiserver.
    ("cache::store", &["crate::upstream"]),
    ("cache::history", &["crate::upstream"]),
    ("proxy::decide", &["crate::upstream"]),
    ("proxy::local", &["crate::upstream"]),
    ("proxy::session", &["crate::upstream"]),
    ("admin", &["crate::upstream"]),
];

/// Modules that take time, randomness and input as arguments.
const PURE: &[&str] = &[
    "api",
    "policy",
    "limit",
    "proxy::decide",
    "proxy::session",
    "cache::store",
    "cache::history",
    "upstream::health::state",
    "injector::patch",
    "check::release",
    "check::permissions",
    "check::webhook",
    "check::contact",
    "check::trial",
    "check::injector",
    "check::pods",
    "insight::period",
    "insight::detect",
    "insight::cost",
    "insight::shape",
];

/// The calls that a pure module does not make.
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "rand::",
    "Uuid::new_v4",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "tokio::fs",
    "tokio::net",
    "tokio::spawn",
    "hyper::",
    "async fn",
    ".await",
    "info!",
    "warn!",
    "error!",
    "debug!",
];

/// Further words that the vocabulary does not use.
const NOT_IN_API: &[&str] = &["tokio", "hyper", "kube::", "rustls"];

/// The modules that read files or the environment, and the reason why no other does.
const READERS: &[(&str, &str, &str)] = &[
    ("config", "files", "the configuration file"),
    ("tls", "files", "certificates and keys"),
    ("mirror", "files", "a service account's directory and its copy"),
    ("audit", "files", "the file it writes"),
    ("cli::inject", "files", "the manifests it changes"),
    ("demo::processor", "files", "processor time of its own threads"),
    ("metrics::process", "files", "what the kernel says of this process"),
    ("upstream::identity", "files", "the kubeconfig and what it names"),
    ("upstream::identity", "environment", "HTTPS_PROXY and the other proxy variables"),
    ("main", "environment", "the arguments"),
    ("app::options", "environment", "the home directory"),
    ("cli", "environment", "NO_COLOR and its own program"),
    ("terminal", "environment", "COLUMNS and NO_COLOR"),
];

const FILES: &[&str] = &["std::fs", "tokio::fs", "fs::read", "fs::write", "File::open"];
const ENVIRONMENT: &[&str] = &["env::var", "env::args", "std::env"];

const METRIC_MACROS: &[&str] = &["counter!", "gauge!", "histogram!"];
const METRIC_PREFIX: &str = "listless_";

/// Uses of modules that lie above or beside.
pub(crate) fn forbidden_modules(source: &Source) -> Vec<String> {
    let module = source.module();
    let mut findings = Vec::new();
    for (_, banned) in FORBIDDEN.iter().filter(|(prefix, _)| is_within(&module, prefix)) {
        for (line, used) in crate_paths(source) {
            if banned.iter().any(|banned| names(banned, &used)) {
                findings.push(format!("{}:{line}: {module} uses crate::{used}", source.path));
            }
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Clocks, randomness, input, output and logs in pure modules.
pub(crate) fn impurities(source: &Source) -> Vec<String> {
    let module = source.module();
    let mut findings = Vec::new();
    if PURE.iter().any(|pure| is_within(&module, pure)) {
        findings.extend(uses(source, IMPURE));
    }
    if is_within(&module, "api") {
        findings.extend(uses(source, NOT_IN_API));
    }
    findings
}

/// The clock of the standard library, which tests cannot pause.
pub(crate) fn unpausable_clocks(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (at, _) in source.product.match_indices("time::") {
        let before = &source.product[..at];
        let statement = before.rsplit([';', '{', '}']).next().unwrap_or("");
        let in_group = before
            .rsplit("use ")
            .next()
            .is_some_and(|rest| rest.starts_with("std::{") && !rest.contains(';'));
        let is_std = in_group || statement.trim_end().ends_with("std::");
        if is_std && tails(&source.product[at + 6..]).iter().any(|tail| is_within(tail, "Instant"))
        {
            let line = source.line(at);
            findings.push(format!("{}:{line}: use tokio::time::Instant", source.path));
        }
    }
    findings
}

/// Files and the environment, read in a module without permission.
pub(crate) fn outside_reads(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (kind, words) in [("files", FILES), ("environment", ENVIRONMENT)] {
        if !is_reader(&source.module(), kind) {
            findings.extend(uses(source, words));
        }
    }
    findings
}

/// Metrics created outside `metrics`, and names used twice there.
pub(crate) fn metrics(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for source in sources {
        let metric_names =
            source.strings.iter().filter(|(_, text)| text.starts_with(METRIC_PREFIX));
        if is_within(&source.module(), "metrics") {
            for (line, name) in metric_names {
                names.entry(name).or_default().push(format!("{}:{line}", source.path));
            }
        } else {
            findings.extend(uses(source, METRIC_MACROS));
            findings.extend(
                metric_names.map(|(line, name)| format!("{}:{line}: names {name}", source.path)),
            );
        }
    }
    let twice = names.iter().filter(|(_, places)| places.len() > 1);
    findings
        .extend(twice.map(|(name, places)| format!("{name} is listed at {}", places.join(", "))));
    findings
}

/// Rows of the tables above that no longer allow anything.
pub(crate) fn stale_exceptions(sources: &[Source]) -> Vec<String> {
    let used = |module: &str, kind: &str| {
        let words = if kind == "files" { FILES } else { ENVIRONMENT };
        sources.iter().any(|s| is_within(&s.module(), module) && !uses(s, words).is_empty())
    };
    READERS
        .iter()
        .filter(|(module, kind, _)| !used(module, kind))
        .map(|(module, kind, why)| format!("{module} no longer reads {kind} ({why})"))
        .collect()
}

fn is_reader(module: &str, kind: &str) -> bool {
    READERS.iter().any(|(reader, reads, _)| is_within(module, reader) && *reads == kind)
}

fn is_within(module: &str, prefix: &str) -> bool {
    module == prefix || module.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("::"))
}

/// Reports whether a table entry names this path: `crate::a`, or `crate::!a` for all but `a`.
fn names(entry: &str, used: &str) -> bool {
    let entry = entry.trim_start_matches("crate::");
    match entry.strip_prefix('!') {
        Some(only) => !is_within(used, only),
        None => is_within(used, entry),
    }
}

/// Occurrences of words in the product code; a word is not part of a longer identifier.
fn uses(source: &Source, words: &[&str]) -> Vec<String> {
    let mut findings = Vec::new();
    for word in words {
        for (at, _) in source.product.match_indices(word) {
            let before = source.product[..at].chars().next_back();
            let part_of_longer = word.starts_with(char::is_alphabetic)
                && before.is_some_and(|c| c.is_alphanumeric() || c == '_');
            if !part_of_longer {
                let line = source.line(at);
                findings.push(format!("{}:{line}: uses {word}", source.path));
            }
        }
    }
    findings
}

/// Every module of this crate that the product code names, with its line: `crate::` paths, their
/// groups in braces one level deep, and `super::` resolved.
fn crate_paths(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in source.product.match_indices("crate::") {
        let line = source.line(at);
        found.extend(tails(&source.product[at + 7..]).into_iter().map(|path| (line, path)));
    }
    let module = source.module();
    let mut parents: Vec<&str> = module.split("::").collect();
    parents.pop();
    for (at, _) in source.product.match_indices("super::") {
        if source.product[..at].ends_with("super::") {
            continue;
        }
        let rest = &source.product[at..];
        let ups = rest.split("super::").take_while(|part| part.is_empty()).count();
        let keep = (parents.len() + 1).saturating_sub(ups);
        let prefix = parents[..keep.min(parents.len())].join("::");
        let line = source.line(at);
        for tail in tails(&rest[ups * 7..]) {
            let path = if prefix.is_empty() { tail } else { format!("{prefix}::{tail}") };
            found.push((line, path));
        }
    }
    found
}

/// `a::b` of `a::b;`, and each of `{a, b::c}`.
fn tails(rest: &str) -> Vec<String> {
    let path = |text: &str| -> String {
        let is_path = |c: &char| c.is_alphanumeric() || matches!(c, '_' | ':');
        text.trim().chars().take_while(is_path).collect::<String>().trim_end_matches(':').to_owned()
    };
    let Some(group) = rest.strip_prefix('{') else { return vec![path(rest)] };
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            ',' | '}' if depth == 0 => {
                found.push(path(&group[start..at]));
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found.retain(|path| !path.is_empty());
    found
}

#[cfg(test)]
mod tests;
