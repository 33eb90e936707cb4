//! Reads as tables: kinds, objects of many ages, `includeObject`, selectors, versions, `Accept`.

use super::kinds::{CLOCKS, Held, KINDS, Kind};
use super::{NOBODY, READER, UNKNOWN};
use crate::differential::case::{Case, Memory, Pace};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The `Accept` of kubectl.
const KUBECTL: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

const PODS: &str = "/api/v1/namespaces/shop/pods";
const POD: &str = "/api/v1/namespaces/shop/pods/web-0";
const WIDGETS: &str = "/apis/shop.example.com/v1/namespaces/shop/widgets";
const WIDGET: &str = "/apis/shop.example.com/v1/namespaces/shop/widgets/widget-1";
const MISSING: &str = "/api/v1/namespaces/shop/pods/none";

/// Kinds whose single objects are read as well.
const SINGLE: [&str; 16] = [
    "pods",
    "services",
    "configmaps",
    "nodes",
    "namespaces",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "cronjobs",
    "horizontalpodautoscalers",
    "ingresses",
    "persistentvolumeclaims",
    "widgets",
    "clocks",
];

const SELECTORS: &[(&str, &[&str])] = &[
    (
        PODS,
        &[
            "labelSelector=app%3Dweb",
            "labelSelector=app!%3Dweb,canary",
            "labelSelector=nobody",
            "fieldSelector=metadata.name%3Dweb-0",
            "fieldSelector=status.phase%3DRunning",
            "fieldSelector=spec.nodeName%3Dnode-2",
        ],
    ),
    ("/api/v1/namespaces/ages/pods", &["labelSelector=aged%3Dn1", "labelSelector=aged!%3Dn1"]),
    ("/api/v1/nodes", &["labelSelector=zone%3Deast"]),
    ("/apis/batch/v1/jobs", &["labelSelector=aged%3Dn0"]),
    (WIDGETS, &["labelSelector=size%3Dlarge", "fieldSelector=metadata.name%3Dwidget-1"]),
    (CLOCKS, &["labelSelector=aged%3Dn0", "fieldSelector=metadata.name%3Daged-clocks-2"]),
];

const VERSIONS: &[&str] = &[
    "resourceVersion=0",
    "resourceVersion={after}",
    "resourceVersion={after}&resourceVersionMatch=NotOlderThan",
    "resourceVersion=1",
    "resourceVersion=0&limit=500",
];
const FORWARDED: &[(&str, u16)] = &[
    ("resourceVersion={before}&resourceVersionMatch=Exact", 200),
    ("includeObject=Other", 400),
    ("resourceVersionMatch=Exact", 422),
    ("limit=x", 400),
    ("labelSelector=((", 400),
];

/// `Accept` values with the statuses for a built-in list and a custom one.
const ACCEPTS: &[(&str, u16, u16)] = &[
    (TABLE, 200, 200),
    ("application/json;as=Table;g=meta.k8s.io;v=v1beta1", 200, 200),
    ("application/json;g=meta.k8s.io;v=v1;as=Table", 200, 200),
    ("application/json;as=Table;v=v1;g=meta.k8s.io;charset=utf-8", 200, 200),
    ("application/json;as=Table;v=v2;g=meta.k8s.io", 406, 406),
    ("application/json;as=Table;v=v1;g=other.k8s.io", 406, 406),
    ("application/json;as=Table;v=v1", 406, 406),
    ("application/json;as=Table", 406, 406),
    ("application/json;as=table;v=v1;g=meta.k8s.io", 406, 406),
    ("application/yaml;as=Table;v=v1;g=meta.k8s.io", 200, 200),
    ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406, 406),
    (
        "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io",
        200,
        200,
    ),
    ("application/json;as=Table;v=v1;g=meta.k8s.io, */*", 200, 200),
    ("application/json, application/json;as=Table;v=v1;g=meta.k8s.io", 200, 200),
    (
        "application/json;as=Table;v=v2;g=meta.k8s.io,application/json;as=Table;v=v1;g=meta.k8s.io",
        200,
        200,
    ),
    ("application/json;as=Table;v=v1;g=meta.k8s.io;pretty=1", 200, 200),
];

/// Every case; those that memory must answer are wanted.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in KINDS {
        let case = table(&format!("{}?limit=500", kind.collection()));
        cases.push(if kind.held == Held::Yes { case.wanted() } else { case });
    }
    for kind in SINGLE.map(Kind::of) {
        cases.push(table(&kind.path(1)).wanted());
    }
    cases.extend(included());
    for (target, selectors) in SELECTORS {
        cases.extend(selectors.iter().map(|query| table(&format!("{target}?{query}")).wanted()));
    }
    for target in ["/api/v1/namespaces/ages/pods", "/apis/apps/v1/deployments", CLOCKS] {
        cases.extend(VERSIONS.iter().map(|query| table(&format!("{target}?{query}")).wanted()));
        let forwarded = |(query, status): &(&str, u16)| {
            table(&format!("{target}?{query}")).never().status(*status)
        };
        cases.extend(FORWARDED.iter().map(forwarded));
    }
    for (accept, built_in, custom) in ACCEPTS {
        cases.push(as_table(PODS, accept).status(*built_in));
        cases.push(as_table(WIDGETS, accept).status(*custom));
    }
    cases.extend(compressed());
    cases.extend(refused());
    cases
}

fn as_table(target: &str, accept: &str) -> Case {
    Case::get(target).accept(accept).pace(Pace::Ages)
}

fn table(target: &str) -> Case {
    as_table(target, KUBECTL)
}

fn included() -> Vec<Case> {
    let pod = Kind::of("pods").path(5);
    let clock = Kind::of("clocks").path(5);
    let mut cases = Vec::new();
    for include in ["None", "Metadata", "Object"] {
        for target in [
            "/api/v1/namespaces/ages/pods",
            "/apis/batch/v1/namespaces/ages/cronjobs",
            "/api/v1/nodes",
            CLOCKS,
            WIDGETS,
            &pod,
            &clock,
        ] {
            cases.push(as_table(&format!("{target}?includeObject={include}"), TABLE).wanted());
        }
    }
    cases
}

fn compressed() -> Vec<Case> {
    let big = "/api/v1/namespaces/shop/pods?includeObject=Object";
    let mut cases = Vec::new();
    for target in ["/api/v1/pods", big, CLOCKS, POD] {
        cases.push(table(target).header("Accept-Encoding", "gzip").wanted());
    }
    for target in [PODS, POD, WIDGET] {
        cases.push(table(&format!("{target}?pretty=true")));
        cases.push(table(target).header("User-Agent", "curl/8.5.0"));
    }
    cases
}

fn refused() -> Vec<Case> {
    let free = |mut case: Case| {
        case.memory = Memory::Free;
        case
    };
    vec![
        free(table(MISSING).status(404)),
        free(table("/apis/shop.example.com/v1/namespaces/shop/widgets/none").status(404)),
        table("/api/v1/namespaces/empty/pods?limit=500").wanted(),
        table("/api/v1/namespaces/none/pods?limit=500").wanted(),
        table("/api/v1/namespaces/shop/nothing").status(404),
        table(PODS).caller(READER).never(),
        table("/api/v1/namespaces/a/pods").caller(READER).status(403),
        table(PODS).caller(NOBODY).status(403),
        table(PODS).caller(UNKNOWN).status(401),
    ]
}
