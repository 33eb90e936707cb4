use super::*;

fn forbidden(path: &str, text: &str) -> usize {
    forbidden_modules(&Source::new(path, text)).len()
}

#[test]
fn the_vocabulary_may_use_nothing_else() {
    assert_eq!(forbidden("src/api/query.rs", "use crate::body::Body;\n"), 1);
    assert_eq!(forbidden("src/api/query.rs", "use super::super::body::Body;\n"), 1);
    assert_eq!(forbidden("src/api/query.rs", "use super::{Scope, selector::X};\n"), 0);
    assert_eq!(forbidden("src/api.rs", "use crate::api::Scope;\n"), 0);
}

#[test]
fn the_data_path_may_not_know_its_administration() {
    assert_eq!(forbidden("src/proxy/local.rs", "fn a() { crate::admin::page(); }\n"), 1);
    assert_eq!(forbidden("src/proxy.rs", "use crate::{admin, api::{Scope, Verb}};\n"), 1);
    assert_eq!(forbidden("src/proxy.rs", "use crate::{api::{Scope, admin}, cache};\n"), 0);
    assert_eq!(forbidden("src/injector.rs", "use crate::cache::Cache;\n"), 1);
    assert_eq!(forbidden("src/proxy/decide.rs", "use crate::upstream::Client;\n"), 1);
}

#[test]
fn comments_strings_and_tests_may_name_anything() {
    let text = "// crate::admin\nconst A: &str = \"crate::admin\";\n#[cfg(test)]\nmod tests {\n    \
                use crate::admin;\n}\n";
    assert_eq!(forbidden("src/proxy.rs", text), 0);
}

#[test]
fn a_clock_in_a_pure_module_is_found() {
    let found = |path: &str, text: &str| impurities(&Source::new(path, text)).len();
    assert_eq!(found("src/proxy/decide.rs", "let now = Instant::now();\n"), 1);
    assert_eq!(found("src/cache/store.rs", "async fn a() {}\n"), 1);
    assert_eq!(found("src/api/media.rs", "use tokio::time::Instant;\n"), 1);
    assert_eq!(found("src/proxy/decide.rs", "fn a(now: tokio::time::Instant) {}\n"), 0);
    assert_eq!(found("src/proxy/listen.rs", "let now = Instant::now();\n"), 0);
}

#[test]
fn a_clock_that_cannot_be_paused_is_found() {
    let found = |text: &str| unpausable_clocks(&Source::new("src/proxy.rs", text)).len();
    assert_eq!(found("use std::time::{Duration, Instant};\n"), 1);
    assert_eq!(
        found("use std::{\n    sync::{Arc, Mutex},\n    time::{Duration, Instant},\n};\n"),
        1
    );
    assert_eq!(found("let a = std::time::Instant::now();\n"), 1);
    assert_eq!(found("use std::{sync::Arc, time::Duration};\nuse tokio::time::Instant;\n"), 0);
    assert_eq!(found("use tokio::{net, time::{self, Instant}};\n"), 0);
}

#[test]
fn a_file_read_elsewhere_is_found() {
    let found = |path: &str, text: &str| outside_reads(&Source::new(path, text)).len();
    assert_eq!(found("src/proxy/local.rs", "tokio::fs::read(path).await\n"), 2);
    assert_eq!(found("src/config.rs", "tokio::fs::read(path).await\n"), 0);
    assert_eq!(found("src/config.rs", "std::env::var(name)\n"), 2);
}

#[test]
fn a_metric_made_or_named_elsewhere_is_found() {
    let source = |path: &str, text: &str| Source::new(path, text);
    let raw = [source("src/proxy.rs", "metrics::counter!(NAME).increment(1);\n")];
    assert_eq!(metrics(&raw).len(), 1);
    let named = [source("src/proxy.rs", "let name = \"listless_requests_total\";\n")];
    assert_eq!(metrics(&named).len(), 1);
    let text = "const A: &str = \"listless_a\";\nconst B: &str = \"listless_a\";\n";
    assert_eq!(metrics(&[source("src/metrics.rs", text)]).len(), 1);
    let once = "const A: &str = \"listless_a\";\nconst B: &str = \"listless_b\";\n";
    assert_eq!(metrics(&[source("src/metrics.rs", once)]).len(), 0);
}

#[test]
fn an_unused_exception_is_found() {
    let readers = [
        "config",
        "tls",
        "mirror",
        "audit",
        "app/options",
        "cli",
        "cli/inject",
        "metrics/process",
        "demo/processor",
        "upstream/identity",
        "main",
        "terminal",
    ];
    let text = "use std::fs;\nuse std::env;\n";
    let all: Vec<Source> =
        readers.iter().map(|module| Source::new(&format!("src/{module}.rs"), text)).collect();
    assert_eq!(stale_exceptions(&all).len(), 0);
    assert_eq!(stale_exceptions(&all[1..]).len(), 1);
}
