//! Reads in protobuf: kinds, scopes, selectors, versions, `Accept`, metadata, compression, refusals.

use super::kinds::{Held, KINDS, Kind};
use super::{NOBODY, READER, UNKNOWN};
use crate::differential::case::{Case, Memory, Pace};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The `Accept` of a typed client of client-go.
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json";

const PODS: &str = "/api/v1/namespaces/shop/pods";
const POD: &str = "/api/v1/namespaces/shop/pods/web-0";
const WIDGETS: &str = "/apis/shop.example.com/v1/namespaces/shop/widgets";
const WIDGET: &str = "/apis/shop.example.com/v1/namespaces/shop/widgets/widget-1";
const MISSING: &str = "/api/v1/namespaces/shop/pods/none";

const SCOPES: &[&str] = &["a", "a-b", "a0", "shop", "shop-east", "empty", "none"];

const SELECTORS: &[(&str, &[&str])] = &[
    (
        PODS,
        &[
            "labelSelector=app%3Dweb",
            "labelSelector=app!%3Dweb",
            "labelSelector=app+in+(web,db),!canary",
            "labelSelector=app+notin+(web,api)",
            "labelSelector=canary",
            "labelSelector=nobody",
            "fieldSelector=metadata.name%3Dweb-0",
            "fieldSelector=metadata.name!%3Dweb-0",
            "fieldSelector=status.phase%3DRunning",
            "fieldSelector=status.phase!%3DRunning,spec.nodeName%3Dnode-2",
            "fieldSelector=spec.nodeName%3D",
            "fieldSelector=spec.restartPolicy%3DNever",
            "fieldSelector=spec.schedulerName%3Dother",
            "fieldSelector=spec.serviceAccountName%3Dbuilder",
            "fieldSelector=spec.hostNetwork%3Dtrue",
            "fieldSelector=status.podIP%3D192.0.2.8",
            "fieldSelector=status.phase%3DPending&labelSelector=app%3Dapi",
        ],
    ),
    ("/api/v1/pods", &["fieldSelector=metadata.namespace%3Da", "labelSelector=in%3Dnotin"]),
    ("/api/v1/nodes", &["labelSelector=zone%3Deast", "fieldSelector=spec.unschedulable%3Dtrue"]),
    ("/api/v1/configmaps", &["labelSelector=kind%3Deven", "fieldSelector=metadata.name%3Dgoing"]),
    ("/api/v1/namespaces", &["fieldSelector=status.phase%3DActive", "labelSelector=team%3Dretail"]),
    ("/api/v1/replicationcontrollers", &["fieldSelector=status.replicas%3D2"]),
    ("/apis/batch/v1/jobs", &["fieldSelector=status.successful%3D1"]),
];

const VERSIONS: &[&str] = &[
    "resourceVersion=",
    "resourceVersion=0",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "resourceVersion={after}",
    "resourceVersion={after}&resourceVersionMatch=NotOlderThan",
    "resourceVersion=1",
    "resourceVersion=0&limit=500",
    "limit=500",
];
/// Versions that the apiserver alone can answer, and refusals, each with its status.
const FORWARDED: &[(&str, u16)] = &[
    ("resourceVersion={before}&resourceVersionMatch=Exact", 200),
    ("resourceVersion={after}&resourceVersionMatch=Exact", 200),
    ("resourceVersionMatch=Exact", 422),
    ("sendInitialEvents=true", 422),
    ("continue=x", 400),
    ("limit=x", 400),
    ("labelSelector=((", 400),
    ("fieldSelector=spec.none%3D1", 400),
    ("watch=true&resourceVersion=x", 500),
];

/// `Accept` values with the statuses for a built-in list, a built-in object, and a custom list.
const ACCEPTS: &[(&str, u16, u16, u16)] = &[
    (BOTH, 200, 200, 200),
    ("application/json,application/vnd.kubernetes.protobuf", 200, 200, 200),
    ("application/vnd.kubernetes.protobuf;q=0.5,application/json", 200, 200, 200),
    ("application/vnd.kubernetes.protobuf;q=0.5,application/json;q=0.4", 200, 200, 200),
    ("application/vnd.kubernetes.protobuf;q=0.4,application/json;q=0.5", 200, 200, 200),
    ("application/vnd.kubernetes.protobuf, application/json", 200, 200, 200),
    ("application/vnd.kubernetes.protobuf;charset=utf-8", 200, 200, 406),
    ("application/vnd.kubernetes.protobuf;stream=watch", 200, 200, 406),
    ("application/vnd.kubernetes.protobuf;stream=other,application/json", 200, 200, 200),
    ("application/vnd.kubernetes.protobuf;pretty=1", 200, 200, 406),
    ("application/vnd.kubernetes.protobuf,*/*", 200, 200, 200),
    ("text/plain,application/vnd.kubernetes.protobuf", 200, 200, 406),
    ("application/x-protobuf", 406, 406, 406),
    ("application/vnd.kubernetes.protobuf;as=Nothing;v=v1;g=meta.k8s.io", 406, 406, 406),
    (
        "application/vnd.kubernetes.protobuf;as=Nothing;v=v1;g=meta.k8s.io,application/json",
        200,
        200,
        200,
    ),
    ("Application/Vnd.Kubernetes.Protobuf", 406, 406, 406),
    ("application/yaml,application/vnd.kubernetes.protobuf", 200, 200, 200),
];

/// Every case; those that memory must answer are wanted.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = kinds();
    cases.extend(
        SCOPES
            .iter()
            .map(|namespace| list(&format!("/api/v1/namespaces/{namespace}/pods"), BOTH).wanted()),
    );
    for (target, selectors) in SELECTORS {
        cases.extend(
            selectors.iter().map(|query| list(&format!("{target}?{query}"), PROTOBUF).wanted()),
        );
    }
    for target in [PODS, "/api/v1/nodes"] {
        cases.extend(
            VERSIONS.iter().map(|query| list(&format!("{target}?{query}"), PROTOBUF).wanted()),
        );
        let forwarded = |(query, status): &(&str, u16)| {
            list(&format!("{target}?{query}"), PROTOBUF).never().status(*status)
        };
        cases.extend(FORWARDED.iter().map(forwarded));
    }
    cases.extend(accepts());
    cases.extend(metadata());
    cases.extend(compressed());
    cases.extend(refused());
    cases.extend(versions_of_objects());
    cases
}

fn list(target: &str, accept: &str) -> Case {
    Case::get(target).accept(accept)
}

/// Each kind as a list and as an object; custom ones have no such form and fall to JSON.
fn kinds() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in KINDS {
        let wanted = |case: Case| if kind.held == Held::Yes { case.wanted() } else { case };
        cases.push(wanted(list(&kind.collection(), BOTH)));
        cases.push(wanted(list(&kind.path(1), BOTH)));
        if !kind.speaks_protobuf() {
            cases.push(list(&kind.collection(), PROTOBUF).status(406));
        }
    }
    cases
}

fn accepts() -> Vec<Case> {
    let mut cases = Vec::new();
    for (accept, many, one, custom) in ACCEPTS {
        for (target, status) in [(PODS, many), (POD, one), (WIDGETS, custom), (WIDGET, custom)] {
            cases.push(list(target, accept).status(*status));
        }
    }
    for target in [PODS, POD] {
        cases.push(list(&format!("{target}?pretty=true"), PROTOBUF));
    }
    cases.push(free(list(MISSING, BOTH).status(404)));
    cases.push(free(list(MISSING, PROTOBUF).status(404)));
    cases
}

/// A missing object may be reported from memory.
fn free(mut case: Case) -> Case {
    case.memory = Memory::Free;
    case
}

fn metadata() -> Vec<Case> {
    let mut cases = Vec::new();
    for version in ["v1", "v1beta1"] {
        let many = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v={version}");
        let one = many.replace("List", "");
        // The `Accept` of client-go's metadata client.
        let client_go = format!("{many},{}", many.replace(PROTOBUF, "application/json"));
        for target in [PODS, "/api/v1/nodes", "/apis/apps/v1/deployments", WIDGETS] {
            cases.push(list(target, &many).wanted());
            cases.push(list(&format!("{target}?resourceVersion=0"), &client_go).wanted());
        }
        let selected = format!("{PODS}?labelSelector=app%3Dweb&limit=500");
        cases.push(list(&selected, &client_go).wanted());
        for target in [POD, "/api/v1/nodes/node-1", WIDGET, "/api/v1/namespaces/shop"] {
            cases.push(list(target, &one).wanted());
        }
        cases.push(free(list(MISSING, &one).status(404)));
    }
    cases
}

fn compressed() -> Vec<Case> {
    let partial = format!("{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let mut cases: Vec<Case> = [
        (PODS, PROTOBUF),
        ("/api/v1/pods", BOTH),
        ("/api/v1/configmaps", BOTH),
        ("/api/v1/namespaces/shop/configmaps/big-1", BOTH),
        ("/api/v1/namespaces/shop/configmaps/big-3", PROTOBUF),
        ("/api/v1/nodes", PROTOBUF),
        (PODS, &partial),
        ("/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb", BOTH),
    ]
    .into_iter()
    .map(|(target, accept)| list(target, accept).header("Accept-Encoding", "gzip").wanted())
    .collect();
    cases.push(free(list(MISSING, PROTOBUF).header("Accept-Encoding", "gzip").status(404)));
    cases
}

fn refused() -> Vec<Case> {
    let mut cases = Vec::new();
    for accept in [PROTOBUF, BOTH] {
        cases.push(list(PODS, accept).caller(READER).never());
        cases.push(list("/api/v1/namespaces/a/pods", accept).caller(READER).status(403));
        cases.push(list(PODS, accept).caller(NOBODY).status(403));
        cases.push(list(POD, accept).caller(UNKNOWN).status(401));
        cases.push(list("/api/v1/namespaces/shop/nothing", accept).status(404));
    }
    let future = format!("{PODS}?resourceVersion={{future}}");
    cases.push(list(&future, PROTOBUF).status(504).pace(Pace::Slow));
    cases
}

fn versions_of_objects() -> Vec<Case> {
    ["resourceVersion=0", "resourceVersion={after}", "resourceVersion=1", "resourceVersion="]
        .into_iter()
        .flat_map(|query| {
            [POD.to_owned(), Kind::of("nodes").path(0)].map(|path| format!("{path}?{query}"))
        })
        .map(|target| list(&target, PROTOBUF).wanted())
        .collect()
}
