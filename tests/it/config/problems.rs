//! Each case is a wrong file and all of its messages.

use std::{fs, path::Path};

use listless::{config::Config, error::Chain};

use super::HEAD;

#[track_caller]
fn refuses(text: &str, expected: &str) {
    let error = Config::from_bytes(Path::new("c.yaml"), text.as_bytes()).expect_err(text);
    assert_eq!(error.to_string(), expected, "{text}");
}

/// The text of a rule that comes after the head, on line 5.
fn rule(text: &str) -> String {
    format!("{HEAD}cache:\n  rules:\n  - {text}\n")
}

#[test]
fn messages_about_misspelt_keys_list_the_existing_ones() {
    refuses(
        &format!("{HEAD}moed: enforce\n"),
        "c.yaml:3:1: moed: unknown field \"moed\", expected one of apiVersion, kind, mode, cache, \
         uncachedReads, repeatPolls, observe, discovery, report, accessLog, audit; did you mean \"mode\"?",
    );
    refuses(
        &format!("{HEAD}cache:\n  memorylimit: 1Mi\n"),
        "c.yaml:4:3: cache.memorylimit: unknown field \"memorylimit\", expected one of memoryLimit, \
         uncompressedLimit, responseLimit, idleTimeout, rules; did you mean \"memoryLimit\"?",
    );
    refuses(
        &rule("resources: [pods]\n    freshnes: any"),
        "c.yaml:6:5: cache.rules[0].freshnes: unknown field \"freshnes\", expected one of \
         resources, namespaces, verbs, userAgents, selectors, start, forms, freshness, \
         maxStaleness, rewrite, repeatPolls; did you mean \"freshness\"?",
    );
    refuses(
        &rule("resources: [pods]\n    repeatPolls: {perSec: 1}"),
        "c.yaml:6:19: cache.rules[0].repeatPolls.perSec: unknown field \"perSec\", expected one of \
         perSecond, burst, action, maxDelay, fromMemoryPerSecond; did you mean \"perSecond\"?",
    );
}

#[test]
fn messages_about_unknown_values_list_the_allowed_ones() {
    refuses(
        &format!("{HEAD}mode: 5\n"),
        "c.yaml:3:7: mode: unknown value \"5\", expected one of enforce, observe",
    );
    refuses(
        &rule("resources: [pods]\n    start: on-demand"),
        "c.yaml:6:12: cache.rules[0].start: unknown value \"on-demand\", expected one of never, \
         onDemand, eager; did you mean \"onDemand\"?",
    );
    refuses(
        &rule("resources: [pods]\n    freshness: fresh"),
        "c.yaml:6:16: cache.rules[0].freshness: unknown value \"fresh\", expected one of \
         mostRecent, session, bounded, any",
    );
    refuses(
        &format!("{HEAD}repeatPolls: {{action: wait}}\n"),
        "c.yaml:3:23: repeatPolls.action: unknown value \"wait\", expected one of pace, reject, off",
    );
    refuses(
        "apiVersion: v1\nkind: ConfigMap\n",
        "c.yaml:1:13: apiVersion: unknown value \"v1\", expected listless.dev/v1alpha1\n\
         c.yaml:2:7: kind: unknown value \"ConfigMap\", expected ProxyConfiguration",
    );
}

#[test]
fn values_have_bounds() {
    refuses(
        &format!("{HEAD}accessLog: {{level: some}}\n"),
        "c.yaml:3:20: accessLog.level: unknown value \"some\", expected one of off, errors, all",
    );
    for sample in ["-0.1", "1.5"] {
        refuses(
            &format!("{HEAD}accessLog: {{sample: {sample}}}\n"),
            "c.yaml:3:21: accessLog.sample: must be from 0 to 1",
        );
    }
    refuses(
        &format!("{HEAD}audit: {{maxBytes: 1Ki}}\n"),
        "c.yaml:3:19: audit.maxBytes: must be from 64Ki to 1024Gi",
    );
}

#[test]
fn messages_about_wrong_types_name_the_right_one() {
    refuses(
        &format!("{HEAD}mode: [enforce]\n"),
        "c.yaml:3:7: mode: expected one of enforce, observe",
    );
    refuses(
        &format!("{HEAD}cache: 5\n"),
        "c.yaml:3:8: cache: expected a mapping with keys and values",
    );
    refuses(&format!("{HEAD}cache:\n  rules: pods\n"), "c.yaml:4:10: cache.rules: expected a list");
    refuses(&rule("pods"), "c.yaml:5:5: cache.rules[0]: expected a mapping with keys and values");
    refuses(&rule("resources: pods"), "c.yaml:5:16: cache.rules[0].resources: expected a list");
    refuses(
        &format!("{HEAD}discovery: {{cache: maybe}}\n"),
        "c.yaml:3:20: discovery.cache: expected true or false",
    );
    refuses(
        &format!("{HEAD}repeatPolls: {{perSecond: fast}}\n"),
        "c.yaml:3:26: repeatPolls.perSecond: expected a number",
    );
    refuses(
        &format!("{HEAD}repeatPolls: {{burst: -1}}\n"),
        "c.yaml:3:22: repeatPolls.burst: expected a whole number from 0",
    );
    refuses(
        &format!("{HEAD}mode:\n"),
        "c.yaml:3:1: mode: has no value; set one, or remove the key for its default",
    );
}

#[test]
fn messages_about_amounts_have_an_example_or_bounds() {
    refuses(
        &format!("{HEAD}cache: {{memoryLimit: 256MB}}\n"),
        "c.yaml:3:22: cache.memoryLimit: \"256MB\" is not a quantity of bytes; use a number and \
         Ki, Mi, Gi, k, M or G, such as 256Mi",
    );
    refuses(
        &format!("{HEAD}cache: {{idleTimeout: 10 minutes}}\n"),
        "c.yaml:3:22: cache.idleTimeout: \"10 minutes\" is not a duration; use numbers with h, m, \
         s or ms, such as 10m, 1m30s or 250ms",
    );
    refuses(
        &rule("resources: [pods]\n    maxStaleness: 5"),
        "c.yaml:6:19: cache.rules[0].maxStaleness: \"5\" is not a duration; use numbers with h, m, \
         s or ms, such as 10m, 1m30s or 250ms",
    );
    for (text, expected) in [
        ("cache: {memoryLimit: 1Ki}", "3:22: cache.memoryLimit: must be at least 1Mi"),
        ("cache: {idleTimeout: 1s}", "3:22: cache.idleTimeout: must be from 10s to 24h"),
        (
            "repeatPolls: {perSecond: .nan}",
            "3:26: repeatPolls.perSecond: must be above 0 and at most 1000",
        ),
    ] {
        refuses(&format!("{HEAD}{text}\n"), &format!("c.yaml:{expected}"));
    }
}

#[test]
fn all_wrong_values_are_reported_in_file_order() {
    refuses(
        &format!("{HEAD}repeatPolls: {{fromMemoryPerSecond: 0}}\n"),
        "c.yaml:3:36: repeatPolls.fromMemoryPerSecond: must be from 1 to 1000000",
    );
    refuses(
        &format!("{HEAD}repeatPolls: {{burst: 0, maxDelay: 10s}}\ncache: {{idleTimeout: 1s}}\n"),
        "c.yaml:3:22: repeatPolls.burst: must be from 1 to 10000\n\
         c.yaml:3:35: repeatPolls.maxDelay: must be at most 8s\n\
         c.yaml:4:22: cache.idleTimeout: must be from 10s to 24h",
    );
}

#[test]
fn problems_of_every_sort_are_told_at_once() {
    refuses(
        "apiVersion: v1\nkind: ProxyConfiguration\nmoed: enforce\ndiscovery: {cache: maybe}\ncache:\n  \
         memoryLimit: 256MB\n  idleTimeout: 1s\n  rules:\n  - start: on-demand\n    verbs: [list, \
         create]\n  - pods\nobserve:\n",
        "c.yaml:1:13: apiVersion: unknown value \"v1\", expected listless.dev/v1alpha1\n\
         c.yaml:3:1: moed: unknown field \"moed\", expected one of apiVersion, kind, mode, cache, \
         uncachedReads, repeatPolls, observe, discovery, report, accessLog, audit; did you mean \"mode\"?\n\
         c.yaml:4:20: discovery.cache: expected true or false\n\
         c.yaml:6:16: cache.memoryLimit: \"256MB\" is not a quantity of bytes; use a number and \
         Ki, Mi, Gi, k, M or G, such as 256Mi\n\
         c.yaml:7:16: cache.idleTimeout: must be from 10s to 24h\n\
         c.yaml:9:5: cache.rules[0].resources: is required\n\
         c.yaml:9:12: cache.rules[0].start: unknown value \"on-demand\", expected one of never, \
         onDemand, eager; did you mean \"onDemand\"?\n\
         c.yaml:10:19: cache.rules[0].verbs[1]: unknown value \"create\", expected one of get, list, \
         watch\n\
         c.yaml:11:5: cache.rules[1]: expected a mapping with keys and values\n\
         c.yaml:12:1: observe: has no value; set one, or remove the key for its default",
    );
    refuses(
        &format!("{HEAD}mode: observe\nmode: enforce\nmoed: enforce\n"),
        "c.yaml:4:1: mode: is set twice; remove one\n\
         c.yaml:5:1: moed: unknown field \"moed\", expected one of apiVersion, kind, mode, cache, \
         uncachedReads, repeatPolls, observe, discovery, report, accessLog, audit; did you mean \"mode\"?",
    );
}

#[test]
fn a_value_that_yaml_also_knows_as_a_boolean_is_right_beside_a_problem() {
    refuses(
        &format!("{HEAD}repeatPolls: {{action: off, maxDelay: soon}}\nmoed: enforce\n"),
        "c.yaml:3:38: repeatPolls.maxDelay: \"soon\" is not a duration; use numbers with h, m, s or \
         ms, such as 10m, 1m30s or 250ms\n\
         c.yaml:4:1: moed: unknown field \"moed\", expected one of apiVersion, kind, mode, cache, \
         uncachedReads, repeatPolls, observe, discovery, report, accessLog, audit; did you mean \"mode\"?",
    );
}

#[test]
fn rules_without_resources_or_namespaces_get_a_reason() {
    refuses(
        &rule("resources: [Pod, pods/log]\n    namespaces: ['*', Shop]"),
        "c.yaml:5:17: cache.rules[0].resources[0]: \"Pod\" has an upper-case letter; a resource is \
         named by its lower-case plural, not its kind\nc.yaml:5:22: cache.rules[0].resources[1]: \
         \"pods/log\" names a subresource; subresources are always forwarded\nc.yaml:6:18: \
         cache.rules[0].namespaces[0]: \"*\" is not a namespace; remove the key for every \
         namespace\nc.yaml:6:23: cache.rules[0].namespaces[1]: \"Shop\" is not a namespace; use \
         up to 63 lower-case letters, digits and \"-\"",
    );
    refuses(
        &rule("resources: []"),
        "c.yaml:5:16: cache.rules[0].resources: is empty; use names such as pods or \
         deployments.apps, or \"*\"",
    );
    refuses(&rule("start: never"), "c.yaml:5:5: cache.rules[0].resources: is required");
    refuses(
        &rule("resources: ['*']\n    start: eager"),
        "c.yaml:6:12: cache.rules[0].start: eager needs resources by name; \"*\" would cache every \
         resource",
    );
}

#[test]
fn rules_with_impossible_reads_get_a_reason() {
    refuses(
        &rule("resources: [pods]\n    verbs: [list, create]"),
        "c.yaml:6:19: cache.rules[0].verbs[1]: unknown value \"create\", expected one of get, list, \
         watch",
    );
    refuses(
        &rule("resources: [pods]\n    selectors: some"),
        "c.yaml:6:16: cache.rules[0].selectors: unknown value \"some\", expected one of any, present, \
         absent",
    );
    refuses(
        &rule("resources: [pods]\n    verbs: []\n    userAgents: ['', \"caf\\xe9\"]"),
        "c.yaml:6:12: cache.rules[0].verbs: is empty; remove the key for get, list and \
         watch\nc.yaml:7:18: cache.rules[0].userAgents[0]: \"\" is empty; \"*\" stands for every \
         user agent\nc.yaml:7:22: cache.rules[0].userAgents[1]: \"café\" has a character that no \
         header has",
    );
    refuses(
        &rule("resources: [pods]\n    userAgents: []"),
        "c.yaml:6:17: cache.rules[0].userAgents: is empty; remove the key for every client",
    );
    refuses(
        &rule("resources: [pods]\n    start: eager\n    userAgents: ['curl/*']"),
        "c.yaml:6:12: cache.rules[0].start: eager applies to every read; remove verbs, userAgents \
         and selectors, or use another start",
    );
    for (forms, reason) in [
        ("[]", "is empty; remove the key for json"),
        ("[json]", "only an eager rule has forms; other replicas have the form that is read"),
    ] {
        refuses(
            &rule(&format!("resources: [pods]\n    forms: {forms}")),
            &format!("c.yaml:6:12: cache.rules[0].forms: {reason}"),
        );
    }
    refuses(
        &rule("resources: [widgets.x.io]\n    start: eager\n    forms: [protobuf]"),
        "c.yaml:7:12: cache.rules[0].forms: custom resources have no protobuf; name them in a rule \
         of their own",
    );
    refuses(
        &rule("resources: [pods]\n    freshness: bounded\n    rewrite: any"),
        "c.yaml:7:14: cache.rules[0].rewrite: must be keep if freshness is bounded, which a \
         rewritten read would not have",
    );
    refuses(
        &rule("resources: [pods]\n    repeatPolls: {burst: 0, perSecond: 2000}"),
        "c.yaml:6:26: cache.rules[0].repeatPolls.burst: must be from 1 to 10000\n\
         c.yaml:6:40: cache.rules[0].repeatPolls.perSecond: must be above 0 and at most 1000",
    );
    refuses(
        &format!("{HEAD}observe: {{checkShare: 1.5}}\n"),
        "c.yaml:3:23: observe.checkShare: must be from 0 to 1",
    );
}

#[test]
fn broken_yaml_is_reported_with_its_position() {
    refuses(
        "",
        "c.yaml:1:1: the file is empty; print a default one with \"listless config default\"",
    );
    refuses(
        "# nothing\n",
        "c.yaml:2:1: the file is empty; print a default one with \"listless config default\"",
    );
    refuses(
        "mode: enforce\n",
        "c.yaml:1:1: apiVersion: is required\nc.yaml:1:1: kind: is required",
    );
    refuses("just text", "c.yaml:1:1: expected a mapping with keys and values");
    refuses("{", "c.yaml:1:1: not valid YAML: unclosed bracket '{'");
    refuses(
        &format!("{HEAD}cache:\n\trules: []\n"),
        "c.yaml:4:2: not valid YAML: tabs disallowed within this context (block indentation)",
    );
    refuses(
        &format!("{HEAD}mode: observe\nmode: enforce\n"),
        "c.yaml:4:1: mode: is set twice; \
                                                               remove one",
    );
    refuses(
        &format!("{HEAD}---\n{HEAD}"),
        "c.yaml:4:1: has more than one document; use a single one",
    );
}

#[test]
fn bytes_outside_utf8_are_refused() {
    let error = Config::from_bytes(Path::new("c.yaml"), b"mode: \xff").expect_err("not UTF-8");
    assert_eq!(error.to_string(), "c.yaml: is not UTF-8 text");
}

#[test]
fn a_deeply_nested_file_is_refused_without_harm() {
    for (depth, open, close) in [(100_000, "[", ""), (60, "[", "]"), (60, "{a: ", "}")] {
        let text = format!("{HEAD}cache: {}{}", open.repeat(depth), close.repeat(depth));
        // A worker of the runtime has no larger stack.
        let read = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
            Config::from_bytes(Path::new("c.yaml"), text.as_bytes()).expect_err("too deep");
        });
        read.expect("a thread").join().expect("no panic");
    }
}

#[test]
fn a_file_that_is_missing_or_huge_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing.yaml");
    let error = Config::load(&missing).expect_err("no file");
    let expected = format!("cannot read configuration {}: No such file", missing.display());
    let told = Chain(&error).to_string();
    assert!(told.starts_with(&expected), "{told}");

    let huge = directory.path().join("huge.yaml");
    fs::write(&huge, "#".repeat((1 << 20) + 1)).expect("written");
    let error = Config::load(&huge).expect_err("too large").to_string();
    assert_eq!(
        error,
        format!(
            "{}: is larger than 1048576 bytes; remove what is not configuration",
            huge.display()
        )
    );

    let error = Config::load(directory.path()).expect_err("a directory").to_string();
    assert!(error.contains("cannot read configuration"), "{error}");
}

#[test]
fn names_shadowed_by_an_earlier_rule_cause_a_warning() {
    let text =
        format!("{HEAD}cache:\n  rules:\n  - resources: ['*']\n  - resources: [pods, secrets]\n");
    let config = Config::from_bytes(Path::new("c.yaml"), text.as_bytes()).expect("allowed");
    let warnings: Vec<_> = config.warnings().iter().map(ToString::to_string).collect();
    let expected = "6:17: cache.rules[1].resources[0]: never applies: cache.rules[0] matches first; remove \
         this name or move the rule up";
    assert_eq!(warnings, [expected]);

    let some = format!(
        "{HEAD}cache:\n  rules:\n  - {{resources: ['*'], userAgents: ['curl/*']}}\n  \
         - {{resources: [pods]}}\n"
    );
    let config = Config::from_bytes(Path::new("c.yaml"), some.as_bytes()).expect("allowed");
    assert!(config.warnings().is_empty(), "a rule for some reads decides about these only");
}
