//! The house rules that a test can check; CONTRIBUTING.md gives the reasons.
//!
//! Each check is a function from sources to findings. Its own test on a bad snippet is in the same
//! file. A rule that lints can check is in `Cargo.toml` and `clippy.toml` instead.

mod direction;
mod form;
mod paper;
mod reasons;
mod rules;
mod source;

use std::sync::LazyLock;

use source::{Source, read_tree};

/// Fails with every finding at once, one a line.
#[track_caller]
fn none(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

fn every<T>(items: &[T], check: impl Fn(&T) -> Vec<String>) -> Vec<String> {
    items.iter().flat_map(check).collect()
}

static RUST: LazyLock<Vec<Source>> =
    LazyLock::new(|| read_tree(&["src", "tests", "benches"], "rs"));
static PRODUCT: LazyLock<Vec<Source>> = LazyLock::new(|| read_tree(&["src"], "rs"));
static MARKDOWN: LazyLock<Vec<Source>> = LazyLock::new(|| read_tree(&["."], "md"));

#[test]
fn the_tree_is_really_read() {
    assert!(PRODUCT.len() > 10, "found only {} source files", PRODUCT.len());
    assert!(RUST.iter().any(|source| source.path == "tests/it/tidy.rs"));
    assert!(MARKDOWN.iter().any(|source| source.path == "README.md"));
}

#[test]
fn files_are_small() {
    none(&form::file_sizes(&RUST, form::LARGER_FILES));
}

#[test]
fn functions_are_small() {
    none(&form::function_sizes(&RUST, form::LARGER_FUNCTIONS));
}

#[test]
fn every_module_states_its_purpose() {
    none(&every(&RUST, form::module_doc));
}

#[test]
fn names_of_tests_state_a_behaviour() {
    none(&every(&RUST, form::test_names));
}

#[test]
fn nothing_is_left_unfinished() {
    none(&every(&RUST, form::left_overs));
}

#[test]
fn every_file_is_compiled() {
    none(&form::dead_files(&RUST));
}

#[test]
fn modules_use_only_what_lies_below_them() {
    none(&every(&PRODUCT, direction::forbidden_modules));
}

#[test]
fn pure_modules_do_no_io_and_read_no_clock() {
    none(&every(&PRODUCT, direction::impurities));
}

#[test]
fn time_can_be_paused_in_tests() {
    none(&every(&PRODUCT, direction::unpausable_clocks));
}

#[test]
fn files_and_the_environment_are_read_in_few_places() {
    none(&every(&PRODUCT, direction::outside_reads));
}

#[test]
fn metrics_are_made_in_one_place() {
    none(&direction::metrics(&PRODUCT));
}

#[test]
fn every_exception_is_still_needed() {
    none(&direction::stale_exceptions(&PRODUCT));
}

#[test]
fn links_between_documents_resolve() {
    none(&paper::links(&MARKDOWN));
}

#[test]
fn every_cited_rule_is_listed_and_every_listed_rule_is_used() {
    let cited_in = read_tree(&["src", "tests", "benches", "docs"], "");
    let document = Source::new(rules::RULES, &paper::text_of(rules::RULES));
    none(&rules::citations(&cited_in, &document, &rules::tests(&RUST)));
}

#[test]
fn the_list_of_rules_is_in_order_and_names_tests_that_exist() {
    let document = Source::new(rules::RULES, &paper::text_of(rules::RULES));
    none(&rules::document(&document, &rules::tests(&RUST)));
}

#[test]
fn documents_that_refer_to_tests_name_existing_ones() {
    let tests = rules::tests(&RUST);
    let of = |path: &str| rules::absent_tests(&Source::new(path, &paper::text_of(path)), &tests);
    none(&["SECURITY.md", "docs/answers.md", "docs/failures.md"].map(of).concat());
}

#[test]
fn comments_name_only_documents_that_are_here() {
    none(&rules::absent_documents(&RUST, &MARKDOWN));
}

#[test]
fn documents_name_only_commands_that_exist() {
    none(&paper::commands(&MARKDOWN, &paper::Known::read()));
}

#[test]
fn the_code_map_is_complete_and_true() {
    let paths: Vec<&str> = PRODUCT.iter().map(|source| source.path.as_str()).collect();
    none(&paper::code_map(&paper::text_of("ARCHITECTURE.md"), &paths));
}

#[test]
fn the_answers_to_newcomers_name_what_is_there() {
    none(&paper::pointers(&paper::text_of("ARCHITECTURE.md"), &PRODUCT));
}

#[test]
fn every_forward_reason_is_documented() {
    none(&reasons::differences(&paper::text_of("docs/answers.md")));
}

#[test]
fn the_documented_reasons_are_the_table_in_the_source() {
    reasons::hold();
}

#[test]
fn continuous_integration_runs_every_test_binary() {
    none(&paper::test_binaries_in_ci());
}

#[test]
fn contributing_says_where_each_cluster_suite_runs() {
    none(&paper::unlisted_suites(&paper::text_of("CONTRIBUTING.md"), &RUST));
}

#[test]
fn no_document_names_a_machine() {
    let everything = read_tree(&["."], "");
    none(&every(&everything, paper::machine_paths));
}
