//! Documentation of injection. Every reason to leave a pod unchanged, and every annotation, has a
//! pod of the corpus and a row in `docs/install.md`. Every group of scenarios on a real node has a
//! row in `tests/node/README.md`.

use std::collections::BTreeSet;

use listless::injector::patch::SkipReason;

use super::{files, golden, read};

/// Each reason with the pods that are skipped for it.
const REASONS: &[(&str, &[&str])] = &[
    ("opted_out", &["skip-opted-out-annotation", "skip-opted-out-label"]),
    ("system_namespace", &["skip-system-namespace"]),
    ("host_network", &["skip-host-network"]),
    ("windows", &["skip-windows-os", "skip-windows-selector", "skip-windows-affinity"]),
    ("mirror_pod", &["skip-mirror-pod"]),
    (
        "already_injected",
        &["already-injected", "already-injected-then-istio", "already-injected-by-another-version"],
    ),
    ("incomplete_injection", &["skip-incomplete"]),
    ("no_service_account_mount", &["account-none", "account-elsewhere"]),
    ("subpath_mount", &["account-subpath", "account-subpath-directory"]),
    (
        "unusable_service_account",
        &[
            "account-masked",
            "account-no-authority",
            "account-foreign-audience",
            "skip-account-private",
        ],
    ),
    ("unknown_proxy_exceptions", &["skip-proxy-exceptions"]),
    (
        "conflicting_apiserver_env",
        &["address-conflict", "address-of-one", "address-ours", "address-refers"],
    ),
    ("port_taken", &["skip-port-data", "skip-port-health"]),
    ("shared_process_namespace", &["skip-shared-processes", "skip-host-processes"]),
    ("pod_resources", &["skip-pod-resources"]),
    ("name_taken", &["skip-container-name", "skip-volume-name"]),
    (
        "invalid_annotation",
        &[
            "skip-annotation-mode",
            "skip-annotation-freshness",
            "skip-annotation-image",
            "skip-annotation-port",
            "skip-annotation-inject",
            "skip-annotation-quantity",
            "skip-annotation-memory",
            "skip-annotation-config-and-mode",
        ],
    ),
];

/// Each annotation with the pods that have it.
const ANNOTATIONS: &[(&str, &[&str])] = &[
    ("listless.dev/inject", &["skip-opted-out-annotation", "skip-annotation-inject"]),
    ("listless.dev/mode", &["annotation-mode", "skip-annotation-mode"]),
    ("listless.dev/freshness", &["annotation-freshness", "skip-annotation-freshness"]),
    ("listless.dev/config", &["annotation-config", "skip-annotation-config-and-mode"]),
    ("listless.dev/port", &["annotation-port", "skip-annotation-port"]),
    ("listless.dev/image", &["annotation-image", "skip-annotation-image"]),
    ("listless.dev/cpu-request", &["annotation-resources"]),
    ("listless.dev/cpu-limit", &["annotation-resources", "skip-annotation-quantity"]),
    ("listless.dev/memory-request", &["annotation-resources", "skip-annotation-memory"]),
    ("listless.dev/memory-limit", &["annotation-resources"]),
    (
        "listless.dev/share-process-namespace",
        &["shared-processes-allowed", "skip-shared-processes"],
    ),
];

/// The one reason that no pod can have, and its test in `src/injector/patch/tests.rs`.
const MALFORMED: (&str, &str) = ("malformed", "what_is_no_pod_is_malformed");

fn text(path: &str) -> String {
    read(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path))
}

/// The first cells of the table below a heading.
fn subjects(document: &str, heading: &str) -> BTreeSet<String> {
    let (_, section) = document.split_once(&format!("# {heading}\n")).expect("the heading");
    let section = section.split("\n#").next().expect("a section");
    let cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').step_by(2).map(str::to_owned));
    names.filter(|name| !name.is_empty()).collect()
}

fn owned(names: impl IntoIterator<Item = &'static str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn pods() -> BTreeSet<String> {
    let stem = |path: &std::path::PathBuf| path.file_stem()?.to_str().map(str::to_owned);
    files(&golden("inject"), "yaml").iter().filter_map(stem).collect()
}

#[test]
fn every_reason_is_documented_and_shown_by_a_pod_that_is_skipped_for_it() {
    let all = owned(SkipReason::ALL.iter().map(|reason| reason.as_str()));
    assert_eq!(owned(REASONS.iter().map(|(reason, _)| *reason).chain([MALFORMED.0])), all);
    assert_eq!(subjects(&text("docs/install.md"), "Pods left unchanged"), all);
    for (reason, pods) in REASONS {
        assert!(!pods.is_empty(), "{reason}");
        for pod in *pods {
            let path = golden("inject").join(format!("{pod}.expected"));
            assert!(read(&path).starts_with(&format!("skip {reason}:")), "{pod}");
        }
    }
    assert!(text("src/injector/patch/tests.rs").contains(&format!("fn {}(", MALFORMED.1)));
}

#[test]
fn every_annotation_is_documented_and_shown_by_a_pod_that_has_it() {
    let settings = text("src/injector/patch/settings.rs");
    let quoted = settings.split('"').filter(|text| text.starts_with("listless.dev/"));
    let known: BTreeSet<String> =
        quoted.filter(|text| !text.contains(' ')).map(str::to_owned).collect();
    assert_eq!(owned(ANNOTATIONS.iter().map(|(annotation, _)| *annotation)), known);
    assert_eq!(subjects(&text("docs/install.md"), "Pod annotations"), known);
    let corpus = pods();
    for (annotation, pods) in ANNOTATIONS {
        for pod in *pods {
            assert!(corpus.contains(*pod), "{pod}");
            let is_about = *pod == "skip-shared-processes"
                || read(&golden("inject").join(format!("{pod}.yaml"))).contains(annotation);
            assert!(is_about, "{pod} says nothing of {annotation}");
        }
    }
}

#[test]
fn every_group_of_scenarios_on_the_node_is_documented() {
    let source = text("tests/node/scenarios.rs");
    let played = source.split_once("\nscenarios! {").expect("a list").1;
    let played: BTreeSet<String> = played
        .lines()
        .map_while(|line| (line != "}").then_some(line))
        .filter_map(|line| line.trim().split_once("::"))
        .map(|(group, _)| group.to_owned())
        .collect();
    assert_eq!(subjects(&text("tests/node/README.md"), "Scenarios"), played);
}
